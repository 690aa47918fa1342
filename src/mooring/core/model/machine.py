"""A physical machine as the registry describes it."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from mooring.core.model.cluster import NO_LABELS


class MachineState(StrEnum):
    UNINITIALIZED = "UNINITIALIZED"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    UNREACHABLE = "UNREACHABLE"
    UPDATING = "UPDATING"
    RETIRING = "RETIRING"
    RETIRED = "RETIRED"


class Machine(msgspec.Struct, frozen=True, gc=False):
    serial: str
    #: The first IPv4 address; "" when the machine has none (it is then left out, by name).
    address: str
    state: MachineState
    rack: int = 0
    index_in_rack: int = 0
    role: str = ""
    labels: Mapping[str, str] = NO_LABELS
    registered_at: float = 0.0
    retire_at: float = 0.0
    #: When the current state began.
    state_since: float = 0.0
    bmc_address: str = ""
    #: The same dates as text: RFC 3339, whole seconds, in the zone they came in. "": written from the numbers, in UTC.
    register_date: str = ""
    retire_date: str = ""
    #: Why this row of the registry cannot be used; "": it can. Its machine is neither chosen nor taken for gone.
    problem: str = ""
