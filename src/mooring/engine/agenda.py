"""What the engine has yet to do: keys to look at, operators to steer, and when to wake.

Insertion-ordered throughout, so that equal inputs give equal outputs. A wake-up is kept once per key, the earliest.
"""

import heapq
from collections.abc import Iterator

#: (capability, key)
Slot = tuple[str, str]
#: The capability name under which operators stand here.
OPERATOR = "op"


class Agenda:
    def __init__(self) -> None:
        #: Slot → what made it dirty.
        self.looks: dict[Slot, str] = {}
        self.steers: dict[str, None] = {}
        self._heap: list[tuple[float, int, Slot]] = []
        self._wakes: dict[Slot, float] = {}
        self._count = 0

    def look(self, slot: Slot, cause: str, at: float | None = None) -> None:
        """Now, or `at` a later time."""
        if at is None:
            self.looks.setdefault(slot, cause)
        else:
            self.wake_at(at, slot)

    def steer(self, operator_id: str) -> None:
        self.steers.setdefault(operator_id)

    def drop(self, operator_id: str) -> None:
        self.steers.pop(operator_id, None)

    def next_steer(self) -> str | None:
        operator_id = next(iter(self.steers), None)
        if operator_id is not None:
            del self.steers[operator_id]
        return operator_id

    def next_look(self) -> tuple[Slot, str] | None:
        slot = next(iter(self.looks), None)
        return None if slot is None else (slot, self.looks.pop(slot))

    @property
    def pending(self) -> bool:
        return bool(self.looks or self.steers)

    def wake_at(self, at: float, slot: Slot) -> None:
        known = self._wakes.get(slot)
        if known is None or at < known:
            self._wakes[slot] = at
            self._count += 1
            heapq.heappush(self._heap, (at, self._count, slot))

    def due(self, now: float) -> Iterator[Slot]:
        while self._heap and self._heap[0][0] <= now:
            at, _, slot = heapq.heappop(self._heap)
            if self._wakes.get(slot) == at:  # else an earlier one has been set since
                del self._wakes[slot]
                yield slot

    def next_wake(self) -> float | None:
        while self._heap and self._wakes.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
