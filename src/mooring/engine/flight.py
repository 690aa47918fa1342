"""Writes under way. Whoever waits for one is not asked again before it has ended, so nothing is asked for twice.

A refused write is not repeated at once: 1 s, 2 s, … 30 s, or what the server asked for.
"""

from typing import Final

from mooring.engine.agenda import Slot
from mooring.model.instructions import Outcome

LONGEST_S: Final = 30.0


class Flight:
    def __init__(self) -> None:
        self._waiter_of: dict[str, Slot] = {}
        self._under_way: dict[Slot, int] = {}
        self._back_off: dict[Slot, float] = {}

    def begin(self, instruction: str, waiter: Slot) -> None:
        self._waiter_of[instruction] = waiter
        self._under_way[waiter] = self._under_way.get(waiter, 0) + 1

    def busy(self, waiter: Slot) -> bool:
        return waiter in self._under_way

    def end(self, outcome: Outcome) -> tuple[Slot, float] | None:
        """Who waited for it, and how long to wait before asking again (0: not at all). None: nobody of this life."""
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
        return waiter, wait

    def forget(self, waiter: Slot) -> None:
        self._back_off.pop(waiter, None)
