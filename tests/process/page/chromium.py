"""A real headless Chromium, driven over its DevTools protocol. Small: open tabs, press keys, ask, take pictures."""

import asyncio
import base64
import itertools
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    " ": ("Space", 32, " "),
    "ArrowDown": ("ArrowDown", 40, ""),
    "ArrowUp": ("ArrowUp", 38, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "End": ("End", 35, ""),
    "Home": ("Home", 36, ""),
    "PageDown": ("PageDown", 34, ""),
    "PageUp": ("PageUp", 33, ""),
    "Tab": ("Tab", 9, ""),
}
#: The page has heard a first frame, and drawn it.
DRAWN = "performance.getEntriesByName('first frame').length === 1"


class NoBrowser(Exception):
    pass


class Program:
    """The browser's process. Starting it takes a second or two, so one serves many tests, each in a profile of its own."""

    def __init__(self) -> None:
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        if program is None:
            raise NoBrowser("Chromium is needed to look at the page: apt-get install chromium")
        self._home = tempfile.mkdtemp(prefix="mooring-chromium-")
        self._said = Path(self._home, "stderr")
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [
                    program,
                    "--headless=new",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--disable-dev-shm-usage",
                    "--no-first-run",
                    "--remote-debugging-port=0",
                    "--window-size=1440,960",
                    f"--user-data-dir={self._home}",
                    "about:blank",
                ],
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
        try:
            self.address = self._listens()
        except NoBrowser:
            self.close()
            raise

    def _listens(self, limit_s: float = 60.0) -> str:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and self._process.poll() is None:
            for line in self._said.read_text(errors="replace").splitlines():
                if "DevTools listening on" in line:
                    return line.split()[-1]
            time.sleep(0.05)
        raise NoBrowser(f"Chromium did not listen: {self._said.read_text(errors='replace')[-500:]}")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        shutil.rmtree(self._home, ignore_errors=True)


class Chromium:
    """One profile in a running browser: nothing of it is seen by the next one, and nothing is left.

    Without an address it starts a browser of its own.
    """

    def __init__(self, address: str = "") -> None:
        self._address = address
        self._own: Program | None = None

    async def __aenter__(self) -> "Chromium":
        if not self._address:
            self._own = await asyncio.to_thread(Program)
            self._address = self._own.address
        self._session = aiohttp.ClientSession()
        self._socket = await self._session.ws_connect(self._address, max_msg_size=0)
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.complaints: list[str] = []
        self.choosers: list[dict[str, Any]] = []
        self._reader = asyncio.create_task(self._read())
        self._profile = (await self.call("Target.createBrowserContext"))["browserContextId"]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.call("Target.disposeBrowserContext", browserContextId=self._profile)
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._socket.close()
        await self._session.close()
        if self._own is not None:
            await asyncio.to_thread(self._own.close)

    async def _read(self) -> None:
        async for message in self._socket:
            data = message.json()
            waiting = self._answers.pop(data.get("id", 0), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(data)
            elif data.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(str(data["params"]["exceptionDetails"].get("exception", data["params"])))
            elif data.get("method") == "Page.fileChooserOpened":
                self.choosers.append(data["params"])
            elif data.get("method") == "Log.entryAdded" and data["params"]["entry"]["level"] == "error":
                self.complaints.append(data["params"]["entry"]["text"])

    async def call(self, method: str, session: str = "", **params: Any) -> Any:
        number = next(self._ids)
        self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        await self._socket.send_json(message)
        async with asyncio.timeout(60):
            answer = await self._answers[number]
        assert "error" not in answer, answer["error"]
        return answer["result"]

    async def renderer_bytes(self) -> int:
        """Memory of the largest renderer, its share of what several processes hold included: a tab as the system sees it."""
        found = (await self.call("SystemInfo.getProcessInfo"))["processInfo"]
        return max(_share(process["id"]) for process in found if process["type"] == "renderer")

    async def cpu_s(self) -> float:
        """CPU that the renderers and the process that draws for them have used: what a frame costs on a busy machine too."""
        found = (await self.call("SystemInfo.getProcessInfo"))["processInfo"]
        return sum(float(process["cpuTime"]) for process in found if process["type"] in {"renderer", "GPU"})

    async def tab(self, url: str, *, on_top: bool = False, ours: bool = True) -> "Tab":
        # In a window of its own: a tab behind another is hidden, and a hidden page rests. `on_top`: in the same window.
        target = await self.call(
            "Target.createTarget", url="about:blank", newWindow=not on_top, browserContextId=self._profile
        )
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        tab = Tab(self, attached["sessionId"], target["targetId"])
        for domain in ("Page", "Runtime", "Log"):
            await tab.call(f"{domain}.enable")
        await tab.call("Page.navigate", url=url)
        if ours:
            await tab.until("document.readyState === 'complete' && Boolean(window.mooring)")
        return tab


def _share(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no Pss of process {pid}")


class Tab:
    def __init__(self, browser: Chromium, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target

    async def call(self, method: str, **params: Any) -> Any:
        return await self._browser.call(method, self._session, **params)

    async def ask(self, expression: str) -> Any:
        """The value of an expression; promises are awaited."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str, limit_s: float = 60.0) -> None:
        try:
            async with asyncio.timeout(limit_s):
                while not await self.ask(f"Boolean({expression})"):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            body = await self.ask("document.body.innerText.slice(0, 2500)")
            raise AssertionError(f"never came: {expression}\n{body}") from None

    async def press(self, key: str) -> None:
        code, number, text = KEYS[key] if key in KEYS else (key, ord(key.upper()), key)
        common = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        down = {"type": "keyDown", **common} | ({"text": text} if text else {})
        await self.call("Input.dispatchKeyEvent", **down)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    async def type(self, words: str) -> None:
        await self.call("Input.insertText", text=words)

    async def shape(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 700
        )

    async def prefers(self, **features: str) -> None:
        """`prefers(color_scheme="dark")`: what the reader's system asks for."""
        wanted = [{"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()]
        await self.call("Emulation.setEmulatedMedia", features=wanted)

    async def picture(self, path: Path, *, dark: bool = False) -> None:
        # Without motion: a bar on its way to its width would be a picture of nothing.
        await self.prefers(color_scheme="dark" if dark else "light", reduced_motion="reduce")
        await self.ask("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")
        answer = await self.call("Page.captureScreenshot", format="png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    async def heap_bytes(self) -> int:
        await self.call("HeapProfiler.enable")
        await self.call("HeapProfiler.collectGarbage")
        return int((await self.call("Runtime.getHeapUsage"))["usedSize"])

    async def close(self) -> None:
        await self._browser.call("Target.closeTarget", targetId=self._target)
