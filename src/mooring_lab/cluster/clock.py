"""Virtual time: one heap of timers that everything in the sandbox hangs on.

The problem: a scenario that lasts two hours must play in milliseconds and come out the same every time. So nothing here
sleeps and nothing reads the machine's clock. A `Timeline` holds timers; ties fire in the order they were set. Three
drivers move it:

    run_until / run_for / run_while    plain synchronous code (controllers, most tests)
    VirtualLoop, run_virtual           asyncio code: when every task waits, time jumps to the next timer
    WallDriver                         an ordinary asyncio loop with real sockets; 1 wall second = `speed` virtual ones

The wall clock (`now`) may be made to jump; the monotonic one never does.
"""

import asyncio
import gc
import heapq
import selectors
import signal
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, TypeVar

from mooring.core.model.times import rfc3339

T = TypeVar("T")

#: Where virtual wall time begins unless told otherwise: 2026-01-01T00:00:00Z.
DEFAULT_EPOCH: Final = 1767225600.0


class Timer:
    """A callback that is due at a moment; `cancel` makes it never fire."""

    __slots__ = ("fn", "when")

    def __init__(self, when: float, fn: Callable[[], None]) -> None:
        self.when = when
        self.fn: Callable[[], None] | None = fn

    def cancel(self) -> None:
        self.fn = None


class Timeline:
    def __init__(self, epoch: float = DEFAULT_EPOCH) -> None:
        self._epoch = epoch
        self._monotonic = 0.0
        self._skew = 0.0
        self._order = 0
        self._heap: list[tuple[float, int, Timer]] = []
        self._running = False
        #: Called when a timer is set from outside a run: lets a wall driver wake up early.
        self.on_schedule: Callable[[], None] | None = None

    def now(self) -> float:
        return self._epoch + self._monotonic + self._skew

    def monotonic(self) -> float:
        return self._monotonic

    def jump(self, seconds: float) -> None:
        """The wall clock is set forward or back; what is measured by the monotonic clock does not notice."""
        self._skew += seconds

    def at(self, when: float, fn: Callable[[], None]) -> Timer:
        self._order += 1
        when = max(when, self._monotonic)
        timer = Timer(when, fn)
        heapq.heappush(self._heap, (when, self._order, timer))
        if self.on_schedule is not None and not self._running:
            self.on_schedule()
        return timer

    def after(self, delay_s: float, fn: Callable[[], None]) -> Timer:
        return self.at(self._monotonic + delay_s, fn)

    def soon(self, fn: Callable[[], None]) -> Timer:
        """After everything that is already due now."""
        return self.at(self._monotonic, fn)

    def next_at(self) -> float | None:
        """When the next timer is due; None: there is none."""
        heap = self._heap
        while heap and heap[0][2].fn is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def step(self, limit: float) -> bool:
        """Fire the next timer due no later than `limit`, moving time there. False: there was none."""
        if self._running:
            raise RuntimeError("the timeline is already running: a timer must not drive it")
        when = self.next_at()
        if when is None or when > limit:
            return False
        timer = heapq.heappop(self._heap)[2]
        self._monotonic = max(self._monotonic, when)
        fn, timer.fn = timer.fn, None
        if fn is not None:
            self._running = True
            try:
                fn()
            finally:
                self._running = False
        return True

    def run_until(self, monotonic: float) -> None:
        while self.step(monotonic):
            pass
        self._monotonic = max(self._monotonic, monotonic)

    def run_for(self, seconds: float) -> None:
        self.run_until(self._monotonic + seconds)

    def run_while(self, pred: Callable[[], bool], limit_s: float) -> bool:
        """Run as long as `pred` holds, at most `limit_s`. True: it stopped holding in time."""
        limit = self._monotonic + limit_s
        while pred():
            if not self.step(limit):
                self._monotonic = max(self._monotonic, limit)
                return not pred()
        return True

    def skip_to(self, monotonic: float) -> None:
        """Move to a moment before which nothing is due (used by the drivers)."""
        self._monotonic = max(self._monotonic, monotonic)

    def stamp(self, *, delta_s: float = 0.0) -> str:
        """Now, as Kubernetes writes a time."""
        return rfc3339(self.now() + delta_s)


def parse_rfc3339(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


# ── asyncio on virtual time ───────────────────────────────────────────────────────────────────────────────────────


class StuckError(RuntimeError):
    """Time can no longer pass: every task waits and no timer is set, or tasks keep each other busy for ever."""


#: Turns of the loop at one moment of virtual time; the busiest scenario takes a few thousand.
MOST_TURNS: Final = 50_000


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting for sockets, moves the timeline to the next timer (its own, or the loop's)."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline
        #: Turns of the loop since time last moved.
        self._turns, self._at = 0, -1.0
        #: What an alarm asked for, to be done between two turns of the loop.
        self.alarm: Callable[[], object] | None = None
        #: No task is ready, the loop has no timer of its own, and no alarm rings.
        self.tasks_wait: Callable[[], bool] = lambda: False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.alarm is not None:
            alarm, self.alarm = self.alarm, None
            alarm()
        timeline = self._timeline
        here = timeline.monotonic()
        if timeout is not None and timeout <= 0:
            # Tasks are ready: fire what is due at this very moment, but do not move on.
            self._turns = self._turns + 1 if here == self._at else 0
            self._at = here
            if self._turns > MOST_TURNS:
                raise StuckError(
                    f"time stands still at {here:.2f} s: tasks have been ready {MOST_TURNS} times in a row"
                )
            timeline.step(here)
            return []
        loop_at = None if timeout is None else here + timeout
        next_at = timeline.next_at()
        if next_at is not None and (loop_at is None or next_at <= loop_at):
            timeline.step(next_at)
            while loop_at is None and self.tasks_wait() and (next_at := timeline.next_at()) is not None:
                timeline.step(next_at)  # most timers are the cluster's and wake no task: no turn of the loop for each
        elif loop_at is not None:
            timeline.skip_to(loop_at)
        else:
            raise StuckError("every task waits and no timer is set")
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose time is a timeline's. Ordinary asyncio code runs on it; real sockets do not."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.jumping = _JumpingSelector(timeline)
        super().__init__(self.jumping)
        self.jumping.tasks_wait = lambda: not (self._ready or self._scheduled or self.jumping.alarm)  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._timeline.monotonic()

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """At once, and not in a thread: two runs would meet its end at two moments (O5)."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 — as a thread hands it on
            done.set_exception(error)
        return done

    def _run_once(self) -> None:
        """A turn as asyncio has it, without its bookkeeping for sockets and slow callbacks: there are thousands of
        turns in a run, and most of them run one callback. With a timer of the loop's own, asyncio's."""
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        if self._scheduled or self._stopping or self.get_debug():  # type: ignore[attr-defined]
            super()._run_once()  # type: ignore[misc]
            return
        self.jumping.select(0 if ready else None)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:  # noqa: SLF001
                handle._run()  # noqa: SLF001


def run_virtual(coro_fn: Callable[[], Awaitable[T]], timeline: Timeline) -> T:
    """Run a coroutine to its end on virtual time; tasks it leaves behind are canceled."""

    async def main() -> T:
        return await coro_fn()

    loop = VirtualLoop(timeline)
    with asyncio.Runner(loop_factory=lambda: loop) as runner, _alarms_between_turns(loop.jumping):
        return runner.run(main())


#: A single turn of the loop that takes longer than this is interrupted where it is.
LONGEST_TURN_S: Final = 5.0


@contextmanager
def _alarms_between_turns(selector: _JumpingSelector) -> Iterator[None]:
    """SIGALRM raises wherever the process happens to be (as the time-out of pytest). In a task that would end up as the
    task's result, and be lost; so it is raised between two turns."""
    given = signal.getsignal(signal.SIGALRM)
    if not callable(given) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def postpone(number: int, frame: Any) -> None:
        def ring() -> None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            given(number, frame)

        if selector.alarm is not None:  # a turn that does not end
            ring()
        selector.alarm = ring
        signal.setitimer(signal.ITIMER_REAL, LONGEST_TURN_S)

    signal.signal(signal.SIGALRM, postpone)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, given)


class TimelineClock:
    """`ports.Clock` on a timeline; sleeping works on a VirtualLoop and under a WallDriver alike."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.now = timeline.now
        self.monotonic = timeline.monotonic

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        return self._timeline.after(seconds, call)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        timer = self._timeline.after(seconds, wake)
        try:
            await woken
        finally:
            timer.cancel()


class WallDriver:
    """Pumps a timeline from an ordinary asyncio loop: 1 wall second = `speed` virtual seconds."""

    def __init__(self, timeline: Timeline, speed: float = 1.0, longest_nap_s: float = 0.05) -> None:
        self._timeline = timeline
        self._speed = speed
        self._longest_nap_s = longest_nap_s
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """For ever; cancel to stop."""
        timeline, loop = self._timeline, asyncio.get_running_loop()
        wall_0, virtual_0 = loop.time(), timeline.monotonic()
        timeline.on_schedule = self._wake.set
        try:
            while True:
                target = virtual_0 + (loop.time() - wall_0) * self._speed
                turns = 0
                while timeline.step(target):
                    turns += 1
                    if turns % 200 == 0:
                        await asyncio.sleep(0)
                timeline.skip_to(target)
                await self._nap()
        finally:
            timeline.on_schedule = None

    async def _nap(self) -> None:
        next_at = self._timeline.next_at()
        nap = self._longest_nap_s
        if next_at is not None:
            nap = min(nap, max(0.0, (next_at - self._timeline.monotonic()) / self._speed))
        self._wake.clear()
        try:
            async with asyncio.timeout(nap):
                await self._wake.wait()
        except TimeoutError:
            pass


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The garbage collector, kept from walking a large cluster over and over.


@contextmanager
def quiet_collector(young: int = 200_000) -> Iterator[None]:
    """Collect rarely inside, as before afterwards."""
    before = gc.get_threshold()
    gc.set_threshold(young, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
