"""Is there a node of the wanted class that would take this pod? Asked before anything is moved.

Without this question a replica is evicted, comes back where it was, and is evicted again. The answer is an estimate
(kube-scheduler knows more rules than we read), so it is allowed to be wrong; the memory against loops catches that.
"""

from collections.abc import Collection, Iterable

import msgspec

from mooring.capabilities.drain.room import Bar, Needs, bar_of, copies, taken_domains
from mooring.capabilities.mix.admission.affinity import requirement
from mooring.capabilities.mix.wording import counted
from mooring.core.model.capacity import CapacityRules, NodeClass
from mooring.core.model.cluster import Pod, PodShape, SelectorTerm, Toleration
from mooring.core.world.read import WorldRead

#: How long an answer may be used again for pods of the same needs.
FRESH_S = 1.0


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
            if not bar_of(node, asked, doomed):
                count += copies(node, pod.shape, world)
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
            causes[bar_of(node, asked, doomed) or Bar.FULL] += 1
        told = ", ".join(f"{count} {cause}" for cause, count in causes.items() if count)
        words = f"{counted(len(nodes), 'node')}: {told}" if nodes else f"there is no {wanted} node"
        found = Lack(words, by_own_rules=0 < len(nodes) == causes[Bar.OWN_RULES])
        if not alone:
            self._lacks[key] = found
        return found

    def _asked(self, pod: Pod, wanted: NodeClass, world: WorldRead) -> Needs:
        shape = pod.shape
        tolerations = (*shape.tolerations, *self._spot_tolerations) if wanted is NodeClass.SPOT else shape.tolerations
        volumes = world.volumes_of(pod) if pod.claims else ()
        return Needs(shape, self._own_terms(shape), tolerations, volumes, taken_domains(pod, world))

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
