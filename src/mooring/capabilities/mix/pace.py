"""What an administrator may set about moving replicas: how fast, and which signals say that a node goes.

Numbers are seconds.
"""

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from mooring.capabilities.drain.signals import DETECTORS, Detector

#: Less than the day after which failed attempts are forgotten.
_LONGEST_RETURN_S: Final = 12 * 3600.0


#: How much longer no pod is moved while no API server seems to reach the webhook.
_ALONE: Final = 20


#: A year stands for no limit; a shorter interval than a tenth of a second would be a busy loop.
_Interval = Annotated[float, msgspec.Meta(ge=0.1, le=31_536_000)]
_Span = Annotated[float, msgspec.Meta(ge=0, le=31_536_000)]


class RebalancePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: A workload is left alone until nothing about it has changed for this long.
    settle_s: _Span = 10.0
    #: A pod that must be on on-demand and finds no node for this long is handled by `on-shortage`.
    shortage_s: _Span = 60.0
    #: How long the pods of such a workload then only prefer on-demand.
    relaxed_s: _Span = 300.0
    #: A replacement that is not Ready by then has failed.
    ready_within_s: _Interval = 300.0
    #: After a failure the workload is left alone: this long, twice as long after the next one, and so on.
    pause_s: _Interval = 60.0
    #: The longest such pause.
    longest_pause_s: _Interval = 3600.0
    #: Whether replicas are moved off on-demand nodes that they do not need. It only saves money.
    to_spot: bool = True
    #: A pod that fell back to on-demand returns once spot has had room for this long. So long, too, a Pending
    #: replacement asks an autoscaler for an on-demand node where fewer replicas are there than are promised.
    room_for_s: _Span = 600.0
    #: How many replicas return to spot within a minute, in percent of those of all workloads that are switched on; ten
    #: at least. Halved for each twentieth of the spot nodes that was lost within the last half hour.
    return_share: Annotated[int, msgspec.Meta(ge=1, le=100)] = 5
    #: How long a workload whose replicas came back from spot is left there; doubled each time.
    return_every_s: _Interval = 600.0
    #: How many rebalancing moves may be under way in the whole cluster; beside them, one each of as many
    #: namespaces that have none. Moves under a notice do not count.
    at_once: Annotated[int, msgspec.Meta(ge=1)] = 10
    #: How often a workload that waits for room looks again.
    look_again_s: _Interval = 30.0

    def pause(self, attempts: int, *, alone: bool = False) -> float:
        """How long to leave a workload alone after so many failures in a row. `alone`: the successor was created
        without our webhook, and so would the next one be."""
        first = self.pause_s * (_ALONE if alone else 1)
        return min(self.longest_pause_s, first * 2.0 ** max(0, attempts - 1))

    def return_after(self, attempts: int) -> float:
        """How long after the last return to spot the next may be, when so many in a row came back. It only saves
        money, so a workload whose pods keep coming back is soon left alone."""
        if not attempts:
            return 0.0
        return min(max(_LONGEST_RETURN_S, self.return_every_s), self.return_every_s * 2.0 ** min(attempts, 20))


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


class ShortNotice(StrEnum):
    """A notice that leaves a replacement no time to start before the grace period has to begin."""

    #: Until the replacement is Ready or the machine goes.
    SERVE = "serve"
    #: The pod goes at once, with all the grace there is.
    GRACE = "grace"


class InterruptionPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: When a node gets a notice: `act`, `observe` (only say what would be done) or `off`.
    action: OnNotice = OnNotice.ACT
    #: What counts as a notice. All are read: the earliest deadline counts, and any deadline before a disruption
    #: without one.
    detectors: tuple[Detector, ...] = DETECTORS
    #: Pods of workloads that are not switched on, on an interrupted node: `leave` them, or `evict`.
    everybody: UnmanagedPods = UnmanagedPods.LEAVE
    #: Reserve before the deadline: the last call is deadline − grace period − this.
    margin_s: _Span = 5.0
    #: When a notice is too short for a replacement to start and for the grace period after it: `serve` until the
    #: replacement is Ready or the machine goes, or go at once with as much of the `grace` period as there is.
    short_notice: ShortNotice = ShortNotice.SERVE
    #: What a replacement is expected to need from its creation to Ready.
    start_s: _Span = 20.0
    #: A spot node whose kubelet has not reported for this long counts as lost, notice or not. Ten times as long while
    #: most nodes of its zone are silent; while all are, nothing is deleted for silence alone.
    lost_after_s: _Interval = 30.0
    #: How long moves wait for the cordons of the other interrupted nodes.
    cordons_within_s: _Span = 3.0
