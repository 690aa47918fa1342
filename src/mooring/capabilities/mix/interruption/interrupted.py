"""The nodes that have a notice, kept per change: which they are, and which of them still take new pods.

Every interrupted node is cordoned before a single pod moves, or replacements land on the next one to go.
"""

from mooring.capabilities.drain.signals import NoticeKind, Sign, Signal
from mooring.capabilities.mix.interruption.notices import has_soft_taint, mark_of, signs_on, unread
from mooring.capabilities.mix.pace import InterruptionPolicy
from mooring.core.model.cluster import Node
from mooring.core.model.events import Change, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.world.read import WorldRead


class InterruptedNodes:
    """An index of the world."""

    observes: frozenset[object] = frozenset({Kind.NODE})

    def __init__(self, policy: InterruptionPolicy) -> None:
        self._policy = policy
        #: Nodes with a notice on them.
        self.names: set[str] = set()
        #: Nodes that only may go.
        self.likely: set[str] = set()
        #: Of the first, the ones whose deadline is real.
        self.urgent: set[str] = set()
        #: Of the first, the ones that may still be given new pods.
        self.open: set[str] = set()
        #: Nodes with a mark or the soft taint of ours, or with a notice that cannot be read: both are to be looked at.
        self.marked: set[str] = set()

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        assert isinstance(trigger, Change)
        name, node = trigger.key.name, trigger.new
        for names in (self.names, self.likely, self.urgent, self.open, self.marked):
            names.discard(name)
        if not isinstance(node, Node):
            return
        signs = _signs(node, self._policy, world)
        kinds = {one.kind for one in signs}
        if kinds == {NoticeKind.RECOMMENDATION}:
            self.likely.add(name)
        elif kinds:
            self.names.add(name)
            if NoticeKind.INTERRUPTION in kinds:
                self.urgent.add(name)
            if not node.unschedulable:
                self.open.add(name)
        if has_soft_taint(node) or (node.annotations and (mark_of(node) is not None or unread(node, self._policy))):
            self.marked.add(name)

    def has(self, name: str) -> bool:
        """A notice of any kind."""
        return name in self.names or name in self.likely

    def advance(self) -> bool:
        return False


def has_notice(node: Node, policy: InterruptionPolicy, world: WorldRead) -> bool:
    """Of this row, which need not be the one that the world has now."""
    return bool(_signs(node, policy, world))


def _signs(node: Node, policy: InterruptionPolicy, world: WorldRead) -> list[Signal]:
    if _is_quiet(node) and not any(detector.sign is Sign.LABEL for detector in policy.detectors):
        return []
    return signs_on(node, policy, world.rules.class_of(node.labels))


def is_remarkable(node: Node, policy: InterruptionPolicy, world: WorldRead) -> bool:
    """It has a notice, a mark of ours, or a notice that cannot be read."""
    if has_notice(node, policy, world):
        return True
    if has_soft_taint(node):
        return True
    return bool(node.annotations) and (mark_of(node) is not None or bool(unread(node, policy)))


def _is_quiet(node: Node) -> bool:
    """Nothing on it that any detector reads: most nodes, most of the time."""
    return (
        node.ready == "True"
        and not (node.taints or node.conditions or node.annotations or node.unschedulable)
        and node.deletion_at is None
    )
