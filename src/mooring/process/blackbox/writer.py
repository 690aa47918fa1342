"""The black box: what enters the engine, and what comes out, kept in files (see `core.engine.recording`).

The deciding loop only makes the records: a thread compresses and writes them, at least once a second. A disk that is
full, broken or too slow ends the recording and does not affect decisions.

The directory is a ring: when the part that is being written has an eighth of the bound, the next begins with a
checkpoint, and the oldest parts make room for it. A checkpoint is captured at the end of a turn and written between the
turns that follow, so that no turn waits for it.
"""

import atexit
import contextlib
import gc
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import structlog

import mooring
from mooring.capabilities.registry import names
from mooring.core.engine.events import Event
from mooring.core.engine.recording.brief import NONE, Briefs
from mooring.core.engine.recording.checkpoint import Captured
from mooring.core.engine.recording.memory import NotNowError
from mooring.core.engine.recording.records import Writer, written_record
from mooring.core.model.instructions import Instruction
from mooring.process.blackbox.file import SUFFIX, FrameWriter, Header, create, header_line, recordings
from mooring.process.settings.config import Config, written_out

log = structlog.get_logger()

#: The settings that decide: with them and the events an engine is recreated.
DECIDING: Final = ("namespace", "features", "queue")
#: The reason of the Event.
STOPPED: Final = "blackbox-stopped"
FLUSH_S: Final = 0.5
#: So many bytes are written before their time.
FLUSH_BYTES: Final = 1 << 18
#: More than this waiting to be written: the disk does not keep up.
BACKLOG_BYTES: Final = 32 << 20
GO_ON_S: Final = 0.02
#: Bytes made in one go, and of a checkpoint: a list of 150,000 pods is not turned into bytes in one turn.
MAKE_BYTES, CHECKPOINT_BYTES = 16 << 10, 8 << 10
#: What another process wrote less than that ago may still be written: it is not removed.
LIVE_S: Final = 5.0
#: Room is made in steps of this share of the bound; a part grows to that one before the next one begins.
STEPS, PARTS = 128, 8
CLOSE_S: Final = 5.0

Capture = Callable[[], Captured]
Later = Callable[[float, Callable[[], None]], object]


def header_of(config: Config, identity: str, started_at: float) -> Header:
    settings = msgspec.to_builtins(written_out(config))
    kept = {name: settings[name] for name in (*DECIDING, *names())}
    return Header(
        mooring=mooring.__version__, identity=identity, started_at=started_at, process_at=started_at, settings=kept
    )


class BlackBox:
    def __init__(
        self,
        directory: Path,
        header: Header,
        size: int,
        on_stop: Callable[[str], None],
        capture: Capture | None = None,
        later: Later | None = None,
    ) -> None:
        """`size` in bytes, of all recordings in the directory. `on_stop` is told why, once, from a turn. `capture`: the
        engine as it is; without it there are no checkpoints. `later` calls after some seconds; without it only turns
        go on with what is still to be made."""
        self._header = header
        self._later = later
        self._armed = False
        self._on_stop = on_stop
        self._capture = capture
        self._part_size = size // PARTS
        #: Why nothing is recorded any more; "": it is.
        self.stopped = ""
        self._told = False
        self._records = Writer()
        #: Records that are still to be made, in order; the header of a part comes before its own.
        self._to_make: deque[Iterator[bytes | Header]] = deque()
        #: Of the checkpoint that the part begins with: made one by one between turns.
        self._checkpoint: Iterator[bytes] | None = None
        self._files = _Files(directory, header, size)
        atexit.register(self.close)

    @property
    def paths(self) -> list[Path]:
        """The files of this recording, oldest first."""
        return list(self._files.paths)

    # ── From the loop ─────────────────────────────────────────────────────────────────────────────────────────

    def turn(
        self,
        now: float,
        decisions: int,
        events: Sequence[Event],
        instructions: Sequence[Instruction],
        briefs: Briefs = NONE,
    ) -> None:
        self._to_make.append(self._records.turn(now, decisions, events, instructions, briefs))
        self._go_on()
        if self._files.progress >= (self._header.number, self._part_size):
            self.begin_part()

    def written(self, index: str, write: msgspec.Struct) -> None:
        self._to_make.append(iter((written_record(index, write),)))

    def begin_part(self) -> bool:
        """With a checkpoint of this moment. False: not now."""
        if self._capture is None or self._checkpoint is not None or self.stopped:
            return False
        collects = gc.isenabled()
        gc.disable()  # what is made here stays for a while, and looking for garbage in it takes longer than making it
        try:
            captured = self._capture()
        except NotNowError:
            return False
        except Exception as error:
            # A bug in the recording must not affect decisions.
            log.exception("blackbox.defect")
            self.stopped = f"a checkpoint could not be made: {type(error).__name__}: {error}"
            return False
        finally:
            if collects:
                gc.enable()
        self._checkpoint = iter(())
        self._to_make.append(self._part(captured))
        return True

    def _part(self, captured: Captured) -> Iterator[Header]:
        """Made in its place among the records: what was to be made before belongs to the part before."""
        number = self._header.number + 1
        self._header = msgspec.structs.replace(self._header, number=number, started_at=captured.now)
        self._records.begin()
        self._checkpoint = self._records.checkpoint(captured)
        yield self._header

    def _on_time(self) -> None:
        self._armed = False
        self._go_on()

    def _go_on(self) -> None:
        """A little at a time, also where nothing happens."""
        if self.stopped or self._files.stopped:
            self._tell()
            return
        self._make(MAKE_BYTES)
        if self._files.waiting > BACKLOG_BYTES:
            self.stopped = f"the disk is too slow: {BACKLOG_BYTES >> 20} MB wait to be written"
        if (self._to_make or self._checkpoint is not None) and self._later is not None and not self._armed:
            self._armed = True
            self._later(GO_ON_S, self._on_time)

    def _make(self, at_most: float) -> None:
        try:
            while self._to_make and at_most > 0:
                record = next(self._to_make[0], None)
                if record is None:
                    self._to_make.popleft()
                    continue
                if isinstance(record, bytes):
                    at_most -= len(record)
                self._files.give(record)
            made = 0
            while self._checkpoint is not None and at_most > 0 and made < CHECKPOINT_BYTES:
                part = next(self._checkpoint, None)
                if part is not None:
                    self._files.give(part)
                    made += len(part)
                    continue
                if not self._to_make:
                    self._checkpoint = None
                break
        except Exception as error:
            log.exception("blackbox.defect")
            self.stopped = f"a turn could not be recorded: {type(error).__name__}: {error}"

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self.stopped = self.stopped or self._files.stopped
            self._to_make.clear()
            self._checkpoint = None
            self._files.stop()
            self._on_stop(self.stopped)

    def close(self) -> None:
        """Write what is there."""
        if not self.stopped:
            self._make(inf)
        self._files.close()
        atexit.unregister(self.close)


class _Files:
    """The ring on the disk, and the thread that writes it."""

    def __init__(self, directory: Path, header: Header, size: int) -> None:
        self._directory, self._size = directory, size
        #: Why nothing is written any more; "": it is.
        self.stopped = ""
        #: The files of this process, oldest first.
        self.paths: list[Path] = []
        #: The part that is being written, and how many bytes of it are.
        self.progress = (header.number, 0)
        #: Made, and not yet written. One thread appends, the other takes from the left.
        self._made: deque[bytes | Header] = deque((header,))
        self._given = self._taken = 0
        self._file: BinaryIO | None = None
        self._frames = FrameWriter()
        #: So long the file may become before room is made again.
        self._granted = 0
        self._wake, self._closing = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._write_all, name="blackbox", daemon=True)
        self.thread.start()

    @property
    def waiting(self) -> int:
        """Bytes."""
        return self._given - self._taken

    def give(self, record: bytes | Header) -> None:
        self._made.append(record)
        if isinstance(record, bytes):
            self._given += len(record)
            if self.waiting > FLUSH_BYTES:
                self._wake.set()

    def stop(self) -> None:
        self._made.clear()
        self._closing.set()
        self._wake.set()

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        self.thread.join(CLOSE_S)

    # ── The thread ────────────────────────────────────────────────────────────────────────────────────────────

    def _write_all(self) -> None:
        closing = False
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            while not (closing or self.stopped):
                closing = self._closing.is_set()
                for records in self._take():
                    if isinstance(records, Header):
                        self._begin(records)
                    elif self._file is not None:
                        self._put(self._frames.frame(records))
                if not closing:
                    self._wake.wait(FLUSH_S)
                    self._wake.clear()
        except OSError as error:
            self.stopped = f"{self._directory}: {error.strerror or error}"
        finally:
            if self._file is not None:
                with contextlib.suppress(OSError):  # it tries once more to write what did not fit
                    self._file.close()

    def _take(self) -> Iterator[Header | list[bytes]]:
        """All that was made by now: records together, headers in their places."""
        records: list[bytes] = []
        for _ in range(len(self._made)):
            try:
                record = self._made.popleft()
            except IndexError:  # cleared meanwhile: the recording has stopped
                break
            if isinstance(record, bytes):
                records.append(record)
                self._taken += len(record)
                continue
            if records:
                yield records
                records = []
            yield record
        if records:
            yield records

    def _begin(self, header: Header) -> None:
        if self._file is not None:
            self._file.close()
        path, self._file = _create(self._directory, header)
        self.paths.append(path)
        self._frames, self.progress, self._granted = FrameWriter(), (header.number, 0), 0
        self._put(header_line(header))

    def _put(self, data: bytes) -> None:
        number, written = self.progress
        if self.stopped or self._file is None:
            return
        if written + len(data) > self._granted:
            self._granted = written + len(data) + self._size // STEPS
            if not self._room(self._granted):
                return
        self._file.write(data)
        self._file.flush()
        self.progress = (number, written + len(data))

    def _room(self, wanted: int) -> bool:
        """Whether this file may grow to so many bytes; the oldest make room for it, but not the part before it: it is
        what can be read until the checkpoint of this one is whole."""
        needed = self.paths[-2:]
        others = [(path, path.stat().st_size) for path in recordings(self._directory) if path != needed[-1]]
        total = wanted + sum(size for _, size in others)
        for path, size in sorted(others, key=lambda other: other[0] in self.paths):
            if total <= self._size:
                break
            if path not in needed and (path in self.paths or time.time() - path.stat().st_mtime > LIVE_S):
                path.unlink(missing_ok=True)
                self.paths = [mine for mine in self.paths if mine != path]
                total -= size
        if total > self._size:
            self.stopped = f"its bound of {self._size >> 20} MB (blackbox.size) is reached"
        return not self.stopped


def _create(directory: Path, header: Header) -> tuple[Path, BinaryIO]:
    name = re.sub(r"[^A-Za-z0-9.-]+", "_", header.identity)[:100]
    stamp = datetime.fromtimestamp(header.process_at, UTC).strftime("%Y%m%dT%H%M%SZ")
    for again in ("", *(f"-{number}" for number in range(2, 100))):
        path = directory / f"{name}-{stamp}-{header.number:04}{again}{SUFFIX}"
        if not path.exists():
            break
    return path, create(path)
