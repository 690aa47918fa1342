"""Waiting for an event or a time-out, whichever comes first, by the clock that the process was given."""

import asyncio

from mooring.clients.ports import Clock


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
