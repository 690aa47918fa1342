"""Real time and real random numbers, behind the ports; and waiting by the clock that a process was given."""

import asyncio
import random
import secrets
import time
from collections.abc import Callable

from mooring.clients.ports import Clock


class WallClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        """Also counts while the machine sleeps, where the system can say so: a lease runs out then too."""
        boottime = getattr(time, "CLOCK_BOOTTIME", None)
        return time.monotonic() if boottime is None else time.clock_gettime(boottime)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, call)


class SystemRandomness:
    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def token(self, length: int = 8) -> str:
        return secrets.token_hex((length + 1) // 2)[:length]

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


class TimedEvent:
    """As `asyncio.Event`, for one waiter, with a limit. It takes no task: the waiter waits every turn."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        self._set = True
        self._wake()

    def clear(self) -> None:
        self._set = False

    async def wait(self, seconds: float | None = None) -> None:
        """Until it is set, or so many seconds have passed (None: however long it takes)."""
        if self._set:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        alarm = self._clock.later(seconds, self._wake) if seconds is not None else None
        try:
            await self._waiter
        finally:
            self._waiter = None
            if alarm is not None:
                alarm.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
