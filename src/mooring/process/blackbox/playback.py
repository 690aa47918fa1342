"""A recording, and an engine that is as the recorded one was: at its start, or at a checkpoint in it."""

from collections.abc import Iterable, Iterator
from itertools import chain
from math import inf

import msgspec

from mooring.core.engine.engine import Engine
from mooring.core.engine.recording.checkpoint import Writable, restore
from mooring.core.engine.recording.reading import read, read_from_checkpoint
from mooring.core.engine.recording.records import Record
from mooring.core.world.kept import pod_by_uid
from mooring.process.assemble import capabilities
from mooring.process.blackbox.file import SINCE_WORLD, BadRecordingError, DamagedError, Part, RecordingFile
from mooring.process.replica import engine_of
from mooring.process.settings.config import Config, from_file


class Playback:
    def __init__(self, recording: RecordingFile, at: float = inf, *, first: bool = True) -> None:
        """From the first part that can be read alone; not `first`: from the last one that begins at `at` or before."""
        self.recording = recording
        self.config = config_of(recording)
        self.engine: Engine = engine_of(self.config, capabilities(self.config))
        self._known = pod_by_uid(self.engine.world) if recording.header.format >= SINCE_WORLD else None
        indexes = self.engine.world.indexes.by_class
        self._writes = {of.__name__: index.write_class for of, index in indexes.items() if isinstance(index, Writable)}
        #: Parts whose checkpoint cannot be read: what is in them was not played.
        self.damaged: list[DamagedError] = []
        parts = recording.parts
        places = [place for place, part in enumerate(parts) if not place or part.header.started_at <= at]
        for place in places if first else reversed(places):
            after = self._begin(parts[place])
            if after is not None:
                #: When what is played begins.
                self.started_at = parts[place].header.started_at
                rest = (self._read(part) for part in parts[place + 1 :])
                #: Each is to be put into the engine before the next is asked for.
                self.records: Iterator[Record] = chain(after, chain.from_iterable(rest))
                return
        raise next(
            iter(self.damaged), BadRecordingError(f"{recording.path}: no part of it begins with a whole checkpoint")
        )

    def _read(self, part: Part) -> Iterator[Record]:
        return _naming_damage(part, read(part.records(), self._known, self._writes))

    def _begin(self, part: Part) -> Iterator[Record] | None:
        if not part.header.number:
            return self._read(part)
        try:
            with part.naming_damage():
                found = read_from_checkpoint(part.records(), self._known, self._writes)
        except DamagedError as error:
            self.damaged.append(error)
            found = None
        if found is None:
            return None
        checkpoint, after = found
        try:
            restore(self.engine, checkpoint)
        except Exception as error:  # it may say anything: what fails then is its fault
            made_by = f"Mooring {part.header.mooring}"
            raise BadRecordingError(
                f"{part.path}: its checkpoint, of {made_by}, is none of this version: {error}"
            ) from error
        return _naming_damage(part, after)


def _naming_damage(part: Part, records: Iterable[Record]) -> Iterator[Record]:
    with part.naming_damage():
        yield from records


def config_of(recording: RecordingFile) -> Config:
    header = recording.header
    try:
        return from_file(header.settings)
    except msgspec.ValidationError as error:
        made_by = f"Mooring {header.mooring}"
        raise BadRecordingError(
            f"{recording.path}: its settings, of {made_by}, are none of this version: {error}"
        ) from None
