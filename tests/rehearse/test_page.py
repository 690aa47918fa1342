"""Mooring's page beside a rehearsal: it can be watched, and being watched changes nothing."""

import asyncio
import socket

import aiohttp
import msgspec

from mooring.process.assemble import capacity_rules
from mooring.process.settings.config import Config
from mooring_lab.cli.rehearse import RehearsalPage
from mooring_lab.rehearse.events.catalog import Options, acts
from mooring_lab.rehearse.play import Play, everything_on
from mooring_lab.rehearse.snapshot.load import demo_snapshot
from mooring_lab.stage.rig import Rig


class Watched(RehearsalPage):
    """A page with a visitor who looks at the queue until something runs in it."""

    def __init__(self, rig: Rig, listener: socket.socket) -> None:
        super().__init__(rig, listener)
        self.queue_url = f"http://127.0.0.1:{listener.getsockname()[1]}/api/v1/queue"
        self.sources: set[str] = set()

    async def start(self) -> None:
        await super().start()
        self._visit = asyncio.create_task(self._look())

    async def stop(self) -> None:
        self._visit.cancel()
        await asyncio.gather(self._visit, return_exceptions=True)
        await super().stop()

    async def _look(self) -> None:
        # Virtual seconds pass quickly: no patience is counted in them.
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
            while not self.sources:
                async with session.get(self.queue_url) as response:
                    found = await response.json()
                self.sources = {one["source"] for one in found.get("running", ())}
                await asyncio.sleep(0.5)


def test_a_rehearsal_can_be_watched_and_comes_out_the_same() -> None:
    """O4: the queue is on the page while it plays, and the outcome is the one of a play that nobody watched."""
    snapshot, config = demo_snapshot(), everything_on(Config())
    planned = acts(["spot-gone"], snapshot, capacity_rules(config), Options())

    def play() -> Play:
        return Play(snapshot, planned, config, seed=1, limit_s=1800.0)

    watched = play()
    page = Watched(watched.rig, socket.create_server(("127.0.0.1", 0)))
    seen = watched.run(page, speed=60.0)
    assert "spot" in page.sources
    assert msgspec.json.encode(seen) == msgspec.json.encode(play().run())
