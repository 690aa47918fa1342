"""A page of one moment, given as a frame, that one may exchange."""

from aiohttp import web

from mooring.process.http.frames import Frame, Framer
from mooring.process.http.page import Page
from tests.process.page import pictures
from tests.process.page.chromium import DRAWN, Chromium, Tab


class Still(Framer):
    """Shows one moment for ever."""

    def __init__(self, frame: Frame) -> None:
        super().__init__(lambda: None)
        self.frame = frame

    async def build(self) -> Frame:
        return Frame(self.frame.as_of, dict(self.frame.head), dict(self.frame.tables))


class Easel:
    """A page of a moment that one may exchange."""

    def __init__(self, browser: Chromium) -> None:
        self._browser = browser
        self._runners: list[web.AppRunner] = []
        self.still = Still(pictures.nothing())

    async def show(self, frame: Frame) -> Tab:
        self.still = Still(frame)
        page = Page(lambda: None)
        page.hub.framer = self.still
        app = web.Application()
        page.add_to(app)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        self._runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        tab = await self._browser.tab(f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/")
        await tab.until(DRAWN)
        return tab

    async def close(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
