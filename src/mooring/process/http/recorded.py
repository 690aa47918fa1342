"""The page on a recording: its frames from the start to the end, and `why` as of any of them.

A replica is stood in for by what a recording gives: an engine, its settings and a time. Nothing moves while the page is
open; the scrubber goes through frames that were made before, and a question is answered by `mooring replay`.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from itertools import takewhile
from types import SimpleNamespace
from typing import Any, Final

from aiohttp import web

from mooring.clients.ports import PortError
from mooring.core.engine.engine import Engine
from mooring.core.engine.recording.reading import turn_times
from mooring.core.engine.recording.records import Turn
from mooring.core.engine.recording.replay import Replay
from mooring.core.model.times import rfc3339_milli
from mooring.process.blackbox.file import RecordingFile
from mooring.process.blackbox.playback import Playback
from mooring.process.http.page import Page
from mooring.process.http.past import Past
from mooring.process.http.served import ServedPage
from mooring.process.http.status import status_app
from mooring.process.http.stream import Hub
from mooring.process.metrics import Metrics

#: Frames of a recording, at most about so many, and not more often than that.
FRAMES: Final = 1500
EVERY_S: Final = 1.0


class RecordedReplica:
    """What pages ask of a replica, as of `at`."""

    def __init__(self, recording: RecordingFile, engine: Engine, config: Any, at: float) -> None:
        self.engine, self.config, self.at = engine, config, at
        self.identity = recording.header.identity
        self.metrics, self.blackbox, self.api = Metrics(), None, self
        self.clock = SimpleNamespace(monotonic=lambda: self.at)
        self.shell = SimpleNamespace(now=lambda: self.at, backlog=0)
        self.informers = SimpleNamespace(informers=())

    @property
    def world(self) -> Any:
        return self.engine.world

    @property
    def elector(self) -> Any:
        return SimpleNamespace(holder=self.identity if self.engine.leading else "")

    def not_ready(self) -> list[str]:
        return [] if self.engine.synced else ["not synced"]

    async def get(self, *_: object) -> Any:
        raise PortError("a recording has no API server")


class _StillHub(Hub):
    """Nothing happens any more: it builds a frame when it is told to."""

    def _beat(self) -> None:
        pass


class RecordedPage(Page):
    def __init__(self, recording: RecordingFile, until: float) -> None:
        self._recording, self._until = recording, until
        self._shown: RecordedReplica | None = None
        super().__init__(lambda: self._shown, recording=lambda: str(recording.path))  # type: ignore[arg-type, return-value]
        self.hub = _StillHub(self.hub.framer)
        self.hub.past = Past(recording=recording.path.name)

    async def film(self) -> int:
        """Make the frames; answers with how many."""
        times = await asyncio.to_thread(_times, self._recording, self._until)
        step, due = max(EVERY_S, (times[-1] - times[0]) / FRAMES), 0.0
        played = Playback(self._recording)
        played.engine.defects.listener = _ignore
        replay = Replay(played.engine)
        for record in played.records:
            if isinstance(record, Turn) and record.now > self._until:
                break
            replay.put(record)
            if isinstance(record, Turn) and (record.now >= due or record.now >= times[-1]):
                due = record.now + step
                self._shown = RecordedReplica(self._recording, played.engine, played.config, record.now)
                await self.hub.tick()
        return self.hub.built

    def app(self) -> web.Application:
        return status_app(lambda: self._shown, page=self)  # type: ignore[arg-type, return-value]


def _ignore(_: str, __: Exception) -> None:
    """A defect that was recorded is shown as the verdict that it was."""


def _times(recording: RecordingFile, until: float) -> list[float]:
    """When its turns were."""
    times = list(takewhile(lambda at: at <= until, _turn_times(recording)))
    return times or [recording.header.started_at]


def _turn_times(recording: RecordingFile) -> Iterator[float]:
    for part in recording.parts:
        with part.naming_damage():
            yield from turn_times(part.records())


async def serve(recording: RecordingFile, until: float, listener: socket.socket, say: Callable[[str], None]) -> None:
    """Until it is canceled."""
    page = RecordedPage(recording, until)
    frames = await page.film()
    served = ServedPage(page.app, listener)
    await served.start()
    say(f"mooring: {frames} frames, {rfc3339_milli(recording.header.started_at)} to {rfc3339_milli(until)}")
    say(f"Page: {served.url}/ until Ctrl-C; the scrubber is under the map")
    try:
        await asyncio.Event().wait()
    finally:
        await served.stop()
