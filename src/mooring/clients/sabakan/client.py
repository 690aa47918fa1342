"""sabakan over HTTP: one GraphQL query, answered whole or not at all.

What the planner does not see, it removes. So everything that is not a complete, valid, non-empty list of machines is
an error here, and never a shorter list: GraphQL errors (which come with status 200 or 422), a time-out, an HTTP error,
a body that breaks off, a machine that cannot be read, and a search that finds nothing.

Nothing is unpacked, no redirect followed, a body has a limit; errors quote answers shortly, printably, and never show
the credentials of the URL.
"""

import asyncio
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from time import time
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import msgspec

from mooring.clients.ports import NotFoundError, PortError, RefusedError, ThrottledError, UnansweredError
from mooring.clients.sabakan.parse import InvalidMachinesError, error_text, read_machines
from mooring.clients.sabakan.variables import InvalidVariablesError, check_variables
from mooring.clients.texts import printable, without_credentials
from mooring.core.model.machine import Machine

QUERY: Final = files("mooring.clients.sabakan").joinpath("search.graphql").read_text(encoding="utf-8")
#: sabakan's word for a query or variables that it will never accept.
_VALIDATION: Final = frozenset({"GRAPHQL_VALIDATION_FAILED", "GRAPHQL_PARSE_FAILED"})
#: 10,000 machines are about 20 MB.
LARGEST: Final = 64 << 20


class _Errors(msgspec.Struct):
    errors: list[Any] | None = None


_errors: Final = msgspec.json.Decoder(_Errors)


def graphql_url(url: str) -> str:
    """Where to post: the given URL, with `/graphql` appended unless it is there. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise ValueError(
            f"{without_credentials(url)!r} is not an absolute http or https URL such as http://10.0.0.1:10080"
        )
    path = parts.path.rstrip("/")
    return urlunsplit(parts._replace(path=path if path.endswith("/graphql") else f"{path}/graphql", fragment=""))


def _serials(machines: Sequence[Machine]) -> Iterator[str]:
    return (m.serial for m in machines)


class Sabakan:
    """`ports.MachineRegistry` on a real sabakan. No retries: the loop asks again a minute later anyway."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 30.0,
        now: Callable[[], float] = time,
    ) -> None:
        self._url = graphql_url(url)
        #: To be shown: without credentials.
        self.url = without_credentials(self._url)
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._now = now
        #: By serial, as they were answered last.
        self._known: Mapping[str, Machine] = {}
        self._last: tuple[Machine, ...] = ()

    async def machines(self, variables: Mapping[str, Any] | None = None) -> Sequence[Machine]:
        request: dict[str, Any] = {"query": QUERY, "operationName": "ckeSearch"}
        if variables is not None:
            try:
                request["variables"] = check_variables(variables)
            except InvalidVariablesError as error:
                raise RefusedError(f"query variables: {error}", 422) from None
        status, body = await self._post(msgspec.json.encode(request))
        self._check(status, body)
        try:
            machines = await self._read(body)
        except InvalidMachinesError as error:
            raise UnansweredError(f"{self.url}: {error}") from None
        if not machines:
            raise NotFoundError(f"{self.url}: no machine matches the query's variables; an empty list is ignored")
        return machines

    async def _read(self, body: bytes) -> tuple[Machine, ...]:
        """Without a change it is the same tuple as the last answer, whatever the order of the machines."""
        known = self._known
        reading = read_machines(body, self._now(), known)
        while True:
            try:
                next(reading)
            except StopIteration as done:
                machines: list[Machine] = done.value
                break
            await asyncio.sleep(0)
        if len(machines) == len(known) and all(map(operator.is_, machines, map(known.get, _serials(machines)))):
            return self._last
        self._known = dict(zip(_serials(machines), machines, strict=True))
        self._last = tuple(machines)
        return self._last

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _post(self, body: bytes) -> tuple[int, bytes]:
        if self._session is None:
            jar = aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(cookie_jar=jar, auto_decompress=False, trust_env=False)
        timeout = aiohttp.ClientTimeout(total=self._timeout_s)
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        try:
            # A redirected POST would arrive as a GET without its body.
            async with self._session.post(
                self._url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                if answer.headers.get("Content-Encoding", "identity").lower() not in {"", "identity"}:
                    raise UnansweredError(f"{self.url}: a compressed answer is not unpacked")
                said = bytearray()
                async for chunk in answer.content.iter_any():
                    said += chunk
                    if len(said) > LARGEST:
                        raise UnansweredError(f"{self.url}: the answer is larger than {LARGEST >> 20} MiB")
                return answer.status, bytes(said)
        except TimeoutError:
            raise UnansweredError(f"{self.url}: no complete answer within {self._timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            # An invalid URL is quoted whole by its error.
            quoted = "" if isinstance(error, aiohttp.InvalidURL) else printable(str(error))
            raise UnansweredError(f"{self.url}: {quoted or type(error).__name__}") from None

    def _check(self, status: int, body: bytes) -> None:
        """GraphQL's errors first: they say more than the status."""
        try:
            errors = _errors.decode(body).errors
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            errors = None
        if errors:
            raise self._graphql_error(status, errors)
        if status == 200:
            return
        said = f"{self.url}: HTTP {status}: {printable(body[:1000].decode(errors='replace'))}"
        if status == 404:
            raise NotFoundError(f"{said}; is this sabakan's URL?")
        if status == 429:
            raise ThrottledError(said)
        raise RefusedError(said, status) if 400 <= status < 500 else UnansweredError(said)

    def _graphql_error(self, status: int, errors: list[Any]) -> PortError:
        said = f"{self.url}: sabakan answers: {printable(error_text(errors), 300)}"
        codes = {
            e["extensions"].get("code") for e in errors if isinstance(e, dict) and isinstance(e.get("extensions"), dict)
        }
        if status in {400, 422} or codes & _VALIDATION:
            return RefusedError(said, status if status >= 400 else 422)
        return UnansweredError(said)
