"""What keeps a proposal from the queue, whatever its costs: the feature only observes (D9), a person has paused it, or
it is housekeeping and its window is closed (D8).

One function, `Holds.verdict`, answers for the leader and for `why`. Nothing is remembered here: windows are settings,
a pause is a ConfigMap in Mooring's own namespace (`mooring-pause`) with an entry for each paused feature, or for
`everything`:

    handoff: {"by": "kubernetes-admin", "until": "2026-01-31T08:15:00Z", "deadlines": false}

No `until`: until it is resumed. What has a deadline, and notices, go on unless `deadlines` is true. An entry that
cannot be read pauses: in doubt nothing new begins.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from mooring.core.model.cluster import ConfigMap, Key
from mooring.core.model.decision import Verdict
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.model.times import moment, time_of_day
from mooring.core.model.windows import Window, is_open, next_change, spoken
from mooring.core.world.read import WorldRead

PAUSE_MAP: Final = "mooring-pause"
EVERYTHING: Final = "everything"
#: What nobody waits for.
HOUSEKEEPING: Final = frozenset(
    {Reason.BALANCE, Reason.RETURN_TO_SPOT, Reason.WRONG_CLASS, Reason.UNMET_FLOOR, Reason.DISABLED}
)
_URGENT: Final = frozenset({Reason.NOTICE, Reason.DEADLINE})


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    #: Who asked for it.
    by: str = ""
    #: RFC 3339; "": until it is resumed.
    until: str = ""
    #: It also stops what has a deadline, and notices.
    deadlines: bool = False
    #: In words, by whoever paused.
    why: str = ""

    @property
    def ends_at(self) -> float | None:
        return moment(self.until) if self.until else None


def read_pauses(found: ConfigMap | None) -> Mapping[str, Pause]:
    """Feature, or `everything` → its pause."""
    return {name: _read(text) for name, text in (found.data if found is not None else {}).items()}


def _read(text: str) -> Pause:
    try:
        pause = msgspec.json.decode(text, type=Pause)
    except msgspec.DecodeError:
        return Pause(by="an entry that cannot be read")
    return pause if not pause.until or pause.ends_at is not None else msgspec.structs.replace(pause, until="")


class Holds:
    def __init__(self, world: WorldRead, namespace: str) -> None:
        self._world = world
        self._map = Key(namespace, PAUSE_MAP)
        self._read: tuple[ConfigMap | None, Mapping[str, Pause]] = (None, {})
        #: Features that decide and do nothing.
        self.observing: frozenset[str] = frozenset()

    @property
    def pauses(self) -> Mapping[str, Pause]:
        found = self._world.config_map(self._map)
        if found is not self._read[0]:
            self._read = (found, read_pauses(found))
        return self._read[1]

    def pause_of(self, capability: str, now: float) -> Pause | None:
        """The pause that holds for a feature now; its own before that of everything."""
        for name in (capability, EVERYTHING):
            pause = self.pauses.get(name)
            if pause is not None and (pause.ends_at is None or pause.ends_at > now):
                return pause
        return None

    def verdict(self, capability: str, operator: Operator, windows: tuple[Window, ...], now: float) -> Verdict | None:
        """Why this is not even offered to the queue; None: nothing holds it."""
        if capability in self.observing:
            what = f"{operator.kind.replace('-', ' ')} {operator.subject}"
            return Verdict(State.STABLE, Reason.OBSERVING, f"{capability} only observes: it would {what}")
        pause = self.pause_of(capability, now)
        urgent = operator.deadline is not None or operator.reason in _URGENT
        if pause is not None and (pause.deadlines or not urgent):
            by = f" by {pause.by}" if pause.by else ""
            until = f" until {time_of_day(pause.ends_at)}" if pause.ends_at is not None else ""
            detail = f"{capability} is paused{by}{until}{f': {pause.why}' if pause.why else ''}"
            return Verdict(State.WAITING, Reason.PAUSED, detail, f"mooring resume {capability}")
        if operator.reason not in HOUSEKEEPING or urgent or is_open(windows, now):
            return None
        opens = next_change(windows, now)
        when = f"; it opens {spoken(opens, windows)}" if opens is not None else ""
        return Verdict(State.WAITING, Reason.OUTSIDE_WINDOW, f"housekeeping waits for its window{when}")

    def next_change(self, windows: tuple[Window, ...], now: float) -> float | None:
        """When what is held next changes by itself."""
        ends = [at for pause in self.pauses.values() if (at := pause.ends_at) is not None and at > now]
        edge = next_change(windows, now) if windows else None
        return min([*ends, *([edge] if edge is not None else [])], default=None)

    def state(self, windows: tuple[Window, ...], now: float) -> tuple[object, ...]:
        """Equal as long as the same is held, and until the same moment; empty: nothing is, or will be."""
        if not windows and not self.pauses:
            return ()
        held = tuple((name, pause) for name in sorted(self.pauses) if (pause := self.pause_of(name, now)))
        return windows, is_open(windows, now), held
