"""Writes under way. A capability that waits for one is not asked again before it has ended, so nothing is asked for
twice.

A refused write is retried after 1 s, 2 s, … 30 s, or after what the server asked for. An event may end that wait
early: a conflict brings the current object, and the retry carries its version. If the server itself is failing or sent
Retry-After, no event shortens the wait; without Retry-After it is five seconds at most.
"""

from typing import Final

from mooring.core.engine.worklist import Slot, WorkList
from mooring.core.model.instructions import Outcome
from mooring.core.model.reasons import Reason

LONGEST_S: Final = 30.0
#: An event is acted on after this long, however often the write was refused: an interruption notice leaves two minutes.
LONGEST_REST_S: Final = 5.0
_UNWELL: Final = frozenset({Reason.BACK_OFF, Reason.FAILED, Reason.UNKNOWN})


class InFlightWrites:
    def __init__(self, worklist: WorkList) -> None:
        self._worklist = worklist
        self._waiter_of: dict[str, Slot] = {}
        self._under_way: dict[Slot, int] = {}
        self._back_off: dict[Slot, float] = {}
        #: Not to be asked before.
        self._rests: dict[Slot, float] = {}

    def begin(self, instruction: str, waiter: Slot) -> None:
        self._waiter_of[instruction] = waiter
        self._under_way[waiter] = self._under_way.get(waiter, 0) + 1

    def busy(self, waiter: Slot, now: float) -> bool:
        """Not to be asked now. One that rests is asked once it has rested; an outstanding write asks by itself."""
        if waiter in self._under_way:
            return True
        until = self._rests.get(waiter)
        if until is None:
            return False
        if until > now:
            self._worklist.wake_at(until, waiter)
            return True
        del self._rests[waiter]
        return False

    def end(self, outcome: Outcome, now: float) -> tuple[Slot, float] | None:
        """The slot that waited for it, and the delay before a retry (0: none). None: it was issued before this replica
        led."""
        waiter = self._waiter_of.pop(outcome.instruction, None)
        if waiter is None:
            return None
        left = self._under_way[waiter] - 1
        if left:
            self._under_way[waiter] = left
        else:
            del self._under_way[waiter]
        if outcome.reason is None:
            self._back_off.pop(waiter, None)
            return waiter, 0.0
        wait = max(outcome.retry_after_s, min(LONGEST_S, 2 * self._back_off.get(waiter, 0.5)))
        self._back_off[waiter] = wait
        if outcome.reason in _UNWELL:
            self._rests[waiter] = now + max(outcome.retry_after_s, min(wait, LONGEST_REST_S))
        return waiter, wait

    def forget(self, waiter: Slot) -> None:
        self._back_off.pop(waiter, None)
        self._rests.pop(waiter, None)
