"""What the engine has yet to do: keys to look at, operators to steer, and when to wake.

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
#: How long a look may wait for which nothing but words is due.
LATER_S: Final = 2.0


class WorkList:
    def __init__(self) -> None:
        #: Slot → what made it dirty.
        self.looks: dict[Slot, str] = {}
        self.steers: dict[str, None] = {}
        #: Slot → when its look is due, and what touched it. All wait equally long: the first here is due first.
        self._later: dict[Slot, tuple[float, str]] = {}
        self._heap: list[tuple[float, int, Slot]] = []
        self._wakes: dict[Slot, float] = {}
        self._count = 0

    def look(self, slot: Slot, cause: str) -> None:
        self.looks.setdefault(slot, cause)

    def touch(self, capability: str, touched: str | Deferred, cause: str, now: float, at: float | None = None) -> None:
        """Look now, or `at` a later time, or a little later if no look comes by before."""
        if isinstance(touched, Deferred):
            self._later.setdefault((capability, touched.key), (now + LATER_S, cause))
        elif at is None:
            self.look((capability, touched), cause)
        else:
            self.wake_at(at, (capability, touched))

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
        if slot is None:
            return None
        self._later.pop(slot, None)
        return slot, self.looks.pop(slot)

    @property
    def pending(self) -> bool:
        return bool(self.looks or self.steers)

    def wake_at(self, at: float, slot: Slot) -> None:
        known = self._wakes.get(slot)
        if known is None or at < known:
            self._wakes[slot] = at
            self._count += 1
            heapq.heappush(self._heap, (at, self._count, slot))

    def ripen(self, now: float) -> None:
        """No look has come by: now it is due."""
        while self._later:
            slot, (due, cause) = next(iter(self._later.items()))
            if due > now:
                return
            del self._later[slot]
            self.look(slot, cause)

    def due(self, now: float) -> Iterator[Slot]:
        while self._heap and self._heap[0][0] <= now:
            at, _, slot = heapq.heappop(self._heap)
            if self._wakes.get(slot) == at:  # else an earlier one has been set since
                del self._wakes[slot]
                yield slot

    def next_wake(self) -> float | None:
        while self._heap and self._wakes.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        later = next(iter(self._later.values()), None)
        times = [*(at for at, _, _ in self._heap[:1]), *([] if later is None else [later[0]])]
        return min(times, default=None)
