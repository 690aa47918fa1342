"""The stream behind the page: one frame per tick for all viewers, sent as a snapshot and then as deltas.

    tick ──► Framer.build ──► Frame ──► delta to the last one ──► encoded once ──► every viewer

A viewer is a cursor, not a queue: one that has fallen behind gets the newest snapshot instead of what it missed, so
nothing is buffered for a slow reader. What was sent is kept for a while (`past.py`). The tick comes from wall time: in
the demo the loop's own clock is virtual. Fails open: with no replica to look at, viewers get beats and keep what they
have, looking older and older.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from mooring.process.http.frames import MANY_NODES, Frame, Framer, FrameTable
from mooring.process.http.past import Past

log = structlog.get_logger()

TICK_S: Final = 0.5
#: Without viewers a frame is kept every so many ticks: of a small cluster, and of a large one.
QUIET_TICKS: Final = 4
QUIET_TICKS_MANY: Final = 20
#: More open streams than this are not needed; the next one is refused with that reason.
MOST_VIEWERS: Final = 200
#: A viewer that takes nothing for so many ticks is hung up on.
STALLED_TICKS: Final = 20


class Hub:
    def __init__(self, framer: Framer, *, tick_s: float = TICK_S) -> None:
        self.framer = framer
        self._tick_s = tick_s
        self.seq = 0
        self.viewers = 0
        #: Frames built so far: shows that viewers share them.
        self.built = 0
        #: What the scrubber goes back through.
        self.past = Past()
        self._beats = 0
        #: Viewers that something is being sent to, and for how many ticks already.
        self._sending: dict[asyncio.Transport, int] = {}
        self._frame: Frame | None = None
        self._snapshot: tuple[int, bytes] = (-1, b"")
        self._delta = b""
        self._news = asyncio.Condition()
        self._pulse: _Pulse | None = None
        self._building: asyncio.Task[None] | None = None
        self._closing = False

    async def run(self, _: web.Application) -> Any:
        """As aiohttp's cleanup context: the pulse beats while the application lives."""
        self._pulse = _Pulse(asyncio.get_running_loop(), self._beat, self._tick_s)
        self._pulse.start()
        yield
        self._closing = True
        self._pulse.stop()
        if self._building is not None:
            self._building.cancel()
            await asyncio.gather(self._building, return_exceptions=True)

    async def hang_up(self, _: web.Application) -> None:
        """On shutdown: let every open stream end by itself; one whose viewer takes nothing would never."""
        self._closing = True
        for transport in list(self._sending):
            transport.abort()
        async with self._news:
            self._news.notify_all()

    def _beat(self) -> None:
        for transport, ticks in list(self._sending.items()):
            self._sending[transport] = ticks + 1
            if ticks >= STALLED_TICKS:
                transport.abort()
        if self._closing or (self._building is not None and not self._building.done()):
            return
        self._beats += 1
        every = QUIET_TICKS_MANY if len(self.framer.node_names) > MANY_NODES else QUIET_TICKS
        if not self.viewers and self._beats % every:
            self.framer.listen()
            return
        self._begin()

    def _begin(self) -> asyncio.Task[None]:
        """The frame that is being built, for all that wait for one."""
        if self._building is None or self._building.done():
            self._building = asyncio.get_running_loop().create_task(self.tick(), name="page frame")
        return self._building

    async def tick(self) -> None:
        """Build one frame and send it to all."""
        try:
            frame = await self.framer.build()
        except Exception:
            # A bug in building a frame must not end the stream; viewers see their data grow old, and the log says why.
            log.exception("page.no-frame")
            return
        if frame is None:
            return
        self.built += 1
        before, self._frame = self._frame, frame
        self.seq += 1
        self._delta = event("delta", self.seq, difference(before, frame)) if before is not None else b""
        whole = self.past.wants_snapshot() or not self._delta
        self.past.add(self.seq, frame.as_of, self.snapshot() if whole else self._delta, frame.head)
        async with self._news:
            self._news.notify_all()

    async def now(self) -> Frame | None:
        """The frame that viewers share, or one made on request without viewers."""
        if not self.viewers or self._frame is None:
            await asyncio.shield(self._begin())
        return self._frame

    def snapshot(self) -> bytes:
        """The newest frame whole; encoded once, however many ask."""
        if self._snapshot[0] != self.seq:
            assert self._frame is not None
            self._snapshot = (self.seq, event("snapshot", self.seq, picture(self._frame)))
        return self._snapshot[1]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """`GET /api/v1/stream`: server-sent events. The same bytes saved in a file are a recording of the page."""
        if self.viewers >= MOST_VIEWERS:
            return web.Response(status=503, text=f"{MOST_VIEWERS} viewers are open already\n")
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store"}
        )
        if request.method == "HEAD":
            return web.Response(headers=response.headers)
        await response.prepare(request)
        transport = request.transport
        if transport is None:
            return response  # the viewer has left
        self.viewers += 1
        try:
            if self.viewers == 1 or self._frame is None:
                await asyncio.shield(self._begin())  # the first viewer must not begin with an old one
            seen = -1
            while not self._closing:
                if self._frame is not None and seen != self.seq:
                    data = self._delta if seen == self.seq - 1 and seen > 0 else self.snapshot()
                    seen = self.seq
                    self._sending[transport] = 0
                    await response.write(data)
                    del self._sending[transport]
                    if transport.is_closing():
                        break  # the viewer was hung up on
                async with self._news:
                    # No frame yet: no replica runs. There is nothing to send, and nothing to spin for.
                    await self._news.wait_for(
                        lambda seen=seen: (self._frame is not None and self.seq != seen) or self._closing  # type: ignore[misc]
                    )
        except ConnectionError:
            pass  # the viewer has left
        finally:
            self._sending.pop(transport, None)
            self.viewers -= 1
        return response


class _Pulse(threading.Thread):
    """Calls back on the loop every `every_s` seconds of wall time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, beat: Callable[[], None], every_s: float) -> None:
        super().__init__(name="page pulse", daemon=True)
        self._loop = loop
        self._beat = beat
        self._every_s = every_s
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                self._loop.call_soon_threadsafe(self._beat)
            except RuntimeError:  # the loop has closed
                return

    def stop(self) -> None:
        self._ended.set()
        self.join(timeout=2.0)


def event(name: str, seq: int, value: Any) -> bytes:
    return b"event: %s\nid: %d\ndata: %s\n\n" % (name.encode(), seq, msgspec.json.encode(value))


def picture(frame: Frame) -> dict[str, Any]:
    tables = {
        name: {"rows": table.rows, "order": list(table.rows), "total": table.total, "sums": table.sums}
        for name, table in frame.tables.items()
    }
    return {"as_of": frame.as_of, "head": frame.head, "tables": tables}


def difference(old: Frame, new: Frame) -> dict[str, Any]:
    """What a viewer of `old` must change to see `new`; only `as_of` when nothing happened."""
    delta: dict[str, Any] = {"as_of": new.as_of}
    if old.head != new.head:
        delta["head"] = new.head
    tables = {name: found for name, table in new.tables.items() if (found := _changes(old.tables[name], table))}
    if tables:
        delta["tables"] = tables
    return delta


def _changes(old: FrameTable, new: FrameTable) -> dict[str, Any]:
    if old is new:
        return {}
    found: dict[str, Any] = {}
    changed = {row_id: row for row_id, row in new.rows.items() if old.rows.get(row_id) != row}
    if changed:
        found["set"] = changed
    if list(old.rows) != list(new.rows):
        found["order"] = list(new.rows)
    if old.total != new.total:
        found["total"] = new.total
    if old.sums != new.sums:
        found["sums"] = new.sums
    return found
