"""Is there a node of the wanted class that would take this pod? Asked before anything is moved.

Without this question a replica is evicted, comes back where it was, and is evicted again. The answer is an estimate
(kube-scheduler knows more rules than we read), so it may be wrong; the notes of failed moves (`memory`) prevent a loop
then.

Most pods have no node rules of their own: for them a node is closed (and why), or open, and then its taints and its
free CPU say the most. `NodeRoom` keeps nodes in that order, so that thousands of workloads can ask when none has room.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

import msgspec

from mooring.capabilities.drain.room import Bar, RoomNeeds, bar_of, closed_by, copies, taken_domains, untolerated_of
from mooring.capabilities.mix.admission.affinity import requirement
from mooring.capabilities.mix.interruption.interrupted import InterruptedNodes, has_notice
from mooring.capabilities.mix.policy import MixPolicy
from mooring.capabilities.mix.wording import counted
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Node, Pod, PodShape, SelectorTerm, Taint
from mooring.core.model.events import Change, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.world.read import WorldRead


class NodeRoom:
    """An index of the world: nodes by class; the closed ones by what closes them, the open ones by their free CPU."""

    observes: frozenset[object] = frozenset({Kind.NODE, Kind.POD})

    def __init__(self, policy: MixPolicy) -> None:
        self._notice = policy.interruption
        #: Class and taints → (free CPU, name), the least first.
        self.open: dict[tuple[NodeClass, tuple[Taint, ...]], list[tuple[int, str]]] = {}
        self.closed: dict[tuple[NodeClass, Bar], int] = {}
        #: Where each node stands: its place among the open ones, or what closes it.
        self._places: dict[str, tuple[NodeClass, tuple[Taint, ...], int] | tuple[NodeClass, Bar]] = {}

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        assert isinstance(trigger, Change)
        old, new = trigger.old, trigger.new
        if trigger.kind is Kind.NODE:
            self._file(trigger.key.name, new if isinstance(new, Node) else None, world)
            return
        before, after = _takes(old), _takes(new)
        if before != after:
            for name, _ in {before, after}:
                if name in self._places:
                    self._file(name, world.node(name), world)

    def advance(self) -> bool:
        return False

    def _file(self, name: str, node: Node | None, world: WorldRead) -> None:
        self._drop(name)
        if node is None:
            return
        node_class = world.rules.class_of(node.labels)
        bar = Bar.INTERRUPTED if has_notice(node, self._notice, world) else closed_by(node)
        if bar is not None:
            self._places[name] = (node_class, bar)
            self.closed[node_class, bar] = self.closed.get((node_class, bar), 0) + 1
            return
        free = node.cpu_milli - world.usage(name).cpu_milli
        self._places[name] = (node_class, node.taints, free)
        insort(self.open.setdefault((node_class, node.taints), []), (free, name))

    def _drop(self, name: str) -> None:
        place = self._places.pop(name, None)
        if place is None:
            return
        if len(place) == 2:
            self.closed[place] -= 1
            if not self.closed[place]:
                del self.closed[place]
            return
        node_class, taints, free = place
        nodes = self.open[node_class, taints]
        del nodes[bisect_left(nodes, (free, name))]
        if not nodes:
            del self.open[node_class, taints]


class Lack(msgspec.Struct, frozen=True):
    words: str
    #: There are nodes, and the pod's own rules exclude every one of them: more nodes would not help.
    by_own_rules: bool = False


class Room:
    """The questions, asked of one world."""

    def __init__(self, policy: MixPolicy, world: WorldRead) -> None:
        self._policy = policy
        self._world = world
        self._index = world.index(NodeRoom)

    def fits(self, pod: Pod, wanted: NodeClass, *, others: int = 0) -> bool:
        """Room for this pod and for `others` like it that are on their way to the same class."""
        needs, world, count = self._needs(pod, wanted), self._world, 0
        for node in self._large_enough(needs, wanted) if _is_plain(needs) else self._not_excluded(needs, wanted):
            count += copies(node, pod.shape, world)
            if count > others:
                return True
        return False

    def lack(self, pod: Pod, wanted: NodeClass) -> Lack:
        """Why no node of this class would take the pod, as kube-scheduler counts: "4 nodes: 3 cordoned, 1 full"."""
        needs, causes = self._needs(pod, wanted), dict.fromkeys(Bar, 0)
        if _is_plain(needs):
            for (node_class, bar), many in self._index.closed.items():
                if node_class is wanted:
                    causes[bar] += many
            for (node_class, taints), nodes in self._index.open.items():
                if node_class is wanted:
                    causes[Bar.TAINTED if untolerated_of(taints, needs.tolerations) else Bar.FULL] += len(nodes)
        else:
            interrupted = self._world.index(InterruptedNodes).names
            for node in self._world.nodes_of_class(wanted):
                causes[bar_of(node, needs, interrupted) or Bar.FULL] += 1
        total = sum(causes.values())
        told = ", ".join(f"{many} {cause}" for cause, many in causes.items() if many)
        words = f"{counted(total, 'node')}: {told}" if total else f"there is no {wanted} node"
        return Lack(words, by_own_rules=0 < total == causes[Bar.OWN_RULES])

    def _large_enough(self, needs: RoomNeeds, wanted: NodeClass) -> Iterator[Node]:
        """Open nodes whose taints the pod tolerates and whose free CPU suffices, the emptiest first."""
        for (node_class, taints), nodes in self._index.open.items():
            if node_class is not wanted or untolerated_of(taints, needs.tolerations) is not None:
                continue
            for free, name in reversed(nodes):
                node = self._world.node(name)
                if free < needs.shape.cpu_milli or node is None:
                    break
                yield node

    def _not_excluded(self, needs: RoomNeeds, wanted: NodeClass) -> Iterator[Node]:
        interrupted = self._world.index(InterruptedNodes).names
        return (n for n in self._world.nodes_of_class(wanted) if not bar_of(n, needs, interrupted))

    def _needs(self, pod: Pod, wanted: NodeClass) -> RoomNeeds:
        shape = pod.shape
        spot = self._policy.tolerations if wanted is NodeClass.SPOT else ()
        volumes = self._world.volumes_of(pod) if pod.claims else ()
        terms, taken = self._own_terms(shape), taken_domains(pod, self._world)
        return RoomNeeds(shape, terms, (*shape.tolerations, *spot), volumes, taken)

    def _own_terms(self, shape: PodShape) -> tuple[SelectorTerm, ...] | None:
        """What the user requires, without what we added when the pod was admitted."""
        if shape.required_terms is None:
            return None
        ours = requirement(self._policy.capacity.labels[0], NodeClass.ON_DEMAND)
        left = []
        for term in shape.required_terms:
            theirs = tuple(e for e in term.expressions if e != ours)
            if theirs != term.expressions and not theirs and not term.fields:
                return None
            left.append(SelectorTerm(theirs, term.fields))
        return tuple(left)


def _takes(row: object) -> tuple[str, int]:
    """Where a pod takes CPU, and how much."""
    return (row.node, row.shape.cpu_milli) if isinstance(row, Pod) and not row.terminal else ("", 0)


def _is_plain(needs: RoomNeeds) -> bool:
    """Nothing but class, taints and size decides."""
    shape = needs.shape
    return not (shape.node_selector or needs.terms is not None or needs.volumes or shape.anti_affinity_keys)
