"""Is this node about to go, and when: what `drain.signals` finds, or a silence that lasts.

When is a node that stopped reporting lost, and when has only the way to the API server gone? As Kubernetes' node
lifecycle controller judges it, by the other nodes of its zone, spot or not: when all of them are silent (full
disruption) nothing is deleted for silence alone; when most are (partial), ten times later. One or two silent nodes tell
little about a zone: then the whole cluster counts. A node that came back a moment ago tells that the others may come
back too, so it counts as silent for as long as silence is borne.

Every interrupted node is cordoned before a single pod moves, or replacements land on the next one to go.
"""

import math
from typing import Final

import msgspec

from mooring.capabilities.drain import signals
from mooring.capabilities.drain.cordon import cordon_mark
from mooring.capabilities.drain.signals import NoticeKind, Sign, Signal, earliest, signals_of
from mooring.capabilities.mix.policy import InterruptionPolicy, OnNotice
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Node, Taint
from mooring.core.model.events import Change, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import Mark
from mooring.core.world.read import WorldRead

#: The source of what mix does about notices.
SOURCE: Final = "spot"
ZONE: Final = "topology.kubernetes.io/zone"
#: From this share on a zone is in partial disruption, as in Kubernetes; not for one or two nodes.
_PARTIAL: Final = 0.55
_FEW: Final = 2
#: How much longer silence is borne then.
_SLOWER: Final = 10


class NodeReports:
    """An index of the world: which nodes report, by zone."""

    observes: frozenset[object] = frozenset({Kind.NODE})

    def __init__(self) -> None:
        self._zone: dict[str, str] = {}
        #: By zone and name: since when it is Ready; never (infinite) for one that is not.
        self._since: dict[str, dict[str, float]] = {}

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        assert isinstance(trigger, Change)
        name, node = trigger.key.name, trigger.new
        before = self._zone.pop(name, None)
        if before is not None:
            del self._since[before][name]
            if not self._since[before]:
                del self._since[before]
        if not isinstance(node, Node) or (node.ready != "True" and cordon_mark(node, SOURCE) is not None):
            return  # one that had a notice was to fall silent: it says nothing about the others
        zone = node.labels.get(ZONE, "")
        self._zone[name] = zone
        self._since.setdefault(zone, {})[name] = (node.ready_since or 0.0) if node.ready == "True" else math.inf

    def advance(self) -> bool:
        return False

    def silent(self, zone: str | None, before: float) -> tuple[int, int]:
        """How many of how many nodes of a zone (None: of the cluster) have not been Ready since before this."""
        zones = self._since.values() if zone is None else [self._since.get(zone, {})]
        return sum(since > before for one in zones for since in one.values()), sum(map(len, zones))


class Silence(msgspec.Struct, frozen=True, gc=False):
    """Of a node whose kubelet does not report."""

    #: When it counts as lost; infinite while no other node reports.
    lost_at: float
    #: What makes it count later than usual; "" when nothing does.
    held: str = ""


def silence_of(node: Node, policy: InterruptionPolicy, world: WorldRead, now: float) -> Silence | None:
    if node.ready != "Unknown":
        return None
    since = node.ready_since or now
    usual = Silence(since + policy.lost_after_s)
    if now < usual.lost_at or cordon_mark(node, SOURCE) is not None:
        return usual
    reports, zone = world.index(NodeReports), node.labels.get(ZONE)
    where = f"in zone {zone}" if zone else "in the cluster"
    silent, known = reports.silent(zone or "", now - policy.lost_after_s)
    if silent <= _FEW:
        where = "in the cluster"
        silent, known = reports.silent(None, now - policy.lost_after_s)
    words = f"{node.name} does not report, and {silent} of {known} nodes {where} do not or came back a moment ago"
    if silent == known > 1:
        return Silence(math.inf, f"{words}: nothing is deleted for silence alone")
    if silent > _FEW and silent >= _PARTIAL * known:
        later = _SLOWER * policy.lost_after_s
        return Silence(since + later, f"{words}: it counts as lost after {later:.0f} s of silence")
    return usual


#: Where a notice is likely, kube-scheduler takes other nodes first. Pods that have no other still come.
SOFT_TAINT: Final = Taint("mooring.dev/interruption-likely", "PreferNoSchedule")


class Notice(msgspec.Struct, frozen=True, gc=False):
    node: str
    #: What says so, for people: "annotation vacant.io/interrupt-at".
    signal: str
    #: Epoch seconds. None: voluntary, it goes when it is empty.
    deadline: float | None
    #: Its kubelet stopped reporting without a notice: the pods there can no longer be stopped in order.
    lost: bool = False
    #: Only recommended: since then pods that came before are replaced where there is room, and nothing is taken down.
    prepares_since: float | None = None


def signs_on(node: Node, policy: InterruptionPolicy, node_class: NodeClass) -> list[Signal]:
    if policy.action is OnNotice.OFF:
        return []
    return signals_of(node, policy.detectors, spot=node_class is NodeClass.SPOT)


def unread(node: Node, policy: InterruptionPolicy) -> str:
    """A notice that cannot be read, in words; "" when there is none."""
    if policy.action is OnNotice.OFF or not node.annotations:
        return ""
    return signals.unread(node, policy.detectors)


def has_soft_taint(node: Node) -> bool:
    return any(t.key == SOFT_TAINT.key and t.effect == SOFT_TAINT.effect for t in node.taints)


def mark_of(node: Node) -> Mark | None:
    """Our own mark on a node, if there is one and it can be read. One of another source is not ours."""
    return cordon_mark(node, SOURCE)


def notice_of(node: Node, policy: InterruptionPolicy, world: WorldRead, now: float) -> Notice | None:
    node_class = world.node_class(node.name)
    found = earliest(signs_on(node, policy, node_class), mark_of(node), now)
    if found is not None:
        signal, deadline = found
        since = signal.at if signal.kind is NoticeKind.RECOMMENDATION else None
        return Notice(node.name, signal.name, deadline, prepares_since=since)
    if policy.action is OnNotice.OFF or node_class is not NodeClass.SPOT:
        return None
    silence = silence_of(node, policy, world, now)
    if silence is not None and now >= silence.lost_at:
        return Notice(node.name, "its kubelet stopped reporting", silence.lost_at, lost=True)
    return None


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
