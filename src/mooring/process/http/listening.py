"""Connections, limited as for hostile clients.

A TLS connection takes 300 KB while it is open, from the first byte of its handshake on. So each listener keeps a
limited
number, and one address at most half of them. When the limit is reached, the oldest connection without a request is
closed, then the one whose last answer is longest ago; one that is being answered never is. So a client that only
connects takes no connection from an API server. If none can be closed, the new one is refused.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, cast

import structlog
from aiohttp import web

from mooring.process.http.intake import LISTEN

log = structlog.get_logger()

#: Per listener. API servers and schedulers keep 25 idle ones each.
MAX_CONNECTIONS: Final = 512
#: API servers open hundreds of connections in a burst; a short backlog would cost seconds.
BACKLOG: Final = 1024
HANDSHAKE_S: Final = 10.0
#: After a failure to accept (too many open files), and between two lines of the log about a full listener.
ACCEPT_RETRY_S: Final = 1.0
SAY_EVERY_S: Final = 60.0


class _Connection:
    __slots__ = ("address", "answered", "busy", "since", "sock", "transport")

    def __init__(self, address: str, sock: socket.socket, since: float) -> None:
        self.address = address
        self.sock = sock
        #: None: in its handshake.
        self.transport: asyncio.Transport | None = None
        #: Requests that are being answered, and whether one was answered well before.
        self.busy = 0
        self.answered = False
        #: When it was opened or last answered.
        self.since = since

    def close_now(self) -> None:
        if self.transport is not None:
            self.transport.abort()
            return
        with suppress(OSError):  # it may be gone already
            self.sock.shutdown(socket.SHUT_RDWR)


class _Watched(asyncio.Protocol):
    """aiohttp's own protocol, with a listener that is told when it begins and ends."""

    def __init__(self, protocol: Any, listener: "Listener", peer: Any) -> None:
        self._protocol = protocol
        self._listener = listener
        self._peer = peer

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return bool(self._protocol.eof_received())

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._listener.opened(self._peer, transport)
        self._protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.closed(self._peer)
        self._protocol.connection_lost(exc)


class Listener:
    """The connections of one address of ours, for an aiohttp application."""

    def __init__(self, app: web.Application, *, most: int = MAX_CONNECTIONS, **how: Any) -> None:
        app.middlewares.append(self._watch)
        self.runner = web.AppRunner(app, **LISTEN | how)
        self._most = most
        self._connections: dict[Any, _Connection] = {}
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._said_at = float("-inf")
        self.port = 0

    @property
    def listens(self) -> bool:
        return bool(self._sockets)

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def busy(self) -> int:
        """How many are being answered."""
        return sum(c.busy > 0 for c in self._connections.values())

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Once for each address. OSError: it is taken."""
        if self.runner.server is None:
            await self.runner.setup()
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            sock = socket.create_server(address, family=family, backlog=BACKLOG)
            sock.setblocking(False)
            self._sockets.append(sock)
            self._spawn(self._accept(sock, tls))
        self.port = self._sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """No new ones; those that are being answered are given `shutdown_timeout`."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()
        await self.runner.cleanup()

    # ── Accepting ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _accept(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(sock)
            except OSError as error:
                log.warning("http.not-accepted", error=str(error))
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            if self._admit(accepted, peer):
                self._spawn(self._serve(accepted, peer, tls))
            else:
                accepted.close()

    async def _serve(self, accepted: socket.socket, peer: Any, tls: ssl.SSLContext | None) -> None:
        server = self.runner.server
        assert server is not None
        try:
            with suppress(OSError):  # no handshake, or not in time
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: _Watched(server(), self, peer),
                    accepted,
                    ssl=tls,
                    ssl_handshake_timeout=HANDSHAKE_S if tls is not None else None,
                )
        finally:
            connection = self._connections.get(peer)
            if connection is not None and connection.transport is None:
                self.closed(peer)

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ── Who has room ──────────────────────────────────────────────────────────────────────────────────────────────

    def _admit(self, accepted: socket.socket, peer: Any) -> bool:
        address, now = str(peer[0]), asyncio.get_running_loop().time()
        own = [c for c in self._connections.values() if c.address == address]
        pool: Iterator[_Connection] | None = None
        if len(own) >= max(1, self._most // 2):
            pool = iter(own)
        elif len(self._connections) >= self._most:
            pool = iter(self._connections.values())
        if pool is not None:
            if now - self._said_at >= SAY_EVERY_S:
                self._said_at = now
                log.warning("http.connections-full", port=self.port, connections=len(self._connections), new=address)
            least = min((c for c in pool if not c.busy), key=lambda c: (c.answered, c.since), default=None)
            if least is None:
                return False
            self._connections = {p: c for p, c in self._connections.items() if c is not least}
            least.close_now()
        self._connections[peer] = _Connection(address, accepted, now)
        return True

    def opened(self, peer: Any, transport: asyncio.BaseTransport) -> None:
        connection = self._connections.get(peer)
        if connection is not None:
            connection.transport = cast("asyncio.Transport", transport)

    def closed(self, peer: Any) -> None:
        self._connections.pop(peer, None)

    @web.middleware
    async def _watch(self, request: web.Request, handler: Any) -> web.StreamResponse:
        peer = request.transport.get_extra_info("peername") if request.transport is not None else None
        connection = self._connections.get(peer)
        if connection is None:
            answer: web.StreamResponse = await handler(request)
            return answer
        connection.busy += 1
        try:
            answer = await handler(request)
            connection.answered = connection.answered or answer.status < 400
            return answer
        finally:
            connection.busy -= 1
            connection.since = asyncio.get_running_loop().time()
