"""What sabakan answers to `searchMachines`, read strictly: all of it, or a sentence that says what is wrong and where.

A list that is only half understood must never reach the planner: a machine that is missing there would be removed.
"""

import re
from collections.abc import Generator, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from mooring.core.model.cluster import NO_LABELS
from mooring.core.model.machine import Machine, MachineState

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")
_NAME_RULE: Final = "1 to 63 of [A-Za-z0-9._-], beginning and ending with a letter or digit"
_DATE: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)\Z")
_BYTE: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4: Final = re.compile(rf"{_BYTE}\.{_BYTE}\.{_BYTE}\.{_BYTE}\Z")
_SHOWN: Final = 10
#: Racks, and places in one.
_MOST: Final = 2**31 - 1
#: Machines read between two turns of others: under a millisecond.
_SLICE: Final = 256
#: A state that began at nearly the moment known is the same one: requests take their time.
_JITTER_S: Final = 2.0


class InvalidMachinesError(Exception):
    """The message names the place and what would be right."""


class _MachineLabel(msgspec.Struct, gc=False):
    name: str
    value: str


class _Bmc(msgspec.Struct, gc=False):
    ipv4: str | None = None


class _Spec(msgspec.Struct, rename="camel", gc=False):
    serial: Annotated[str, Meta(min_length=1)]
    rack: Annotated[int, Meta(ge=0, le=_MOST)]
    index_in_rack: Annotated[int, Meta(ge=0, le=_MOST)]
    role: str
    register_date: str
    retire_date: str
    #: Read apart: of ten thousand machines most have the labels of another one.
    labels: msgspec.Raw = msgspec.Raw(b"null")
    ipv4: list[str] | None = None
    bmc: _Bmc | None = None


class _MachineStatus(msgspec.Struct, gc=False):
    state: MachineState
    duration: float = 0.0


class _Machine(msgspec.Struct, gc=False):
    spec: _Spec
    status: _MachineStatus


class _Data(msgspec.Struct, rename="camel", gc=False):
    search_machines: list[_Machine]


class _Answer(msgspec.Struct):
    data: _Data | None = None
    errors: list[Any] | None = None


_answer: Final = msgspec.json.Decoder(_Answer)
_list: Final = msgspec.json.Decoder(list[_Machine])
_labels: Final = msgspec.json.Decoder(list[_MachineLabel] | None)


def parse_machines(raw: bytes, received_at: float) -> list[Machine]:
    """The whole answer, or a bare list of machines. Raises InvalidMachinesError.

    `status.duration` is counted by sabakan's clock up to its answer, so it is taken from the moment of receipt.
    A machine without IPv4 has the address "": the planner leaves it out, by name.
    """
    reading = read_machines(raw, received_at, {})
    while True:
        try:
            next(reading)
        except StopIteration as done:
            found: list[Machine] = done.value
            return found


def read_machines(
    raw: bytes, received_at: float, before: Mapping[str, Machine]
) -> Generator[None, None, list[Machine]]:
    """The same a slice at a time, so that others have their turn between.

    `before`: machines as they were read last, by serial. An unchanged machine is the same object, so that changes are
    found by comparing identities; the moment its state began does not vary with the network's delays.
    """
    prefix = "$"
    try:
        if raw.lstrip()[:1] == b"[":
            found = _list.decode(raw)
        else:
            prefix = "$.data.searchMachines"
            answer = _answer.decode(raw)
            if answer.errors:
                raise InvalidMachinesError(
                    f"$.errors: the registry answered with an error: {error_text(answer.errors)}"
                )
            if answer.data is None:
                raise InvalidMachinesError(
                    '$.data: is missing; {"data": {"searchMachines": […]}} or a bare list is required'
                )
            found = answer.data.search_machines
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMachinesError(_explain(str(error))) from None
    yield
    reader = _MachineReader(received_at, before)
    machines: list[Machine] = []
    try:
        for start in range(0, len(found), _SLICE):
            machines += reader.machines(found[start : start + _SLICE])
            yield
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidMachinesError(_bad_labels(found, prefix)) from None
    problems = list(reader.problems(found, machines, prefix)) if reader.doubtful else []
    problems += _twice(machines)
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise InvalidMachinesError("; ".join(problems[:_SHOWN]) + more)
    return machines


def _bad_labels(found: list[_Machine], prefix: str) -> str:
    """Labels are read apart, so the place of what is wrong in them is found apart too."""
    for index, raw in enumerate(found):
        try:
            _labels.decode(raw.spec.labels)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            said, _, place = str(error).partition(" - at `")
            return f"{prefix}[{index}].spec.labels{place.rstrip('`').lstrip('$')}: {said}"
    return f"{prefix}: labels that cannot be read"


def error_text(errors: list[Any]) -> str:
    said = [str(e.get("message", e)) if isinstance(e, dict) else str(e) for e in errors]
    return "; ".join(said[:3])


class _MachineReader:
    """Wire structs → machines. What repeats (dates, names) is checked once; only what fails is looked at again."""

    def __init__(self, received_at: float, before: Mapping[str, Machine]) -> None:
        self._received_at = received_at
        self._before = before
        self._dates: dict[str, tuple[float, str]] = {}
        self._names: set[str] = set()
        self._labels: dict[bytes, Mapping[str, str]] = {}
        self.doubtful = False

    def machines(self, found: list[_Machine]) -> list[Machine]:
        """One long loop on purpose: it runs over every machine, every minute."""
        names, dates, received_at, is_ipv4 = self._names, self._dates, self._received_at, _IPV4.match
        known, before = self._labels, self._before.get
        machines = []
        for raw in found:
            spec, status = raw.spec, raw.status
            if spec.role not in names:
                self._check_name(spec.role)
            written = bytes(spec.labels)
            labels = known.get(written)
            if labels is None:
                labels = self._read_labels(written)
            text = spec.register_date
            registered = dates.get(text) or self._date(text)
            text = spec.retire_date
            retires = dates.get(text) or self._date(text)
            address = spec.ipv4[0] if spec.ipv4 else ""
            if address and not is_ipv4(address):
                self.doubtful = True
            since = received_at - status.duration
            old = before(spec.serial)
            if old is not None and -_JITTER_S < since - old.state_since < _JITTER_S:
                since = old.state_since
            made = Machine(
                spec.serial,
                address,
                status.state,
                spec.rack,
                spec.index_in_rack,
                spec.role,
                labels,
                registered[0],
                retires[0],
                since,
                (spec.bmc.ipv4 or "") if spec.bmc else "",
                registered[1],
                retires[1],
            )
            machines.append(old if old is not None and old == made else made)
        return machines

    def _read_labels(self, written: bytes) -> Mapping[str, str]:
        labels = {label.name: label.value for label in _labels.decode(written) or ()}
        for name, value in labels.items():
            self._check_name(name)
            if value:
                self._check_name(value)
        found = self._labels[written] = labels or NO_LABELS
        return found

    def _check_name(self, text: str) -> None:
        if _NAME.match(text):
            self._names.add(text)
        else:
            self.doubtful = True

    def _date(self, text: str) -> tuple[float, str]:
        found = parse_date(text)
        if found is None:
            self.doubtful = True
            return (0.0, "")
        self._dates[text] = found
        return found

    def problems(self, found: list[_Machine], machines: list[Machine], prefix: str) -> Iterator[str]:
        for index, (raw, machine) in enumerate(zip(found, machines, strict=True)):
            at = f"{prefix}[{index}].spec"
            who = f" (serial {machine.serial})"
            if not _NAME.match(machine.role):
                yield f"{at}.role{who}: {machine.role!r} is not a role ({_NAME_RULE})"
            for position, label in enumerate(_labels.decode(raw.spec.labels) or ()):
                if not _NAME.match(label.name):
                    yield f"{at}.labels[{position}].name{who}: {label.name!r} is not a label name ({_NAME_RULE})"
                if label.value and not _NAME.match(label.value):
                    what = f"{label.value!r} is not a label value ({_NAME_RULE}, or empty)"
                    yield f"{at}.labels[{position}].value{who}: {what}"
            for field, text in (("registerDate", raw.spec.register_date), ("retireDate", raw.spec.retire_date)):
                if parse_date(text) is None:
                    yield f"{at}.{field}{who}: {text!r} is not an RFC 3339 date such as 2031-06-01T00:00:00Z"
            if machine.address and not _IPV4.match(machine.address):
                yield f"{at}.ipv4[0]{who}: {machine.address!r} is not an IPv4 address"


def parse_date(text: str) -> tuple[float, str] | None:
    """Seconds since the epoch, and the date in whole seconds in the zone it came in."""
    if len(text) == 20 and text[-1] == "Z" and text[4] == text[7] == "-":
        whole, fraction = text, ""  # nearly all of them
    else:
        parts = _DATE.match(text)
        if parts is None:
            return None
        whole, fraction = parts[1] + parts[3], parts[2] or ""
    try:
        at = datetime.fromisoformat(whole)
    except ValueError:
        return None
    if at.tzinfo is None or whole[10] != "T":
        return None
    return (at.timestamp() + float("0" + fraction) if fraction else at.timestamp(), whole)


def _twice(machines: list[Machine]) -> list[str]:
    """Serials and addresses are identities; two machines that share one cannot both be right."""
    problems = []
    if len({m.serial for m in machines}) < len(machines):
        problems += _shared({}, [(m.serial, m.address) for m in machines], "serial", "address")
    addresses = [m.address for m in machines if m.address]
    if len(set(addresses)) < len(addresses):
        problems += _shared({}, [(m.address, m.serial) for m in machines if m.address], "address", "serial")
    return problems


def _shared(seen: dict[str, list[str]], pairs: list[tuple[str, str]], what: str, other: str) -> list[str]:
    for key, value in pairs:
        seen.setdefault(key, []).append(value)
    return [
        f"{what} {key} belongs to several machines ({other} {', '.join(sorted(v))}); it must be one machine's alone"
        for key, v in sorted(seen.items())
        if len(v) > 1
    ]


def _explain(said: str) -> str:
    """What msgspec says, with the place first."""
    text, _, place = said.partition(" - at `")
    return f"{place.rstrip('`')}: {text}" if place else f"not a complete JSON document: {text}"
