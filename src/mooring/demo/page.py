"""The page beside a day on the sandbox; and after the day, a cluster that a person may break."""

import asyncio
import socket
import sys
import webbrowser
from collections.abc import Callable
from typing import Final

from aiohttp import web

from mooring.demo.day import Day
from mooring.demo.sandbox_stage import SandboxStage
from mooring.demo.without import DayWithout
from mooring.process.http.page import PAGE
from mooring.process.http.served import PORT, ServedPage
from mooring.process.http.status import status_app
from mooring.process.http.stream import Hub
from mooring.sandbox.http.facade import Facade

#: Virtual seconds per second after the day, while a person uses the cluster.
KEPT_SPEED: Final = 5.0
RESTART: Final = "tidb.pingcap.com/restart"


def server_flag(port: int) -> str:
    """What a command needs to find a page that is not where it looks first."""
    return "" if port == PORT else f" --server http://127.0.0.1:{port}"


def ask_line(port: int) -> str:
    at = server_flag(port)
    return f"Ask it: mooring queue{at}   or: mooring why pod/demo-tikv-0 -n tidb{at}"


class DayPage(ServedPage):
    def __init__(
        self,
        day: Day,
        listener: socket.socket,
        without: DayWithout | None = None,
        *,
        say: Callable[[str], None],
        keep: bool,
        open_: bool,
    ) -> None:
        super().__init__(self._app, listener)
        self._day = day
        self._without = without
        self._say = say
        self._keep = keep
        self._open = open_
        self._hub: Hub | None = None
        self._facade: Facade | None = None

    def _app(self) -> web.Application:
        rig = self._day.stage.rig
        by = self._without.by if self._without is not None else lambda _: None
        app = status_app(lambda: rig.leader() or rig.any(), cluster="demo", beside=lambda: self._day.banner(by))
        self._hub = app[PAGE].hub
        return app

    async def start(self) -> None:
        await super().start()
        if self._open:
            webbrowser.open(self.url)

    async def keep(self) -> None:
        """A person watches, or gave --keep: the cluster runs on. Without a terminal Ctrl-C could not end it."""
        if self._keep or (self._hub is not None and self._hub.viewers and sys.stderr.isatty()):
            await self.play_on()
            await asyncio.Event().wait()

    async def play_on(self) -> None:
        """After the day: time runs slowly enough to watch, and kubectl may change things."""
        stage = self._day.stage
        assert isinstance(stage, SandboxStage), "only the sandbox needs a facade"
        stage.settle(KEPT_SPEED)
        self._facade = facade = Facade(stage.rig.cluster.api.server)
        await facade.__aenter__()
        self._say(f"\nThe day is over; the cluster runs on at {self.url}, {KEPT_SPEED:g} times as fast as yours.")
        self._say(f'Break it: kubectl --server {facade.url} -n tidb annotate pod demo-tikv-0 {RESTART}=""')
        self._say(ask_line(self._listener.getsockname()[1]))
        self._say("Ctrl-C ends it; leftovers: none.")

    async def stop(self) -> None:
        if self._facade is not None:
            await self._facade.__aexit__(None, None, None)
        await super().stop()
