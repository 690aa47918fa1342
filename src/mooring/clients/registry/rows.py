"""A registry's rows, checked: a bad one is left out by name and stops nothing else (F10).

What the planner does not see, it removes. So a row is never dropped: one that cannot be used stays in the list with
its `problem`, and the planner leaves its node as it is. Only a row that names no machine at all, neither by serial nor
by address, refuses the whole list: it could be anybody's.
"""

import operator
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec

from mooring.core.model.machine import Machine

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")
NAME_RULE: Final = "1 to 63 of [A-Za-z0-9._-], beginning and ending with a letter or digit"
_DATE: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)\Z")
_BYTE: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4: Final = re.compile(rf"{_BYTE}\.{_BYTE}\.{_BYTE}\.{_BYTE}\Z")
_SHOWN: Final = 10
#: Machines read between two turns of others: under a millisecond.
SLICE: Final = 256
#: A state that began at nearly the moment known is the same one: requests take their time.
JITTER_S: Final = 2.0

is_name: Final = _NAME.match
is_ipv4: Final = _IPV4.match


class InvalidMachinesError(Exception):
    """The message names the place and what would be right."""


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


def problems_of(role: str, labels: Mapping[str, str], dates: Mapping[str, str], address: str) -> Iterator[str]:
    """What is wrong with one machine, by field."""
    if not is_name(role):
        yield f"role: {role!r} is not a role ({NAME_RULE})"
    for name, value in labels.items():
        if not is_name(name):
            yield f"labels: {name!r} is not a label name ({NAME_RULE})"
        if value and not is_name(value):
            yield f"labels.{name}: {value!r} is not a label value ({NAME_RULE}, or empty)"
    for field, text in dates.items():
        if parse_date(text) is None:
            yield f"{field}: {text!r} is not an RFC 3339 date such as 2031-06-01T00:00:00Z"
    if address and not is_ipv4(address):
        yield f"ipv4[0]: {address!r} is not an IPv4 address"


def left_out(machine: Machine, problem: str) -> Machine:
    return msgspec.structs.replace(machine, problem=problem)


def checked(machines: list[Machine], before: Mapping[str, Machine]) -> list[Machine]:
    """The list with shared identities marked; an unchanged machine is the object of before. Raises
    InvalidMachinesError when no row can be used: then it is the list that is wrong."""
    shared = {**_shared(machines, "address", "serial"), **_shared(machines, "serial", "address")}
    if shared:
        machines = [left_out(m, shared[i]) if i in shared and not m.problem else m for i, m in enumerate(machines)]
    wrong = [m for m in machines if m.problem]
    if wrong and len(wrong) == len(machines):
        said = [f"{m.serial or m.address}: {m.problem}" for m in wrong]
        more = f"; and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
        raise InvalidMachinesError("; ".join(said[:_SHOWN]) + more)
    if wrong:
        return [old if m.problem and (old := before.get(m.serial)) == m and old is not None else m for m in machines]
    return machines


class Latest:
    """The last answer: the same machines, in whatever order, are the very same tuple, so that a minute without news
    costs next to nothing."""

    def __init__(self) -> None:
        #: By serial.
        self.known: Mapping[str, Machine] = {}
        self.machines: tuple[Machine, ...] = ()

    def take(self, machines: list[Machine]) -> tuple[Machine, ...]:
        serials = [m.serial for m in machines]
        if len(machines) == len(self.known) and all(map(operator.is_, machines, map(self.known.get, serials))):
            return self.machines
        self.known = dict(zip(serials, machines, strict=True))
        self.machines = tuple(machines)
        return self.machines


def _shared(machines: list[Machine], what: str, other: str) -> dict[int, str]:
    """Serials and addresses are identities: of two machines that share one, which is meant would depend on the order
    of the list, so neither is."""
    values = [getattr(m, what) for m in machines]
    if len(set(values)) == len(values):
        return {}
    owners: dict[str, list[int]] = {}
    for index, value in enumerate(values):
        if value:
            owners.setdefault(value, []).append(index)
    found = {}
    for value, indexes in owners.items():
        if len(indexes) > 1:
            others = ", ".join(sorted(getattr(machines[i], other) or "none" for i in indexes))
            said = f"{what} {value} belongs to several machines ({other} {others}); it must be one machine's alone"
            found.update(dict.fromkeys(indexes, said))
    return found
