"""What a person (or another capability) asks of a TiKV pod, read from its annotations.

`tidb.pingcap.com/restart` wins over `tidb.pingcap.com/evict-leader`; any value of `restart` asks, and an unknown value
of `evict-leader` acts as `none`. A `mooring.dev/leaving` mark is the same request from another capability: fleet, mix
and spot request the hand-over of a TiKV pod instead of deleting it. It wins over both, since it never asks for less,
does not expire, and may have a deadline.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.core.model.cluster import Pod
from mooring.core.model.decision import Verdict
from mooring.core.model.marks import LEAVING, PREPARE, leaving
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import TidbCluster
from mooring.core.model.times import moment

RESTART: Final = "tidb.pingcap.com/restart"
EVICT_LEADER: Final = "tidb.pingcap.com/evict-leader"
EVICT_LEADER_FOR_RESIZE: Final = "tidb.pingcap.com/evict-leader-for-resize"
EXPIRATION: Final = "tidb.pingcap.com/tikv-evict-leader-expiration-time"

DELETE_POD: Final = "delete-pod"
NONE: Final = "none"
ALLOWED: Final = (NONE, DELETE_POD)
_ASKING: Final = frozenset({LEAVING, RESTART, EVICT_LEADER, EVICT_LEADER_FOR_RESIZE})
#: So much of a value is shown.
LONGEST: Final = 40


class Request(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    #: What to do once the leaders have left: `none` or `delete-pod`.
    value: str
    #: Which annotation asks.
    key: str
    source: str = "handoff"
    detail: str = ""
    #: The text of an unknown value, for a Warning that names the allowed ones.
    unknown: str = ""
    expires_at: float | None = None
    deadline: float | None = None
    #: Stop before the pod is deleted: an eviction that others asked for takes it.
    prepares: bool = False

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def is_sooner_than(self, deadline: float | None) -> bool:
        """The earlier deadline counts, wherever one is remembered."""
        return self.deadline is not None and (deadline is None or self.deadline < deadline)

    @property
    def is_shared(self) -> bool:
        """tidb-operator acts on this annotation, too."""
        return self.key not in {LEAVING, RESTART}

    @property
    def may_wait(self) -> bool:
        """A person's request can wait until the pod has somewhere to go.

        A node that is to be emptied (a retiring machine, a spot notice) takes the pod with it in the end: its leaders
        should have left by then.
        """
        return self.key != LEAVING


def request_of(pod: Pod, *, leave_to_tidb_operator: bool = False) -> Request | None:
    """The one request that counts, or None."""
    annotations = pod.annotations
    if _ASKING.isdisjoint(annotations):
        return None  # as of nearly every pod, at every look
    leaving = leaving_request(pod)
    if leaving is not None:
        return leaving
    if RESTART in annotations:
        return Request(value=DELETE_POD, key=RESTART, detail=f"annotation {RESTART}", expires_at=expiry_of(pod))
    if leave_to_tidb_operator:
        return None
    for key in (EVICT_LEADER, EVICT_LEADER_FOR_RESIZE):
        if key in annotations:
            value = annotations[key]
            known = value in ALLOWED or value == ""
            return Request(
                value=DELETE_POD if value == DELETE_POD else NONE,
                key=key,
                detail=f"annotation {key}={printable_value(value)}" if value else f"annotation {key}",
                unknown="" if known else printable_value(value),
                expires_at=expiry_of(pod),
            )
    return None


def leaving_request(pod: Pod) -> Request | None:
    """Another capability wants this pod gone."""
    mark = leaving(pod)
    if mark is None:
        return None
    return Request(
        value=DELETE_POD,
        key=LEAVING,
        source=mark.source,
        detail=f"{mark.source}: {mark.detail or mark.reason}",
        deadline=mark.deadline,
        prepares=mark.value == PREPARE,
    )


def unattended(tc: TidbCluster) -> tuple[str, str]:
    """What is wrong, and what to do, where tidb-operator v2 was told to leave its cluster alone."""
    detail = f"tidb-operator does not look after {tc.key} ({tc.unattended}), and would not create a pod again"
    return detail, f"kubectl -n {tc.namespace} edit {tc.resource} {tc.name}"


def printable_value(value: str) -> str:
    """A value from an annotation, made safe to print in a mark, an Event and on a terminal."""
    short = value if len(value) <= LONGEST else f"{value[:LONGEST]}…"
    return "".join(c if c.isprintable() else "·" for c in short)


def without_requests(pod: Pod, *, leave_to_tidb_operator: bool = False) -> dict[str, None]:
    """The annotations that an expiry takes off: every request that it bounds, since none may outlive it, and itself."""
    bounded = (EVICT_LEADER, EVICT_LEADER_FOR_RESIZE)
    if leave_to_tidb_operator and any(key in pod.annotations for key in bounded):
        return {RESTART: None}  # the rest is tidb-operator's, and it takes that off itself
    return {key: None for key in (RESTART, *bounded, EXPIRATION) if key in pod.annotations}


def expiry_of(pod: Pod, key: str = EXPIRATION) -> float | None:
    """When the request ends by itself. A time that cannot be read has passed, as tidb-operator reads it."""
    text = pod.annotations.get(key)
    if text is None:
        return None
    return moment(text) or 0.0


# ── Grace for tidb-operator ─────────────────────────────────────────────────────────────────────────────────────────
#
# Who acts on an annotation that tidb-operator knows, too: it gets a few seconds to begin, then we do (E3).


class HandoffNotes(msgspec.Struct, frozen=True):
    """Soft memory of one TidbCluster."""

    #: (uid of a pod, annotation on it that tidb-operator acts on, too) → since when it is seen.
    asked: Mapping[tuple[str, str], float] = MappingProxyType({})


class TidbOperatorGrace:
    """What is left to tidb-operator for now, in one evaluation."""

    def __init__(self, tc: TidbCluster, policy: HandoffPolicy, notes: object, now: float) -> None:
        self._on, self._wait_s, self._now = policy.yields(tc), policy.yield_s, now
        self._before = notes.asked if isinstance(notes, HandoffNotes) else {}
        self._asked: dict[tuple[str, str], float] = {}

    def verdict(self, pod: Pod, request: Request) -> Verdict | None:
        """None: ours to act on now."""
        if not self._on or not request.is_shared:
            return None
        slot = (pod.uid, request.key)
        self._asked[slot] = since = self._before.get(slot, self._now)
        if self._now >= since + self._wait_s:
            return None
        detail = f"tidb-operator may begin with {request.key} on {pod.name}; Mooring does in {self._wait_s:.0f} s"
        return Verdict(State.WAITING, Reason.SETTLING, detail)

    @property
    def notes(self) -> HandoffNotes | None:
        return HandoffNotes(self._asked) if self._asked else None

    @property
    def again_at(self) -> float | None:
        due: Iterable[float] = (since + self._wait_s for since in self._asked.values())
        return min((at for at in due if at > self._now), default=None)
