"""Somebody opens connections without end: a listener has so many, and those who ask keep theirs."""

import asyncio
import ssl
import time

import pytest
from aiohttp import web

from mooring.process.admission.certificates import advance
from mooring.process.admission.reloading_tls import ReloadingTls
from mooring.process.http import listening
from mooring.process.http.listening import Listener

MOST = 8
STRANGER, KNOWN = "127.0.0.2", "127.0.0.3"


class Port:
    """A listener with room for eight, over TLS or not; `hold` is answered when `release` is set."""

    def __init__(self, tls=False):
        app = web.Application()
        self.release = asyncio.Event()
        app.router.add_get("/", self._ok)
        app.router.add_get("/hold", self._hold)
        app.router.add_get("/no", self._no)
        self.listener = Listener(app, most=MOST)
        self.callers = []
        self.context = None
        if tls:
            front = ReloadingTls()
            front.swap(advance(None, ["127.0.0.1"], time.time()))
            self.context = front.context

    async def __aenter__(self):
        await self.listener.start("127.0.0.1", 0, self.context)
        return self

    async def __aexit__(self, *_):
        self.release.set()
        for caller in self.callers:
            caller.writer.close()
        await self.listener.stop()
        await asyncio.gather(*(caller.writer.wait_closed() for caller in self.callers), return_exceptions=True)

    async def _ok(self, _):
        return web.Response(text="ok")

    async def _no(self, _):
        raise web.HTTPUnauthorized

    async def _hold(self, _):
        await self.release.wait()
        return web.Response(text="held")

    async def connect(self, address=STRANGER, *, hello=True):
        """A connection from this address; without `hello` it says nothing, not even a handshake."""
        client = None
        if self.context is not None and hello:
            client = ssl.create_default_context()
            client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.listener.port, ssl=client, local_addr=(address, 0)
        )
        self.callers.append(Caller(reader, writer))
        return self.callers[-1]


class Caller:
    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def ask(self, path="/"):
        """The answer's status; 0: the connection was closed."""
        try:
            self.writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            await self.reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            return 0
        return int(head.split()[1])

    async def is_closed(self):
        async with asyncio.timeout(10):
            try:
                return await self.reader.read(1) == b""
            except OSError:
                return True


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_who_only_connects_gives_way_to_who_asks(tls):
    """The silent ones go, the oldest first; a connection that has been answered stays, however many come after it."""
    async with Port(tls) as port:
        server = await port.connect(KNOWN)
        assert await server.ask() == 200
        silent = [await port.connect(f"127.0.1.{number}") for number in range(MOST + 2)]
        assert await silent[0].is_closed() and await silent[1].is_closed()
        assert port.listener.connections <= MOST
        assert await server.ask() == 200 and await silent[-1].ask() == 200


async def test_handshakes_that_never_begin_are_counted():
    """A TLS connection costs memory before it has said anything: those are bounded, too, and do not keep others out."""
    async with Port(tls=True) as port:
        mute = [await port.connect(f"127.0.1.{number}", hello=False) for number in range(3 * MOST)]
        caller = await port.connect(KNOWN)
        assert await caller.ask() == 200
        assert port.listener.connections <= MOST and await mute[0].is_closed()


async def test_one_address_has_half_of_them():
    """A stranger on one machine fills no more, whatever it asks; another address still finds room."""
    async with Port() as port:
        callers = [await port.connect(STRANGER) for _ in range(MOST)]
        answered = [await caller.ask() for caller in callers]
        assert answered == [0] * (MOST // 2) + [200] * (MOST // 2)
        others = [await port.connect(KNOWN) for _ in range(MOST // 2)]
        assert [await caller.ask() for caller in others] == [200] * (MOST // 2)
        assert [await caller.ask() for caller in callers[MOST // 2 :]] == [200] * (MOST // 2)


async def test_one_that_is_being_answered_never_gives_way():
    """Whoever waits for an answer gets it; the new one is refused."""
    async with Port() as port:
        waiting = [await port.connect(STRANGER) for _ in range(MOST // 2)]
        asked = [asyncio.create_task(caller.ask("/hold")) for caller in waiting]
        while port.listener.busy < len(asked):
            await asyncio.sleep(0)
        late = await port.connect(STRANGER)
        assert await late.is_closed()
        port.release.set()
        assert await asyncio.gather(*asked) == [200] * len(asked)


async def test_one_that_was_refused_is_worth_no_more_than_a_silent_one():
    """Asking without a token does not earn a place."""
    async with Port() as port:
        server = await port.connect(KNOWN)
        assert await server.ask() == 200
        refused = [await port.connect(f"127.0.1.{number}") for number in range(MOST - 1)]
        assert [await caller.ask("/no") for caller in refused] == [401] * (MOST - 1)
        newcomer = await port.connect("127.0.2.1")
        assert await newcomer.ask() == 200 and await server.ask() == 200 and await refused[0].is_closed()


async def test_places_are_given_back():
    """Closed by the other side, with or without a handshake: the place is free again."""
    async with Port(tls=True) as port:
        for hello in (True, False):
            callers = [await port.connect(f"127.0.1.{number}", hello=hello) for number in range(4)]
            for caller in callers:
                caller.writer.close()
            async with asyncio.timeout(10):
                while port.listener.connections:
                    await asyncio.sleep(0.01)


def test_the_room_is_enough_for_api_servers_and_not_for_the_memory():
    """300 KB each while they stand: all of one listener fit beside everything else; API servers keep 25 idle ones."""
    assert listening.MAX_CONNECTIONS // 2 >= 8 * 25 and listening.MAX_CONNECTIONS * 310_000 < 192 << 20
