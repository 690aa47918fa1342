"""A plain list of machines, for people who have no registry: a file, a URL, or text in fleet's settings.

    machines:
    - {serial: S1, address: 10.0.0.11, role: cs, rack: 1, state: healthy}

YAML or JSON; what sabakan answers is understood too. A file is read again when it has changed, a URL is asked with the
ETag of its last answer. A file that changed a moment ago may be half written, and half a list of machines would remove
the rest: it is read once it has stood still.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import time
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from mooring.clients.ports import NotFoundError, RefusedError, UnansweredError
from mooring.clients.registry.http import LARGEST, Requests, error_of
from mooring.clients.registry.rows import InvalidMachinesError, Latest, checked, is_ipv4, parse_date, problems_of
from mooring.clients.registry.sabakan.parse import parse_machines
from mooring.clients.texts import without_credentials
from mooring.clients.wire.document import decode
from mooring.core.model.machine import Machine, MachineState

#: Seconds that a file must have stood still.
_STILL_S: Final = 2.0
_Place = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _Row(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    serial: Annotated[str, Meta(min_length=1)]
    role: str
    address: str = ""
    rack: _Place = 0
    index_in_rack: _Place = 0
    state: str = "healthy"
    labels: dict[str, str] = {}
    register_date: str = ""
    retire_date: str = ""
    bmc: str = ""


def read_list(raw: bytes, now: float, before: Mapping[str, Machine]) -> list[Machine]:
    """Raises InvalidMachinesError."""
    try:
        document = decode(raw)
    except ValueError as error:
        raise InvalidMachinesError(str(error)) from None
    rows = document.get("machines") if isinstance(document, dict) else document
    if rows is None or (isinstance(rows, list) and rows and isinstance(rows[0], dict) and "spec" in rows[0]):
        return parse_machines(msgspec.json.encode(document), now, before)
    if not isinstance(rows, list):
        raise InvalidMachinesError("must be a list of machines, or a map with the key `machines`")
    return checked([_machine(row, f"machines[{i}]", now, before) for i, row in enumerate(rows)], before)


def _machine(row: Any, place: str, now: float, before: Mapping[str, Machine]) -> Machine:
    if isinstance(row, dict):  # a serial of digits alone is meant as text
        row = {k: str(v) if k in {"serial", "role"} and type(v) is int else v for k, v in row.items()}
    try:
        spec = msgspec.convert(row, _Row)
    except msgspec.ValidationError as error:
        serial, address = (row.get("serial"), row.get("address")) if isinstance(row, dict) else (None, None)
        address = address if isinstance(address, str) and is_ipv4(address) else ""
        if not (isinstance(serial, str) and serial) and not address:
            raise InvalidMachinesError(f"{place}: {error}; the row names no machine") from None
        known = serial if isinstance(serial, str) else ""
        return Machine(known, address, MachineState.UNHEALTHY, problem=f"{place}: {error}")
    dates = {k: _moment(v) for k, v in (("register-date", spec.register_date), ("retire-date", spec.retire_date)) if v}
    state = MachineState.__members__.get(spec.state.upper())
    problems = [*problems_of(spec.role, spec.labels, dates, spec.address), *_unknown(spec.state, state)]
    registered = parse_date(dates.get("register-date", "")) or (0.0, "")
    retires = parse_date(dates.get("retire-date", "")) or (0.0, "")
    return row_of(
        Machine(
            spec.serial,
            spec.address,
            state or MachineState.UNHEALTHY,
            spec.rack,
            spec.index_in_rack,
            spec.role,
            spec.labels,
            *(registered[0], retires[0], now, spec.bmc, registered[1], retires[1]),
            "; ".join(problems),
        ),
        before,
    )


def row_of(machine: Machine, before: Mapping[str, Machine]) -> Machine:
    """For registries that do not say since when: a state begins when it is first seen. Unchanged, the same object."""
    old = before.get(machine.serial)
    if old is None or old.state is not machine.state:
        return machine
    same = msgspec.structs.replace(machine, state_since=old.state_since)
    return old if old == same else same


def _unknown(text: str, state: MachineState | None) -> Iterator[str]:
    if state is None:
        yield f"state: {text!r} is none of {', '.join(s.value.lower() for s in MachineState)}"


def _moment(text: str) -> str:
    return f"{text}T00:00:00Z" if len(text) == 10 else text


class MachineList:
    """`ports.MachineRegistry` on a file or URL. `url` "": only `read` is used."""

    def __init__(self, url: str = "", *, timeout_s: float = 30.0, now: Callable[[], float] = time) -> None:
        parts = urlsplit(url)
        self._path = Path(parts.path) if parts.scheme in {"", "file"} else None
        self._url, self.url = url, without_credentials(url)
        self._now = now
        self._requests = Requests(timeout_s)
        self._latest = Latest()
        #: What the last list was read from: a file's time and size, a URL's ETag.
        self._version = ""
        self._raw = b""

    async def machines(self, query: Mapping[str, Any] | None = None) -> Sequence[Machine]:
        if query:
            raise RefusedError(f"{self.url}: a list of machines takes no query; leave the variables out", 422)
        raw, version = await (self._file(self._path) if self._path is not None else self._ask())
        machines = await self.read(raw, self.url) if raw is not None else self._latest.machines
        self._version = version
        return machines

    async def read(self, raw: bytes, where: str) -> tuple[Machine, ...]:
        if raw == self._raw and self._latest.machines:
            return self._latest.machines
        try:
            found = await asyncio.to_thread(read_list, raw, self._now(), self._latest.known)
        except InvalidMachinesError as error:
            raise UnansweredError(f"{where}: {error}") from None
        if not found:
            raise NotFoundError(f"{where}: no machine is listed; an empty list is ignored")
        self._raw = raw
        return self._latest.take(found)

    async def _file(self, path: Path) -> tuple[bytes | None, str]:
        """None: as it was."""
        try:
            seen = await asyncio.to_thread(os.stat, path)
            version = f"{seen.st_mtime_ns} {seen.st_size} {seen.st_ino}"
            if version == self._version:
                return None, version
            if seen.st_size > LARGEST:
                raise UnansweredError(f"{self.url}: larger than {LARGEST >> 20} MiB")
            if 0 <= self._now() - seen.st_mtime < _STILL_S:
                raise UnansweredError(f"{self.url}: changed a moment ago; it is read once it has stood still")
            return await asyncio.to_thread(path.read_bytes), version
        except OSError as error:
            raise UnansweredError(f"{self.url}: cannot be read: {error.strerror}") from None

    async def _ask(self) -> tuple[bytes | None, str]:
        headers = {"If-None-Match": self._version} if self._version else {}
        answer = await self._requests.send(self._url, {"Accept": "*/*", **headers})
        if answer.status == 304 and headers:
            return None, self._version
        if answer.status != 200:
            raise error_of(self._url, answer)
        return answer.body, answer.etag

    async def close(self) -> None:
        await self._requests.close()
