"""The user's search conditions: `having` and `notHaving`.

A key that is left out stays out of the request, so the query's own default holds for it (no boot servers, no retired
ones). Only an explicit null takes a default away.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Final

from mooring.core.model.machine import MachineState

_KEYS: Final = ("having", "notHaving")
_FIELDS: Final = ("labels", "racks", "roles", "states", "minDaysBeforeRetire")
_STATES: Final = tuple(s.value for s in MachineState)


class InvalidVariablesError(ValueError):
    """The message names the place and what would be right."""


def check_variables(document: Any) -> dict[str, Any]:
    """The same document, once it is known to be one sabakan understands. Raises InvalidVariablesError."""
    problems = list(_problems(document))
    if problems:
        raise InvalidVariablesError("; ".join(problems))
    return dict(document)


def _problems(document: Any) -> Iterator[str]:
    if not isinstance(document, dict):
        yield 'must be an object such as {"having": {"roles": ["cs"]}}'
        return
    for key, params in document.items():
        if key not in _KEYS:
            yield _unknown(key, _KEYS)
        elif params is not None and not isinstance(params, dict):
            yield f"{key}: must be an object or null"
        elif params is not None:
            for field, value in params.items():
                yield from _field_problems(f"{key}.{field}", field, value)


def _field_problems(path: str, field: str, value: Any) -> Iterator[str]:
    if field not in _FIELDS:
        yield f"{path.partition('.')[0]}.{_unknown(field, _FIELDS)}"
    elif value is None:
        return
    elif field == "minDaysBeforeRetire":
        if type(value) is not int:
            yield f"{path}: must be a whole number of days, not {value!r}"
    elif not isinstance(value, list):
        yield f"{path}: must be a list, not {value!r}"
    else:
        for index, item in enumerate(value):
            if not _fits(field, item):
                yield f"{path}[{index}]: must be {_WANTED[field]}, not {item!r}"


_WANTED: Final = {
    "labels": 'an object such as {"name": "product", "value": "R640"}',
    "racks": "a whole number",
    "roles": "text",
    "states": f"one of {', '.join(_STATES)}",
}


def _fits(field: str, item: Any) -> bool:
    match field:
        case "labels":
            return (
                isinstance(item, dict)
                and set(item) == {"name", "value"}
                and all(isinstance(v, str) for v in item.values())
            )
        case "racks":
            return type(item) is int
        case "roles":
            return isinstance(item, str)
        case _:
            return item in _STATES


def _unknown(name: Any, known: tuple[str, ...]) -> str:
    near = get_close_matches(str(name), known, 1)
    return f"{name}: unknown" + (f"; {near[0]} is meant?" if near else f"; known: {', '.join(known)}")
