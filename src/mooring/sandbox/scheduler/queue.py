"""The pods that wait for a node: ready to try, backing off, or given up until the cluster changes.

add ──▶ active (by priority, then age) ──▶ attempt ──▶ bound
           ▲                                  │ does not fit
           │ back-off over (1 s … 10 s)       ▼
        backing off ◀──── cluster event ── unschedulable (at most 5 min, then tried anyway)
"""

import heapq
from typing import Final

from mooring.sandbox.clock import Timeline
from mooring.sandbox.scheduler.snapshot import PodKey

FIRST_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 10.0
LEFTOVER_S: Final = 300.0


class SchedulingQueue:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._order = 0
        self._active: list[tuple[int, float, int, PodKey]] = []
        self._waiting: dict[PodKey, int] = {}
        #: Key → (attempts, since when it is unschedulable). A key in neither dict is not ours to schedule.
        self.unschedulable: dict[PodKey, float] = {}
        self._attempts: dict[PodKey, int] = {}
        self._priority: dict[PodKey, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: PodKey, priority: int) -> None:
        self.unschedulable.pop(key, None)
        self._priority[key] = priority
        self._order += 1
        self._waiting[key] = self._order
        heapq.heappush(self._active, (-priority, self._timeline.monotonic(), self._order, key))

    def forget(self, key: PodKey) -> None:
        for table in (self._waiting, self.unschedulable, self._attempts, self._priority):
            table.pop(key, None)

    def pop(self) -> PodKey | None:
        while self._active:
            _, _, order, key = heapq.heappop(self._active)
            if self._waiting.get(key) == order:
                del self._waiting[key]
                self._attempts[key] = self._attempts.get(key, 0) + 1
                return key
        return None

    def give_up(self, key: PodKey) -> None:
        self.unschedulable[key] = self._timeline.monotonic()

    def backoff_s(self, key: PodKey) -> float:
        """How long until it may be tried again, measured from when it failed."""
        wait = min(FIRST_BACKOFF_S * 2.0 ** (self._attempts.get(key, 1) - 1), MAX_BACKOFF_S)
        return max(0.0, self.unschedulable.get(key, 0.0) + wait - self._timeline.monotonic())

    def revive(self, key: PodKey) -> None:
        if key in self.unschedulable:
            self.add(key, self._priority.get(key, 0))
