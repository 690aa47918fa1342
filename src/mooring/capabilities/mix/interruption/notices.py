"""Is this node about to go, and when? Read from the Node object alone, as the tool that brings the notice writes it.

A notice is of one of two kinds. An *interruption* has a deadline that is real: only then may a pod go past its budget.
A *voluntary* disruption (Karpenter or the cluster autoscaler drain, maintenance, a Node being deleted) has none.

A detector that tells no moment counts from when it is first seen; that moment is written into the mark on the node, so
that a new leader does not count again. A signal that disappears again from a Ready node is a notice taken back.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from mooring.capabilities.drain.cordon import cordon_mark
from mooring.capabilities.mix.pace import Detector, InterruptionPolicy, NoticeKind, OnNotice, Sign
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Node
from mooring.core.model.marks import CORDONED_BY, Mark
from mooring.core.model.times import moment
from mooring.core.world.read import WorldRead

SOURCE: Final = "spot"
#: What the edge makes of a kubelet that says it is shutting down (`wire.objects.SHUTDOWN`).
_SHUTDOWN: Final = "NodeShutdown"


class NoticeSignal(msgspec.Struct, frozen=True, gc=False):
    """Something on a node says that it goes. `at` None: so many seconds after it was seen."""

    name: str
    at: float | None
    notice_s: float
    kind: NoticeKind = NoticeKind.INTERRUPTION


class Notice(msgspec.Struct, frozen=True, gc=False):
    node: str
    #: What says so, for people: "annotation vacant.io/interrupt-at".
    signal: str
    #: Epoch seconds. None: voluntary, it goes when it is empty.
    deadline: float | None
    #: Its kubelet stopped reporting without a notice: the pods there can no longer be stopped in order.
    lost: bool = False


def signal_of(node: Node, policy: InterruptionPolicy, node_class: NodeClass) -> NoticeSignal | None:
    """The first detector that finds a notice."""
    if policy.action is OnNotice.OFF:
        return None
    found: NoticeSignal | None = None
    for detector in policy.detectors:
        if found is None or detector.kind is NoticeKind.INTERRUPTION:
            for name, at in _seen(detector, node, node_class):
                found = NoticeSignal(name, at, detector.notice_s, detector.kind)
                if found.kind is NoticeKind.INTERRUPTION:
                    return found
    return found


def _seen(detector: Detector, node: Node, node_class: NodeClass) -> Iterator[tuple[str, float | None]]:
    key = detector.key
    match detector.sign:
        case Sign.ANNOTATION if key in node.annotations:
            at = moment(node.annotations[key])
            if at is not None:
                yield f"annotation {key}", at
        case Sign.TAINT if any(t.key == key for t in node.taints):
            yield f"taint {key}", None
        case Sign.CONDITION if key in node.conditions:
            yield f"condition {key}", None
        case Sign.LABEL if key in node.labels:
            yield f"label {key}", None
        case Sign.DELETION if node.deletion_at is not None:
            yield "the Node is being deleted", None
        case Sign.SHUTDOWN if node.ready == "False" and node.ready_reason == _SHUTDOWN:
            yield "the kubelet is shutting down", None
        case Sign.CORDON if node.unschedulable and node_class is NodeClass.SPOT and _cordoned_by_others(node):
            yield "a cordon on a spot node", None
        case _:
            pass


def _cordoned_by_others(node: Node) -> bool:
    """Also once our own mark stands beside it, which says that the cordon was there before."""
    if CORDONED_BY not in node.annotations:
        return True
    mark = mark_of(node)
    return mark is not None and mark.before.get("unschedulable") == "true"


def unread(node: Node, policy: InterruptionPolicy) -> str:
    """A notice that cannot be read, in words; "" when there is none."""
    if policy.action is OnNotice.OFF or not node.annotations:
        return ""
    for detector in policy.detectors:
        text = node.annotations.get(detector.key) if detector.sign is Sign.ANNOTATION else None
        if text is not None and moment(text) is None:
            return f"annotation {detector.key} is {text[:40]!r}, which is not a time; write it as 2026-01-31T08:15:00Z"
    return ""


def mark_of(node: Node) -> Mark | None:
    """Our own mark on a node, if there is one and it can be read. One of another source is not ours."""
    return cordon_mark(node, SOURCE)


def notice_of(node: Node, policy: InterruptionPolicy, world: WorldRead, now: float) -> Notice | None:
    node_class = world.node_class(node.name)
    signal = signal_of(node, policy, node_class)
    if signal is not None and signal.kind is NoticeKind.VOLUNTARY:
        return Notice(node.name, signal.name, None)
    if signal is not None:
        mark = mark_of(node)
        at = signal.at
        if at is None:
            at = mark.deadline if mark is not None and mark.deadline is not None else now + signal.notice_s
        return Notice(node.name, signal.name, at)
    if policy.action is OnNotice.OFF or node_class is not NodeClass.SPOT:
        return None
    if node.ready == "Unknown" and now - (node.ready_since or now) >= policy.lost_after_s:
        return Notice(node.name, "its kubelet stopped reporting", now, lost=True)
    return None


def silent_until(node: Node, policy: InterruptionPolicy) -> float | None:
    """When a node that is silent just now counts as lost."""
    return (node.ready_since or 0.0) + policy.lost_after_s if node.ready == "Unknown" else None
