"""A sandbox day with its page on a real port, in a thread of its own: tests act on it and look at it from outside."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from aiohttp import web

from mooring.process.http.page import PAGE
from mooring.process.http.status import status_app
from mooring_lab.cluster.paced import run_paced
from tests.process.page.chromium import DRAWN, Chromium, NoBrowser, Program, Tab
from tests.process.page.easel import Easel
from tests.process.page.environment import Environment


class Site:
    """`do` runs something on the site's own loop and waits for its answer."""

    def __init__(self, speed: float = 4.0, blackbox: str = "") -> None:
        self.stage = Environment(seed=3, blackbox=blackbox)
        self.port = 0
        self._speed = speed
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="site", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def hub(self) -> Any:
        return self.app[PAGE].hub

    def start(self) -> "Site":
        self._thread.start()
        assert self._ready.wait(60), "the site did not come up"
        if self._failed is not None:
            raise self._failed
        return self

    def do(self, what: Callable[[], Any]) -> Any:
        async def run() -> Any:
            found = what()
            return await found if asyncio.iscoroutine(found) else found

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(180)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20)

    async def go_down(self) -> None:
        """As a server that is killed: every connection ends."""
        await self._runner.cleanup()

    async def come_up(self, token: str = "") -> None:
        """With a token: as if it did not listen on loopback."""
        rig = self.stage.rig
        self.app = status_app(lambda: rig.leader() or rig.any(), token=token, on_loopback=not token)
        self._runner = web.AppRunner(self.app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]

    def _run(self) -> None:
        try:
            run_paced(self._life, self.stage.cluster.timeline, self._speed)
        except BaseException as error:
            self._failed = error
            self._ready.set()

    async def _life(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        await self.stage.build()
        await self.come_up()
        self._ready.set()
        await self._end.wait()
        await self.go_down()
        for name in list(self.stage.rig.replicas):
            self.stage.rig.kill(name)
        await asyncio.sleep(0)


@pytest.fixture
def site() -> Iterator[Site]:
    running = Site().start()
    yield running
    running.close()


@pytest.fixture(scope="session")
def program() -> Iterator[Program]:
    try:
        running = Program()
    except NoBrowser as error:
        pytest.fail(str(error))
    yield running
    running.close()


@pytest.fixture
async def browser(program) -> AsyncIterator[Chromium]:
    async with Chromium(program.address) as profile:
        yield profile


@pytest.fixture
async def easel(browser) -> AsyncIterator[Easel]:
    found = Easel(browser)
    yield found
    await found.close()


@pytest.fixture
async def tab(browser, site) -> Tab:
    found = await browser.tab(site.url)
    await found.until(DRAWN)
    return found
