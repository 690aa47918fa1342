"""The files of a recording: parts in a row, of which all but the very first begin with a checkpoint.

A part is a line of JSON that says what it is, then frames until its end. A frame is its length, a checksum and
compressed bytes; the frames of a part are one stream of zlib, flushed after each. So a file that was cut off anywhere
is readable to its last whole frame. Inside the stream each record follows its length. A running Mooring writes one file
per part; a file may also hold several, one after the other, as `mooring blackbox pull` makes it.
"""

import contextlib
import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from mooring.core.engine.recording.records import BadRecordError
from mooring.core.model.exits import UserError
from mooring.core.model.limits import MIB
from mooring.core.model.marks import Moment

MAGIC: Final = "mooring-blackbox"
#: 1: one part, whole pods, no checkpoints. 2: of a pod what moved since it was written; 3: since the turn began.
#: 4: many turns in a record, and pods in columns. 5: versions of updates that change nothing.
#: 6: a value that all pods of a column have goes once. 7: classes by their short names.
FORMAT: Final = 7
READS: Final = (1, 2, 3, 4, 5, 6, 7)
SINCE_WORLD: Final = 3
SUFFIX: Final = ".blackbox"
#: Longer than any header, frame or record of ours: a file that claims more is no recording.
LONGEST_HEADER: Final = 1 * MIB
LONGEST: Final = 256 * MIB
LONGEST_RECORD: Final = 32 * MIB
#: Records unpack to 6 to 12 times what they take in a file; one that unpacks to far more is made to fill memory.
MOST_UNPACKED: Final = 32
FREE_UNPACKED: Final = 16 * MIB
_FRAME: Final = struct.Struct(">II")
_LENGTH: Final = struct.Struct(">I")
#: The first line of every part, since its keys are sorted.
_BEGINS: Final = b'{"format": '
#: How what was flushed ends.
_FLUSHED: Final = b"\0\0\xff\xff"


class Header(msgspec.Struct, frozen=True, kw_only=True):
    magic: str = MAGIC
    format: int = FORMAT
    mooring: str
    identity: str
    #: When this part begins.
    started_at: Moment
    #: Parts of one process have this in common, and are numbered from 0.
    process_at: Moment = 0.0
    number: int = 0
    #: The settings that decide, as in a file of settings; no addresses and no secrets.
    settings: dict[str, Any]


class BadRecordingError(UserError, ValueError):
    """Not a recording that this version can read; says why."""


class NotBegunError(BadRecordingError):
    """A part of which not even the first line was written: the process was killed, or the disk is full."""


class DamagedError(BadRecordingError):
    """What was written whole is not whole any more, or is none of our records; says where. Everything before it was
    read."""

    def __init__(self, part: "Part", words: str, at: int | None = None) -> None:
        self.number = part.header.number
        where = "" if at is None else f"part {self.number} is damaged at byte {at}"
        super().__init__(f"{part.path}: {where}{': ' if where and words else ''}{words}")


class FrameWriter:
    """Turns records into frames."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(1)

    def frame(self, records: list[bytes]) -> bytes:
        inside = b"".join(part for record in records for part in (_LENGTH.pack(len(record)), record))
        chunk = self._stream.compress(inside) + self._stream.flush(zlib.Z_SYNC_FLUSH)
        return _FRAME.pack(len(chunk), zlib.crc32(chunk)) + chunk


def header_line(header: Header) -> bytes:
    return json.dumps(msgspec.to_builtins(header), sort_keys=True).encode() + b"\n"


def create(path: Path) -> BinaryIO:
    """A new file. Names, labels and our ConfigMaps come into it: for its owner alone to read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


class Part:
    def __init__(self, path: Path, header: Header, start: int) -> None:
        self.path, self.header, self._start = path, header, start
        #: Where the next part begins; set once it is known.
        self.end = path.stat().st_size
        #: The number of the part that was recorded next and is here.
        self.next: int | None = None
        #: Bytes at its end that are no whole frame: the process was killed while it wrote. Known after `records`.
        self.cut_off = 0
        #: Where the frame begins that `records` read last.
        self._at = start

    @contextlib.contextmanager
    def naming_damage(self) -> Iterator[None]:
        """`DamagedError` instead of `BadRecordError`: with the place of that record in the file."""
        try:
            yield
        except BadRecordError as error:
            for number, _ in enumerate(self.records(), 1):
                if number == error.number:
                    break
            raise DamagedError(self, str(error), self._at) from error

    def records(self) -> Iterator[bytes]:
        """Up to the last whole one. `DamagedError`: something is wrong before the end."""
        stream = zlib.decompressobj()
        buffer, left = bytearray(), FREE_UNPACKED
        for chunk in self._chunks():
            left += MOST_UNPACKED * len(chunk)
            try:
                unpacked = stream.decompress(chunk, left)
            except zlib.error as error:
                raise DamagedError(self, str(error), self._at) from None
            if stream.unconsumed_tail:
                raise DamagedError(self, "it unpacks to far more than any recording", self._at)
            buffer += unpacked
            left -= len(unpacked)
            at = 0
            while len(buffer) - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer, at)
                if length > LONGEST_RECORD:
                    raise DamagedError(self, f"a record of more than {LONGEST_RECORD // MIB} MiB", self._at)
                end = at + _LENGTH.size + length
                if end > len(buffer):
                    break
                yield bytes(buffer[at + _LENGTH.size : end])
                at = end
            del buffer[:at]
        if self.next is not None and self.next != self.header.number + 1:
            raise DamagedError(self, f"part {self.header.number + 1}, which comes after it, is missing")

    def _chunks(self) -> Iterator[bytes]:
        at, end = self._start, self.end
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            while at < end:
                chunk = _frame(data, at, end)
                if chunk is None:
                    if self.next is not None or not _is_cut_off(data, at, end):
                        raise DamagedError(self, "", at)
                    self.cut_off = end - at
                    return
                self._at = at
                at += _FRAME.size + len(chunk)
                yield chunk


def _frame(data: mmap.mmap, at: int, end: int) -> bytes | None:
    """What is in the frame that begins there; None: it is not whole."""
    if end - at < _FRAME.size:
        return None
    length, checksum = _FRAME.unpack_from(data, at)
    inside = at + _FRAME.size
    chunk = data[inside : inside + length] if length <= min(end - inside, LONGEST) else None
    return chunk if chunk is not None and zlib.crc32(chunk) == checksum else None


def _is_cut_off(data: mmap.mmap, at: int, end: int) -> bool:
    """Whether only the end is missing where the frames end: as much as there is of it may be right, and nothing whole
    comes after it."""
    head = data[at : min(end, at + _FRAME.size)]
    if len(head) == _FRAME.size and not _BEGINS.startswith(head):
        length = _FRAME.unpack(head)[0]
        if length >= LONGEST or length <= end - at - _FRAME.size:
            return False
    while (at := data.find(_FLUSHED, at, end) + 1) > 0:
        if _frame(data, at - 1 + len(_FLUSHED), end):
            return False
    return True


class RecordingFile:
    """A recording: the parts in a file, or in a directory those of the process that wrote last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        files = recordings(path) if path.is_dir() else [path]
        parts, begun = list[Part](), None
        for file in files:
            try:
                parts += _parts(file)
            except NotBegunError as error:
                begun = error
        if not parts:
            raise begun or BadRecordingError(f"{path}: there is no *{SUFFIX} in it")
        last = parts[-1].header
        mine = [p for p in parts if (p.header.identity, p.header.process_at) == (last.identity, last.process_at)]
        #: Oldest first.
        self.parts = sorted(mine, key=lambda part: part.header.number) if last.process_at else parts[-1:]
        self.header = self.parts[0].header
        for part, following in pairwise(self.parts):
            part.next = following.header.number

    @property
    def cut_off(self) -> int:
        return self.parts[-1].cut_off


def _parts(path: Path) -> list[Part]:
    """Those of a file, in order. By their first lines: where one is damaged, the next are found."""
    with path.open("rb") as file:
        found = [Part(path, _header(file), file.tell())]
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = file.tell()
            while (at := data.find(_BEGINS, at)) >= 0:
                file.seek(at)
                try:
                    header = _header(file)
                except BadRecordingError:  # the end of the file, where a first line was cut off, or randomness
                    at += 1
                    continue
                found[-1].end, at = at, file.tell()
                found.append(Part(path, header, at))
    return found


def recordings(directory: Path) -> list[Path]:
    """Oldest first. One that a running replica has dropped meanwhile is left out."""
    found: list[tuple[float, str]] = []
    for path in directory.glob(f"*{SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):
            found.append((path.stat().st_mtime, path.name))
    return [directory / name for _, name in sorted(found)]


def _header(file: BinaryIO) -> Header:
    line = file.readline(LONGEST_HEADER)
    if not line:
        raise NotBegunError(f"{file.name}: it is empty")
    if not line.endswith(b"\n") and line[:1] == _BEGINS[:1] and line[: len(_BEGINS)] == _BEGINS[: len(line)]:
        raise NotBegunError(f"{file.name}: cut off in its first line; there is nothing to be read in it")
    try:
        header = msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        header = None
    if header is None or header.magic != MAGIC:
        raise BadRecordingError(f"{file.name}: not a recording of Mooring; `mooring run --blackbox DIR` makes one")
    if header.format not in READS:
        raise BadRecordingError(
            f"{file.name}: format {header.format}, of Mooring {header.mooring}; this version reads formats "
            f"{READS[0]} to {READS[-1]}"
        )
    return header
