"""The black box: what enters the engine, and what comes out, kept in files (see `core.engine.recording`).

Deciding pays for making the records and nothing else: a thread compresses and writes them, at least once a second. A
disk that is full, broken or too slow ends the recording, never the deciding. The directory never holds more than its
bound: recordings of earlier processes go first; when this one alone reaches the bound, it ends.
"""

import atexit
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import structlog

import mooring
from mooring.core.engine.events import Event
from mooring.core.engine.recording import Writer, written_record
from mooring.core.model.instructions import Instruction
from mooring.process.config import Config
from mooring.process.recording_file import SUFFIX, FrameWriter, Header, header_line, recordings

log = structlog.get_logger()

#: The settings that decide: with them and the events an engine is recreated.
DECIDING: Final = ("namespace", "features", "home", "mix", "handoff", "fleet", "balance", "queue")
#: The reason of the Event.
STOPPED: Final = "blackbox-stopped"
FLUSH_S: Final = 0.5
#: So many bytes are written before their time.
FLUSH_BYTES: Final = 1 << 18
#: More than this waiting to be written: the disk does not keep up.
BACKLOG_BYTES: Final = 32 << 20
#: Records made per turn at most: a list of 150,000 pods is not turned into bytes in one go.
RECORDS_PER_TURN: Final = 5
CLOSE_S: Final = 5.0


def header_of(config: Config, identity: str, started_at: float) -> Header:
    settings = msgspec.to_builtins(config)
    kept = {name: settings[name] for name in DECIDING}
    return Header(mooring=mooring.__version__, identity=identity, started_at=started_at, settings=kept)


class BlackBox:
    def __init__(self, directory: Path, header: Header, size: int, on_stop: Callable[[str], None]) -> None:
        """`size` in bytes, of all recordings in the directory. `on_stop` is told why, once, from a turn."""
        self._directory = directory
        self._size = size
        self._on_stop = on_stop
        #: Why nothing is recorded any more; "": it is.
        self.stopped = ""
        self._told = False
        #: The file, once there is one.
        self.path: Path | None = None
        self._records = Writer()
        #: Records that are still to be made, in order.
        self._to_make: deque[Iterator[bytes]] = deque()
        #: Made, and not yet written. One thread appends, the other takes from the left.
        self._made: deque[bytes] = deque()
        self._given = self._taken = 0
        self._wake, self._closing = threading.Event(), threading.Event()
        self._writer = threading.Thread(target=self._write_all, args=(header,), name="blackbox", daemon=True)
        self._writer.start()
        atexit.register(self.close)

    # ── From the loop ─────────────────────────────────────────────────────────────────────────────────────────

    def turn(self, now: float, decisions: int, events: Sequence[Event], instructions: Sequence[Instruction]) -> None:
        self._add(self._records.turn(now, decisions, events, instructions))

    def written(self, index: str, write: msgspec.Struct) -> None:
        self._add(iter((written_record(index, write),)))

    def _add(self, records: Iterator[bytes]) -> None:
        if self.stopped:
            self._tell()
            return
        self._to_make.append(records)
        self._make(RECORDS_PER_TURN)
        if self._given - self._taken > BACKLOG_BYTES:
            self.stopped = f"the disk is too slow: {BACKLOG_BYTES >> 20} MB wait to be written"
        elif self._given - self._taken > FLUSH_BYTES:
            self._wake.set()

    def _make(self, at_most: float) -> None:
        try:
            while self._to_make and at_most > 0:
                record = next(self._to_make[0], None)
                if record is None:
                    self._to_make.popleft()
                    continue
                at_most -= 1
                self._made.append(record)
                self._given += len(record)
        except Exception as error:
            # A defect of ours in the recording must not touch the deciding.
            log.exception("blackbox.defect")
            self.stopped = f"a turn could not be recorded: {type(error).__name__}: {error}"

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._to_make.clear()
            self._made.clear()
            self._on_stop(self.stopped)

    def close(self) -> None:
        """Write what is there."""
        if not self.stopped:
            self._make(inf)
        self._closing.set()
        self._wake.set()
        self._writer.join(CLOSE_S)
        atexit.unregister(self.close)

    # ── The thread ────────────────────────────────────────────────────────────────────────────────────────────

    def _write_all(self, header: Header) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self.path, file = _create(self._directory, header)
            with file:
                self._put(file, header_line(header))
                frames, closing = FrameWriter(), False
                while not (closing or self.stopped):
                    self._wake.wait(FLUSH_S)
                    self._wake.clear()
                    closing = self._closing.is_set()
                    if records := self._take():
                        self._put(file, frames.frame(records))
        except OSError as error:
            self.stopped = f"{self._directory}: {error.strerror or error}"

    def _take(self) -> list[bytes]:
        records = []
        while self._made:
            try:
                records.append(self._made.popleft())
            except IndexError:  # cleared meanwhile: the recording has stopped
                break
        self._taken += sum(map(len, records))
        return records

    def _put(self, file: BinaryIO, data: bytes) -> None:
        if self.stopped or not self._room(file.tell() + len(data)):
            return
        file.write(data)
        file.flush()

    def _room(self, wanted: int) -> bool:
        """Whether this file may grow to so many bytes; earlier recordings make room for it."""
        others = [(path, path.stat().st_size) for path in recordings(self._directory) if path != self.path]
        total = wanted + sum(size for _, size in others)
        for path, size in others:
            if total <= self._size:
                break
            path.unlink(missing_ok=True)
            total -= size
        if total > self._size:
            self.stopped = f"its bound of {self._size >> 20} MB (blackbox.size) is reached"
        return not self.stopped


def _create(directory: Path, header: Header) -> tuple[Path, BinaryIO]:
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", header.identity)[:100]
    stamp = datetime.fromtimestamp(header.started_at, UTC).strftime("%Y%m%dT%H%M%SZ")
    for again in ("", *(f"-{number}" for number in range(2, 100))):
        path = directory / f"{name}-{stamp}{again}{SUFFIX}"
        if not path.exists():
            break
    # Names, labels and our ConfigMaps are in it: for us alone to read.
    return path, os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
