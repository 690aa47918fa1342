"""One HTTP session to one API server: who we are, TLS, time limits, and what went wrong, in one small vocabulary.

No retries, with a single exception: a 401 throws the credential away and asks once more with a fresh one. A 401 changes
nothing, and tokens expire.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp.http_exceptions import LineTooLong

from mooring import __version__
from mooring.clients.kube.auth import Credential, Credentials, tls_context
from mooring.clients.kube.config import Connection
from mooring.clients.kube.status import error_of
from mooring.clients.kube.stream import BrokenStreamError
from mooring.clients.ports import UnansweredError

#: Above the largest event; a line that does not fit would end the stream.
READ_BUFFER: Final = 2**21
CONNECT_TIMEOUT_S: Final = 5.0


class ApiRequest(msgspec.Struct, frozen=True):
    """One request. `what` is for people: "evict Pod default/web-1"."""

    method: str
    path: str
    what: str
    params: Mapping[str, str] = {}
    body: Any = None
    content_type: str = "application/json"


class Transport:
    def __init__(self, connection: Connection, credentials: Credentials | None = None) -> None:
        self.connection = connection
        self._credentials = credentials or Credentials(connection)
        self._session: aiohttp.ClientSession | None = None
        self._tls: tuple[Credential, ssl.SSLContext | None] | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, request: ApiRequest, timeout_s: float) -> bytes:
        """The body of a 2xx answer. Everything together takes at most `timeout_s`."""
        limits = aiohttp.ClientTimeout(total=timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
        async with self._answer(request, limits) as response:
            return await response.read()

    @asynccontextmanager
    async def lines(self, request: ApiRequest, silence_s: float) -> AsyncIterator["Lines"]:
        """A 2xx answer, line by line, as long as it lasts; `silence_s` without a byte ends it."""
        limits = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S, sock_read=silence_s)
        async with self._answer(request, limits) as response:
            try:
                yield Lines(request.what, response.content)
            finally:
                # The stream was left in the middle: a TLS shutdown would wait for a server that goes on sending.
                connection = response.connection
                if connection is not None and connection.transport is not None:
                    connection.transport.abort()

    @asynccontextmanager
    async def _answer(
        self, request: ApiRequest, limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A 2xx answer, its body still to be read; or the one error that says what happened."""
        try:
            for attempt in (1, 2):
                credential = await self._credentials.current()
                async with self._open(request, limits, credential) as response:
                    if response.status < 300:
                        yield response
                        return
                    said = await response.read()
                    if response.status == 401:
                        self._credentials.refused(credential)
                        if attempt == 1:
                            continue
                    retry_after = response.headers.get("Retry-After")
                    raise error_of(request.what, response.status, said, retry_after=retry_after)
        except TimeoutError as error:
            raise UnansweredError(f"{request.what}: no answer from {self.connection.server} in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UnansweredError(f"{request.what}: {self.connection.server}: {_lost(error)}") from error

    def _open(
        self, request: ApiRequest, limits: aiohttp.ClientTimeout, credential: Credential
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._session is None:
            self._session = _session(self.connection)
        if self._tls is None or self._tls[0] is not credential:
            self._tls = credential, tls_context(self.connection, credential)
        headers = {"Authorization": credential.authorization} if credential.authorization else {}
        data = None
        if request.body is not None:
            data = msgspec.json.encode(request.body)
            headers["Content-Type"] = request.content_type
        return self._session.request(
            request.method,
            self.connection.server + request.path,
            params=request.params,
            data=data,
            headers=headers,
            timeout=limits,
            ssl=self._tls[1] or True,
            server_hostname=self.connection.tls_server_name or None,
            proxy=self.connection.proxy or None,
            allow_redirects=False,
        )


class Lines:
    """The lines of a streamed answer."""

    def __init__(self, what: str, content: aiohttp.StreamReader) -> None:
        self._what = what
        self._content = content

    async def next(self, within_s: float | None = None) -> bytes:
        """The next line; b"" at the end of the stream."""
        try:
            if within_s is None:
                line = await self._content.readline()
            else:
                async with asyncio.timeout(within_s):
                    line = await self._content.readline()
        except LineTooLong as error:
            raise BrokenStreamError(f"{self._what}: an event larger than {2 * READ_BUFFER} bytes") from error
        if line and not line.endswith(b"\n"):
            raise UnansweredError(f"{self._what}: the stream was cut inside an event")
        return line


def _session(connection: Connection) -> aiohttp.ClientSession:
    user = connection.user
    headers: list[tuple[str, str]] = [
        ("User-Agent", f"mooring/{__version__}"),
        ("Accept", "application/json"),
        # Unpacking a large list would cost the loop seconds; the network between us and the server costs less.
        ("Accept-Encoding", "identity"),
    ]
    if user.impersonate:
        headers.append(("Impersonate-User", user.impersonate))
        headers += [("Impersonate-Group", group) for group in user.impersonate_groups]
        headers += [("Impersonate-Uid", user.impersonate_uid)] if user.impersonate_uid else []
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(socket_factory=_live_socket, keepalive_timeout=30),
        headers=headers,
        read_bufsize=READ_BUFFER,
        cookie_jar=aiohttp.DummyCookieJar(),
    )
    # aiohttp sends PUT and DELETE again when a kept connection drops. The first may have counted, and the second would
    # then be told "conflict": nothing changed. There is no public switch; a test notices should this one go.
    session._retry_connection = False  # noqa: SLF001
    return session


def _live_socket(info: tuple[Any, ...]) -> socket.socket:
    """A socket that notices a dead peer within half a minute: a watch may well be silent for longer."""
    family, kind, proto, *_ = info
    sock = socket.socket(family=family, type=kind, proto=proto)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        # Not every platform has each of them.
        if (number := getattr(socket, option, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, number, value)
    return sock


def _lost(error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return f"its certificate is not trusted ({error.certificate_error}); check certificate-authority"
        case aiohttp.ClientConnectorError():
            number = error.os_error.errno
            # asyncio's own words for a refused connection name the address again, and not the reason.
            return f"not reachable: {os.strerror(number) if number and number > 0 else error.os_error.strerror}"
        case aiohttp.ServerDisconnectedError():
            return "it closed the connection without an answer"
        case _:
            return f"the connection was lost: {str(error) or type(error).__name__}"
