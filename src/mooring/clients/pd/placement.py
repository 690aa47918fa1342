"""Reads PD's placement rules, region labels and schedule settings, not more often than they change."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from mooring.clients.pd.transport import PdAnswer
from mooring.clients.ports import Clock, PortError
from mooring.clients.wire.placement import placement
from mooring.core.model.placement import Placement

#: No such route in this version, or placement rules are switched off.
_ABSENT: Final = frozenset({404, 412})
#: Rules and labels are read so often at most; `halt-scheduling` at every look.
EVERY_S: Final = 10.0
PATHS: Final = ("/config/replicate", "/config/rules", "/config/rule_groups", "/config/region-label/rules")


class PlacementReader:
    """Reads them for a look, and answers with the same value as long as PD says the same."""

    def __init__(self, ask: Callable[[str], Awaitable[PdAnswer]], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._read_at: float | None = None
        self._said: tuple[bytes | None, ...] = ()
        self._known: Placement | None = None

    async def read(self) -> Placement | None:
        """None: PD could not say; the rest of the look stands."""
        try:
            schedule = await self._ask("/config/schedule")
            others = self._said[1:]
            now = self._clock.monotonic()
            if self._read_at is None or now - self._read_at >= EVERY_S:
                answers = await asyncio.gather(*map(self._ask, PATHS))
                if not answers[0].ok or any(not a.ok and a.status not in _ABSENT for a in answers[1:]):
                    return None
                others, self._read_at = tuple(a.body if a.ok else None for a in answers), now
            said = (schedule.body if schedule.ok else None, *others)
            if said != self._said or self._known is None:
                schedule_body, replicate, rules, groups, labels = said
                if schedule_body is None or replicate is None:
                    return None
                self._known = placement(schedule_body, replicate, rules, groups, labels)
                self._said = said
        except (PortError, ValueError):
            self._read_at = None
            return None
        return self._known
