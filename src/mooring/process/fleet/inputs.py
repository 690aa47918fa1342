"""What a plan is made from, read from files: template, constraints, machines, the cluster in use, live nodes."""

from pathlib import Path
from typing import Any, TypeVar

from mooring.capabilities.fleet.planner.current import Current, parse_cluster, parse_node_taints
from mooring.capabilities.fleet.planner.document import ErrorCode, PlanError, decode_document
from mooring.capabilities.fleet.planner.template import Constraints, Template, parse_constraints, parse_template
from mooring.clients.registry.file import read_list
from mooring.clients.registry.rows import InvalidMachinesError
from mooring.core.model.exits import UserError
from mooring.core.model.machine import Machine

T = TypeVar("T")


class InvalidInputError(UserError):
    def __init__(self, error: PlanError) -> None:
        super().__init__(error.message)
        self.error = error


def _read(path: Path, code: ErrorCode) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInputError(PlanError(code, f"{path}: cannot be read: {error.strerror}")) from None


def _document(path: Path, code: ErrorCode) -> Any:
    document = decode_document(_read(path, code), str(path), code)
    return good(document)


def good(value: T | PlanError) -> T:
    if isinstance(value, PlanError):
        raise InvalidInputError(value)
    return value


def template(path: Path) -> Template:
    return good(parse_template(_document(path, ErrorCode.INVALID_TEMPLATE), str(path)))


def constraints(path: Path | None) -> Constraints:
    if path is None:
        return Constraints()
    return good(parse_constraints(_document(path, ErrorCode.INVALID_CONSTRAINTS), str(path)))


def current(path: Path | None) -> Current | None:
    if path is None:
        return None
    return good(parse_cluster(_document(path, ErrorCode.INVALID_CLUSTER), str(path)))


def node_taints(path: Path | None) -> dict[str, tuple[str, ...]]:
    if path is None:
        return {}
    return good(parse_node_taints(_document(path, ErrorCode.INVALID_NODES), str(path)))


def machines(path: Path, received_at: float) -> list[Machine]:
    try:
        return read_list(_read(path, ErrorCode.INVALID_MACHINES), received_at, {})
    except InvalidMachinesError as error:
        raise InvalidInputError(PlanError(ErrorCode.INVALID_MACHINES, f"{path}: {error}")) from None
