"""Each kind of object in each situation it can be in: what `why` says of a retiring, cordoned, tainted, leaving thing.

A play drives the sandbox to several situations and asks once in each. What a kind cannot be is listed, with a reason.
"""

from typing import Any

from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring_lab.cluster.controllers.podstate import with_spec
from mooring_lab.cluster.pd.requests import take_offline
from mooring_lab.stage.scenarios.fleet import serial_of
from mooring_lab.stage.scenarios.mix import NAMESPACE
from tests.core.why.situations import NAME, NS, Environment
from tests.core.why.situations_of_all import CUSTOM, Racks, Shop
from tests.sim.scenarios.fleet import SHOP, RetireScenario
from tests.sim.scenarios.mix import relabel

KINDS = ("pod", "node", "machine", "workload", "operator", "store", "cluster", "rack")
SITUATIONS = (
    "stable",
    "moving",
    "waiting",
    "blocked",
    "refused",
    "leaving",
    "interrupted",
    "expired-notice",
    "not-found",
    "feature-off",
)
NOT_INTERRUPTED = "the notice is on a node; the answer about the node or its pods says it"
#: Cells that cannot be, and why.
NEVER = {
    ("node", "refused"): "nothing is asked of a node that its configuration forbids; its pods are refused",
    ("machine", "refused"): "the plan is refused as a whole (`mooring fleet plan`), never one machine",
    ("workload", "refused"): "mix sets the limits of workloads itself, so that a move always fits; off is its refusal",
    ("rack", "refused"): "a rack is asked for nothing",
    ("rack", "feature-off"): "a rack is asked for nothing",
    ("operator", "refused"): "what is refused never becomes an operator",
    ("operator", "leaving"): "an operator ends; it is not an object that is deleted",
    ("operator", "feature-off"): "a feature that is off has no operators",
    ("operator", "expired-notice"): NOT_INTERRUPTED,
    ("store", "interrupted"): NOT_INTERRUPTED,
    ("store", "expired-notice"): NOT_INTERRUPTED,
    ("cluster", "interrupted"): NOT_INTERRUPTED,
    ("cluster", "expired-notice"): NOT_INTERRUPTED,
    ("workload", "expired-notice"): NOT_INTERRUPTED,
}
Said = tuple[str, str, dict[str, Any] | None]


class Cells:
    def __init__(self) -> None:
        self.said: dict[tuple[str, str], list[Said]] = {}

    def put(self, g: Environment, situation: str, *subjects: str, follower: bool = False) -> None:
        for subject in subjects:
            g.ask(subject, follower=follower)
            text, value = g.asked[subject]
            self.said.setdefault((subject.partition("/")[0], situation), []).append((subject, text, value))


def node_of(g: Environment, pod: str, namespace: str = NS) -> str:
    return str(g.rig.pod(namespace, pod)["spec"]["nodeName"])


def store(g: Environment, ordinal: int) -> str:
    return f"store/{NS}/{NAME}/{g.pd.store_of(g.member(ordinal)).id}"


async def hand_overs(g: Environment, cells: Cells) -> None:
    await g.build()
    member = f"pod/{NS}/{g.member(0)}"
    cells.put(g, "stable", member, "node/n1", "workload/shop/web", store(g, 0), f"cluster/{NS}/{NAME}", "rack/1")
    cells.put(g, "not-found", f"pod/{NS}/demo-tikv-9", "node/n11", "workload/shop/wab")
    cells.put(g, "not-found", "operator/77", f"store/{NS}/{NAME}/99", f"cluster/{NS}/dema", "rack/9")
    g.annotate(0, restart="")
    await g.until(lambda: g.running(0))
    await g.rig.sleep(6.0)
    where = node_of(g, g.member(0))
    rack = (int(where[1:]) + 1) // 2
    cells.put(g, "moving", member, f"node/{where}", "operator/1", store(g, 0), f"cluster/{NS}/{NAME}", f"rack/{rack}")
    g.annotate(1, restart="")
    await g.rig.sleep(1.0)
    cells.put(g, "waiting", f"pod/{NS}/{g.member(1)}", "operator/2")
    await g.until(lambda: not g.rig.unsettled())
    cells.put(g, "stable", "operator/1")
    cells.put(g, "not-found", "operator/999")
    g.pd.silence(g.member(2))
    await g.rig.sleep(60.0)
    cells.put(g, "waiting", store(g, 2), f"cluster/{NS}/{NAME}")
    g.pd.silence(g.member(2), silent=False)
    g.pd.go_dark()
    await g.rig.sleep(60.0)
    cells.put(g, "waiting", f"cluster/{NS}/{NAME}")
    g.pd.lighten()
    await g.rig.sleep(60.0)
    take_offline(g.pd.server, g.pd.store_of(g.member(2)).id)
    await g.rig.sleep(60.0)
    cells.put(g, "leaving", store(g, 2))


async def nodes(g: Environment, cells: Cells) -> None:
    await g.build()
    change = g.cluster.change
    g.cluster.cordon("n1")
    change(Kind.NODE, "", "n2", lambda n: with_spec(n, taints=[taint("dedicated", "batch", "NoSchedule")]))
    change(Kind.NODE, "", "n3", lambda n: with_spec(n, taints=[taint("cke.cybozu.com/state", "retiring", "NoExecute")]))
    g.cluster.cloud.notice("n6", after_s=120.0)
    await g.rig.sleep(2.0)
    cells.put(g, "blocked", "node/n1", "rack/1")
    cells.put(g, "stable", "node/n2")
    cells.put(g, "leaving", "node/n3", "rack/2")
    pod = next(p for p in g.rig.cluster.store.list(Kind.POD) if p["spec"].get("nodeName") == "n6")
    cells.put(g, "interrupted", "node/n6", "rack/3", f"pod/{pod['metadata']['namespace']}/{pod['metadata']['name']}")
    g.cluster.annotate(Kind.NODE, "", "n5", {"vacant.io/interrupt-at": "2026-01-01T10:00:05Z"})
    g.cluster.annotate(Kind.NODE, "", "n4", {"vacant.io/interrupt-at": "soon"})
    await g.rig.sleep(2.0)
    on5 = next(p for p in g.rig.cluster.store.list(Kind.POD) if p["spec"].get("nodeName") == "n5")
    key = f"{on5['metadata']['namespace']}/{on5['metadata']['name']}"
    cells.put(g, "expired-notice", "node/n5", f"pod/{key}", "rack/3")
    cells.put(g, "blocked", "node/n4")


async def silent(g: Environment, cells: Cells) -> None:
    await g.build()
    g.cluster.kubelets.silence("n3")
    await g.rig.sleep(60.0)
    cells.put(g, "waiting", "node/n3", "rack/2")
    web = g.cluster.pods("shop", "web")[0]["metadata"]["name"]
    g.cluster.annotate(Kind.POD, "shop", web, {"lab.mooring.dev/fail": "ready"})
    await g.rig.sleep(10.0)
    cells.put(g, "waiting", f"pod/shop/{web}", "workload/shop/web")


async def going(g: Environment, cells: Cells) -> None:
    await g.build()
    web = next(p["metadata"]["name"] for p in g.cluster.pods("shop", "web") if p["status"]["phase"] == "Running")
    g.cluster.store.delete(Kind.POD, "shop", web, grace_s=30)
    await g.rig.sleep(0.5)
    cells.put(g, "leaving", f"pod/shop/{web}")
    for kind, namespace, name in ((Kind.DEPLOYMENT, "shop", "web"), (Kind.TIDB_CLUSTER, NS, NAME)):
        g.cluster.change(kind, namespace, name, finalized)
        g.cluster.store.delete(kind, namespace, name)
    await g.rig.sleep(0.5)
    cells.put(g, "leaving", "workload/shop/web", f"cluster/{NS}/{NAME}")


async def one_store(g: Environment, cells: Cells) -> None:
    await g.build()
    g.annotate(0, restart="")
    await g.rig.sleep(5.0)
    cells.put(g, "blocked", f"pod/{NS}/{g.member(0)}", f"cluster/{NS}/{NAME}", store(g, 0))


async def never_fits(g: Environment, cells: Cells) -> None:
    await g.build()
    g.annotate(0, restart="")
    await g.rig.sleep(5.0)
    cells.put(g, "refused", f"pod/{NS}/{g.member(0)}", f"cluster/{NS}/{NAME}", store(g, 0))


async def handoff_off(g: Environment, cells: Cells) -> None:
    await g.build()
    g.annotate(0, restart="")
    await g.rig.sleep(5.0)
    cells.put(g, "feature-off", f"pod/{NS}/{g.member(0)}", f"cluster/{NS}/{NAME}", store(g, 0), "machine/M7")


async def shop(g: Shop, cells: Cells) -> None:
    await g.build()
    relabel(g.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "3"})
    await g.until(lambda: bool(g.engine.running))
    await g.rig.sleep(3.0)
    cells.put(g, "moving", "workload/shop/web")
    await g.until(lambda: not g.rig.unsettled())
    await g.rig.sleep(30.0)
    g.cluster.pdb(NAMESPACE, "web", {"app": "web"}, min_available=5)
    await g.rig.sleep(2.0)
    relabel(g.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "2"})
    await g.until(lambda: any(r.waiting_on and r.waiting_on.state == "blocked" for r in g.engine.running.values()))
    running = next(iter(g.engine.running.values())).operator
    cells.put(g, "blocked", "workload/shop/web", f"operator/{running.id}", f"pod/{running.payload.pod}")
    relabel(g.rig, Kind.DEPLOYMENT, "web", {"vacant.io/custom": "many"})
    await g.rig.sleep(5.0)
    cells.put(g, "blocked", "workload/shop/web")


async def no_quota(g: Shop, cells: Cells) -> None:
    await g.build()
    g.cluster.quota(NAMESPACE, "small", pods=len(g.cluster.pods(NAMESPACE, "web")))
    g.cluster.cloud.notice_all_spot(after_s=120.0)
    await g.until(lambda: any(r.waiting_on and r.waiting_on.reason == "not-created" for r in g.engine.running.values()))
    running = next(r.operator for r in g.engine.running.values() if r.waiting_on and r.waiting_on.state == "blocked")
    cells.put(g, "blocked", "workload/shop/web", f"operator/{running.id}", f"pod/{running.payload.pod}")


async def shop_interrupted(g: Shop, cells: Cells) -> None:
    await g.build()
    interrupted = sorted({n for n in g.cluster.nodes_of(NAMESPACE, "web").values() if n.startswith("s")})
    g.cluster.cloud.notice_all_spot(after_s=120.0)
    await g.until(lambda: bool(g.engine.running))
    await g.rig.sleep(2.0)
    running = next(r.operator for r in g.engine.running.values() if r.operator.deadline is not None)
    cells.put(g, "interrupted", f"node/{interrupted[0]}", f"operator/{running.id}", "workload/shop/web")
    cells.put(g, "interrupted", f"pod/{running.payload.pod}")


async def mix_off(g: Shop, cells: Cells) -> None:
    await g.build()
    cells.put(g, "feature-off", "workload/shop/web")
    interrupted = sorted({n for n in g.cluster.nodes_of(NAMESPACE, "web").values() if n.startswith("s")})
    g.cluster.cloud.notice(interrupted[0], after_s=120.0)
    await g.rig.sleep(2.0)
    cells.put(g, "feature-off", f"node/{interrupted[0]}")


async def racks(g: Racks, cells: Cells) -> None:
    await g.scenario.build(g.rig)
    g.rig.start()
    await g.until(g.rig.leads)
    await g.rig.sleep(30.0)
    machine = f"machine/{serial_of(g.rig, g.scenario.n7)}"
    cells.put(g, "stable", machine)
    cells.put(g, "not-found", "machine/M77")
    g.cluster.cloud.notice(g.scenario.n7, after_s=3600.0)
    await g.rig.sleep(2.0)
    cells.put(g, "interrupted", machine)
    g.cluster.annotate(Kind.NODE, "", g.scenario.n7, {"vacant.io/interrupt-at": "2026-01-01T10:00:05Z"})
    await g.rig.sleep(2.0)
    cells.put(g, "expired-notice", machine)
    g.cluster.annotate(Kind.NODE, "", g.scenario.n7, {"vacant.io/interrupt-at": None})
    await g.scenario.act(g.rig)
    await g.until(lambda: blocked_retirement(g))
    lock = g.cluster.pods(SHOP, "lock")[0]["metadata"]["name"]
    cells.put(g, "blocked", machine, f"node/{g.scenario.n7}", f"pod/{SHOP}/{lock}")
    operator = next(o for o in g.engine.queue.operators() if o.kind == "retire-machine")
    cells.put(g, "blocked", f"operator/{operator.id}")
    g.cluster.store.delete(Kind.PDB, SHOP, "lock")
    await g.until(lambda: not g.engine.running, 7200.0)
    await g.rig.sleep(60.0)
    cells.put(g, "leaving", machine, f"node/{g.scenario.n7}")
    others = [s for s, e in g.cluster.sabakan.entries.items() if e.ipv4[0] != g.scenario.n7]
    g.cluster.sabakan.set_state(others[-1], MachineState.UPDATING)
    g.cluster.sabakan.set_state(others[-2], MachineState.UNREACHABLE)
    await g.rig.sleep(60.0)
    cells.put(g, "waiting", f"machine/{others[-1]}")
    cells.put(g, "blocked", f"machine/{others[-2]}")


async def retiring(g: Racks, cells: Cells) -> None:
    await g.build()
    await g.until(lambda: bool(g.engine.running))
    await g.rig.sleep(2.0)
    cells.put(g, "moving", f"machine/{serial_of(g.rig, g.scenario.n7)}")


def blocked_retirement(g: Environment) -> bool:
    running = [r for r in g.engine.running.values() if r.operator.kind == "retire-machine"]
    return any(r.waiting_on is not None and r.waiting_on.state == "blocked" for r in running)


def taint(key: str, value: str, effect: str) -> dict[str, str]:
    return {"key": key, "value": value, "effect": effect}


def finalized(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "finalizers": ["example.com/hold"]}}


PLAYS: tuple[tuple[Any, Any], ...] = (
    (hand_overs, Environment),
    (nodes, Environment),
    (silent, Environment),
    (going, Environment),
    (one_store, lambda: Environment(tikv=1)),
    (never_fits, lambda: Environment(queue={"MaxScheduleCost": 5})),
    (handoff_off, lambda: Environment(features=("home",))),
    (shop, Shop),
    (no_quota, Shop),
    (shop_interrupted, Shop),
    (mix_off, lambda: Shop(features=("handoff",))),
    (racks, Racks),
    (retiring, lambda: Racks(RetireScenario(web=0))),
)


def play_all() -> dict[tuple[str, str], list[Said]]:
    cells = Cells()
    for scenario, make in PLAYS:
        environment = make()
        environment.rig.play(lambda _, scenario=scenario, environment=environment: scenario(environment, cells))
    return cells.said
