"""Is this node about to go, and when: what `drain.signals` finds, or a silence that lasts."""

from typing import Final

import msgspec

from mooring.capabilities.drain import signals
from mooring.capabilities.drain.cordon import cordon_mark
from mooring.capabilities.drain.signals import NoticeKind, Signal, earliest, signals_of
from mooring.capabilities.mix.interruption.silence import SOURCE, silence_of
from mooring.capabilities.mix.pace import InterruptionPolicy, OnNotice
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Node, Taint
from mooring.core.model.marks import Mark
from mooring.core.world.read import WorldRead

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
