"""When housekeeping may be done: days and hours on the clocks of a place (D8).

A window that ends before it begins goes on after midnight and belongs to the day on which it begins. Summer time moves
it as it moves the clocks: 02:30 that is skipped counts from the jump on, an hour that comes twice counts twice.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, time, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY_S: Final = 86400.0
#: So far ahead a change is looked for: each window comes at least once a week.
_AHEAD: Final = 9


class Window(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: Mon, Tue, Wed, Thu, Fri, Sat, Sun; not given: every day.
    days: tuple[str, ...] = DAYS
    #: HH:MM. The same as `end`: the whole day.
    start: str = "00:00"
    end: str = "00:00"
    #: The name of a time zone: Asia/Tokyo.
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if not self.days or (strange := [day for day in self.days if day not in DAYS]):
            named = ", ".join(strange) if self.days else "no day"
            raise ValueError(f"a window has the days {named}; write some of {', '.join(DAYS)}")
        for text in (self.start, self.end):
            if re.fullmatch(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]", text) is None:
                raise ValueError(f"a window has the time {text!r}; write HH:MM, e.g. 22:00")
        try:
            _zone(self.zone)
        except (OSError, ValueError):
            raise ValueError(f"a window has the zone {self.zone!r}; write a name such as Asia/Tokyo or UTC") from None

    def is_open(self, at: float) -> bool:
        local = datetime.fromtimestamp(at, _zone(self.zone))
        clock, today = local.time(), DAYS[local.weekday()]
        start, end = time.fromisoformat(self.start), time.fromisoformat(self.end)
        if start < end:
            return today in self.days and start <= clock < end
        return (today in self.days and clock >= start) or (DAYS[local.weekday() - 1] in self.days and clock < end)

    def edges(self, at: float) -> Iterator[float]:
        """The moments near which it opens or closes, as the clocks show them."""
        zone = _zone(self.zone)
        today = datetime.fromtimestamp(at, zone).date()
        for offset in range(-1, _AHEAD):
            for text in (self.start, self.end):
                moment = datetime.combine(today + timedelta(days=offset), time.fromisoformat(text), zone)
                yield from (moment.replace(fold=fold).timestamp() for fold in (0, 1))


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except KeyError as error:
        raise ValueError(str(error)) from None


def is_open(windows: Sequence[Window], at: float) -> bool:
    """Without any window it always is."""
    return not windows or any(window.is_open(at) for window in windows)


def next_change(windows: Sequence[Window], now: float) -> float | None:
    """When it opens or closes next, to the second; None: never."""
    before, last = is_open(windows, now), now
    edges = sorted(edge for window in windows for edge in window.edges(now) if edge > now)
    for edge in (*edges, now + _AHEAD * _DAY_S):
        if is_open(windows, edge) != before:
            return _between(windows, last, edge, before)
        last = edge
    return None


def _between(windows: Sequence[Window], low: float, high: float, before: bool) -> float:
    """An edge that summer time moved lies between two moments: the first whole second that differs."""
    first, last = int(low), int(-(-high // 1))
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if is_open(windows, middle) == before else (first, middle)
    return float(last)


def spoken(at: float, windows: Sequence[Window]) -> str:
    """A moment as people there write it: "Mon 22:00 (Asia/Tokyo)"."""
    zone = windows[0].zone if windows else "UTC"
    return f"{datetime.fromtimestamp(at, _zone(zone)):%a %H:%M} ({zone})"
