"""One request to a registry over HTTP: a complete answer within a time and a size, or an error.

Nothing is unpacked, no redirect followed (a redirected POST would arrive as a GET without its body, and credentials at
another host), a body has a limit; errors quote answers shortly, printably, and never show credentials.
"""

from collections.abc import Mapping
from typing import Final

import aiohttp
import msgspec

from mooring.clients.ports import NotFoundError, PortError, RefusedError, ThrottledError, UnansweredError
from mooring.clients.texts import printable, without_credentials
from mooring.core.model.limits import is_dense

#: 10,000 machines are about 20 MB.
LARGEST: Final = 64 << 20
#: A label is an object of 27 bytes or more.
BYTES_PER_OBJECT: Final = 24


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    etag: str = ""


class Requests:
    """No retries: the loop asks again a minute later anyway."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def send(self, url: str, headers: Mapping[str, str], body: bytes | None = None) -> Answer:
        """GET, or POST with a body."""
        if self._session is None:
            jar = aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(cookie_jar=jar, auto_decompress=False, trust_env=False)
        shown, method = without_credentials(url), "GET" if body is None else "POST"
        timeout = aiohttp.ClientTimeout(total=self._timeout_s)
        sent = {"Accept": "application/json", "Accept-Encoding": "identity", **headers}
        try:
            async with self._session.request(
                method, url, data=body, headers=sent, timeout=timeout, allow_redirects=False
            ) as answer:
                if answer.headers.get("Content-Encoding", "identity").lower() not in {"", "identity"}:
                    raise UnansweredError(f"{shown}: a compressed answer is not unpacked")
                said = bytearray()
                async for chunk in answer.content.iter_any():
                    said += chunk
                    if len(said) > LARGEST:
                        raise UnansweredError(f"{shown}: the answer is larger than {LARGEST >> 20} MiB")
                if is_dense(said, bytes_per_object=BYTES_PER_OBJECT):
                    raise UnansweredError(f"{shown}: the answer holds more values than any list of machines")
                return Answer(answer.status, bytes(said), answer.headers.get("ETag", ""))
        except TimeoutError:
            raise UnansweredError(f"{shown}: no complete answer within {self._timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            # An invalid URL is quoted whole by its error.
            quoted = "" if isinstance(error, aiohttp.InvalidURL) else printable(str(error))
            raise UnansweredError(f"{shown}: {quoted or type(error).__name__}") from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def error_of(url: str, answer: Answer) -> PortError:
    """What a status other than 200 means."""
    status = answer.status
    said = f"{without_credentials(url)}: HTTP {status}: {printable(answer.body[:1000].decode(errors='replace'))}"
    if status == 404:
        return NotFoundError(f"{said}; is this the registry's URL?")
    if status == 429:
        return ThrottledError(said)
    return RefusedError(said, status) if 400 <= status < 500 else UnansweredError(said)
