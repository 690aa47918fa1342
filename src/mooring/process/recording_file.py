"""The file of a recording: a line of JSON that says what it is, then frames until the end.

A frame is its length, a checksum and compressed bytes; all frames are one stream of zlib, flushed after each. So a file
that was cut off anywhere is readable to its last whole frame. Inside the stream each record follows its length.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

MAGIC: Final = "mooring-blackbox"
FORMAT: Final = 1
SUFFIX: Final = ".blackbox"
#: Longer than any header, frame or part of a stream of ours: what claims more is no recording.
LONGEST_HEADER: Final = 1 << 20
LONGEST: Final = 1 << 28
_FRAME: Final = struct.Struct(">II")
_LENGTH: Final = struct.Struct(">I")


class Header(msgspec.Struct, frozen=True, kw_only=True):
    magic: str = MAGIC
    format: int = FORMAT
    mooring: str
    identity: str
    started_at: float
    #: The settings that decide, as in a file of settings; no addresses and no secrets.
    settings: dict[str, Any]


class BadRecordingError(ValueError):
    """Not a recording that this version can read; says why."""


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


class RecordingFile:
    """A recording, read from its start."""

    def __init__(self, path: Path) -> None:
        self.path = newest(path) if path.is_dir() else path
        with self.path.open("rb") as file:
            self.header = _header(file)
            self._start = file.tell()
        #: Bytes at the end that are no whole frame: the process was killed while it wrote. Known after `records`.
        self.cut_off = 0

    def records(self) -> Iterator[bytes]:
        """Up to the last whole one."""
        stream = zlib.decompressobj()
        buffer = bytearray()
        for chunk in self._chunks():
            try:
                buffer += stream.decompress(chunk, LONGEST)
            except zlib.error as error:
                raise BadRecordingError(f"{self.path}: {error}") from None
            if stream.unconsumed_tail:
                raise BadRecordingError(f"{self.path}: a frame holds more than {LONGEST >> 20} MB")
            at = 0
            while len(buffer) - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer, at)
                end = at + _LENGTH.size + length
                if end > len(buffer):
                    break
                yield bytes(buffer[at + _LENGTH.size : end])
                at = end
            del buffer[:at]

    def _chunks(self) -> Iterator[bytes]:
        left = self.path.stat().st_size - self._start
        with self.path.open("rb") as file:
            file.seek(self._start)
            while left:
                head = file.read(_FRAME.size)
                length, checksum = _FRAME.unpack(head) if len(head) == _FRAME.size else (LONGEST, 0)
                chunk = file.read(length) if length < min(left, LONGEST) else b""
                if len(chunk) != length or zlib.crc32(chunk) != checksum:
                    self.cut_off = left
                    return
                left -= _FRAME.size + length
                yield chunk


def newest(directory: Path) -> Path:
    found = recordings(directory)
    if not found:
        raise BadRecordingError(f"{directory}: there is no *{SUFFIX} in it")
    return found[-1]


def recordings(directory: Path) -> list[Path]:
    """Oldest first."""
    return sorted(directory.glob(f"*{SUFFIX}"), key=lambda path: (path.stat().st_mtime, path.name))


def _header(file: BinaryIO) -> Header:
    line = file.readline(LONGEST_HEADER)
    try:
        header = msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        header = None
    if header is None or header.magic != MAGIC:
        raise BadRecordingError(f"{file.name}: not a recording of Mooring; `mooring run --blackbox DIR` makes one")
    if header.format != FORMAT:
        raise BadRecordingError(
            f"{file.name}: format {header.format}, of Mooring {header.mooring}; this version reads format {FORMAT}"
        )
    return header
