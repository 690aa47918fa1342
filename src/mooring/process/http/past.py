"""Past frames: the stream itself in pieces, each beginning with a whole frame, bounded in bytes.

The scrubber of the page reads them. A piece that is full is compressed, so that an hour of a quiet cluster takes
little; when there is too much the oldest piece goes.
"""

import zlib
from collections import deque
from typing import Any, Final

import msgspec

#: Frames of a piece: to look at one of them, all are read.
PIECE: Final = 60
MOST_BYTES: Final = 48 * 1024 * 1024
MOST_MARKS: Final = 200


class Piece(msgspec.Struct):
    #: Number of its first frame, and what time it was at the first and the last.
    seq: int
    begun: float
    ended: float
    frames: int = 1
    #: Events as they were sent; compressed once the piece is full.
    events: list[bytes] = msgspec.field(default_factory=list)
    packed: bytes = b""

    @property
    def size(self) -> int:
        return len(self.packed) or sum(map(len, self.events))


class Past:
    def __init__(self, most_bytes: int = MOST_BYTES, *, recording: str = "") -> None:
        """`recording`: its name, where these frames are all there will be."""
        self._most = most_bytes
        self._recording = recording
        self._pieces: deque[Piece] = deque()
        self._packed = 0
        #: Moments worth finding again: number of the frame, and why.
        self._marks: deque[tuple[int, str]] = deque(maxlen=MOST_MARKS)
        self._marked = ""

    def wants_snapshot(self) -> bool:
        """The next frame begins a piece."""
        return not self._pieces or self._pieces[-1].frames >= PIECE

    def add(self, seq: int, at: float, event: bytes, head: dict[str, Any]) -> None:
        """One frame; whole where `wants_snapshot` said so, else what it changed."""
        if self.wants_snapshot():
            self._close()
            self._pieces.append(Piece(seq, at, at, events=[event]))
        else:
            piece = self._pieces[-1]
            piece.events.append(event)
            piece.frames += 1
            piece.ended = at
        self._mark(seq, head)

    def _close(self) -> None:
        if self._pieces:
            last = self._pieces[-1]
            last.packed, last.events = zlib.compress(b"".join(last.events), 1), []
            self._packed += last.size
        while self._packed > self._most and len(self._pieces) > 1:
            self._packed -= self._pieces.popleft().size

    def _mark(self, seq: int, head: dict[str, Any]) -> None:
        words = (head.get("act") or {}).get("title", "") or (
            str(head.get("needs_words", "")) if head.get("needs") else ""
        )
        if words and words != self._marked:
            self._marks.append((seq, words))
        self._marked = words

    def index(self) -> dict[str, Any]:
        """What there is: the pieces, oldest first, and the marks on them."""
        first = self._pieces[0].seq if self._pieces else 0
        pieces = [{"seq": p.seq, "frames": p.frames, "begun": p.begun, "ended": p.ended} for p in self._pieces]
        marks = [mark for mark in self._marks if mark[0] >= first]
        return {"pieces": pieces, "marks": marks, **({"recording": self._recording} if self._recording else {})}

    def piece(self, seq: int) -> bytes | None:
        """The events of the piece that begins with this frame; None: it has gone, or never was."""
        for piece in self._pieces:
            if piece.seq == seq:
                return zlib.decompress(piece.packed) if piece.packed else b"".join(piece.events)
        return None
