"""Virtual time: order, jumps, asyncio on it, and a wall driver."""

import asyncio
import signal
import time

import pytest

from mooring.core.model.times import rfc3339
from mooring_lab.cluster.clock import StuckError, Timeline, TimelineClock, WallDriver, parse_rfc3339, run_virtual


def test_ties_fire_in_the_order_they_were_set():
    """Two timers of one moment fire as they were set, whatever else was canceled between them (O5)."""
    timeline, seen = Timeline(), []
    timeline.at(5, lambda: seen.append("a"))
    timeline.at(5, lambda: seen.append("never")).cancel()
    timeline.at(5, lambda: timeline.soon(lambda: seen.append("after all due now")))
    timeline.at(5, lambda: seen.append("b"))
    timeline.at(1, lambda: seen.append("first"))
    timeline.run_until(10)
    assert seen == ["first", "a", "b", "after all due now"]
    assert timeline.monotonic() == 10


def test_the_wall_clock_jumps_and_the_monotonic_one_does_not():
    """A jump changes what people read, not what is measured."""
    timeline = Timeline(epoch=1000)
    timeline.run_for(5)
    timeline.jump(-3600)
    assert timeline.now() == 1000 + 5 - 3600
    assert timeline.monotonic() == 5


def test_run_while_stops_as_soon_as_the_condition_ends():
    """Time stands where the condition ended; a limit that passes says False."""
    timeline, seen = Timeline(), []
    for at in (1, 2, 3):
        timeline.at(at, lambda at=at: seen.append(at))
    assert timeline.run_while(lambda: len(seen) < 2, limit_s=100)
    assert timeline.monotonic() == 2
    assert not timeline.run_while(lambda: True, limit_s=50)
    assert timeline.monotonic() == 52


def test_a_timer_must_not_drive_the_timeline():
    """Running time from inside a timer would fire others out of order: it is an error."""
    timeline = Timeline()
    timeline.soon(lambda: timeline.run_for(1))
    with pytest.raises(RuntimeError, match="already running"):
        timeline.run_for(1)


def test_asyncio_code_runs_without_waiting():
    """An hour of sleeps, time-outs and timers passes at once, in order."""
    timeline, seen = Timeline(), []

    async def main():
        clock = TimelineClock(timeline)
        timeline.after(1800, lambda: seen.append("timer"))

        async def sleeper():
            await clock.sleep(2000)
            seen.append("sleeper")

        task = asyncio.create_task(sleeper())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                await asyncio.Event().wait()
        seen.append("timeout")
        await task
        return timeline.monotonic()

    assert run_virtual(main, timeline) == 2000
    assert seen == ["timeout", "timer", "sleeper"]


def test_waiting_for_ever_is_an_error():
    """Nothing due and everybody waiting would hang on a wall clock; here it says so."""

    async def main():
        await asyncio.Event().wait()

    with pytest.raises(StuckError):
        run_virtual(main, Timeline())


async def test_the_wall_driver_pumps_at_its_speed():
    """Under a wall driver timers fire in order and sleepers wake, many virtual seconds to a wall second."""
    timeline, seen = Timeline(), []
    timeline.at(30, lambda: seen.append(30))
    timeline.at(10, lambda: seen.append(10))
    driver = asyncio.create_task(WallDriver(timeline, speed=10_000).run())
    await TimelineClock(timeline).sleep(60)
    assert seen == [10, 30]
    assert timeline.monotonic() >= 60
    driver.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driver


def test_times_read_back():
    """What is written as RFC 3339 reads back to the second."""
    assert rfc3339(1767225600.9) == "2026-01-01T00:00:00Z"
    assert parse_rfc3339("2026-01-01T00:00:00Z") == 1767225600


class Alarm(BaseException):
    """As pytest's time-out: not an Exception."""


def test_an_alarm_ends_the_run_wherever_it_strikes():
    """A time-out that strikes inside a task of the background is not lost with that task."""

    def alarm(*_: object) -> None:
        raise Alarm

    struck = signal.signal(signal.SIGALRM, alarm)
    ends = time.monotonic() + 5.0

    async def busy() -> None:
        while time.monotonic() < ends:
            sum(range(10_000))
            await asyncio.sleep(0.01)

    async def whole() -> None:
        task = asyncio.ensure_future(busy())
        while not task.done():
            await asyncio.sleep(60.0)

    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(Alarm):
            run_virtual(whole, Timeline())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, struck)


def test_what_runs_in_a_thread_ends_at_the_moment_it_began():
    """O5: with a real thread, timers that are due passed meanwhile, more on a busy machine; an error arrives as it does
    from a thread."""
    timeline, seen = Timeline(), []

    async def whole():
        async def ticks():
            while True:
                await asyncio.sleep(1.0)
                seen.append("tick")

        ticking = asyncio.create_task(ticks())
        await asyncio.sleep(1.5)
        assert await asyncio.to_thread(lambda: time.sleep(0.05) or "done") == "done"
        seen.append("done")
        with pytest.raises(ValueError, match="no"):
            await asyncio.to_thread(int, "no")
        ticking.cancel()

    run_virtual(whole, timeline)
    assert seen == ["tick", "done"]
