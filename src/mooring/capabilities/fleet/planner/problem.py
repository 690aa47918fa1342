"""What can stand in the way of a plan, as a value: a code for scripts and a sentence for people."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec


class ErrorCode(StrEnum):
    NOT_AVAILABLE = "not-available"
    TOO_MANY_NON_EXISTENT = "too-many-non-existent"
    MISSING_MACHINE = "missing-machine"
    INVALID_TEMPLATE = "invalid-template"
    INVALID_CONSTRAINTS = "invalid-constraints"
    INVALID_MACHINES = "invalid-machines"
    INVALID_CLUSTER = "invalid-cluster"
    INVALID_NODES = "invalid-nodes"


#: What the user fixes in a file; the others are refusals by a rule.
INVALID_INPUT: Final = frozenset(code for code in ErrorCode if code.value.startswith("invalid-"))
_SHOWN: Final = 20


class PlanError(msgspec.Struct, frozen=True):
    code: ErrorCode
    message: str


def invalid(code: ErrorCode, where: str, problems: Iterable[str]) -> PlanError:
    """Every problem of one file at once, so that it is fixed in one go."""
    found = list(problems)
    shown = "; ".join(found[:_SHOWN])
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return PlanError(code, f"{where}: {shown}{more}")
