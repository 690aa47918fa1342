"""Home, described to the rest of the product."""

from collections.abc import Iterator, Mapping
from typing import Any

from mooring.capabilities.home.capability import Home
from mooring.capabilities.home.policy import HomePolicy
from mooring.capabilities.home.report import report
from mooring.capabilities.home.reserve import has_reservation_taint, reservation_on, reservation_taint
from mooring.core.model.descriptor import EVENTS, NODE_WRITES, Descriptor, Leftover, Marked, Right
from mooring.core.model.instructions import EditTaints
from mooring.core.model.marks import HOME, RESERVED_TAINT


def leftovers(marked: Marked) -> Iterator[Leftover]:
    for node in marked.nodes:
        reservation = reservation_on(node)
        if reservation is not None or has_reservation_taint(node):
            taint = reservation_taint(reservation.pod.rpartition("/")[2] if reservation is not None else "")
            gone = {RESERVED_TAINT: None}
            edit = EditTaints(node=node.name, uid=node.uid, remove=(taint,), annotations=gone, why="cleanup")
            yield Leftover(f"node {node.name}: end the reservation", (edit,))


def report_of(engine: Any, config: Any) -> Mapping[str, Any]:
    return report(engine.world, config.policy(HomePolicy), engine.now)


DESCRIPTOR = Descriptor(
    name="home",
    aliases=("StableScheduling",),
    sources=("home",),
    policy=HomePolicy,
    make=lambda config: Home(config.policy(HomePolicy)),
    serves=("extender",),
    # Where members were, written on their owner; nodes reserved by a taint.
    rights=(
        EVENTS,
        NODE_WRITES,
        Right("pingcap.com", "tidbclusters", ("get", "patch")),
        Right("core.pingcap.com", "clusters", ("get", "patch")),
        Right("apps", "statefulsets", ("get", "patch")),
    ),
    phrases={"reserve-node": ("the node of {it} reserved", "when {it} is back")},
    request="a reservation",
    leftovers=leftovers,
    records={HOME: "its members' nodes"},
    report=report_of,
)
