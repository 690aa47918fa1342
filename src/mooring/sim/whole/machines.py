"""Deeds of the machine registry and the cloud: machines retire and heal, spot nodes get notice, vanish and return."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.core.model.marks import LEAVING, RETIRING
from mooring.core.model.tidb import COMPONENT
from mooring.sandbox.cloud import Dialect
from mooring.sandbox.controllers import podstate

if TYPE_CHECKING:
    from mooring.sim.whole.simulation import Simulation

DIALECTS = (Dialect.ANNOTATION, Dialect.ANNOTATION, Dialect.TAINT, Dialect.NODE_TERMINATION_HANDLER)
#: No more of the machines than this share may be on their way out at once: a person looks at the room first.
RETIRING_AT_ONCE = 0.2

# ── Machines ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _machine(sim: "Simulation", draw: float, was: tuple[MachineState, ...], to: MachineState) -> str:
    registry = sim.rig.cluster.sabakan
    found = [serial for serial, entry in sorted(registry.entries.items()) if entry.state in was]
    serial = sim.pick(found, draw)
    if serial is None:
        return ""
    registry.set_state(serial, to)
    return f"{serial} {registry.entries[serial].ipv4[0]}"


def machine_retires(sim: "Simulation", a: float, _: float) -> str:
    entries = sim.rig.cluster.sabakan.entries.values()
    going = sum(e.state in {MachineState.RETIRING, MachineState.RETIRED} for e in entries)
    if going + 1 > RETIRING_AT_ONCE * len(entries):
        return ""
    return _machine(sim, a, (MachineState.HEALTHY, MachineState.UNHEALTHY), MachineState.RETIRING)


def machine_retired(sim: "Simulation", a: float, _: float) -> str:
    return _machine(sim, a, (MachineState.RETIRING,), MachineState.RETIRED)


def machine_unhealthy(sim: "Simulation", a: float, b: float) -> str:
    states = (MachineState.UNHEALTHY, MachineState.UNREACHABLE)
    return _machine(sim, a, (MachineState.HEALTHY,), states[int(b * 2)])


def machine_healthy(sim: "Simulation", a: float, _: float) -> str:
    ill = (MachineState.UNHEALTHY, MachineState.UNREACHABLE, MachineState.UNINITIALIZED)
    return _machine(sim, a, ill, MachineState.HEALTHY)


def machine_updates(sim: "Simulation", a: float, _: float) -> str:
    found = _machine(sim, a, (MachineState.HEALTHY,), MachineState.UPDATING)
    serial = found.partition(" ")[0]
    if serial:
        sim.after(90.0, lambda: _step(sim, serial, MachineState.UPDATING, MachineState.UNINITIALIZED))
        sim.after(120.0, lambda: _step(sim, serial, MachineState.UNINITIALIZED, MachineState.HEALTHY))
    return found


def _step(sim: "Simulation", serial: str, was: MachineState, to: MachineState) -> None:
    registry = sim.rig.cluster.sabakan
    if registry.entries[serial].state is was:
        registry.set_state(serial, to)


# ── Spot nodes ────────────────────────────────────────────────────────────────────────────────────────────────────


def notice(sim: "Simulation", a: float, b: float) -> str:
    cloud = sim.rig.cluster.cloud
    node = sim.pick([n for n in cloud.spot_nodes() if n not in cloud.notices], a)
    if node is None:
        return ""
    dialect = DIALECTS[int(b * len(DIALECTS))]
    cloud.notice(node, after_s=120.0 if b < 0.8 else 30.0, dialect=dialect)
    _on_notice(sim, node)
    return f"{node} {dialect}"


def _on_notice(sim: "Simulation", node: str) -> None:
    if any(podstate.labels_of(p).get(COMPONENT) == "tikv" for p in sim.rig.cluster.store.pods_on(node)):
        sim.coverage.hit("noticed-node-had-tikv")
    if sim.objects(Kind.NODE, RETIRING):
        sim.coverage.hit("noticed-while-retiring")


def notice_corrected(sim: "Simulation", a: float, b: float) -> str:
    cloud = sim.rig.cluster.cloud
    node = sim.pick(sorted(cloud.notices), a)
    if node is None:
        return ""
    cloud.notice(node, after_s=30.0 + 200 * b, dialect=cloud.notices[node].dialect)
    return f"{node} in {30 + 200 * b:.0f} s"


def notice_withdrawn(sim: "Simulation", a: float, _: float) -> str:
    cloud = sim.rig.cluster.cloud
    node = sim.pick(sorted(cloud.notices), a)
    if node is None:
        return ""
    detached = [p for p in sim.objects(Kind.POD, LEAVING) if podstate.node_of(p) == node]
    if detached and not sim.rig.cluster.store.pods_on(node)[len(detached) :]:
        sim.coverage.hit("withdrawn-after-replacement-stood")
    cloud.withdraw(node)
    sim.watch.promises.withdrawn[node] = sim.now
    return node


def notice_to_all(sim: "Simulation", _: float, b: float) -> str:
    cloud = sim.rig.cluster.cloud
    nodes = cloud.spot_nodes()
    cloud.notice_all_spot(dialect=DIALECTS[int(b * len(DIALECTS))])
    for node in nodes:
        _on_notice(sim, node)
    return ", ".join(nodes)


def spot_vanishes(sim: "Simulation", a: float, _: float) -> str:
    node = sim.pick(sim.rig.cluster.cloud.spot_nodes(), a)
    if node is None:
        return ""
    if any(
        key.startswith("mooring.dev/")
        for key in podstate.annotations_of(sim.rig.cluster.store.get(Kind.NODE, "", node))
    ):
        sim.coverage.hit("node-vanished-with-mark")
    sim.rig.cluster.cloud.take(node)
    return node


def spot_returns(sim: "Simulation", a: float, _: float) -> str:
    cloud = sim.rig.cluster.cloud
    node = sim.pick(cloud.taken(), a)
    if node is None:
        return ""
    cloud.give_back(node)
    return node


DEEDS: dict[str, Callable[["Simulation", float, float], str]] = {
    "machine-retires": machine_retires,
    "machine-retired": machine_retired,
    "machine-unhealthy": machine_unhealthy,
    "machine-healthy": machine_healthy,
    "machine-updates": machine_updates,
    "notice": notice,
    "notice-corrected": notice_corrected,
    "notice-withdrawn": notice_withdrawn,
    "notice-to-all": notice_to_all,
    "spot-vanishes": spot_vanishes,
    "spot-returns": spot_returns,
}
