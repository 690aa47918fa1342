"""What an administrator may set about moving replicas: how fast, and which signals say that a node goes.

Numbers are seconds.
"""

from enum import StrEnum
from typing import Final

import msgspec

#: Less than the day after which failed attempts are forgotten.
_LONGEST_RETURN_S: Final = 12 * 3600.0


#: How much longer no pod is moved while no API server seems to reach the webhook.
_ALONE: Final = 20


class RebalancePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: A workload is left alone until nothing about it has changed for this long.
    settle_s: float = 10.0
    #: A pod that must be on on-demand and finds no node for this long is handled by `on-shortage`.
    shortage_s: float = 60.0
    #: How long the pods of such a workload then only prefer on-demand.
    relaxed_s: float = 300.0
    #: A replacement that is not Ready by then has failed.
    ready_within_s: float = 300.0
    #: After a failure the workload is left alone: this long, twice as long after the next one, and so on.
    pause_s: float = 60.0
    #: The longest such pause.
    longest_pause_s: float = 3600.0
    #: Whether replicas are moved off on-demand nodes that they do not need. It only saves money.
    to_spot: bool = True
    #: A pod that fell back to on-demand returns once spot has had room for this long.
    room_for_s: float = 600.0
    #: How long after the last return of its workload the next may be; doubled after each that came back.
    return_every_s: float = 600.0
    #: How many rebalancing moves may be under way in the whole cluster; beside them, one each of as many
    #: namespaces that have none. Moves under a notice do not count.
    at_once: int = 10
    #: How often a workload that waits for room looks again.
    look_again_s: float = 30.0

    def pause(self, attempts: int, *, alone: bool = False) -> float:
        """How long to leave a workload alone after so many failures in a row. `alone`: the successor was created
        without our webhook, and so would the next one be."""
        first = self.pause_s * (_ALONE if alone else 1)
        return min(self.longest_pause_s, first * 2.0 ** max(0, attempts - 1))

    def return_after(self, attempts: int) -> float:
        """How long after the last return to spot the next may be, when so many in a row came back. It only saves
        money, so a workload whose pods keep coming back is soon left alone."""
        return min(max(_LONGEST_RETURN_S, self.return_every_s), self.return_every_s * 2.0 ** min(attempts, 20))


class Sign(StrEnum):
    """Where on a Node a notice stands."""

    #: An annotation whose value is the moment, RFC 3339.
    ANNOTATION = "annotation"
    TAINT = "taint"
    CONDITION = "condition"
    LABEL = "label"
    #: The Node is being deleted.
    DELETION = "deletion"
    #: The kubelet says that the node is shutting down.
    SHUTDOWN = "shutdown"
    #: A cordon, on spot nodes only. Off unless configured: people cordon too.
    CORDON = "cordon"


class NoticeKind(StrEnum):
    #: The machine goes at a moment that is known: what is not moved by then is lost.
    INTERRUPTION = "interruption"
    #: The node is to be emptied, without a deadline: budgets, quorum and the workload's own limit hold.
    VOLUNTARY = "voluntary"


_BY_KEY: Final = frozenset({Sign.ANNOTATION, Sign.TAINT, Sign.CONDITION, Sign.LABEL})
#: All other annotations of a node are dropped at the edge.
_READ: Final = ("vacant.io/", "mooring.dev/")
INTERRUPT_AT: Final = "vacant.io/interrupt-at"


class Detector(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    sign: Sign
    key: str = ""
    #: From the moment it is seen to the moment the node goes. An annotation tells the moment itself.
    notice_s: float = 120.0
    kind: NoticeKind = NoticeKind.INTERRUPTION

    def __post_init__(self) -> None:
        if self.sign in _BY_KEY and not self.key:
            raise ValueError(f"a detector of sign {self.sign} has no key: name the {self.sign} that it looks for")
        if self.sign is Sign.ANNOTATION and not self.key.startswith(_READ):
            raise ValueError(
                f"a detector of sign annotation has the key {self.key!r}; annotations of nodes are read only under "
                f"{' and '.join(_READ)}, e.g. {INTERRUPT_AT}"
            )
        if not self.notice_s >= 0:
            raise ValueError(f"a detector has notice-s {self.notice_s}; it must be 0 or more seconds")


_VOLUNTARY: Final = NoticeKind.VOLUNTARY
DETECTORS: Final = (
    Detector(sign=Sign.ANNOTATION, key=INTERRUPT_AT),
    Detector(sign=Sign.TAINT, key="vacant.io/interrupting"),
    # AWS Node Termination Handler, with taintNode=true.
    Detector(sign=Sign.TAINT, key="aws-node-termination-handler/spot-itn"),
    Detector(sign=Sign.TAINT, key="remediator.kubernetes.azure.com/unschedulable", notice_s=30.0),
    Detector(sign=Sign.CONDITION, key="VMEventScheduled", notice_s=30.0),
    Detector(sign=Sign.TAINT, key="node.cloudprovider.kubernetes.io/shutdown", notice_s=0.0),
    Detector(sign=Sign.TAINT, key="node.kubernetes.io/out-of-service", notice_s=0.0),
    Detector(sign=Sign.SHUTDOWN, notice_s=15.0),
    # Hours ahead, or until a lifecycle hook is answered: the taint does not say when.
    Detector(sign=Sign.TAINT, key="aws-node-termination-handler/asg-lifecycle-termination", kind=_VOLUNTARY),
    Detector(sign=Sign.TAINT, key="aws-node-termination-handler/scheduled-maintenance", kind=_VOLUNTARY),
    # Karpenter, now and before 1.0: for consolidation, drift and interruption alike, and it drains by itself.
    Detector(sign=Sign.TAINT, key="karpenter.sh/disrupted", kind=_VOLUNTARY),
    Detector(sign=Sign.TAINT, key="karpenter.sh/disruption", kind=_VOLUNTARY),
    Detector(sign=Sign.TAINT, key="ToBeDeletedByClusterAutoscaler", kind=_VOLUNTARY),
    Detector(sign=Sign.DELETION, kind=_VOLUNTARY),
)


class OnNotice(StrEnum):
    OFF = "off"
    #: Say what would be done.
    OBSERVE = "observe"
    ACT = "act"


class UnmanagedPods(StrEnum):
    """Pods of workloads that are not switched on, on an interrupted node."""

    LEAVE = "leave"
    #: For clusters without another handler: evicted one by one, before the machine goes.
    EVICT = "evict"


class InterruptionPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: When a node gets a notice: `act`, `observe` (only say what would be done) or `off`.
    action: OnNotice = OnNotice.ACT
    #: What counts as a notice. The first that applies counts; an interruption counts before a voluntary disruption.
    detectors: tuple[Detector, ...] = DETECTORS
    #: Pods of workloads that are not switched on, on an interrupted node: `leave` them, or `evict`.
    everybody: UnmanagedPods = UnmanagedPods.LEAVE
    #: Reserve before the deadline: the last call is deadline − grace period − this.
    margin_s: float = 5.0
    #: What a replacement is expected to need from its creation to Ready.
    start_s: float = 20.0
    #: A spot node whose kubelet has not reported for this long counts as lost, notice or not.
    lost_after_s: float = 30.0
    #: How long moves wait for the cordons of the other interrupted nodes.
    cordons_within_s: float = 3.0
