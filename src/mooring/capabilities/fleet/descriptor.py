"""Fleet, described to the rest of the product."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mooring.capabilities.drain import request
from mooring.capabilities.drain.cordon import cordon_mark, is_ours, lift_cordon
from mooring.capabilities.fleet.live import export, ledger, repair, settings
from mooring.capabilities.fleet.live.capability import Fleet
from mooring.capabilities.fleet.live.index import FleetIndex, live_nodes
from mooring.capabilities.fleet.live.planning import PlanNotes, gauges
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.planner.document import PlanError
from mooring.core.model.cluster import Node
from mooring.core.model.descriptor import EVENTS, MEMORY, NODE_WRITES, Descriptor, Examined, Leftover, Marked, Right
from mooring.core.model.finding import Finding, ill, well
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.core.model.marks import CORDONED_BY, RETIRING
from mooring.core.model.times import rfc3339
from mooring.core.world.read import WorldRead


def leftovers(marked: Marked) -> Iterator[Leftover]:
    yield from request.leftovers(marked.pods, ("fleet",), marked.replica_sets)
    for node in marked.nodes:
        yield from _of_node(node)


def _of_node(node: Node) -> Iterator[Leftover]:
    mark = cordon_mark(node, "fleet")
    gone = [RETIRING] if RETIRING in node.annotations else []
    if gone or mark is not None:
        words = f"drop {', '.join(gone + [CORDONED_BY] * (mark is not None))}"
        words += " and lift our cordon" if is_ours(mark) else ""
        yield Leftover(f"node {node.name}: {words}", (lift_cordon(node, "fleet", "cleanup", gone),))


def report_of(engine: Any, config: Any) -> Mapping[str, Any]:
    """`GET /api/v1/fleet`: what the running Mooring thinks of plan and registry, and the repair queue."""
    world, policy = engine.world, config.policy(FleetPolicy)
    found = repair.repairs(world, policy.repair, config.namespace, engine.now)
    word = engine.verdicts.get(("fleet", "plan"))
    asked = world.machines_asked_at()
    return {
        "on": "fleet" in engine.on,
        "leading": engine.leading,
        "plan": None if word is None else {"state": word.state, "reason": word.reason, "detail": word.detail},
        "registry": {"asked_at": None if asked is None else rfc3339(asked), "error": world.machines_lost()},
        "machines": _by_state(world),
        "left_out": [f"{m.serial or m.address}: {m.problem or 'no address'}" for m in world.index(FleetIndex).bad_rows],
        "repairs": [msgspec.to_builtins(one) for one in found.rows],
    }


def _by_state(world: WorldRead) -> dict[str, list[str]]:
    """Nodes of the cluster by the state of their machines; healthy ones, which are nearly all, are left out."""
    index = world.index(FleetIndex)
    members = (index.by_address.get(address) for address in index.members)
    states = {m.address: m.state.value for m in members if m is not None and m.state is not MachineState.HEALTHY}
    found: dict[str, list[str]] = {}
    for address, node in sorted(live_nodes(world, states.keys()).items()):
        found.setdefault(states[address], []).append(node.name)
    return found


def figures(notes: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, str], float]]:
    plan = notes.get("plan")
    return gauges(plan.report) if isinstance(plan, PlanNotes) else iter(())


def generators(seen: Examined) -> Iterator[Finding]:
    """What `mooring doctor` says, one finding: what stands first in the way of a plan that reaches CKE."""
    what = f"fleet's settings (ConfigMap {seen.config.namespace}/{settings.NAME})"
    if seen.settings is None:
        if not seen.on:
            yield well("fleet", "fleet is off, and nothing is set for it")
            return
        fix = "mooring fleet set template template.yml"
        yield ill("fleet", "MO902", what, "there are none: fleet is on and has nothing to plan from", fix)
        return
    made = settings.parse_settings(seen.settings)
    if isinstance(made, PlanError):
        told = f"{made.message}; the last good settings stay in force"
        yield ill("fleet", "MO902", what, told, "mooring fleet set template (or constraints, variables, …) FILE")
    elif settings.cke_finding(made):
        told = "CKE's own sabakan integration is on: two generators would fight, so cluster.yml is not written out"
        fix = "ckecli sabakan disable && mooring fleet cke-integration off"
        yield ill("fleet", "MO901", "only fleet generates cluster.yml", told, fix)
    else:
        yield well("fleet", "fleet's settings can be used, and nothing else is known to generate cluster.yml")


DESCRIPTOR = Descriptor(
    name="fleet",
    sources=("fleet",),
    policy=FleetPolicy,
    make=lambda config: Fleet(config.policy(FleetPolicy), config.namespace),
    asks=("registry",),
    limits={
        "control-plane": (1, "control plane nodes changed at once"),
        "fleet": (4, "machines on their way out at once"),
    },
    # Nodes labelled, tainted and cordoned as the registry says; pods leave by the eviction API only.
    rights=(
        EVENTS,
        NODE_WRITES,
        Right("", "pods", ("get", "patch")),
        Right("", "pods/eviction", ("create",)),
        MEMORY,
        Right("", "secrets", ("patch",), own=True, names=(export.SECRET,)),
        Right("", "secrets", ("create",), own=True),
    ),
    gauges={
        "cke_sabakan_integration_successful": ("1 when the last pass over the machines succeeded (CKE's name)", ()),
        "cke_sabakan_integration_timestamp_seconds": ("When the last pass over the machines was made (CKE's name)", ()),
        "cke_sabakan_workers": ("Workers in the cluster, by role (CKE's name)", ("role",)),
        "cke_sabakan_unused_machines": ("Healthy machines that are in no cluster (CKE's name)", ()),
        "mooring_fleet_role_target": ("Workers of a role that the weights ask for", ("role",)),
        "mooring_fleet_export_successful": ("1 when the last export of the stored cluster worked", ()),
        "mooring_fleet_export_revision": ("The last revision of the stored cluster that was exported", ()),
        "mooring_fleet_repairs": ("Machines in the repair queue", ("state",)),
        "mooring_fleet_unmet": ("By how much a constraint is missed", ("constraint",)),
    },
    figures=figures,
    phrases={
        "retire-machine": ("{it} retiring", "when {it} is empty"),
        "taint-node": ("{it} being tainted", "when {it} has its taints"),
    },
    request="a change",
    key_kind="machine",
    leftovers=leftovers,
    objects=((Kind.CONFIG_MAP, ledger.NAME), (Kind.CONFIG_MAP, export.NAME), (Kind.CONFIG_MAP, repair.NAME)),
    settings_map=settings.NAME,
    examine=generators,
    report=report_of,
    codes={"MO901": "CKE generates clusters beside fleet", "MO902": "Fleet's settings cannot be used"},
    empties_kube_system=True,
)
