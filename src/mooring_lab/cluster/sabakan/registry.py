"""`SandboxSabakan`: machines with states, dates, racks and roles behind `ports.MachineRegistry`.

    uninitialized → healthy ⇄ unhealthy ⇄ unreachable          (each of the three to each other)
    healthy, unhealthy, unreachable → updating → uninitialized
    uninitialized, healthy, unhealthy, unreachable → retiring → retired → uninitialized

Any other transition is forbidden, as in the real one; to the state it is in already, a machine may always be set.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from mooring.clients.ports import Json, NotFoundError, RefusedError, UnansweredError
from mooring.core.model.machine import Machine, MachineState
from mooring_lab.cluster.clock import Timeline, TimelineClock

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Which addresses a machine gets: by rack and place in it, from pools, as sabakan computes them.


class Ipam(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    max_nodes_in_rack: int = 28
    node_ipv4_pool: str = "10.69.0.0/20"
    node_ipv4_offset: str = ""
    node_ipv4_range_size: int = 6
    node_ipv4_range_mask: int = 26
    node_ip_per_node: int = 3
    node_index_offset: int = 3
    node_gateway_offset: int = 1
    bmc_ipv4_pool: str = "10.72.16.0/20"
    bmc_ipv4_offset: str = "0.0.1.0"
    bmc_ipv4_range_size: int = 5
    bmc_ipv4_range_mask: int = 20
    bmc_ipv4_gateway_offset: int = 1

    def node_addresses(self, rack: int, index: int) -> tuple[str, ...]:
        per = 1 << self.node_ipv4_range_size
        base = _base(self.node_ipv4_pool, self.node_ipv4_offset) + per * self.node_ip_per_node * rack + index
        return tuple(str(ipaddress.IPv4Address(base + per * i)) for i in range(self.node_ip_per_node))

    def bmc_address(self, rack: int, index: int) -> str:
        base = _base(self.bmc_ipv4_pool, self.bmc_ipv4_offset)
        return str(ipaddress.IPv4Address(base + (1 << self.bmc_ipv4_range_size) * rack + index))

    def indexes(self, role: str) -> range:
        """The boot server has a place of its own; all others share the rest of the rack."""
        first = self.node_index_offset
        return range(first, first + 1) if role == "boot" else range(first + 1, first + 1 + self.max_nodes_in_rack)


def _base(pool: str, offset: str) -> int:
    start = int(ipaddress.IPv4Network(pool).network_address)
    return start + (int(ipaddress.IPv4Address(offset)) if offset else 0)


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# `having` and `notHaving`: sabakan's search, by its GraphQL variables.


STATES = frozenset(MachineState)
_KINDS: dict[str, type] = {"labels": list, "racks": list, "roles": list, "states": list, "minDaysBeforeRetire": int}


class Searched(Protocol):
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def rack(self) -> int: ...
    @property
    def role(self) -> str: ...
    @property
    def state(self) -> MachineState: ...
    @property
    def retire_at(self) -> float: ...


class BadVariablesError(Exception):
    """The message and the path to what is wrong, as sabakan answers them."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message)
        self.path = list(path)


def check(variables: Json) -> None:
    """Raises BadVariablesError: a misspelt request must not find every machine."""
    for name in ("having", "notHaving"):
        params = variables.get(name)
        if params is None:
            continue
        if not isinstance(params, dict):
            raise BadVariablesError("must be a MachineParams", "variable", name)
        for key, value in params.items():
            if key not in _KINDS:
                raise BadVariablesError("unknown field", "variable", name, key)
            if value is not None and (not isinstance(value, _KINDS[key]) or isinstance(value, bool)):
                raise BadVariablesError(
                    f"cannot use {type(value).__name__} as {_KINDS[key].__name__}", "variable", name, key
                )
        for i, state in enumerate(params.get("states") or ()):
            if state not in STATES:
                raise BadVariablesError(f"{state} is not a valid MachineState", "variable", name, "states", i)


def matches(machine: Searched, variables: Json, now: float) -> bool:
    having, not_having = variables.get("having") or {}, variables.get("notHaving") or {}
    wanted = _labels(having)
    if any(machine.labels.get(k) != v for k, v in wanted):
        return False
    if any(machine.labels.get(k) == v for k, v in _labels(not_having)):
        return False
    for key, value in (("racks", machine.rack), ("roles", machine.role), ("states", machine.state)):
        if having.get(key) and value not in having[key]:
            return False
        if not_having.get(key) and value in not_having[key]:
            return False
    days = int((machine.retire_at - now) / 86400)  # towards zero, as Go converts
    least, most = having.get("minDaysBeforeRetire"), not_having.get("minDaysBeforeRetire")
    return (least is None or least <= days) and (most is None or most > days)


def _labels(params: dict[str, Any]) -> list[tuple[str, str]]:
    return [(label["name"], label["value"]) for label in params.get("labels") or ()]


_S = MachineState
TRANSITIONS: Final[Mapping[MachineState, frozenset[MachineState]]] = {
    _S.UNINITIALIZED: frozenset({_S.HEALTHY, _S.RETIRING}),
    _S.HEALTHY: frozenset({_S.UNHEALTHY, _S.UNREACHABLE, _S.UPDATING, _S.RETIRING}),
    _S.UNHEALTHY: frozenset({_S.HEALTHY, _S.UNREACHABLE, _S.UPDATING, _S.RETIRING}),
    _S.UNREACHABLE: frozenset({_S.HEALTHY, _S.UNHEALTHY, _S.UPDATING, _S.RETIRING}),
    _S.UPDATING: frozenset({_S.UNINITIALIZED}),
    _S.RETIRING: frozenset({_S.RETIRED}),
    _S.RETIRED: frozenset({_S.UNINITIALIZED}),
}


#: The defaults of the query we send: not the boot servers, not what is retired.
DEFAULTS: Final[Json] = {"having": None, "notHaving": {"roles": ["boot"], "states": ["RETIRED"]}}


class ForbiddenError(Exception):
    """The registry's rules say no. `kind` is one of not-found, conflict, invalid, transition, no-ipam."""

    def __init__(self, kind: str, message: str, serial: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.serial = serial


class RegisteredMachine(msgspec.Struct, frozen=True, kw_only=True):
    """One machine, all of it."""

    serial: str
    rack: int
    index_in_rack: int
    role: str
    ipv4: tuple[str, ...]
    bmc_ipv4: str
    bmc_type: str
    labels: Mapping[str, str]
    registered_at: float
    retire_at: float
    state: MachineState = MachineState.UNINITIALIZED
    state_since: float = 0.0


class SandboxSabakan:
    def __init__(self, timeline: Timeline, *, ipam: Ipam | None = None) -> None:
        self.timeline = timeline
        #: None: machines cannot be registered yet, as in a registry just set up.
        self.ipam = ipam
        self.entries: dict[str, RegisteredMachine] = {}
        #: Why there is no answer now ("" when there is).
        self.away = ""
        #: Serials of machines whose rows have no address just now.
        self.bad_rows: set[str] = set()
        #: Addresses of machines that are listed as healthy and never become a Node.
        self.never_boot: set[str] = set()
        self.latency_s = 0.0
        self.timeout_s = 5.0
        self._clock = TimelineClock(timeline)

    # ── Machines ──────────────────────────────────────────────────────────────────────────────────────────────────

    def register(
        self,
        serial: str,
        *,
        rack: int = 0,
        role: str = "cs",
        labels: Mapping[str, str] | None = None,
        retire_at: float | None = None,
        bmc_type: str = "iDRAC-9",
        state: MachineState | None = None,
    ) -> RegisteredMachine:
        """A new machine, uninitialized unless a scenario says that it has been through that already."""
        if self.ipam is None:
            raise ForbiddenError("no-ipam", "IPAMConfig is not set")
        if not serial:
            raise ForbiddenError("invalid", "invalid request: serial is empty")
        if not bmc_type:
            raise ForbiddenError("invalid", "invalid request: BMC type is empty")
        if serial in self.entries:
            raise ForbiddenError("conflict", "conflicted")
        taken = {e.index_in_rack for e in self.entries.values() if e.rack == rack}
        index = next((i for i in self.ipam.indexes(role) if i not in taken), None)
        if index is None:
            raise ForbiddenError("invalid", "no node index is available")
        now = self.timeline.now()
        entry = RegisteredMachine(
            serial=serial,
            rack=rack,
            index_in_rack=index,
            role=role,
            ipv4=self.ipam.node_addresses(rack, index),
            bmc_ipv4=self.ipam.bmc_address(rack, index),
            bmc_type=bmc_type,
            labels=dict(sorted((labels or {}).items())),
            registered_at=now,
            retire_at=now if retire_at is None else retire_at,
            state=state or MachineState.UNINITIALIZED,
            state_since=now,
        )
        self.entries[serial] = entry
        return entry

    def entry(self, serial: str) -> RegisteredMachine:
        found = self.entries.get(serial)
        if found is None:
            raise ForbiddenError("not-found", "not found", serial)
        return found

    def set_state(self, serial: str, state: MachineState) -> None:
        entry = self.entry(serial)
        if state == entry.state:
            return
        if state not in TRANSITIONS[entry.state]:
            words = f"transition from [ {entry.state.lower()} ] to [ {state.lower()} ] is forbidden"
            raise ForbiddenError("transition", words, serial)
        now = self.timeline.now()
        self.entries[serial] = msgspec.structs.replace(entry, state=state, state_since=now)

    def find(self, variables: Json) -> list[RegisteredMachine]:
        """By serial number, as sabakan's store orders them. Raises BadVariablesError."""
        check(variables)
        now = self.timeline.now()
        return [e for _, e in sorted(self.entries.items()) if matches(e, variables, now)]

    # ── Faults ───────────────────────────────────────────────────────────────────────────────────────────

    def go_dark(self, seconds: float | None = None) -> None:
        self.away = "connection refused"
        if seconds is not None:
            self.timeline.after(seconds, self.lighten)

    def lighten(self) -> None:
        self.away = ""

    def slow(self, seconds: float) -> None:
        self.latency_s = seconds

    # ── ports.MachineRegistry ─────────────────────────────────────────────────────────────────────────────────────

    async def machines(self, variables: Json | None = None) -> Sequence[Machine]:
        if self.latency_s:
            await self._clock.sleep(min(self.latency_s, self.timeout_s))
        if self.away or self.latency_s > self.timeout_s:
            raise UnansweredError(f"sabakan did not answer: {self.away or 'too slow'}")
        try:
            found = self.find({**DEFAULTS, **(variables or {})})
        except BadVariablesError as e:
            raise RefusedError(f"sabakan: {e} ({'.'.join(map(str, e.path))})", 422) from e
        if not found:
            raise NotFoundError("sabakan: no machine matches the query's variables")
        return tuple(
            machine(e)
            if e.serial not in self.bad_rows
            else msgspec.structs.replace(machine(e), address="", problem="it has no IPv4 address")
            for e in found
        )

    async def close(self) -> None:
        return None


def machine(entry: RegisteredMachine) -> Machine:
    return Machine(
        serial=entry.serial,
        address=entry.ipv4[0] if entry.ipv4 else "",
        state=entry.state,
        rack=entry.rack,
        index_in_rack=entry.index_in_rack,
        role=entry.role,
        labels=entry.labels,
        registered_at=entry.registered_at,
        retire_at=entry.retire_at,
        state_since=entry.state_since,
        bmc_address=entry.bmc_ipv4,
    )
