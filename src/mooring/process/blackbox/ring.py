"""The files of the black box: a ring on the disk, and the thread that writes it."""

import contextlib
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

from mooring.process.blackbox.file import SUFFIX, FrameWriter, Header, create, header_line, recordings

FLUSH_S: Final = 1.0
#: So many bytes are written before their time.
FLUSH_BYTES: Final = 1 << 18
#: What another process wrote less than that ago may still be written: it is not removed.
LIVE_S: Final = 5.0
CLOSE_S: Final = 5.0
#: Room is made in steps of this share of the bound.
STEPS: Final = 128


class Files:
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
