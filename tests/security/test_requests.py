"""Requests from anybody who can connect: bounded memory, bounded time, no defect of ours in the answer."""

import asyncio
import base64
import gzip
import io
import json
import logging
import socket
import tracemalloc
from types import SimpleNamespace

import aiohttp
import pytest
import structlog
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from mooring.capabilities.home import Home
from mooring.capabilities.home.policy import HomePolicy
from mooring.capabilities.home.verbs import Verbs
from mooring.capabilities.home.wire import TooManyError, read_preempt, read_request
from mooring.core.model.limits import MIB
from mooring.core.world.world import World
from mooring.process import logs
from mooring.process.extender import app_of
from mooring.process.http.intake import LISTEN, BodyIntake
from mooring.process.http.status import status_app
from mooring.process.settings.config import BlackBoxSettings, Config

SIZE = 12 * MIB
NAMES = b'{"NodeNames":["",' + b'"",' * (SIZE // 3) + b'""]}'
PLAIN = b'{"Pod":{"metadata":{"name":"web"}},"NodeNames":["n0","n1"]}'
CRAFTED = {
    "names": (read_request, lambda: NAMES),
    "empty nodes": (read_request, lambda: b'{"Nodes":{"items":[' + b"{}," * (SIZE // 3) + b"{}]}}"),
    "few enough values, too many nodes": (read_request, lambda: b'{"Nodes":{"items":[' + b"{}," * 2_000_000 + b"{}]}}"),
    "numbers for nodes": (read_request, lambda: b'{"Nodes":{"items":[' + b"1," * (SIZE // 2) + b"1]}}"),
    "shortest nodes": (
        read_request,
        lambda: b'{"Nodes":{"items":[' + b'{"metadata":0},' * (SIZE // 15) + b'{"metadata":0}]}}',
    ),
    "names beside a node": (read_request, lambda: b'{"Nodes":{"items":[{"metadata":{"name":"n"}}]},' + NAMES[1:]),
    "labels": (
        read_request,
        lambda: (
            b'{"Pod":{"metadata":{"name":"x","labels":{' + b",".join(b'"%d":""' % i for i in range(900_000)) + b"}}}}"
        ),
    ),
    "victims": (read_preempt, lambda: b'{"NodeNameToVictims":{"n":{"Pods":[' + b"{}," * (SIZE // 3) + b"{}]}}}"),
}


@pytest.mark.parametrize("crafted", CRAFTED)
def test_no_body_becomes_many_times_its_size(crafted):
    """H7: counted before it is decoded: 12 MiB take no more than 200 MiB, whatever they are made of."""
    read, make = CRAFTED[crafted]
    body = make()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"no cluster|nodeCacheCapable|larger|not an object"):
            read(body)
        assert tracemalloc.get_traced_memory()[1] < 200 * MIB
    finally:
        tracemalloc.stop()


def test_twenty_thousand_names_pass():
    """The limit is above any cluster: 20,000 names are read, one more is not."""
    names = b",".join(b'"n%d"' % i for i in range(20_000))
    assert len(read_request(b'{"NodeNames":[%s]}' % names).names()) == 20_000
    with pytest.raises(TooManyError):
        read_request(b'{"NodeNames":[%s,"one"]}' % names)


def _world() -> World:
    world = World()
    for index in Home().indexes():
        world.register(index)
    return world


class Served:
    def __init__(self, intake: BodyIntake | None = None, token: str | None = None) -> None:
        self.intake = intake or BodyIntake()
        self.reasons: list[str] = []
        app = app_of(
            Verbs(_world(), HomePolicy, lambda: True),
            HomePolicy,
            lambda _, labels: self.reasons.append(str(labels["reason"])),
            intake=self.intake,
            token=token,
        )
        self.runner = web.AppRunner(app, **LISTEN)

    async def __aenter__(self) -> "Served":
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.port = self.runner.addresses[0][1]
        self.session = aiohttp.ClientSession(f"http://127.0.0.1:{self.port}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()
        await self.runner.cleanup()

    async def post(self, body: bytes = PLAIN, path: str = "/scheduler/prioritize", **headers: str) -> int:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.post(path, data=io.BytesIO(body), headers=sent) as answer:
            await answer.read()
            return answer.status

    async def raw(self, sent: bytes) -> bytes:
        """What comes back for these bytes, up to the end of the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sent)
        said = await reader.read()
        writer.close()
        return said


@pytest.mark.parametrize("path", ["/scheduler/prioritize", "/scheduler/preempt", "/nobody", "/"])
async def test_a_compressed_body_is_never_unpacked(path):
    """H7: 65 KB of gzip that would become 64 MiB of names cost 65 KB; not on known and not on unknown paths."""
    async with Served() as served:
        bomb = gzip.compress(b'"",' * (16 * MIB // 3))
        tracemalloc.start()
        try:
            assert await served.post(bomb, path, Content_Encoding="gzip") == 415
            assert tracemalloc.get_traced_memory()[1] < 8 * MIB
        finally:
            tracemalloc.stop()
        assert await served.post(b"no gzip at all", path, Content_Encoding="gzip") == 415
        assert await served.post(PLAIN) == 200
        assert served.intake.held == 0


async def test_a_slow_body_ends_with_the_deadline():
    """H7: who sends a byte now and then is cut off; what it had sent is given back."""
    async with Served(BodyIntake(deadline_s=0.05)) as served:
        head = b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
        said = await served.raw(head)
        assert said.startswith(b"HTTP/1.1 408")
        assert (served.intake.held, served.reasons) == (0, ["late"])


async def test_all_bodies_together_have_one_budget():
    """H7: a body that the budget has no room for is a 503; the next one, that fits, is served."""
    async with Served(BodyIntake(budget=MIB)) as served:
        assert await served.post(b" " * (2 * MIB)) == 503
        assert await served.post() == 200
        assert (served.intake.held, served.reasons) == (0, ["busy", "not-managed"])


async def test_strangers_need_the_token():
    """H7: off loopback nobody is answered without the token; kube-scheduler sends it as the password of its URL."""
    basic = base64.b64encode(b"mooring:secret").decode()
    async with Served(token="secret") as served:
        assert await served.post() == 401
        assert await served.post(Authorization="Bearer wrong") == 401
        assert await served.post(Authorization="Basic ???") == 401
        assert await served.post(Authorization=f"Basic {basic}") == 200
        assert await served.post(Authorization="Bearer secret") == 200
        head = (
            b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nAuthorization: Bearer \xff\xfe\r\n\r\n"
        )
        assert (await served.raw(head)).startswith(b"HTTP/1.1 401")
    async with Served(token="") as served:
        assert await served.post(Authorization="Bearer ") == 401, "no token is set: nobody has it"


async def test_the_page_answers_any_authorization_and_any_encoding():
    """A header that is no UTF-8 is a 401, a body that is no gzip a 404: never a defect of ours."""
    app = status_app(lambda: None, token="hush", on_loopback=False)
    runner = web.AppRunner(app, **LISTEN)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        for head, status in (
            (b"GET /api/v1/status HTTP/1.1\r\nAuthorization: Bearer \xff\xfe", b"401"),
            (b"POST /healthz HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 2", b"405"),
            (b"POST /static/nothing HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 2", b"40"),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head + b"\r\nHost: x\r\nConnection: close\r\n\r\n" + b"{}" * head.startswith(b"POST"))
            assert (await reader.read()).startswith(b"HTTP/1.1 " + status)
            writer.close()
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("path", ["/api/v1/say/pod/a/b?at=1767261782.5", "/api/v1/blackbox", "/metrics"])
async def test_another_sites_page_starts_no_replay(site, path):
    """Issue 42: any page in a browser on this machine may send GETs to loopback. It could not read the answers, but each
    started a replay. A link to the page itself opens it, and its own requests and those of commands are answered."""
    replica = SimpleNamespace(config=Config(blackbox=BlackBoxSettings(dir="")), blackbox=None)
    async with TestClient(TestServer(status_app(lambda: replica))) as client:
        refused = await client.get(path, headers={"Sec-Fetch-Site": site})
        assert refused.status == 403 and "open the page itself" in await refused.text()
        linked = await client.get("/", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"})
        assert linked.status == 200
        for own in ({"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {}):
            answer = await client.get("/api/v1/say/pod/a/b?at=1767261782.5", headers=own)
            assert answer.status == 501, "there is no recording to replay"


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\nHos"], ids=["nothing", "half a request"])
async def test_a_connection_on_which_nobody_asks_is_closed(begun):
    """Thousands of them would be held for an hour: a TLS connection costs 300 KB. Who serves closes later than API
    servers and schedulers do (90 s)."""
    assert 90 < LISTEN["keepalive_timeout"] <= 120
    runner = web.AppRunner(status_app(lambda: None), **LISTEN | {"keepalive_timeout": 0.05})
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        reader, writer = await asyncio.open_connection("127.0.0.1", runner.addresses[0][1])
        writer.write(begun)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
    finally:
        await runner.cleanup()


async def test_a_request_without_a_host_looks_no_name_up(monkeypatch):
    """HTTP/1.0 names no host; asking the resolver for our own would hold the loop as long as that takes."""
    monkeypatch.setattr(socket, "getfqdn", lambda *_: pytest.fail("a name was looked up"))
    runner = web.AppRunner(status_app(lambda: None), **LISTEN)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        reader, writer = await asyncio.open_connection("127.0.0.1", runner.addresses[0][1])
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.0 200")
        writer.close()
    finally:
        await runner.cleanup()


async def test_head_on_the_stream_ends_and_has_no_body():
    """HEAD is answered like GET without a body: it neither counts as a viewer nor stays open."""
    runner = web.AppRunner(status_app(lambda: None), **LISTEN)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        reader, writer = await asyncio.open_connection("127.0.0.1", runner.addresses[0][1])
        writer.write(b"HEAD /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head, _, body = (await asyncio.wait_for(reader.read(), 60)).partition(b"\r\n\r\n")
        assert (head[:12], body) == (b"HTTP/1.1 200", b"")
        assert b"Content-Type: text/event-stream" in head
        writer.close()
    finally:
        await runner.cleanup()


def test_what_libraries_log_is_one_json_object_a_line(capsys):
    """A request that is no HTTP makes aiohttp log an exception: it does not break the log's lines."""
    logs.configure("info", "json")
    try:
        try:
            raise ValueError("bad\nline \x1b[31m")
        except ValueError:
            logging.getLogger("aiohttp.server").exception("Error handling request from 10.0.0.1")
        lines = capsys.readouterr().err.splitlines()
        assert [json.loads(line)["logger"] for line in lines] == ["aiohttp.server"]
        assert "bad\nline" in json.loads(lines[0])["error"]
    finally:
        structlog.reset_defaults()
        logging.basicConfig(force=True)
