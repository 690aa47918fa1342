"""Is there a node of the wanted class that would take this pod? Asked before anything is moved.

Without this question a replica is evicted, comes back where it was, and is evicted again. The answer is an estimate
(kube-scheduler knows more rules than we read), so it is allowed to be wrong; the memory against loops catches that.
"""

from collections.abc import Collection, Iterable

import msgspec

from mooring.mix.affinity import requirement
from mooring.mix.wording import counted
from mooring.model.capacity import CapacityRules, NodeClass
from mooring.model.cluster import Node, Pod, PodShape, SelectorTerm, Toleration
from mooring.world.read import WorldRead

#: How long an answer may be used again for pods of the same needs.
FRESH_S = 1.0

_BLOCKING = frozenset({"NoSchedule", "NoExecute"})
_OWN_RULES = "excluded by its own node rules"
#: In the order in which they are told.
_CAUSES = (
    "about to go",
    "cordoned",
    "not Ready",
    _OWN_RULES,
    "with a taint that it does not tolerate",
    "out of reach of its volumes",
    "full",
)


class Lack(msgspec.Struct, frozen=True):
    words: str
    #: There are nodes, and the pod's own rules exclude every one of them: more nodes would not help.
    by_own_rules: bool = False


class Room:
    """Answers, kept for a moment: thousands of workloads ask the same few questions in one pass."""

    def __init__(self, rules: CapacityRules, spot_tolerations: Iterable[Toleration]) -> None:
        self._rules = rules
        self._spot_tolerations = tuple(spot_tolerations)
        self._ours = requirement(rules.labels[0], NodeClass.ON_DEMAND)
        self._at = float("-inf")
        self._answers: dict[object, int] = {}
        self._lacks: dict[object, Lack] = {}

    def fits(
        self, pod: Pod, wanted: NodeClass, world: WorldRead, doomed: Collection[str], now: float, *, others: int = 0
    ) -> bool:
        """Room for this pod and for `others` like it that are on their way to the same class."""
        self._freshen(now)
        shape, key = pod.shape, (_needs(pod.shape), wanted, others)
        volumes = world.volumes_of(pod) if pod.claims else ()
        if not volumes and key in self._answers:
            return self._answers[key] > others
        terms, tolerations = self._own_terms(shape), self._tolerations(shape, wanted)
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

    def lack(self, pod: Pod, wanted: NodeClass, world: WorldRead, doomed: Collection[str], now: float) -> Lack:
        """Why no node of this class would take the pod, as kube-scheduler counts: "4 nodes: 3 cordoned, 1 full"."""
        self._freshen(now)
        key = (_needs(pod.shape), wanted)
        if not pod.claims and key in self._lacks:
            return self._lacks[key]
        terms, tolerations = self._own_terms(pod.shape), self._tolerations(pod.shape, wanted)
        volumes, causes, nodes = world.volumes_of(pod) if pod.claims else (), dict.fromkeys(_CAUSES, 0), 0
        for node in world.nodes_of_class(wanted):
            nodes += 1
            if node.name in doomed:
                causes["about to go"] += 1
            elif node.unschedulable:
                causes["cordoned"] += 1
            elif node.ready != "True" or node.deletion_at is not None:
                causes["not Ready"] += 1
            elif not _matches(node, pod.shape, terms):
                causes[_OWN_RULES] += 1
            elif not _open(node, tolerations):
                causes["with a taint that it does not tolerate"] += 1
            elif any(not _term_matches(v.required_terms, node) for v in volumes):
                causes["out of reach of its volumes"] += 1
            else:
                causes["full"] += 1
        told = ", ".join(f"{count} {cause}" for cause, count in causes.items() if count)
        words = f"{counted(nodes, 'node')}: {told}" if nodes else f"there is no {wanted} node"
        found = Lack(words, by_own_rules=0 < nodes == causes[_OWN_RULES])
        if not pod.claims:
            self._lacks[key] = found
        return found

    def _freshen(self, now: float) -> None:
        if now >= self._at + FRESH_S or now < self._at:
            self._at = now
            self._answers.clear()
            self._lacks.clear()

    def _tolerations(self, shape: PodShape, wanted: NodeClass) -> tuple[Toleration, ...]:
        return (*shape.tolerations, *self._spot_tolerations) if wanted is NodeClass.SPOT else shape.tolerations

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


def _needs(shape: PodShape) -> tuple[object, ...]:
    selector = tuple(sorted(shape.node_selector.items()))
    return shape.cpu_milli, shape.memory_bytes, shape.tolerations, selector, shape.required_terms


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
