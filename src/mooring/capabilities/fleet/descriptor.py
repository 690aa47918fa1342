"""Fleet, described to the rest of the product."""

from collections.abc import Iterator, Mapping

from mooring.capabilities.drain.cordon import cordon_mark, is_ours, lift_cordon
from mooring.capabilities.drain.leaving import marks_of
from mooring.capabilities.fleet.live import ledger, settings
from mooring.capabilities.fleet.live import report as reports
from mooring.capabilities.fleet.live.capability import Fleet
from mooring.capabilities.fleet.live.examine import generators
from mooring.capabilities.fleet.live.planning import PlanNotes
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.core.model.cluster import Node
from mooring.core.model.descriptor import EVENTS, MEMORY, NODE_WRITES, Descriptor, Leftover, Marked, Right
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import CORDONED_BY, RETIRING


def leftovers(marked: Marked) -> Iterator[Leftover]:
    yield from marks_of(marked.pods, "fleet", marked.replica_sets)
    for node in marked.nodes:
        yield from _of_node(node)


def _of_node(node: Node) -> Iterator[Leftover]:
    mark = cordon_mark(node, "fleet")
    gone = [RETIRING] if RETIRING in node.annotations else []
    if gone or mark is not None:
        words = f"drop {', '.join(gone + [CORDONED_BY] * (mark is not None))}"
        words += " and lift our cordon" if is_ours(mark) else ""
        yield Leftover(f"node {node.name}: {words}", (lift_cordon(node, "fleet", "cleanup", gone),))


def figures(notes: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, str], float]]:
    plan = notes.get("plan")
    return reports.gauges(plan.report) if isinstance(plan, PlanNotes) else iter(())


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
    ),
    gauges={
        "cke_sabakan_integration_successful": ("1 when the last pass over the machines succeeded (CKE's name)", ()),
        "cke_sabakan_integration_timestamp_seconds": ("When the last pass over the machines was made (CKE's name)", ()),
        "cke_sabakan_workers": ("Workers in the cluster, by role (CKE's name)", ("role",)),
        "cke_sabakan_unused_machines": ("Healthy machines that are in no cluster (CKE's name)", ()),
        "mooring_fleet_role_target": ("Workers of a role that the weights ask for", ("role",)),
        "mooring_fleet_unmet": ("By how much a constraint is missed", ("constraint",)),
    },
    figures=figures,
    phrases={
        "evict-pod": ("{it} leaving", "when {it} is gone"),
        "retire-machine": ("{it} retiring", "when {it} is empty"),
    },
    request="a change",
    key_kind="machine",
    leftovers=leftovers,
    objects=((Kind.CONFIG_MAP, ledger.NAME),),
    settings_map=settings.NAME,
    examine=generators,
    codes={"MO901": "CKE generates clusters beside fleet", "MO902": "Fleet's settings cannot be used"},
    empties_kube_system=True,
)
