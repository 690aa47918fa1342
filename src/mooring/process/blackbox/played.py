"""A recording played up to a moment, and what Mooring would have answered then."""

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from mooring.core.engine.history import HistoryEntry
from mooring.core.engine.recording.records import Record, Turn
from mooring.core.engine.recording.replay import Difference, Replay
from mooring.core.engine.why import explain
from mooring.core.engine.why.names import resolve, spelled_out
from mooring.core.model.exits import Exit, UserError
from mooring.core.model.times import rfc3339_milli
from mooring.process.blackbox.file import DamagedError, RecordingFile
from mooring.process.blackbox.playback import Playback
from mooring.process.http.frames import Framer
from mooring.process.http.queuerows import queue_answer
from mooring.process.http.recorded import RecordedReplica
from mooring.process.http.stream import picture
from mooring.process.http.why import not_found

WHEN: Final = 'write 2026-01-01T03:12:05Z, 03:12:05, +90 (seconds from its start) or "op 57 promoted"'

#: A time of day: the first one after the recording begins.
_DAYTIME: Final = re.compile(r"\d\d:\d\d(:\d\d(\.\d+)?)?")
DAY_S: Final = 86_400.0


class Played:
    """A recording, as far as it was asked for."""

    def __init__(self, recording: RecordingFile, until: str, say: Callable[[str], None]) -> None:
        self.recording = recording
        self._say = say
        self._asked = until
        self._operator, self._verb, self._until = _moment(until, recording.header.started_at)
        played = Playback(recording) if self._until is None else Playback(recording, self._until, first=False)
        self.engine, self.started_at, self.damaged = played.engine, played.started_at, played.damaged
        self._records: Iterator[Record] = played.records
        self.config = played.config
        self.engine.defects.listener = lambda where, error: say(f"mooring: {where}: {type(error).__name__}: {error}")
        self.replay = Replay(self.engine)
        self._reached = False
        self.engine.history.listeners.append(self._listen)

    def _listen(self, entry: HistoryEntry) -> None:
        if self._operator and (entry.id, entry.verb) == (self._operator, self._verb):
            self._reached = True

    def run(self) -> Difference | None:
        for record in self._whole_records():
            if self._until is not None and isinstance(record, Turn) and record.now > self._until:
                self._records = chain((record,), self._records)
                return None
            different = self.replay.put(record)
            if different is not None or self._reached:
                return different
        if self._operator:
            raise UserError(
                f"operator {self._operator} is never {self._verb} in {self.recording.path}", Exit.CHECK_FAILED
            )
        if self._until is not None:
            if _DAYTIME.fullmatch(self._asked) and self._until - DAY_S < self.recording.header.started_at:
                raise UserError(
                    f"{self._asked} is not in the recording, which begins at "
                    f"{rfc3339_milli(self.recording.header.started_at)} and ends at {rfc3339_milli(self.engine.now)}"
                )
            self._say(
                f"mooring: the recording ends before that; this is as of its end, {rfc3339_milli(self.engine.now)}"
            )
            self._until = None
        return None

    def _whole_records(self) -> Iterator[Record]:
        """Where the recording is damaged: when that is, what was compared up to there, and what can still be read."""
        try:
            yield from self._records
        except DamagedError as error:
            now = max(self.engine.now, self.started_at)
            later = [part.header.started_at for part in self.recording.parts if part.header.number > error.number]
            rest = "nothing after that can be read"
            if later:
                rest = f"it can be read again from {rfc3339_milli(later[0])} on: ask with an --until after that"
            words = f"{error}, after {rfc3339_milli(now)}; up to there {self.equal_line()}; {rest}"
            raise UserError(words) from None

    def rest(self) -> Iterator[Record]:
        """What was recorded after it."""
        return self._records

    @property
    def now(self) -> float:
        """The moment that questions are about."""
        return self.engine.now if self._until is None else self._until

    def queue(self) -> Any:
        return _plain(queue_answer(self.engine, self.now))

    async def frame(self) -> Any:
        shown: Any = RecordedReplica(self.recording, self.engine, self.config, self.now)
        frame = await Framer(lambda: shown).build()
        assert frame is not None
        return {**_plain(picture(frame)), "recorded": self.recording.path.name}

    def why(self, subject: str, namespace: str) -> Any:
        """As `mooring why` would have been told then; how old its data was is not recorded."""
        path = spelled_out(subject, namespace)
        leader = self.recording.header.identity if self.engine.leading else ""
        found = explain(self.engine, path, now=self.now, leader=leader)
        if found is None and len(meant := resolve(self.engine, path, namespace)) == 1:
            found = explain(self.engine, meant[0], now=self.now, leader=leader)
        if found is None:
            raise UserError(not_found(self.engine, path, namespace), Exit.CHECK_FAILED)
        return _plain(found)

    def equal_json(self) -> dict[str, Any]:
        counts = {"turns": self.replay.turns, "instructions": self.replay.instructions}
        return {"equal": True, **counts, "from": self.started_at, "to": self.engine.now}

    def equal_line(self) -> str:
        header, done, end = self.recording.header, self.replay, max(self.engine.now, self.started_at)
        return (
            f"equal: {done.instructions} instructions in {done.turns} turns, {rfc3339_milli(self.started_at)} to "
            f"{rfc3339_milli(end)}, recorded by {header.identity}, Mooring {header.mooring}"
        )


def play(file: str, until: str, say: Callable[[str], None]) -> tuple[Played, Difference | None]:
    """As far as it was asked for, or to the first instruction that differs."""
    try:
        played = Played(RecordingFile(Path(file)), until, say)
        different = played.run()
    except OSError as error:
        raise UserError(f"{file}: {error.strerror or error}") from None
    for damaged in played.damaged:
        say(f"mooring: {damaged}, in its checkpoint; played from {rfc3339_milli(played.started_at)}")
    if cut_off := played.recording.cut_off:
        say(f"mooring: the last {cut_off} bytes are not a whole frame; everything before them was read")
    return played, different


def difference_json(different: Difference) -> dict[str, Any]:
    return {"equal": False, **_plain(different)}


def difference_lines(different: Difference) -> list[str]:
    sides = (("recorded", different.recorded), ("computed", different.computed))
    lines = [f"different: instruction {different.place} of turn {different.turn}, at {rfc3339_milli(different.at)}"]
    for side, one in sides:
        said = "nothing" if one is None else f"{one[0]} {json.dumps(one[1], sort_keys=True, default=repr)}"
        lines.append(f"  {side}  {said}")
    return lines


def _moment(text: str, started_at: float) -> tuple[str, str, float | None]:
    """Operator and verb, or a time; neither: the end."""
    if not text:
        return "", "", None
    if said := re.fullmatch(r"op(?:erator)?[ /](\d+) ([a-z-]+)", text.strip()):
        return said[1], said[2], None
    if seconds := re.fullmatch(r"\+(\d+(?:\.\d+)?)", text):
        return "", "", started_at + float(seconds[1])
    start = dt.datetime.fromtimestamp(started_at, dt.UTC)
    try:
        if _DAYTIME.fullmatch(text):
            at = dt.datetime.combine(start.date(), dt.time.fromisoformat(text), dt.UTC)
            at += dt.timedelta(days=at < start.replace(microsecond=0))
        else:
            at = dt.datetime.fromisoformat(text)
            at = at.replace(tzinfo=at.tzinfo or dt.UTC)
    except ValueError:
        raise UserError(f"{text} is not a moment; {WHEN}") from None
    if at.timestamp() < int(started_at):
        raise UserError(f"{text} is before the recording, which begins at {rfc3339_milli(started_at)}")
    return "", "", at.timestamp()


def _plain(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))
