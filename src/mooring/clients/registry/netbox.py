"""NetBox over its REST API: `/api/dcim/devices/`, page by page, filtered by NetBox itself.

The pages are one list only if nothing changed between them: the count must stay the same and no device may come twice
or be missing, else the answer is none. Which field says what (a custom field, the rack's name) is a setting. Without a
filter NetBox lists switches and power supplies too, so a query is required.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import time
from typing import Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec

from mooring.clients.ports import NotFoundError, RefusedError, UnansweredError
from mooring.clients.registry.file import row_of
from mooring.clients.registry.http import Requests, error_of
from mooring.clients.registry.rows import SLICE, InvalidMachinesError, Latest, checked, parse_date, problems_of
from mooring.clients.texts import without_credentials
from mooring.core.model.machine import Machine, MachineState

#: NetBox's own limit for a page, unless its administrator has set another.
_PAGE: Final = 1000
_MOST_DEVICES: Final = 100_000
_STATES: Final = {
    "active": MachineState.HEALTHY,
    "planned": MachineState.UNINITIALIZED,
    "staged": MachineState.UNINITIALIZED,
    "failed": MachineState.UNHEALTHY,
    "decommissioning": MachineState.RETIRING,
    "offline": MachineState.RETIRED,
    "inventory": MachineState.RETIRED,
}
_OURS: Final = frozenset({"limit", "offset", "ordering", "format", "brief", "fields", "exclude"})
_DIGITS: Final = re.compile(r"\d+\Z")


class NetboxSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Which field of a device says what, as a path such as `role.slug` or `custom_fields.retire_date`."""

    #: The file with the API token: a mounted Secret. Read at each query, so that a new token needs no restart.
    token_file: str = ""
    #: What names the machine for good.
    serial: str = "serial"
    #: The machine's role, as the template knows it.
    role: str = "role.slug"
    #: A number, or a text that ends with one ("R12" is rack 12).
    rack: str = "rack.id"
    #: Its place in the rack.
    index_in_rack: str = "position"
    #: When it was bought: a date or RFC 3339.
    register_date: str = "created"
    #: When it is to go: a date or RFC 3339.
    retire_date: str = "custom_fields.retire_date"
    #: Label → field: `{site: site.slug}`.
    labels: dict[str, str] = msgspec.field(default_factory=lambda: {"site": "site.slug"})
    #: NetBox's status → state, where it is not the default (active: HEALTHY, planned and staged: UNINITIALIZED,
    #: failed: UNHEALTHY, decommissioning: RETIRING, offline and inventory: RETIRED).
    states: dict[str, MachineState] = {}


class _Page(msgspec.Struct):
    count: int
    results: list[dict[str, Any]]


_page: Final = msgspec.json.Decoder(_Page)


def check_filters(document: Any) -> dict[str, Any]:
    """Raises ValueError."""
    if not isinstance(document, dict) or not document:
        raise ValueError('must be an object of NetBox filters such as {"role": "server", "site": "tokyo"}')
    for name, value in document.items():
        if name in _OURS:
            raise ValueError(f"{name}: is set by Mooring itself")
        wrong = [one for one in _listed(value) if not isinstance(one, str | int | float | bool)]
        if wrong:
            raise ValueError(f"{name}: must be a text, a number, true or false, or a list of them, not {wrong[0]!r}")
    return document


def devices_url(url: str) -> str:
    """`netbox+https://HOST[/PATH]` → the list of devices. Raises ValueError."""
    parts = urlsplit(url.removeprefix("netbox+"))
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise ValueError(f"{without_credentials(url)!r} is not an address such as netbox+https://netbox.example.com")
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/api/dcim/devices/", query="", fragment=""))


class Netbox:
    """`ports.MachineRegistry` on NetBox."""

    def __init__(
        self,
        url: str,
        settings: NetboxSettings | None = None,
        *,
        timeout_s: float = 30.0,
        now: Callable[[], float] = time,
    ) -> None:
        self._url = devices_url(url)
        self.url = without_credentials(self._url)
        self._settings = settings or NetboxSettings()
        self._states = {**_STATES, **self._settings.states}
        self._requests = Requests(timeout_s)
        self._now = now
        self._latest = Latest()

    async def machines(self, query: Mapping[str, Any] | None = None) -> Sequence[Machine]:
        try:
            filters = check_filters(query)
        except ValueError as error:
            raise RefusedError(f"query variables: {error}", 422) from None
        devices = await self._devices(filters)
        if not devices:
            raise NotFoundError(f"{self.url}: no device matches the query's variables; an empty list is ignored")
        now, found = self._now(), list[Machine]()
        try:
            for start in range(0, len(devices), SLICE):
                found += [self._machine(d, now) for d in devices[start : start + SLICE]]
                await asyncio.sleep(0)
            return self._latest.take(checked(found, self._latest.known))
        except InvalidMachinesError as error:
            raise UnansweredError(f"{self.url}: {error}") from None

    async def _devices(self, filters: Mapping[str, Any]) -> list[dict[str, Any]]:
        headers, asked = self._headers(), [(k, v) for k, v in filters.items()]
        wanted = [(k, str(v).lower() if isinstance(v, bool) else v) for k, vs in asked for v in _listed(vs)]
        devices: list[dict[str, Any]] = []
        count: int | None = None
        while count is None or len(devices) < count:
            paging = [("limit", _PAGE), ("offset", len(devices)), ("ordering", "id")]
            answer = await self._requests.send(f"{self._url}?{urlencode([*wanted, *paging])}", headers)
            if answer.status != 200:
                raise error_of(self._url, answer)
            try:
                page = await asyncio.to_thread(_page.decode, answer.body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise UnansweredError(f"{self.url}: not a page of devices: {error}") from None
            if page.count > _MOST_DEVICES:
                raise RefusedError(f"{self.url}: {page.count} devices match; narrow the query's variables", 413)
            if (count is not None and page.count != count) or (not page.results and len(devices) < page.count):
                raise UnansweredError(f"{self.url}: the list of devices changed while it was read")
            count = page.count
            devices += page.results
        if len({d.get("id") for d in devices}) != len(devices) or len(devices) != count:
            raise UnansweredError(f"{self.url}: the list of devices changed while it was read")
        return devices

    def _headers(self) -> dict[str, str]:
        path = self._settings.token_file
        if not path:
            return {}
        try:
            token = Path(path).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise RefusedError(f"registry.netbox.token-file {path}: cannot be read: {error}", 401) from None
        return {"Authorization": f"{'Bearer' if token.startswith('nbt_') else 'Token'} {token}"}

    def _machine(self, device: dict[str, Any], now: float) -> Machine:
        fields = self._settings
        serial, role = _text(device, fields.serial), _text(device, fields.role)
        address = _text(device, "primary_ip4.address").partition("/")[0]
        if not serial and not address:
            raise InvalidMachinesError(f"device {device.get('id')} ({device.get('name')}) has no serial and no address")
        status = _text(device, "status.value")
        rack, index = _number(device, fields.rack), _number(device, fields.index_in_rack)
        labels = {name: text for name, path in fields.labels.items() if (text := _text(device, path))}
        dates = {"register-date": _text(device, fields.register_date), "retire-date": _text(device, fields.retire_date)}
        dates = {k: f"{v}T00:00:00Z" if len(v) == 10 else v for k, v in dates.items() if v}
        problems = list(problems_of(role, labels, dates, address))
        if not serial:
            problems.append(f"{fields.serial}: is empty")
        if status not in self._states:
            problems.append(f"status: {status!r} has no state (registry.netbox.states)")
        if rack is None or index is None:
            problems.append(f"{fields.rack if rack is None else fields.index_in_rack}: is no number")
        registered = parse_date(dates.get("register-date", "")) or (0.0, "")
        retires = parse_date(dates.get("retire-date", "")) or (0.0, "")
        return row_of(
            Machine(
                serial,
                address,
                self._states.get(status, MachineState.UNHEALTHY),
                rack or 0,
                index or 0,
                role,
                labels,
                registered[0],
                retires[0],
                min((parse_date(_text(device, "last_updated")) or (now, ""))[0], now),
                _text(device, "oob_ip.address").partition("/")[0],
                registered[1],
                retires[1],
                "; ".join(problems),
            ),
            self._latest.known,
        )

    async def close(self) -> None:
        await self._requests.close()


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _field(device: Mapping[str, Any], path: str) -> Any:
    found: Any = device
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _text(device: Mapping[str, Any], path: str) -> str:
    found = _field(device, path)
    return found if isinstance(found, str) else "" if found is None or isinstance(found, dict | list) else str(found)


def _number(device: Mapping[str, Any], path: str) -> int | None:
    """0 where there is none; None where it is no number."""
    found = _field(device, path)
    if found is None:
        return 0
    if isinstance(found, str):
        digits = _DIGITS.search(found)
        return int(digits[0]) if digits is not None and len(digits[0]) < 10 else None
    whole = isinstance(found, int | float) and not isinstance(found, bool) and 0 <= found < 2**31
    return int(found) if whole else None
