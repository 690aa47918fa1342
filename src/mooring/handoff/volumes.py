"""Can the pod come up anywhere else? A local volume on a cordoned node says no, and then nothing is deleted."""

from mooring.model.cluster import Node, Pod, SelectorTerm
from mooring.world.read import WorldRead


def stuck_volume(pod: Pod, world: WorldRead) -> str:
    """The sentence that says why its volumes keep the pod where it is; "" when some schedulable node can take them."""
    terms = [(v.name, v.required_terms) for v in world.volumes_of(pod) if v.required_terms is not None]
    if not terms:
        return ""
    if any(_takes(node, terms) for node in world.nodes() if not node.unschedulable and node.ready == "True"):
        return ""
    return f"its volume is bound to {pod.node or 'its node'}, and no schedulable node can take it"


def _takes(node: Node, terms: list[tuple[str, tuple[SelectorTerm, ...]]]) -> bool:
    return all(any(t.matches(node.labels, node.name) for t in required) for _, required in terms)
