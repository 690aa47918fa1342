"""What the engine has yet to do: keys to evaluate, operators to advance, and when to wake.

Insertion-ordered throughout, so that equal inputs give equal outputs. A wake-up is kept once per key, the earliest.
"""

import heapq
from collections.abc import Iterator
from typing import Final

from mooring.core.model.decision import Deferred

#: (capability, key)
Slot = tuple[str, str]
#: The capability name under which operators stand here.
OPERATOR = "op"
#: How long an evaluation may be delayed when only its explanation can change.
LATER_S: Final = 2.0


class WorkList:
    def __init__(self) -> None:
        #: Slot → what affected it.
        self.evaluations: dict[Slot, str] = {}
        self.steps: dict[str, None] = {}
        #: Slot → when its evaluation is due, and what affected it. All wait equally long: the first here is due first.
        self._later: dict[Slot, tuple[float, str]] = {}
        self._heap: list[tuple[float, int, Slot]] = []
        self._wakes: dict[Slot, float] = {}
        self._count = 0

    def evaluate(self, slot: Slot, cause: str) -> None:
        self.evaluations.setdefault(slot, cause)

    def affect(self, capability: str, key: str | Deferred, cause: str, now: float, at: float | None = None) -> None:
        """Evaluate now, or `at` a later time, or a little later if no evaluation comes by before."""
        if isinstance(key, Deferred):
            self._later.setdefault((capability, key.key), (now + LATER_S, cause))
        elif at is None:
            self.evaluate((capability, key), cause)
        else:
            self.wake_at(at, (capability, key))

    def step(self, operator_id: str) -> None:
        self.steps.setdefault(operator_id)

    def drop(self, operator_id: str) -> None:
        self.steps.pop(operator_id, None)

    def next_step(self) -> str | None:
        operator_id = next(iter(self.steps), None)
        if operator_id is not None:
            del self.steps[operator_id]
        return operator_id

    def next_evaluation(self) -> tuple[Slot, str] | None:
        slot = next(iter(self.evaluations), None)
        if slot is None:
            return None
        self._later.pop(slot, None)
        return slot, self.evaluations.pop(slot)

    @property
    def pending(self) -> bool:
        return bool(self.evaluations or self.steps)

    def wake_at(self, at: float, slot: Slot) -> None:
        known = self._wakes.get(slot)
        if known is None or at < known:
            self._wakes[slot] = at
            self._count += 1
            heapq.heappush(self._heap, (at, self._count, slot))

    def ripen(self, now: float) -> None:
        """No evaluation has come by: now it is due."""
        while self._later:
            slot, (due, cause) = next(iter(self._later.items()))
            if due > now:
                return
            del self._later[slot]
            self.evaluate(slot, cause)

    def due(self, now: float) -> Iterator[Slot]:
        while self._heap and self._heap[0][0] <= now:
            at, _, slot = heapq.heappop(self._heap)
            if self._wakes.get(slot) == at:  # else an earlier one has been set since
                del self._wakes[slot]
                yield slot

    def next_wake(self) -> float | None:
        while self._heap and self._wakes.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        later = next(iter(self._later.values())) if self._later else None
        return soonest(self._heap[0][0] if self._heap else None, None if later is None else later[0])


def soonest(*times: float | None) -> float | None:
    """None: never. Asked at every turn, so without a list."""
    first = None
    for at in times:
        if at is not None and (first is None or at < first):
            first = at
    return first
