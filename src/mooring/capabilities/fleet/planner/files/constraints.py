"""Constraints: how many control planes and workers there must be. They are required, not preferred."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from mooring.capabilities.fleet.planner.files.syntax import kind_of
from mooring.capabilities.fleet.planner.problem import ErrorCode, PlanError, invalid

CONTROL_PLANE_COUNT: Final = "control-plane-count"
MINIMUM_WORKERS: Final = "minimum-workers"
MAXIMUM_WORKERS: Final = "maximum-workers"
_OURS: Final = {CONTROL_PLANE_COUNT: 1, MINIMUM_WORKERS: 0, MAXIMUM_WORKERS: 0}
#: CKE keeps these in the same place; they steer its reboot and repair queues, and nothing here.
_CKE_ONLY: Final = frozenset(
    {
        "minimum-workers-rate",
        "maximum-unreachable-nodes-for-reboot",
        "maximum-repair-queue-entries",
        "wait-seconds-to-repair-rebooting",
    }
)


class Constraints(msgspec.Struct, frozen=True):
    control_plane_count: int = 1
    minimum_workers: int = 1
    #: 0: no maximum.
    maximum_workers: int = 0
    notes: tuple[str, ...] = ()


def parse_constraints(document: Any, where: str = "constraints") -> Constraints | PlanError:
    problems = list(_problems(document))
    if problems:
        return invalid(ErrorCode.INVALID_CONSTRAINTS, where, problems)
    document = document or {}
    notes = [f"{where}: {key} is CKE's and has no effect here" for key in document if key in _CKE_ONLY]
    count = document.get(CONTROL_PLANE_COUNT, 1)
    if count % 2 == 0:
        notes.append(
            f"{where}: {CONTROL_PLANE_COUNT} {count} survives no more losses than {count - 1}; etcd likes odd numbers"
        )
    return Constraints(count, document.get(MINIMUM_WORKERS, 1), document.get(MAXIMUM_WORKERS, 0), tuple(notes))


def _problems(document: Any) -> Iterator[str]:
    if document is None:
        return
    if not isinstance(document, dict):
        yield f"must be a map such as {{{CONTROL_PLANE_COUNT}: 3}}, not {kind_of(document)}"
        return
    for key, value in document.items():
        if key in _CKE_ONLY:
            continue
        if key not in _OURS:
            near = get_close_matches(str(key), _OURS, 1)
            yield f"{key}: no such constraint" + (f"; {near[0]} is meant?" if near else f"; known: {', '.join(_OURS)}")
        elif type(value) is not int or value < _OURS[key]:
            yield f"{key}: must be a whole number of at least {_OURS[key]}, not {value!r}"
    low, high = document.get(MINIMUM_WORKERS, 1), document.get(MAXIMUM_WORKERS, 0)
    if type(low) is int and type(high) is int and 0 < high < low:
        yield f"{MAXIMUM_WORKERS} {high} is below {MINIMUM_WORKERS} {low}; raise it, or 0 for no maximum"
