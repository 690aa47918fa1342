"""Enough GraphQL for a registry that is asked one query: which root field, with which selection, with which variables.

No language is implemented here: a selection is words and braces, arguments are only read for the two calls that take
literals (`machine`, `setMachineState`). Whatever is not understood is refused as invalid, never guessed.
"""

import re
from datetime import UTC, datetime
from typing import Any, Final

from mooring.clients.ports import Json
from mooring.core.model.machine import MachineState
from mooring.sandbox.sabakan.literals import with_defaults
from mooring.sandbox.sabakan.registry import ForbiddenError, RegisteredMachine, SandboxSabakan
from mooring.sandbox.sabakan.search import BadVariablesError

_ROOT: Final = re.compile(
    r"\{\s*(searchMachines|machine|setMachineState)\s*(\([^)]*\))?\s*(\{.*\})\s*\}\s*\Z", re.DOTALL
)
_WORD: Final = re.compile(r"[{}]|\w+")
_SERIAL: Final = re.compile(r'serial:\s*"([^"]*)"')
_STATE: Final = re.compile(r"state:\s*(\w+)")

#: Type → field → the type of what it holds ("" for a leaf).
_FIELDS: Final[dict[str, dict[str, str]]] = {
    "Machine": {"spec": "MachineSpec", "status": "MachineStatus"},
    "MachineSpec": dict.fromkeys(("serial", "rack", "indexInRack", "role", "ipv4", "registerDate", "retireDate"), "")
    | {"labels": "Label", "bmc": "BMC"},
    "Label": {"name": "", "value": ""},
    "BMC": {"bmcType": "", "ipv4": ""},
    "MachineStatus": {"state": "", "timestamp": "", "duration": ""},
}
Selection = dict[str, Any]


class InvalidQueryError(Exception):
    pass


def execute(registry: SandboxSabakan, query: str, variables: Json) -> tuple[int, Json]:
    """Status and body, as sabakan answers."""
    match = _ROOT.search(query)
    if match is None:
        return 422, _errors("unexpected query", code="GRAPHQL_PARSE_FAILED")
    root, arguments, body = match[1], match[2] or "", match[3]
    mutates = root == "setMachineState"
    if mutates != query.lstrip().startswith("mutation"):
        return 422, _errors(f'Cannot query field "{root}" on type "{"Query" if mutates else "Mutation"}".')
    try:
        wanted = select(body, "MachineStatus" if mutates else "Machine")
        if root == "searchMachines":
            found = [project(machine_json(e, registry), wanted) for e in registry.find(with_defaults(query, variables))]
            return 200, {"data": {root: found}}
        return 200, {"data": {root: project(_one(registry, root, arguments), wanted)}}
    except (InvalidQueryError, ValueError) as e:
        return 422, _errors(str(e))
    except BadVariablesError as e:
        return 422, _errors(str(e), path=e.path)
    except ForbiddenError as e:
        kinds = {"not-found": "MACHINE_NOT_FOUND", "transition": "INVALID_STATE_TRANSITION"}
        extensions = {"serial": _argument(_SERIAL, arguments), "type": kinds.get(e.kind, "INTERNAL_SERVER_ERROR")}
        return 200, {"errors": [{"message": str(e), "path": [root], "extensions": extensions}], "data": None}


def _one(registry: SandboxSabakan, root: str, arguments: str) -> Json:
    serial = _argument(_SERIAL, arguments)
    if root == "setMachineState":
        state = _argument(_STATE, arguments)
        if state not in MachineState.__members__:
            raise InvalidQueryError(f'Value "{state}" does not exist in "MachineState" enum.')
        registry.set_state(serial, MachineState(state))
    found = machine_json(registry.entry(serial), registry)
    status: Json = found["status"]
    return status if root == "setMachineState" else found


def _argument(pattern: re.Pattern[str], arguments: str) -> str:
    match = pattern.search(arguments)
    if match is None:
        raise InvalidQueryError("an argument of required type was not provided")
    return match[1]


def _errors(message: str, *, code: str = "GRAPHQL_VALIDATION_FAILED", path: list[str | int] | None = None) -> Json:
    error: Json = {"message": message, "extensions": {"code": code}}
    return {"errors": [error if path is None else error | {"path": path}], "data": None}


def select(text: str, type_name: str) -> Selection:
    words = _WORD.findall(text)
    if _WORD.sub("", text).strip(" \t\r\n,"):
        raise InvalidQueryError("only fields are understood in a selection")
    position = 0

    def braces(of: str) -> Selection:
        nonlocal position
        position += 1
        found: Selection = {}
        while position < len(words) and words[position] != "}":
            name = words[position]
            if name not in _FIELDS[of]:
                raise InvalidQueryError(f'Cannot query field "{name}" on type "{of}".')
            position += 1
            inner = _FIELDS[of][name]
            opened = position < len(words) and words[position] == "{"
            if bool(inner) != opened:
                raise InvalidQueryError(f'Field "{name}" must {"" if inner else "not "}have a selection of subfields.')
            found[name] = braces(inner) if inner else None
        position += 1
        return found

    found = braces(type_name)
    if position != len(words) or not found:
        raise InvalidQueryError("unbalanced braces")
    return found


def project(value: Any, wanted: Selection | None) -> Any:
    if wanted is None or value is None:
        return value
    if isinstance(value, list):
        return [project(v, wanted) for v in value]
    return {name: project(value[name], inner) for name, inner in wanted.items()}


def machine_json(entry: RegisteredMachine, registry: SandboxSabakan) -> Json:
    """A machine as the GraphQL type has it."""
    return {
        "spec": {
            "serial": entry.serial,
            "labels": [{"name": k, "value": v} for k, v in entry.labels.items()],
            "rack": entry.rack,
            "indexInRack": entry.index_in_rack,
            "role": entry.role,
            "ipv4": list(entry.ipv4),
            "registerDate": stamp(entry.registered_at),
            "retireDate": stamp(entry.retire_at),
            "bmc": {"bmcType": entry.bmc_type, "ipv4": entry.bmc_ipv4},
        },
        "status": {
            "state": entry.state.value,
            "timestamp": stamp(entry.state_since),
            "duration": registry.timeline.now() - entry.state_since,
        },
    }


def stamp(at: float) -> str:
    """As sabakan writes times: RFC 3339 in UTC, fractions without trailing zeros."""
    text = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return text.rstrip("0").rstrip(".") + "Z"
