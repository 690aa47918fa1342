"""What sabakan answers to `searchMachines`: a complete document, or a sentence that says what is wrong and where.

A list that breaks off must never reach the planner: a machine that is missing there would be removed. A row that
cannot be used stays in the list, with its problem (see `rows`).
"""

from collections.abc import Generator, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from mooring.clients.registry.rows import (
    JITTER_S,
    SLICE,
    InvalidMachinesError,
    checked,
    is_ipv4,
    is_name,
    left_out,
    parse_date,
    problems_of,
)
from mooring.core.model.cluster import NO_LABELS
from mooring.core.model.machine import Machine, MachineState

#: Racks, and places in one.
_MOST: Final = 2**31 - 1


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
_one: Final = msgspec.json.Decoder(_Machine)
_labels: Final = msgspec.json.Decoder(list[_MachineLabel] | None)


def parse_machines(raw: bytes, received_at: float, before: Mapping[str, Machine] | None = None) -> list[Machine]:
    """The whole answer, or a bare list of machines. Raises InvalidMachinesError.

    `status.duration` is counted by sabakan's clock up to its answer, so it is taken from the moment of receipt.
    A machine without IPv4 has the address "": the planner leaves it out, by name.
    """
    reading = read_machines(raw, received_at, before or {})
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
    found = _decoded(raw)
    yield
    reader = _MachineReader(received_at, before)
    machines: list[Machine] = []
    for start in range(0, len(found), SLICE):
        machines += reader.machines(found[start : start + SLICE])
        yield
    return checked(machines, before)


def _decoded(raw: bytes) -> "list[_Machine | Machine]":
    """Wire structs; for a row of another shape, the machine that it names."""
    prefix = "$" if raw.lstrip()[:1] == b"[" else "$.data.searchMachines"
    try:
        if prefix == "$":
            return list(_list.decode(raw))
        answer = _answer.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        rows = _rows_alone(raw)
        if rows is None:
            raise InvalidMachinesError(_explain(str(error))) from None
        return [_row(row, f"{prefix}[{index}]") for index, row in enumerate(rows)]
    if answer.errors:
        raise InvalidMachinesError(f"$.errors: the registry answered with an error: {error_text(answer.errors)}")
    if answer.data is None:
        raise InvalidMachinesError('$.data: is missing; {"data": {"searchMachines": […]}} or a bare list is required')
    return list(answer.data.search_machines)


def _rows_alone(raw: bytes) -> list[Any] | None:
    """The rows of a complete document whose frame is right; None: it is not that."""
    try:
        document = msgspec.json.decode(raw)
        rows = document if isinstance(document, list) else document["data"]["searchMachines"]
        framed = isinstance(rows, list) and (isinstance(document, list) or not document.get("errors"))
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    return rows if framed else None


def _row(row: Any, place: str) -> "_Machine | Machine":
    try:
        return _one.decode(msgspec.json.encode(row))
    except msgspec.ValidationError as error:
        spec = row.get("spec") if isinstance(row, dict) else None
        serial, ipv4 = (spec.get("serial"), spec.get("ipv4")) if isinstance(spec, dict) else (None, None)
        address = ipv4[0] if isinstance(ipv4, list) and ipv4 and isinstance(ipv4[0], str) else ""
        said = _explain(str(error)).replace("$", place, 1)
        if not (isinstance(serial, str) and serial) and not is_ipv4(address):
            raise InvalidMachinesError(f"{said}; the row names no machine") from None
        known = serial if isinstance(serial, str) else ""
        return Machine(known, address if is_ipv4(address) else "", MachineState.UNHEALTHY, problem=said)


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
        #: Whether something of the machine at hand is wrong.
        self._doubtful = False

    def machines(self, found: "list[_Machine | Machine]") -> list[Machine]:
        """One long loop on purpose: it runs over every machine, every minute."""
        names, dates, received_at = self._names, self._dates, self._received_at
        known, before = self._labels, self._before.get
        machines = []
        for raw in found:
            if isinstance(raw, Machine):
                machines.append(raw)
                continue
            self._doubtful = False
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
                self._doubtful = True
            since = received_at - status.duration
            old = before(spec.serial)
            if old is not None and -JITTER_S < since - old.state_since < JITTER_S:
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
            if self._doubtful:
                made = left_out(made, _problem(spec, labels))
            machines.append(old if old is not None and old == made else made)
        return machines

    def _read_labels(self, written: bytes) -> Mapping[str, str]:
        try:
            labels = {label.name: label.value for label in _labels.decode(written) or ()}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._doubtful = True
            return NO_LABELS
        for text in (*labels, *filter(None, labels.values())):
            self._check_name(text)
        if self._doubtful:
            return labels  # looked at again for the next machine that has them
        found = self._labels[written] = labels or NO_LABELS
        return found

    def _check_name(self, text: str) -> None:
        if is_name(text):
            self._names.add(text)
        else:
            self._doubtful = True

    def _date(self, text: str) -> tuple[float, str]:
        found = parse_date(text)
        if found is None:
            self._doubtful = True
            return (0.0, "")
        self._dates[text] = found
        return found


def _problem(spec: _Spec, labels: Mapping[str, str]) -> str:
    try:
        _labels.decode(spec.labels)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        said, _, place = str(error).partition(" - at `")
        return f"labels{place.rstrip('`').lstrip('$')}: {said}"
    dates = {"registerDate": spec.register_date, "retireDate": spec.retire_date}
    return "; ".join(problems_of(spec.role, labels, dates, spec.ipv4[0] if spec.ipv4 else ""))


def _explain(said: str) -> str:
    """What msgspec says, with the place first."""
    text, _, place = said.partition(" - at `")
    return f"{place.rstrip('`')}: {text}" if place else f"not a complete JSON document: {text}"
