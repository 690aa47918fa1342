"""Virtual time that people can watch: the same jumps from timer to timer, each taking its share of wall time.

`PacedLoop` is a `VirtualLoop` that also serves real sockets. While nothing is due on the timeline it waits for sockets,
at most as long as the next jump takes at this speed; a request in between is served at the virtual moment it arrives
in. What happens on the timeline, and in which order, is the same as without watchers.
"""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from mooring_lab.cluster.clock import StuckError, Timeline

T = TypeVar("T")


class _PacedSelector(selectors.DefaultSelector):
    def __init__(self, timeline: Timeline, speed: float) -> None:
        super().__init__()
        self._timeline = timeline
        #: Virtual seconds per wall second; may be changed at any time.
        self.speed = speed
        self._debt_since: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        timeline = self._timeline
        here = timeline.monotonic()
        if timeout is not None and timeout <= 0:
            timeline.step(here)
            return super().select(0)
        loop_at = None if timeout is None else here + timeout
        next_at = timeline.next_at()
        times = [at for at in (loop_at, next_at) if at is not None]
        if not times:
            if len(self.get_map()) <= 1:
                raise StuckError("every task waits and no timer is set")
            return super().select(None)
        goal = min(times)
        began = self._debt_since if self._debt_since is not None else monotonic()
        left = (goal - here) / self.speed - (monotonic() - began)
        ready = super().select(max(0.0, left))
        if ready:
            self._debt_since = began
            return ready
        self._debt_since = None
        if next_at is not None and next_at <= goal:
            timeline.step(next_at)
        else:
            timeline.skip_to(goal)
        return []


class PacedLoop(asyncio.SelectorEventLoop):
    def __init__(self, timeline: Timeline, speed: float) -> None:
        self._timeline = timeline
        self.pace = _PacedSelector(timeline, speed)
        super().__init__(self.pace)

    def time(self) -> float:
        return self._timeline.monotonic()


def run_paced(coro_fn: Callable[[], Awaitable[T]], timeline: Timeline, speed: float) -> T:
    """As `run_virtual`, at `speed` virtual seconds a second, with real sockets."""

    async def main() -> T:
        return await coro_fn()

    with asyncio.Runner(loop_factory=lambda: PacedLoop(timeline, speed)) as runner:
        return runner.run(main())
