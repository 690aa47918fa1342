"""`having` and `notHaving`: sabakan's search, by its GraphQL variables.

A machine is found when it has all that `having` names and none of what `notHaving` names. An empty list asks nothing.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from mooring.clients.ports import Json
from mooring.core.model.machine import MachineState

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
