"""An API server that plays a script, a clock that does not wait, and dice that always show the same."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from mooring.clients.kube.api import HttpKubeApi
from mooring.clients.kube.config import Connection
from mooring.clients.kube.informer import Informer
from mooring.core.model.kinds import Kind

CUT = object()  # the connection is torn down, in the middle of whatever it was
HANG = object()  # nothing more comes, and the connection stays open


def pod(name: str, version: int, **status) -> dict:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "namespace": "default",
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-11-15T20:10:02Z",
        },
        "spec": {"containers": [{"name": "c", "image": "x"}]},
        "status": status,
    }


def line(kind: str, obj: dict) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: int, *, end: bool = False) -> bytes:
    meta: dict = {"resourceVersion": str(version), "creationTimestamp": None}
    if end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return line("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": {"containers": None}})


def status(code: int, reason: str, message: str = "no", **details) -> dict:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }


def pod_list(version: int, *pods: dict, more: str = "") -> dict:
    items = [{k: v for k, v in p.items() if k not in ("kind", "apiVersion")} for p in pods]
    return {"kind": "PodList", "metadata": {"resourceVersion": str(version), "continue": more}, "items": items}


class Script:
    """Answers one request after the other as written down; when nothing is left, it hangs."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], dict | list | None]] = []
        self.headers: list[dict[str, str]] = []
        self.steps: list[Callable[[web.Request], Awaitable[web.StreamResponse]]] = []
        self.exhausted = asyncio.Event()
        self._over = asyncio.Event()

    def answer(self, code: int, body: dict | bytes = b"", **headers: str) -> "Script":
        data = body if isinstance(body, bytes) else json.dumps(body).encode()

        async def step(_: web.Request) -> web.StreamResponse:
            return web.Response(status=code, body=data, headers={k.replace("_", "-"): v for k, v in headers.items()})

        self.steps.append(step)
        return self

    def stream(self, *parts: object) -> "Script":
        async def step(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            response.enable_chunked_encoding()
            await response.prepare(request)
            for part in parts:
                if part is CUT:
                    request.transport.abort()
                    return response
                if part is HANG:
                    await self._over.wait()
                    return response
                await response.write(part)
            return response

        self.steps.append(step)
        return self

    def drop(self) -> "Script":
        """The request arrived, and the connection goes without a word."""

        async def step(request: web.Request) -> web.StreamResponse:
            request.transport.abort()
            return web.Response()

        self.steps.append(step)
        return self

    def hang(self) -> "Script":
        async def step(_: web.Request) -> web.StreamResponse:
            await self._over.wait()
            return web.Response()

        self.steps.append(step)
        return self

    async def play(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append((request.method, request.path, dict(request.query), json.loads(body) if body else None))
        self.headers.append(dict(request.headers))
        if self.steps:
            return await self.steps.pop(0)(request)
        self.exhausted.set()
        await self._over.wait()
        return web.Response(status=503)

    def end(self) -> None:
        self._over.set()

    def queries(self) -> list[dict[str, str]]:
        return [query for _, _, query, _ in self.requests]


class HastyClock:
    """Sleeps are written down and take no time."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return 1.8e9 + self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


class Middle:
    """Randomness that always takes the middle."""

    def token(self, length: int = 8) -> str:
        return "a" * length

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2


@pytest.fixture
async def script():
    script = Script()
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", script.play)
    server = TestServer(app)
    await server.start_server()
    script.url = str(server.make_url("")).rstrip("/")
    yield script
    script.end()
    await server.close()


@pytest.fixture
async def api(script):
    async with HttpKubeApi(Connection(server=script.url)) as api:
        yield api


@pytest.fixture
def clock():
    return HastyClock()


@pytest.fixture
async def follow(script, api, clock):
    """Run an informer of pods through the script to its end; answers what reached the sink."""
    running = []

    async def follow(kind: Kind = Kind.POD, **more):
        seen: list = []
        informer = Informer(api, kind, seen.append, clock, Middle(), **more)
        task = asyncio.create_task(informer.run())
        running.append(task)
        ended = asyncio.create_task(script.exhausted.wait())
        await asyncio.wait({task, ended}, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        assert script.exhausted.is_set(), f"stuck: {informer.stats}, {script.requests}"
        return informer, seen

    yield follow
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


@pytest.fixture
def words():
    """The vocabulary of scripts."""

    class Words:
        pod, line, bookmark, status, pod_list, cut, hang = pod, line, bookmark, status, pod_list, CUT, HANG

    for name in ("pod", "line", "bookmark", "status", "pod_list"):
        setattr(Words, name, staticmethod(globals()[name]))
    return Words


# ── Virtual time ──────────────────────────────────────────────────────────────────────────────────────────────────


class VirtualLoop(asyncio.SelectorEventLoop):
    """Where others wait, this one moves its clock on."""

    def __init__(self) -> None:
        super().__init__()
        self.virtual = 0.0
        really = self._selector.select

        def jump(timeout):
            if timeout is None:
                raise RuntimeError("everybody waits and nobody will ever wake up")
            self.virtual += timeout
            return really(0)

        self._selector.select = jump

    def time(self) -> float:
        return self.virtual


class SkewedClock:
    """A process's own clock: started some other time, and a little too fast or too slow."""

    def __init__(self, loop: VirtualLoop, offset: float = 0.0, rate: float = 1.0) -> None:
        self._loop, self._offset, self._rate = loop, offset, rate

    def now(self) -> float:
        return 1.8e9 - self.monotonic()

    def monotonic(self) -> float:
        return self._offset + self._rate * self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._rate)

    def later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds / self._rate, call)


@pytest.fixture
def virtual():
    """Run a coroutine function of one argument, the loop, on virtual time."""

    def run(main):
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            loop = runner.get_loop()
            return runner.run(asyncio.wait_for(main(loop), 3600))

    run.clock = SkewedClock
    run.randomness = Middle()
    return run
