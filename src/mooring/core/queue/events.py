"""What the queue says back: one small value per thing that happened, in the order in which it happened.

    submit ──> Rejected
       │
       └────> Accepted ──> Promoted ──> Advanced … ──> Ended(finished | failed | canceled | timeout)
                  │
                  └──────────────────────────────────> Ended(canceled)

Every end has a reason. `Ignored` answers a call that changed nothing.
"""

from enum import StrEnum

import msgspec

from mooring.core.model.decision import OperatorRecord
from mooring.core.model.reasons import Reason


class How(StrEnum):
    """How an operator ended."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELED = "canceled"
    TIMEOUT = "timeout"


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """It waits now. When it fits at once, its `Promoted` follows in the same answer."""

    id: str
    at: float


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """It was not taken in, and nothing about it is remembered."""

    id: str
    at: float
    reason: Reason
    #: What is in the way, in words: "region/7 is claimed by op 41".
    detail: str = ""


class Promoted(msgspec.Struct, frozen=True, gc=False):
    """It runs now: its cost is charged. `reason` is `resumed` when it was running before we looked."""

    id: str
    at: float
    reason: Reason | None = None


class Advanced(msgspec.Struct, frozen=True, gc=False):
    """It reached a later phase; what that phase no longer needs is released."""

    id: str
    at: float
    phase: int


class Ended(msgspec.Struct, frozen=True, gc=False):
    """It is no longer in the queue, and what it held is released (after the cooldown, where there is one)."""

    id: str
    at: float
    how: How
    reason: Reason
    detail: str
    record: OperatorRecord


class Ignored(msgspec.Struct, frozen=True, gc=False):
    """The call made no sense (`unknown`, `not-running`, `invalid`, `time`); nothing was changed."""

    id: str
    at: float
    reason: Reason
    detail: str = ""


Event = Accepted | Rejected | Promoted | Advanced | Ended | Ignored
