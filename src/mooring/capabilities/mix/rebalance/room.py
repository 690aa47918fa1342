"""Is there a node of the wanted class that would take this pod? Asked before anything is moved.

Without this question a replica is evicted, comes back where it was, and is evicted again. The answer is an estimate
(kube-scheduler knows more rules than we read), so it is allowed to be wrong; the memory against loops catches that.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum

import msgspec

from mooring.capabilities.mix.admission.affinity import requirement
from mooring.capabilities.mix.wording import counted
from mooring.core.model.capacity import CapacityRules, NodeClass
from mooring.core.model.cluster import Node, Pod, PodShape, SelectorTerm, Toleration, Volume
from mooring.core.world.read import WorldRead

#: How long an answer may be used again for pods of the same needs.
FRESH_S = 1.0

_BLOCKING = frozenset({"NoSchedule", "NoExecute"})
_HOSTNAME = "kubernetes.io/hostname"


class Bar(StrEnum):
    """What keeps a pod off a node, in the order in which it is told."""

    DOOMED = "about to go"
    CORDONED = "cordoned"
    NOT_READY = "not Ready"
    OWN_RULES = "excluded by its own node rules"
    TAINTED = "with a taint that it does not tolerate"
    SHARED = "with a replica that it may not stand beside"
    VOLUMES = "out of reach of its volumes"
    FULL = "full"


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
        key = (_needs(pod.shape), wanted, others)
        alone = bool(pod.claims or pod.shape.anti_affinity_keys)
        if not alone and key in self._answers:
            return self._answers[key] > others
        asked, count = self._asked(pod, wanted, world), 0
        for node in world.nodes_of_class(wanted):
            if not _bar(node, asked, doomed):
                count += _copies(node, pod.shape, world)
                if count > others:
                    break
        if not alone:
            self._answers[key] = count
        return count > others

    def lack(self, pod: Pod, wanted: NodeClass, world: WorldRead, doomed: Collection[str], now: float) -> Lack:
        """Why no node of this class would take the pod, as kube-scheduler counts: "4 nodes: 3 cordoned, 1 full"."""
        self._freshen(now)
        key = (_needs(pod.shape), wanted)
        alone = bool(pod.claims or pod.shape.anti_affinity_keys)
        if not alone and key in self._lacks:
            return self._lacks[key]
        asked, causes = self._asked(pod, wanted, world), dict.fromkeys(Bar, 0)
        nodes = world.nodes_of_class(wanted)
        for node in nodes:
            causes[_bar(node, asked, doomed) or Bar.FULL] += 1
        told = ", ".join(f"{count} {cause}" for cause, count in causes.items() if count)
        words = f"{counted(len(nodes), 'node')}: {told}" if nodes else f"there is no {wanted} node"
        found = Lack(words, by_own_rules=0 < len(nodes) == causes[Bar.OWN_RULES])
        if not alone:
            self._lacks[key] = found
        return found

    def _asked(self, pod: Pod, wanted: NodeClass, world: WorldRead) -> "_Asked":
        shape = pod.shape
        tolerations = (*shape.tolerations, *self._spot_tolerations) if wanted is NodeClass.SPOT else shape.tolerations
        volumes = world.volumes_of(pod) if pod.claims else ()
        return _Asked(shape, self._own_terms(shape), tolerations, volumes, _taken(pod, world))

    def _freshen(self, now: float) -> None:
        if now >= self._at + FRESH_S or now < self._at:
            self._at = now
            self._answers.clear()
            self._lacks.clear()

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


class _Asked(msgspec.Struct, frozen=True):
    shape: PodShape
    terms: tuple[SelectorTerm, ...] | None
    tolerations: tuple[Toleration, ...]
    volumes: tuple[Volume, ...]
    #: Where its anti-affinity lets no second replica stand: (topology key, value).
    taken: frozenset[tuple[str, str]]


def _taken(pod: Pod, world: WorldRead) -> frozenset[tuple[str, str]]:
    keys = pod.shape.anti_affinity_keys
    if not keys or pod.owner is None:
        return frozenset()
    siblings = [p for p in world.pods_owned_by(pod.owner.uid) if p.uid != pod.uid and p.active and p.node]
    nodes = [node for node in (world.node(p.node) for p in siblings) if node is not None]
    return frozenset((key, value) for node in nodes for key in keys if (value := _domain(node, key)))


def _domain(node: Node, key: str) -> str:
    return node.labels.get(key, node.name if key == _HOSTNAME else "")


def _bar(node: Node, asked: _Asked, doomed: Collection[str]) -> Bar | None:
    """The first thing that keeps the pod off this node; None: nothing but, perhaps, its size."""
    if node.name in doomed:
        return Bar.DOOMED
    if node.unschedulable:
        return Bar.CORDONED
    if node.ready != "True" or node.deletion_at is not None:
        return Bar.NOT_READY
    if not _matches(node, asked.shape, asked.terms):
        return Bar.OWN_RULES
    if any(t.effect in _BLOCKING and not any(one.tolerates(t) for one in asked.tolerations) for t in node.taints):
        return Bar.TAINTED
    if asked.taken and any((key, _domain(node, key)) in asked.taken for key in asked.shape.anti_affinity_keys):
        return Bar.SHARED
    if asked.volumes and any(not _term_matches(v.required_terms, node) for v in asked.volumes):
        return Bar.VOLUMES
    return None


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
