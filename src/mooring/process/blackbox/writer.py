"""The black box: what enters the engine, and what comes out, kept in files (see `core.engine.recording`).

The deciding loop only makes the records: a thread compresses and writes them, at least once a second. A disk that is
full, broken or too slow ends the recording and does not affect decisions.

The directory is a ring: when the part that is being written has a fifth of the bound, the next begins with a
checkpoint, and the oldest parts make room for it. A checkpoint is copied at the end of a turn, a millisecond at a
time, with others on the loop in between, while the engine takes no turn; it is written between the turns that follow.
"""

import atexit
import gc
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Final

import msgspec
import structlog

import mooring
from mooring.capabilities.registry import names
from mooring.core.engine.events import Event
from mooring.core.engine.intake import Changes
from mooring.core.engine.recording.brief import Batch
from mooring.core.engine.recording.checkpoint import Captured
from mooring.core.engine.recording.memory import NotNowError
from mooring.core.engine.recording.records import Writer, written_record
from mooring.core.model.instructions import Instruction
from mooring.process.blackbox.file import Header
from mooring.process.blackbox.ring import Files
from mooring.process.settings.config import Config, written_out

log = structlog.get_logger()

#: The settings that decide: with them and the events an engine is recreated.
DECIDING: Final = ("namespace", "features", "queue", "windows")
#: The reason of the Event.
STOPPED: Final = "blackbox-stopped"
#: More than this waiting to be written: the disk does not keep up.
BACKLOG_BYTES: Final = 32 << 20
GO_ON_S: Final = 0.005
#: Events, and turns, that become bytes in one go, and how long the first waits for the others.
TOGETHER, TOGETHER_S = 1000, 0.4
#: Bytes made in one go, of turns and of a checkpoint: a list of 150,000 pods is not turned into bytes in one turn.
MAKE_BYTES: Final = 4 << 10
#: So long a checkpoint is copied before others have the loop.
COPY_S: Final = 0.001
#: A part grows to this share of the bound before the next one begins.
PARTS: Final = 5

Capture = Callable[[], Captured]
Later = Callable[[float, Callable[[], None]], object]


@contextmanager
def _without_collector() -> Iterator[None]:
    """What is made here stays for a while: looking for garbage in it takes longer than making it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


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
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`size` in bytes, of all recordings in the directory. `on_stop` is told why, once, from a turn. `capture`: the
        engine as it is; without it there are no checkpoints. `later` calls after some seconds; without it only turns
        go on with what is still to be made, and a checkpoint is copied in one go."""
        self._header = header
        self._later, self._monotonic = later, monotonic
        self._armed = False
        #: None: it was told.
        self._on_stop: Callable[[str], None] | None = on_stop
        self._capture = capture
        self._part_size = size // PARTS
        #: Why nothing is recorded any more; "": it is.
        self.stopped = ""
        self._records = Writer()
        #: The last turns, which the next one may join.
        self._batch: Batch | None = None
        #: Records that are still to be made, in order; the header of a part comes before its own.
        self._to_make: deque[Iterator[bytes | Header]] = deque()
        #: A checkpoint that is being copied, and what was written to an index since it was begun.
        self._captured: Captured | None = None
        self._meanwhile: list[Iterator[bytes | Header]] = []
        #: Of the checkpoint that the part begins with: made one by one between turns.
        self._checkpoint: Iterator[bytes] | None = None
        self._files = Files(directory, header, size)
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
        changes: Changes | None = None,
    ) -> None:
        """A turn has ended. `changes`: what each event did to the world, where that is known."""
        if self._on_stop is None:
            return
        if self._captured is not None:
            self._end_copy()  # what was left to be copied has changed
        if self._batch is None:
            self._batch = Batch(self._monotonic() + TOGETHER_S)
        self._batch.add(now, decisions, events, instructions, changes)
        if self._later is None or self._batch.count >= TOGETHER:
            self._end_batch()
            self._go_on()
        elif not self._armed:
            self._arm(TOGETHER_S)

    def _end_batch(self) -> None:
        if self._batch is not None:
            self._to_make.append(self._records.turns(self._batch))
            self._batch = None

    def _add(self, records: Iterator[bytes | Header]) -> None:
        """After the turns until now."""
        self._end_batch()
        self._to_make.append(records)

    def written(self, index: str, write: msgspec.Struct) -> None:
        """Before it is written."""
        if self._on_stop is None:
            return
        record = iter((written_record(index, write),))
        if self._captured is None:
            self._add(record)
            return
        self._meanwhile.append(record)
        if not self._captured.memory.first_is_copied:
            self._end_copy()

    def begin_part(self) -> bool:
        """With a checkpoint of this moment. False: not now."""
        if self._capture is None or self._captured is not None or self._checkpoint is not None or self.stopped:
            return False
        try:
            self._captured = self._capture()
        except NotNowError:
            return False
        self._copy()
        return not self.stopped

    @property
    def copying(self) -> bool:
        """A checkpoint is being copied: if the engine takes a turn now, it is copied again after that turn."""
        return self._captured is not None

    def _copy(self) -> None:
        """Some steps of copying a checkpoint; the next ones once others have had the loop."""
        captured, until = self._captured, self._monotonic() + COPY_S
        if captured is None:
            return
        try:
            with _without_collector():
                for _ in captured.memory.steps:
                    if self._later is not None and self._monotonic() >= until:
                        self._later(0.0, self._copy)
                        return
            self._add(self._part(captured))
            self._checkpoint = iter(())
            self._arm(GO_ON_S)
        except NotNowError:
            pass
        except Exception as error:
            # A bug in the recording must not affect decisions.
            log.exception("blackbox.defect")
            self.stopped = f"a checkpoint could not be made: {type(error).__name__}: {error}"
        self._end_copy()

    def _end_copy(self) -> None:
        """What was written meanwhile comes after the checkpoint, or there is none."""
        self._captured = None
        for record in self._meanwhile:
            self._add(record)
        self._meanwhile.clear()

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
        if self._batch is not None and self._monotonic() >= self._batch.until:
            self._end_batch()
        with _without_collector():
            self._make(MAKE_BYTES)
        if self._files.waiting > BACKLOG_BYTES:
            self.stopped = f"the disk is too slow: {BACKLOG_BYTES >> 20} MB wait to be written"
        if self._files.progress >= (self._header.number, self._part_size):
            self.begin_part()
        if self._to_make or self._checkpoint is not None:
            self._arm(GO_ON_S)
        elif self._batch is not None:
            self._arm(max(0.0, self._batch.until - self._monotonic()))

    def _arm(self, seconds: float) -> None:
        if self._later is not None and not self._armed:
            self._armed = True
            self._later(seconds, self._on_time)

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
            while self._checkpoint is not None and made < MAKE_BYTES and at_most > 0:
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
        if self._on_stop is None:
            return
        tell, self._on_stop = self._on_stop, None
        self.stopped = self.stopped or self._files.stopped
        self._end_copy()
        self._to_make.clear()
        self._batch = self._checkpoint = None
        self._files.stop()
        tell(self.stopped)

    def close(self) -> None:
        """Write what is there."""
        self._end_copy()
        self._end_batch()
        if not self.stopped:
            self._make(inf)
        self._files.close()
        atexit.unregister(self.close)
