"""sabakan over HTTP: one GraphQL query, answered whole or not at all.

What the planner does not see, it removes. So everything that is not a complete, valid, non-empty list of machines is
an error here, and never a shorter list: GraphQL errors (which come with status 200 or 422), a time-out, an HTTP error,
a body that breaks off, and a search that finds nothing.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from time import time
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from mooring.clients.ports import NotFoundError, PortError, RefusedError, UnansweredError
from mooring.clients.registry.http import Answer, Requests, error_of
from mooring.clients.registry.rows import InvalidMachinesError, Latest
from mooring.clients.registry.sabakan.parse import error_text, read_machines
from mooring.clients.registry.sabakan.variables import InvalidVariablesError, check_variables
from mooring.clients.texts import printable, without_credentials
from mooring.core.model.machine import Machine

QUERY: Final = files("mooring.clients.registry.sabakan").joinpath("search.graphql").read_text(encoding="utf-8")
#: sabakan's word for a query or variables that it will never accept.
_VALIDATION: Final = frozenset({"GRAPHQL_VALIDATION_FAILED", "GRAPHQL_PARSE_FAILED"})


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
        self._requests = Requests(timeout_s)
        self._now = now
        self._latest = Latest()

    async def machines(self, query: Mapping[str, Any] | None = None) -> Sequence[Machine]:
        request: dict[str, Any] = {"query": QUERY, "operationName": "ckeSearch"}
        if query is not None:
            try:
                request["variables"] = check_variables(query)
            except InvalidVariablesError as error:
                raise RefusedError(f"query variables: {error}", 422) from None
        headers = {"Content-Type": "application/json"}
        answer = await self._requests.send(self._url, headers, msgspec.json.encode(request))
        self._check(answer)
        try:
            machines = await self._read(answer.body)
        except InvalidMachinesError as error:
            raise UnansweredError(f"{self.url}: {error}") from None
        if not machines:
            raise NotFoundError(f"{self.url}: no machine matches the query's variables; an empty list is ignored")
        return machines

    async def _read(self, body: bytes) -> tuple[Machine, ...]:
        reading = read_machines(body, self._now(), self._latest.known)
        while True:
            try:
                next(reading)
            except StopIteration as done:
                return self._latest.take(done.value)
            await asyncio.sleep(0)

    async def close(self) -> None:
        await self._requests.close()

    def _check(self, answer: Answer) -> None:
        """GraphQL's errors first: they say more than the status."""
        try:
            errors = _errors.decode(answer.body).errors
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            errors = None
        if errors:
            raise self._graphql_error(answer.status, errors)
        if answer.status != 200:
            raise error_of(self._url, answer)

    def _graphql_error(self, status: int, errors: list[Any]) -> PortError:
        said = f"{self.url}: sabakan answers: {printable(error_text(errors), 300)}"
        codes = {
            e["extensions"].get("code") for e in errors if isinstance(e, dict) and isinstance(e.get("extensions"), dict)
        }
        if status in {400, 422} or codes & _VALIDATION:
            return RefusedError(said, status if status >= 400 else 422)
        return UnansweredError(said)
