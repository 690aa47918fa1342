"""What capabilities answer: values with reasons.

A capability is asked two questions. `evaluate(key, …)`: is there something to do about this object?
`next_step(running, …)`: what is next for an operator that the queue has released? Both answers are recomputed from what
is observed, so a lost event delays a decision and never makes it wrong.
"""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from types import MappingProxyType
from typing import Final

import msgspec

from mooring.core.model.cluster import Key
from mooring.core.model.events import PdLost
from mooring.core.model.instructions import HarmlessWrite, Instruction
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State


class Fact(msgspec.Struct, frozen=True, gc=False):
    """Something already broken that takes room on a target unconditionally. An empty subject: no operator repairs
    it."""

    target: str
    #: The object that is broken; an operator on the same subject is not blocked by it.
    subject: str
    amount: int = 1
    detail: str = ""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """A subject's state in one of five words, with the one reason that counts."""

    state: State
    reason: Reason
    detail: str = ""
    #: What ends it, or the command that would.
    remedy: str = ""
    #: The object it is about, where a key stands for several ("pod/tidb/demo-tikv-0"); "": the key itself.
    subject: str = ""


def no_answer(lost: PdLost) -> Verdict:
    if lost.tls_remedy:
        return Verdict(State.BLOCKED, Reason.PD_TLS, lost.detail, lost.tls_remedy)
    return Verdict(State.WAITING, Reason.PD_UNREACHABLE, lost.detail)


PD_NOT_SEEN: Final = Verdict(State.WAITING, Reason.PD_UNREACHABLE, "PD has not been looked at yet")
PD_NOT_SURE: Final = Verdict(
    State.WAITING, Reason.PD_UNSURE, "PD cannot say which stores it evicts (it has just started)"
)


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line of `why`: a label of its fixed list (`asked`, `now`, `to change`, …) and what there is to say."""

    label: str
    text: str


class Withdrawal(msgspec.Struct, frozen=True, gc=False):
    """A waiting operator that is no longer wanted."""

    operator: str
    reason: Reason
    detail: str = ""


class PdRefresh(msgspec.Struct, frozen=True, gc=False):
    """A request for a fresh look at a PD cluster, no later than `at`."""

    cluster: Key
    at: float
    #: Stores about to go away: which regions would lose their quorum is counted with that look.
    stores: tuple[int, ...] = ()


class Deferred(msgspec.Struct, frozen=True, gc=False):
    """A key affected by something that changes little: evaluate it soon, unless something else does so before."""

    key: str


class LeadersRefresh(msgspec.Struct, frozen=True, gc=False):
    """A request for a fresh look at a system with leaders, no later than `at`."""

    #: Its StatefulSet.
    workload: Key
    at: float


Refresh = PdRefresh | LeadersRefresh


class Evaluation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The answer to `evaluate`: all of it replaces what the same key answered before."""

    proposals: tuple[Operator, ...] = ()
    withdrawals: tuple[Withdrawal, ...] = ()
    facts: tuple[Fact, ...] = ()
    #: Limits of targets that follow the object (None: unlimited).
    limits: Mapping[str, int | None] = MappingProxyType({})
    #: Undisruptive writes: labels, reservations, Events.
    instructions: tuple[HarmlessWrite, ...] = ()
    refreshes: tuple[Refresh, ...] = ()
    #: A request for a fresh list of machines, no later than this.
    machines_by: float | None = None
    again_at: float | None = None
    verdict: Verdict | None = None
    #: The same for every object behind this key that there is something to say about; `why` reads it.
    verdicts: tuple[Verdict, ...] = ()
    #: Soft memory of this key (back-off, last seen): given to the next evaluation, lost with the lease. A frozen value.
    notes: object | None = None


class End(msgspec.Struct, frozen=True, gc=False):
    """How a running operator ends: finished (DONE), failed, or canceled for a reason."""

    reason: Reason = Reason.DONE
    detail: str = ""
    failed: bool = False


class NextStep(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The answer to `next_step`."""

    #: Index into the operator's steps.
    step: int
    #: Lower the cost to this phase.
    phase: int | None = None
    instructions: tuple[Instruction, ...] = ()
    refreshes: tuple[Refresh, ...] = ()
    again_at: float | None = None
    #: Figures for people: "177 of 214 leaders gone".
    progress: str = ""
    #: A figure that changes as long as it gets on (leaders left): it tells slow from stalled.
    figure: float | None = None
    #: Why it makes no progress just now.
    waiting_on: Verdict | None = None
    end: End | None = None
    #: Soft memory of this operator, replaced as a whole; None: unchanged.
    notes: Mapping[str, float] | None = None


#: Where an operator stands: in line, released, or over.
WAITING: Final = 0
RUNNING: Final = 1
ENDED: Final = 2


class OperatorRecord(msgspec.Struct, kw_only=True, gc=False):
    """All there is about one operator, from proposal to end. The queue keeps it; capabilities read it.

    It refers to no lane, so nothing here forms a cycle: the garbage collector need not walk a hundred thousand of them.
    """

    operator: Operator
    #: Queue order: those with a deadline first, the earliest first; then by arrival.
    key: tuple[float, int] = (inf, 0)
    claims: tuple[str, ...] = ()
    #: The cost of the phase it is in; no zeros.
    cost: Mapping[str, int] = MappingProxyType({})
    #: What it adds (waiting) or added (running): its cost minus what its own subject's facts charge already; no zeros.
    need: Mapping[str, int] = MappingProxyType({})
    state: int = WAITING
    phase: int = 0
    #: On so many of its lanes it stands behind the room.
    blocked: int = 0
    #: Facts of other objects alone keep it out.
    parked: bool = False
    promoted_at: float = 0.0
    step: int = 0
    step_since: float = 0.0
    progress: str = ""
    #: Why it makes no progress just now.
    waiting_on: Verdict | None = None
    #: Soft memory of its capability (samples, counters): what `NextStep.notes` last answered. Nothing may depend on it
    #: for truth.
    notes: Mapping[str, float] = msgspec.field(default_factory=dict)
    #: When the last write on its behalf was confirmed.
    acted_at: float = 0.0
    #: Its capability has been switched off: what has not disturbed anything yet ends, the rest ends well.
    off: bool = False
    #: When its step or its figure last changed.
    moved_at: float = 0.0
    figure: float | None = None


class Recovered(msgspec.Struct, frozen=True, gc=False):
    """An operator that a mark says has begun: running again, at the step that observation shows."""

    operator: Operator
    step: int
    phase: int
    since: float


#: Reads one mark back: each is a call of its own, so that one that fails loses no other.
ReadBack = Callable[[], Iterable[Recovered]]
