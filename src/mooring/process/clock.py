"""Real time and real random numbers, behind the ports."""

import asyncio
import random
import secrets
import time
from collections.abc import Callable


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


class SystemChance:
    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def token(self, length: int = 8) -> str:
        return secrets.token_hex((length + 1) // 2)[:length]

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)
