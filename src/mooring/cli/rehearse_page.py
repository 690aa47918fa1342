"""Mooring's own page beside a rehearsal: the queue, the stores, the nodes and the timeline while they move."""

import socket

from aiohttp import web

from mooring.process.http.status import status_app
from mooring.sim.rig import Rig


class RehearsalPage:
    def __init__(self, rig: Rig, listener: socket.socket) -> None:
        self._rig = rig
        self._listener = listener
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = status_app(lambda: self._rig.leader() or self._rig.any(), cluster="rehearsal")
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.SockSite(self._runner, self._listener).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        self._listener.close()
