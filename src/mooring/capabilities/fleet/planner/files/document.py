"""A document of fleet, read: what it says, or what is wrong with it as a value."""

from typing import Any

from mooring.capabilities.fleet.planner.problem import ErrorCode, PlanError
from mooring.clients.wire.document import decode


def decode_document(raw: bytes, where: str, code: ErrorCode) -> Any | PlanError:
    try:
        return decode(raw)
    except ValueError as error:
        return PlanError(code, f"{where}: {error}")
