"""How a driver asks a member: one bounded HTTP request.

A tenant chooses what answers. No redirect is followed, nothing is unpacked, a body has a limit, no cookie is kept, and
what is quoted of an answer is short and printable. Nothing is repeated here: a look is asked again by the next look.
"""

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from mooring.clients.ports import UnansweredError
from mooring.clients.texts import printable, without_credentials
from mooring.core.model.limits import MIB, is_dense

#: Bytes of an answer.
LARGEST: Final = MIB
TIMEOUT_S: Final = 4.0


class LeaderAnswer(msgspec.Struct, frozen=True):
    status: int
    body: bytes = b""

    @property
    def said(self) -> str:
        """To be quoted."""
        return printable(self.body[:2048].decode(errors="replace"))


#: Method, URL, JSON body. UnansweredError: no answer, or one that is not read.
Ask = Callable[[str, str, Any], Awaitable[LeaderAnswer]]
T = TypeVar("T")


def decoded(answer: LeaderAnswer, of: type[T], where: str) -> T:
    """A 200 of this form. UnansweredError: anything else."""
    if answer.status != 200:
        raise UnansweredError(f"{without_credentials(where)} answers {answer.status}: {answer.said}")
    try:
        return msgspec.json.decode(answer.body, type=of, strict=False)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnansweredError(
            f"{without_credentials(where)} answers in another form: {printable(str(error))}"
        ) from None


class HttpAsk:
    def __init__(self, tls: ssl.SSLContext | None = None, login: tuple[str, str] | None = None) -> None:
        self._tls = tls
        self._headers = {"Content-Type": "application/json", "User-Agent": "mooring", "Accept-Encoding": "identity"}
        if login is not None:
            self._headers["Authorization"] = f"Basic {base64.b64encode(':'.join(login).encode()).decode()}"
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, method: str, url: str, body: Any = None) -> LeaderAnswer:
        where = without_credentials(url)
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with self._open().request(method, url, data=data, allow_redirects=False) as response:
                read = await response.content.read(LARGEST + 1)
                while len(read) <= LARGEST and (more := await response.content.read(LARGEST + 1)):
                    read += more
                status, packed = response.status, response.headers.get("Content-Encoding", "identity")
        except aiohttp.InvalidURL:
            raise UnansweredError(f"{where}: not an address that can be asked") from None
        except (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            raise UnansweredError(f"{where} did not answer: {printable(str(error)) or type(error).__name__}") from None
        if len(read) > LARGEST or is_dense(read) or packed.lower() not in {"", "identity"}:
            raise UnansweredError(f"{where} answers with more than is read, or packed")
        if 300 <= status < 400:
            raise UnansweredError(f"{where} answers with a redirect ({status}), which is not followed")
        return LeaderAnswer(status, bytes(read))

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._tls or True, limit=8),
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
