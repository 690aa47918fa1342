"""sabakan over HTTP: one GraphQL query, answered whole or not at all.

What the planner does not see, it removes. So everything that is not a complete, valid, non-empty list of machines is
an error here, and never a shorter list: GraphQL errors (which come with status 200 or 422), a time-out, an HTTP error,
a body that breaks off, and a search that finds nothing.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.resources import files
from time import time
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from mooring.clients.ports import NotFoundError, PortError, RefusedError, UnansweredError
from mooring.clients.registry.http import Answer, Requests, error_of
from mooring.clients.registry.rows import InvalidMachinesError, Latest
from mooring.clients.registry.sabakan.parse import error_text, read_machines
from mooring.clients.texts import printable, without_credentials
from mooring.core.model.machine import Machine, MachineState

_KEYS: Final = ("having", "notHaving")
_FIELDS: Final = ("labels", "racks", "roles", "states", "minDaysBeforeRetire")
_STATES: Final = tuple(s.value for s in MachineState)


class InvalidVariablesError(ValueError):
    """The message names the place and what would be right."""


def check_variables(document: Any) -> dict[str, Any]:
    """The same document, once it is known to be one sabakan understands. Raises InvalidVariablesError."""
    problems = list(_problems(document))
    if problems:
        raise InvalidVariablesError("; ".join(problems))
    return dict(document)


def _problems(document: Any) -> Iterator[str]:
    if not isinstance(document, dict):
        yield 'must be an object such as {"having": {"roles": ["cs"]}}'
        return
    for key, params in document.items():
        if key not in _KEYS:
            yield _unknown(key, _KEYS)
        elif params is not None and not isinstance(params, dict):
            yield f"{key}: must be an object or null"
        elif params is not None:
            for field, value in params.items():
                yield from _field_problems(f"{key}.{field}", field, value)


def _field_problems(path: str, field: str, value: Any) -> Iterator[str]:
    if field not in _FIELDS:
        yield f"{path.partition('.')[0]}.{_unknown(field, _FIELDS)}"
    elif value is None:
        return
    elif field == "minDaysBeforeRetire":
        if type(value) is not int:
            yield f"{path}: must be a whole number of days, not {value!r}"
    elif not isinstance(value, list):
        yield f"{path}: must be a list, not {value!r}"
    else:
        for index, item in enumerate(value):
            if not _fits(field, item):
                yield f"{path}[{index}]: must be {_WANTED[field]}, not {item!r}"


_WANTED: Final = {
    "labels": 'an object such as {"name": "product", "value": "R640"}',
    "racks": "a whole number",
    "roles": "text",
    "states": f"one of {', '.join(_STATES)}",
}


def _fits(field: str, item: Any) -> bool:
    match field:
        case "labels":
            return (
                isinstance(item, dict)
                and set(item) == {"name", "value"}
                and all(isinstance(v, str) for v in item.values())
            )
        case "racks":
            return type(item) is int
        case "roles":
            return isinstance(item, str)
        case _:
            return item in _STATES


def _unknown(name: Any, known: tuple[str, ...]) -> str:
    near = get_close_matches(str(name), known, 1)
    return f"{name}: unknown" + (f"; {near[0]} is meant?" if near else f"; known: {', '.join(known)}")


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
