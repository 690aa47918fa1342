"""Can the pod come up anywhere else? Volumes bound to nodes that take no pods say no, and then nothing is deleted.

It is asked before leaders leave, not only before the deletion: a hand-over that cannot end would keep a store without
leaders, and make all other operators wait, until a person acts.
"""

from collections.abc import Iterable

import msgspec

from mooring.capabilities.drain.room import matches, untolerated
from mooring.core.model.cluster import Node, Pod, SelectorTerm
from mooring.core.world.read import WorldRead

#: So many nodes are named; a zone's volume fits hundreds.
NAMED = 3


class StuckVolume(msgspec.Struct, frozen=True, gc=False):
    """Why its volumes keep a pod from coming back, and the command that would end it ("" when there is none)."""

    detail: str
    remedy: str = ""


def stuck_volume(pod: Pod, world: WorldRead) -> StuckVolume | None:
    """None when its volumes are bound to no node, or some node that they fit takes pods."""
    bound = [v.required_terms for v in world.volumes_of(pod) if v.required_terms is not None]
    if not bound:
        return None
    fits = sorted((n for n in world.nodes() if _fits(n, bound)), key=lambda n: n.name)
    closed = [(node.name, why) for node in fits if (why := _closed(node, pod))]
    if len(closed) < len(fits):
        return None
    if not fits:
        return StuckVolume(f"the volume of {pod.name} is bound to a node that is not there any more")
    first, why = closed[0]
    where = f"{first}, which is {why}" if len(closed) == 1 else _several(closed)
    cordoned = next((name for name, why in closed if why == "cordoned"), "")
    return StuckVolume(
        f"the volume of {pod.name} is bound to {where}", f"kubectl uncordon {cordoned}" if cordoned else ""
    )


def _fits(node: Node, bound: Iterable[tuple[SelectorTerm, ...]]) -> bool:
    return all(matches(terms, node) for terms in bound)


def _closed(node: Node, pod: Pod) -> str:
    """Why this node takes no such pod; "" when it does."""
    if node.unschedulable:
        return "cordoned"
    if node.ready != "True":
        return "not Ready"
    taint = untolerated(node, pod.shape.tolerations)
    return f"tainted {taint.key}" if taint is not None else ""


def _several(closed: list[tuple[str, str]]) -> str:
    named = ", ".join(f"{name} ({why})" for name, why in closed[:NAMED])
    more = len(closed) - NAMED
    return f"{named} and {more} more that take no pods" if more > 0 else named
