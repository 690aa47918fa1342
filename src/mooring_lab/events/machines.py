"""Events of the machine registry and the cloud: machines retire and heal, spot nodes get notice, vanish and return."""

from collections.abc import Collection

from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.core.model.marks import LEAVING, RETIRING
from mooring.core.model.tidb import COMPONENT
from mooring_lab.cluster.cloud import Dialect
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.nodes import ZONE
from mooring_lab.events.context import Apply, Draw, EventContext, Target
from mooring_lab.stage.scenarios.fleet import roles_by_address

DIALECTS = (Dialect.ANNOTATION, Dialect.ANNOTATION, Dialect.TAINT, Dialect.NODE_TERMINATION_HANDLER)
#: From these states a machine may be set to retire.
RETIRABLE = frozenset(
    {MachineState.HEALTHY, MachineState.UNHEALTHY, MachineState.UNREACHABLE, MachineState.UNINITIALIZED}
)
#: No more of the machines than this share may be on their way out at once: a person looks at the room first.
RETIRING_AT_ONCE = 0.2

#: A registry notices a machine that does not answer.
UNREACHABLE_S = 60.0

# ── Machines ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _machine(on: EventContext, target: Target, draw: Draw, was: Collection[MachineState], to: MachineState) -> str:
    registry = on.stage.cluster.sabakan
    found = [serial for serial, entry in sorted(registry.entries.items()) if entry.state in was]
    serial = on.pick(found, target, draw)
    if serial is None:
        return ""
    registry.set_state(serial, to)
    return f"{serial} {registry.entries[serial].ipv4[0]}"


def machine_retires(on: EventContext, target: Target, draw: Draw) -> str:
    entries = on.stage.cluster.sabakan.entries.values()
    going = sum(e.state in {MachineState.RETIRING, MachineState.RETIRED} for e in entries)
    if target:
        return _machine(on, target, draw, RETIRABLE, MachineState.RETIRING)
    if going + 1 > RETIRING_AT_ONCE * len(entries):
        return ""
    return _machine(on, target, draw, (MachineState.HEALTHY, MachineState.UNHEALTHY), MachineState.RETIRING)


def machine_retired(on: EventContext, target: Target, draw: Draw) -> str:
    return _machine(on, target, draw, (MachineState.RETIRING,), MachineState.RETIRED)


def machine_unhealthy(on: EventContext, target: Target, draw: Draw) -> str:
    states = (MachineState.UNHEALTHY, MachineState.UNREACHABLE)
    return _machine(on, target, draw, (MachineState.HEALTHY,), states[int(draw.b * 2)])


def machine_healthy(on: EventContext, target: Target, draw: Draw) -> str:
    ill = (MachineState.UNHEALTHY, MachineState.UNREACHABLE, MachineState.UNINITIALIZED)
    return _machine(on, target, draw, ill, MachineState.HEALTHY)


def machine_updates(on: EventContext, target: Target, draw: Draw) -> str:
    found = _machine(on, target, draw, (MachineState.HEALTHY,), MachineState.UPDATING)
    serial = found.partition(" ")[0]
    if serial:
        on.after(90.0, lambda: _step(on, serial, MachineState.UPDATING, MachineState.UNINITIALIZED))
        on.after(120.0, lambda: _step(on, serial, MachineState.UNINITIALIZED, MachineState.HEALTHY))
    return found


def machine_flaps(on: EventContext, target: Target, draw: Draw) -> str:
    """Unhealthy and healthy again, several times within minutes; a control plane rather than a worker."""
    planes = {a for a, what in roles_by_address(on.stage).items() if what == "control plane"}
    entries = sorted(on.stage.cluster.sabakan.entries.items())
    found = [s for s, e in entries if e.state is MachineState.HEALTHY and e.ipv4[0] in planes]
    serial = on.pick(found or [s for s, e in entries if e.state is MachineState.HEALTHY], target, draw)
    if serial is None:
        return ""
    well, ill = MachineState.HEALTHY, MachineState.UNHEALTHY
    pause, flaps = 15 + 60 * draw.b, 5
    for number in range(flaps):
        on.after(2 * number * pause, lambda: _step(on, serial, well, ill))
        on.after((2 * number + 1) * pause, lambda: _step(on, serial, ill, well))
    return f"{serial} {flaps} times, every {2 * pause:.0f} s"


def machine_row_bad(on: EventContext, target: Target, draw: Draw) -> str:
    """Its row in the registry has no address for a while."""
    registry = on.stage.cluster.sabakan
    serial = on.pick(sorted(registry.entries), target, draw)
    if serial is None:
        return ""
    seconds = draw.seconds or 60 + 300 * draw.b
    registry.bad_rows.add(serial)
    on.after(seconds, lambda: registry.bad_rows.discard(serial))
    return f"{serial} for {seconds:.0f} s"


def machine_never_boots(on: EventContext, target: Target, draw: Draw) -> str:
    """A new machine that the registry calls healthy, and that never becomes a Node."""
    registry = on.stage.cluster.sabakan
    serial = f"dud{len(registry.entries)}"
    if not registry.entries:
        return ""
    racks = max(e.rack for e in registry.entries.values()) + 1
    entry = registry.register(serial, rack=int(draw.a * racks), state=MachineState.HEALTHY)
    registry.never_boot.add(entry.ipv4[0])
    return f"{serial} {entry.ipv4[0]}"


def _step(on: EventContext, serial: str, was: MachineState, to: MachineState) -> None:
    registry = on.stage.cluster.sabakan
    if registry.entries[serial].state is was:
        registry.set_state(serial, to)


# ── Spot nodes ────────────────────────────────────────────────────────────────────────────────────────────────────


def notice(on: EventContext, target: Target, draw: Draw) -> str:
    cloud = on.stage.cluster.cloud
    node = on.pick([n for n in target or cloud.spot_nodes() if n not in cloud.notices], target, draw)
    if node is None:
        return ""
    dialect = DIALECTS[int(draw.b * len(DIALECTS))]
    if on.stage.cluster.store.find(Kind.NODE, "", node) is None:
        return ""
    cloud.notice(node, after_s=draw.seconds or (120.0 if draw.b < 0.8 else 30.0), dialect=dialect)
    _on_notice(on, node)
    return f"{node} {dialect}"


def _on_notice(on: EventContext, node: str) -> None:
    pods = [p for p in on.objects(Kind.POD) if podstate.node_of(p) == node]
    if any(podstate.labels_of(p).get(COMPONENT) == "tikv" for p in pods):
        on.hit("noticed-node-had-tikv")
    if on.objects(Kind.NODE, RETIRING):
        on.hit("noticed-while-retiring")


def notice_corrected(on: EventContext, target: Target, draw: Draw) -> str:
    cloud = on.stage.cluster.cloud
    node = on.pick(sorted(cloud.notices), target, draw)
    if node is None:
        return ""
    cloud.notice(node, after_s=30.0 + 200 * draw.b, dialect=cloud.notices[node].dialect)
    return f"{node} in {30 + 200 * draw.b:.0f} s"


def notice_withdrawn(on: EventContext, target: Target, draw: Draw) -> str:
    cloud = on.stage.cluster.cloud
    node = on.pick(sorted(cloud.notices), target, draw)
    if node is None:
        return ""
    detached = [p for p in on.objects(Kind.POD, LEAVING) if podstate.node_of(p) == node]
    if detached and not on.stage.cluster.store.pods_on(node)[len(detached) :]:
        on.hit("withdrawn-after-replacement-stood")
    cloud.withdraw(node)
    on.excuses.withdrawn[node] = on.now
    return node


def notice_to_all(on: EventContext, target: Target, draw: Draw) -> str:
    cloud = on.stage.cluster.cloud
    nodes = cloud.spot_nodes()
    cloud.notice_all_spot(
        after_s=draw.seconds or (30.0 if draw.a >= 0.9 else 120.0), dialect=DIALECTS[int(draw.b * len(DIALECTS))]
    )
    for node in nodes:
        _on_notice(on, node)
    return ", ".join(nodes)


def spot_vanishes(on: EventContext, target: Target, draw: Draw) -> str:
    node = on.pick(target or on.stage.cluster.cloud.spot_nodes(), target, draw)
    if node is None or on.stage.cluster.store.find(Kind.NODE, "", node) is None:
        return ""
    if any(
        key.startswith("mooring.dev/")
        for key in podstate.annotations_of(on.stage.cluster.store.get(Kind.NODE, "", node))
    ):
        on.hit("node-vanished-with-mark")
    on.stage.cluster.cloud.take(node)
    return node


def spot_returns(on: EventContext, target: Target, draw: Draw) -> str:
    cloud = on.stage.cluster.cloud
    node = on.pick(cloud.taken(), target, draw)
    if node is None:
        return ""
    cloud.give_back(node)
    return node


# ── Any node ──────────────────────────────────────────────────────────────────────────────────────────────────────


def node_lost(on: EventContext, target: Target, draw: Draw) -> str:
    """It stops reporting, and on bare metal nothing deletes its Node; the registry learns it a while later."""
    kubelets = on.stage.cluster.kubelets
    names = [str(n["metadata"]["name"]) for n in on.objects(Kind.NODE)]
    node = on.pick([n for n in names if kubelets.silent_since(n) is None], target, draw)
    if node is None:
        return ""
    kubelets.silence(node)
    on.after(UNREACHABLE_S, lambda: _unreachable(on, node))
    return node


def _unreachable(on: EventContext, name: str) -> None:
    """The registry learns that this machine does not answer."""
    registry = on.stage.cluster.sabakan
    if registry is None:
        return
    node = on.stage.cluster.store.find(Kind.NODE, "", name) or {}
    addresses = {name} | {one["address"] for one in (node.get("status") or {}).get("addresses") or ()}
    for serial, entry in sorted(registry.entries.items()):
        if entry.ipv4 and entry.ipv4[0] in addresses and entry.state is MachineState.HEALTHY:
            registry.set_state(serial, MachineState.UNREACHABLE)


def node_silent(on: EventContext, target: Target, draw: Draw) -> str:
    """It does not report, goes on running, and reports again."""
    kubelets = on.stage.cluster.kubelets
    names = [n["metadata"]["name"] for n in on.objects(Kind.NODE)]
    node = on.pick([n for n in names if kubelets.silent_since(n) is None], target, draw)
    if node is None:
        return ""
    seconds = draw.seconds or 10 + 200 * draw.b
    kubelets.silence(node)
    on.after(seconds, lambda: _speaks_again(on, node))
    return f"{node} for {seconds:.0f} s"


def nodes_silent(on: EventContext, target: Target, draw: Draw) -> str:
    """Most nodes at once, as when a switch fails: they go on running (M8, the brake)."""
    nodes = [str(n["metadata"]["name"]) for n in on.objects(Kind.NODE)]
    chosen = target or tuple(nodes[: max(2, round(len(nodes) * (0.55 + 0.45 * draw.a)))])
    seconds = draw.seconds or 30 + 300 * draw.b
    told = [words for node in chosen if (words := node_silent(on, (node,), Draw(seconds=seconds)))]
    return f"{len(told)} of {len(nodes)} nodes for {seconds:.0f} s" if told else ""


def zone_silent(on: EventContext, target: Target, draw: Draw) -> str:
    """Every node of one zone at once: they are cut off from the API server, and go on running (M8, the brake)."""
    nodes = [(podstate.labels_of(n).get(ZONE, ""), str(n["metadata"]["name"])) for n in on.objects(Kind.NODE)]
    zone = on.pick(sorted({zone for zone, _ in nodes if zone}), target, draw)
    if zone is None:
        return ""
    seconds = draw.seconds or 30 + 300 * draw.b
    told = [n for z, n in nodes if z == zone and node_silent(on, (n,), Draw(seconds=seconds))]
    return f"the {len(told)} nodes of {zone} for {seconds:.0f} s" if told else ""


def _speaks_again(on: EventContext, node: str) -> None:
    if on.stage.cluster.store.find(Kind.NODE, "", node) is not None:
        on.stage.cluster.kubelets.resume(node)


EVENTS: dict[str, Apply] = {
    "machine-retires": machine_retires,
    "machine-retired": machine_retired,
    "machine-unhealthy": machine_unhealthy,
    "machine-healthy": machine_healthy,
    "machine-updates": machine_updates,
    "machine-flaps": machine_flaps,
    "machine-row-bad": machine_row_bad,
    "machine-never-boots": machine_never_boots,
    "notice": notice,
    "notice-corrected": notice_corrected,
    "notice-withdrawn": notice_withdrawn,
    "notice-to-all": notice_to_all,
    "spot-vanishes": spot_vanishes,
    "spot-returns": spot_returns,
    "node-lost": node_lost,
    "node-silent": node_silent,
    "nodes-silent": nodes_silent,
    "zone-silent": zone_silent,
}
