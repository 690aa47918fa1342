"""The nodes that are about to go, kept by changes: who has a signal, and who among them is not cordoned yet.

Every doomed node is cordoned before a single pod moves, or replacements land on the next victim.
"""

from mooring.capabilities.mix.interruption.notices import mark_of, signal_of, unread
from mooring.capabilities.mix.pace import NoticePolicy, Sign
from mooring.core.model.cluster import Node
from mooring.core.world.read import WorldRead


class Watchlist:
    def __init__(self, policy: NoticePolicy) -> None:
        self._policy = policy
        self._by_label = any(detector.sign is Sign.LABEL for detector in policy.detectors)
        #: Nodes with a signal on them.
        self.doomed: set[str] = set()
        #: Of those, the ones that may still be given new pods.
        self.open: set[str] = set()
        #: Nodes with a mark of ours, or with a notice that cannot be read: both are to be looked at.
        self.marked: set[str] = set()

    def rebuild(self, world: WorldRead) -> None:
        self.doomed.clear()
        self.open.clear()
        self.marked.clear()
        for node in world.nodes():
            self.see(node.name, node, world)

    def see(self, name: str, node: Node | None, world: WorldRead) -> bool:
        """Take a node in as it is now. True: it is, or was until now, one of these."""
        before = name in self.doomed or name in self.marked
        for names in (self.doomed, self.open, self.marked):
            names.discard(name)
        if node is None or (not self._by_label and _is_quiet(node)):
            return before
        if signal_of(node, self._policy, world.node_class(name)) is not None:
            self.doomed.add(name)
            if not node.unschedulable:
                self.open.add(name)
        if mark_of(node) is not None or unread(node, self._policy):
            self.marked.add(name)
        return before or name in self.doomed or name in self.marked


def _is_quiet(node: Node) -> bool:
    """Nothing on it that any detector reads: most nodes, most of the time."""
    return (
        node.ready == "True"
        and not (node.taints or node.conditions or node.annotations or node.unschedulable)
        and node.deletion_at is None
    )
