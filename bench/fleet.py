"""Fleet: from the registry's bytes to the finished plan, stage by stage, at 1k, 10k and 100k machines.

The fleet of the comparison: 28 machines a rack, three roles weighted 2:1:1, nine of ten as workers. The figures of CKE
v1.30.2 (Go, 2 cores) stand beside for 1k and 10k. Ours are CPU time, the best of a few runs: planning is
one thread that never waits.
"""

import gc
import json
from collections.abc import Callable
from time import process_time
from typing import Any

import msgspec

from mooring.capabilities.fleet.live import ledger, settings
from mooring.capabilities.fleet.live.capability import Fleet
from mooring.capabilities.fleet.live.ledger import Decisions, decode_decisions, encode_decisions
from mooring.capabilities.fleet.planner.current import Current, Member, parse_cluster
from mooring.capabilities.fleet.planner.decide import decide, write_cluster
from mooring.capabilities.fleet.planner.plan import ClusterPlan, FleetView
from mooring.capabilities.fleet.planner.template import Constraints, Template, parse_template
from mooring.clients.registry.sabakan.parse import parse_machines
from mooring.core.model.cluster import ConfigMap, Node
from mooring.core.model.events import Listed, MachinesSeen, Seen
from mooring.core.model.kinds import Kind
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World

NOW = 1_790_000_000.0
ROLES = ("cs", "cs", "ss", "gs")
TARGETS_MS = {"first generation": 200.0, "nothing to do": 75.0, "one change": 100.0}
CKE_MS = {("first generation", 1_000): 80.0, ("first generation", 10_000): 6900.0, ("decode", 10_000): 67.0}


def registry(count: int, retired: int | None = None) -> bytes:
    machines = []
    for n in range(count):
        rack, index = divmod(n, 28)
        machines.append(
            {
                "spec": {
                    "serial": f"SN{n:07d}",
                    "labels": [{"name": "product", "value": "R640"}, {"name": "datacenter", "value": "dc1"}],
                    "rack": rack,
                    "indexInRack": index + 3,
                    "role": ROLES[n % 4],
                    "ipv4": [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", f"11.{n >> 16}.{n >> 8 & 255}.{n & 255}"],
                    "registerDate": f"2024-{n % 12 + 1:02d}-10T08:{n % 60:02d}:00.{n % 1000:03d}Z",
                    "retireDate": f"20{26 + n % 6}-{n % 12 + 1:02d}-10T00:00:00Z",
                    "bmc": {"bmcType": "iDRAC-9", "ipv4": f"12.{n >> 16}.{n >> 8 & 255}.{n & 255}"},
                },
                "status": {"state": "RETIRING" if n == retired else "HEALTHY", "duration": 5000.5},
            }
        )
    return json.dumps({"data": {"searchMachines": machines}}).encode()


def template() -> Template:
    def node(role: str, weight: str, *, plane: bool = False) -> dict[str, Any]:
        labels = {"cke.cybozu.com/role": role} | ({} if plane else {"cke.cybozu.com/weight": weight})
        return {"user": "cybozu", "control_plane": plane, "labels": labels}

    nodes = [node("cs", "", plane=True), node("cs", "2"), node("ss", "1"), node("gs", "1")]
    made = parse_template({"name": "bench", "nodes": nodes, "service_subnet": "10.68.0.0/16"})
    assert isinstance(made, Template)
    return made


def timed(run: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    times, result = [], None
    for _ in range(repeat):
        result = None
        gc.collect()
        start = process_time()
        result = run()
        times.append((process_time() - start) * 1000)
    return min(times), result


def show(count: int, what: str, stages: dict[str, float]) -> None:
    total = sum(stages.values())
    target = f" target ≤ {TARGETS_MS[what]:.0f}" if count == 10_000 else ""
    cke = CKE_MS.get((what, count))
    beside = f"   CKE (Go) {cke:.0f}" if cke else ""
    parts = "  ".join(f"{name} {ms:.1f}" for name, ms in stages.items())
    print(f"{count:>7}  {what:<17} {total:8.1f} ms{target:<13} {parts}{beside}")


def stored_form(plan: ClusterPlan, revision: str) -> Decisions:
    members = (Member(one.address, one.control_plane, None, one.machine.serial) for one in plan.assignments)
    return Decisions(revision, tuple(members))


def size(count: int, repeat: int) -> None:
    made, limits, raw = template(), Constraints(3, count * 9 // 10), registry(count)

    def view(machines: Any, current: Current | None = None) -> FleetView:
        return FleetView(template=made, constraints=limits, machines=machines, current=current, now=NOW)

    decode, machines = timed(lambda: parse_machines(raw, NOW), repeat)
    first = view(machines)
    planning, plan = timed(lambda: decide(first), repeat)
    assert plan.error is None, plan.error

    def out(v: FleetView, p: ClusterPlan) -> bytes:
        return msgspec.json.encode(
            {
                "action": p.action,
                "cluster": write_cluster(v, p),
                "changes": p.changes,
                "unmet": p.unmet,
                "error": p.error,
            }
        )

    encode, whole = timed(lambda: out(first, plan), repeat)
    show(count, "first generation", {"decode": decode, "plan": planning, "encode": encode})

    stored = encode_decisions(stored_form(plan, "r1"))
    reading, current = timed(lambda: decode_decisions(stored).current(), repeat)
    idle, nothing = timed(lambda: decide(view(machines, current)), repeat)
    assert nothing.action == "none", nothing.action
    show(count, "nothing to do", {"decode": decode, "read decisions": reading, "plan": idle})

    changed_raw = registry(count, retired=count // 2 + 1)
    decode2, changed = timed(lambda: parse_machines(changed_raw, NOW), repeat)
    one, busy = timed(lambda: decide(view(changed, current)), repeat)
    assert busy.action == "increase-workers", busy.action
    writing, _ = timed(lambda: encode_decisions(stored_form(busy, "r2")), repeat)
    show(count, "one change", {"decode": decode2, "read decisions": reading, "plan": one, "store decisions": writing})

    document = msgspec.json.encode(msgspec.json.decode(whole)["cluster"])
    parsing, full = timed(lambda: parse_cluster(msgspec.json.decode(document)), repeat)
    idle_full, _ = timed(lambda: decide(view(machines, full)), repeat)
    one_full, busy_full = timed(lambda: decide(view(changed, full)), repeat)
    writing_full, _ = timed(lambda: out(view(changed, full), busy_full), repeat)
    print(
        f"{'':>7}  with cluster.yml as JSON ({len(document) / 1e6:.1f} MB): read {parsing:.1f}, "
        f"nothing to do {idle_full:.1f}, one change {one_full:.1f}, write {writing_full:.1f}; "
        f"stored as decisions: {len(stored) / 1e3:.0f} KB"
    )


def live(count: int) -> None:
    """The loop's own pass over as many live Nodes: what a minute costs, and what one node's change does."""
    made, raw = template(), registry(count)
    machines = tuple(parse_machines(raw, NOW))
    limits = f"control-plane-count: 3\nminimum-workers: {count * 9 // 10}\n"
    data = {
        settings.TEMPLATE: json.dumps(made.document),
        settings.CONSTRAINTS: limits,
        settings.ENABLED: "true",
        settings.URL: "http://registry.example:10080",
    }
    world, queue, fleet = World(), Queue(live_settings()), Fleet(namespace="own")
    for index in fleet.indexes():
        world.register(index)
    notes: Any = None

    def plan() -> Any:
        nonlocal notes
        answer = fleet.evaluate("plan", world, queue, notes, NOW)
        notes = answer.notes
        return answer

    world.apply(Seen(Kind.CONFIG_MAP, ConfigMap("own", settings.NAME, "u1", "1", data=data)))
    world.apply(Listed(Kind.NODE, tuple(Node(m.address, m.serial, "1", ready="True") for m in machines)))
    world.note_machines(machines, NOW)
    world.show(MachinesSeen(machines, NOW))
    first, look = timed(plan, 1)
    (write,) = look.instructions
    stored = ConfigMap("own", ledger.NAME, "u2", "2", data=write.object["data"])
    world.apply(Seen(Kind.CONFIG_MAP, stored))
    idle, look = timed(plan, 5)
    (settled,) = look.instructions
    stored = ConfigMap("own", ledger.NAME, "u2", "3", data={**stored.data, **settled.patch["data"]})
    world.apply(Seen(Kind.CONFIG_MAP, stored))
    plan()
    quiet, _ = timed(plan, 5)
    names = [m.address for m in machines[:1000]]
    nodes, looks = timed(lambda: [fleet.evaluate(f"node/{n}", world, queue, None, NOW) for n in names], 3)
    writes = sum(len(one.instructions) for one in looks)
    print(
        f"{count:>7}  live: first pass {first:.1f} ms, a pass with news {idle:.1f} ms, "
        f"a minute without {quiet:.2f} ms, a node's look {nodes:.1f} µs (a write each for {writes} of 1000)"
    )


def _yardstick() -> float:
    total, start = 0, process_time()
    for n in range(1_000_000):
        total += n
    return (process_time() - start) * 1000


def main() -> None:
    for count, repeat in ((1_000, 9), (10_000, 9), (100_000, 3)):
        print(f"a million additions take {_yardstick():.0f} ms of CPU just now (about 50 when nothing else runs)")
        size(count, repeat)
        if count <= 10_000:
            live(count)


if __name__ == "__main__":
    main()
