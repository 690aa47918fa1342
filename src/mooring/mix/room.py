"""Is there a node of the wanted class that would take this pod? Asked before anything is moved.

Without this question a replica is evicted, comes back where it was, and is evicted again. The answer is an estimate
(kube-scheduler knows more rules than we read), so it is allowed to be wrong; the memory against loops catches that.
"""

from collections.abc import Collection, Iterable

from mooring.mix.affinity import requirement
from mooring.model.capacity import CapacityRules, NodeClass
from mooring.model.cluster import Node, Pod, PodShape, SelectorTerm, Toleration
from mooring.world.read import WorldRead

#: How long an answer may be used again for pods of the same needs.
FRESH_S = 1.0

_BLOCKING = frozenset({"NoSchedule", "NoExecute"})


class Room:
    """Answers, kept for a moment: thousands of workloads ask the same few questions in one pass."""

    def __init__(self, rules: CapacityRules, spot_tolerations: Iterable[Toleration]) -> None:
        self._rules = rules
        self._spot_tolerations = tuple(spot_tolerations)
        self._ours = requirement(rules.labels[0], NodeClass.ON_DEMAND)
        self._at = float("-inf")
        self._answers: dict[object, int] = {}

    def fits(
        self, pod: Pod, wanted: NodeClass, world: WorldRead, doomed: Collection[str], now: float, *, others: int = 0
    ) -> bool:
        """Room for this pod and for `others` like it that are on their way to the same class."""
        if now >= self._at + FRESH_S or now < self._at:
            self._at = now
            self._answers.clear()
        shape = pod.shape
        selector = tuple(sorted(shape.node_selector.items()))
        key = (shape.cpu_milli, shape.memory_bytes, shape.tolerations, selector, shape.required_terms, wanted, others)
        volumes = world.volumes_of(pod) if pod.claims else ()
        if not volumes and key in self._answers:
            return self._answers[key] > others
        terms = self._own_terms(shape)
        tolerations = shape.tolerations
        if wanted is NodeClass.SPOT:
            tolerations = (*tolerations, *self._spot_tolerations)
        count = 0
        for node in world.nodes_of_class(wanted):
            if node.name in doomed or not _open(node, tolerations) or not _matches(node, shape, terms):
                continue
            if any(not _term_matches(v.required_terms, node) for v in volumes):
                continue
            count += _copies(node, shape, world)
            if count > others:
                break
        if not volumes:
            self._answers[key] = count
        return count > others

    def _own_terms(self, shape: PodShape) -> tuple[SelectorTerm, ...] | None:
        """What the user requires, without what we added when the pod was admitted."""
        if shape.required_terms is None:
            return None
        left = []
        for term in shape.required_terms:
            theirs = tuple(e for e in term.expressions if e != self._ours)
            if theirs != term.expressions and not theirs and not term.fields:
                return None
            left.append(SelectorTerm(theirs, term.fields))
        return tuple(left)


def _open(node: Node, tolerations: Iterable[Toleration]) -> bool:
    if node.unschedulable or node.ready != "True" or node.deletion_at is not None:
        return False
    return all(t.effect not in _BLOCKING or any(one.tolerates(t) for one in tolerations) for t in node.taints)


def _matches(node: Node, shape: PodShape, terms: tuple[SelectorTerm, ...] | None) -> bool:
    labels = node.labels
    return all(labels.get(k) == v for k, v in shape.node_selector.items()) and _term_matches(terms, node)


def _term_matches(terms: tuple[SelectorTerm, ...] | None, node: Node) -> bool:
    return terms is None or any(term.matches(node.labels, node.name) for term in terms)


def _copies(node: Node, shape: PodShape, world: WorldRead) -> int:
    """How many such pods fit on this node. A pod that asks for nothing takes a place and nothing else."""
    used = world.usage(node.name)
    places = node.pods_limit - used.pods
    if shape.cpu_milli:
        places = min(places, (node.cpu_milli - used.cpu_milli) // shape.cpu_milli)
    if shape.memory_bytes:
        places = min(places, (node.memory_bytes - used.memory_bytes) // shape.memory_bytes)
    if shape.anti_affinity_keys:
        places = min(places, 1)
    return max(0, places)
