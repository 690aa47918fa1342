"""Settings that change while running: the file is read again every few seconds, and what may change is taken over.

Features, the queue's settings and those of every capability change at once; for everything else the log names the key
and says that it needs a restart.

A file that has become wrong changes nothing: the running settings stay, and the log says what is wrong.
"""

from collections.abc import Awaitable, Callable

import structlog

from mooring.clients.ports import Clock
from mooring.core.model.exits import UserError
from mooring.process.settings.config import Config, ConfigError, Resolved

log = structlog.get_logger()

EVERY_S = 5.0


class Reloader:
    def __init__(
        self, current: Config, resolve: Callable[[], Resolved], apply: Callable[[Config], Awaitable[list[str]]]
    ) -> None:
        self._current = current
        self._resolve = resolve
        self._apply = apply
        self._said = ""

    async def run(self, clock: Clock) -> None:
        while True:
            await clock.sleep(EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Read everything once more and take over what is new."""
        try:
            resolved = self._resolve()
        except ConfigError as error:
            self._refuse(error)
            return
        if resolved.config == self._current:
            self._said = ""
            return
        try:
            waiting = await self._apply(resolved.config)
        except (OSError, ValueError, UserError) as error:
            # Read well, and yet it cannot be (an address in use, say): tried again at the next look.
            self._refuse(error)
            return
        self._said = ""
        before, self._current = self._current, resolved.config
        features, were = sorted(resolved.config.on()), sorted(before.on())
        log.info("config.reloaded", features=features, were=were, needs_restart=waiting)

    def _refuse(self, error: Exception) -> None:
        """Said once, not every five seconds."""
        if str(error) != self._said:
            log.warning("config.refused", error=str(error), running="with the settings before")
        self._said = str(error)
