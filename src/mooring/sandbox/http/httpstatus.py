"""Errors of the port as the API server tells them: an HTTP code and a metav1.Status."""

from typing import Final

from mooring.clients.ports import (
    AlreadyExistsError,
    ConflictError,
    EvictionBlockedError,
    ExpiredError,
    Json,
    NotFoundError,
    PortError,
    RefusedError,
    ThrottledError,
)
from mooring.sandbox.apiserver.eviction import TwoBudgetsError
from mooring.sandbox.apiserver.patch import PatchError

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    415: "UnsupportedMediaType",
    422: "Invalid",
}


def status_body(code: int, reason: str, message: str, details: Json | None = None) -> Json:
    body: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    if details:
        body["details"] = details
    return body


def status_of(error: PortError) -> Json:
    message = str(error)
    match error:
        case NotFoundError():
            return status_body(404, "NotFound", message)
        case AlreadyExistsError():
            return status_body(409, "AlreadyExists", message)
        case PatchError():
            words = "the server rejected our request due to an error in our request"
            return status_body(422, "Invalid", words, {"causes": [{"message": message}]})
        case ConflictError():
            return status_body(409, "Conflict", message)
        case ExpiredError():
            return status_body(410, "Expired", message)
        case TwoBudgetsError():
            return status_body(500, "InternalError", message)
        case EvictionBlockedError():
            words = "Cannot evict pod as it would violate the pod's disruption budget."
            cause = {"reason": "DisruptionBudget", "message": message.removeprefix(words).strip() or message}
            return status_body(429, "TooManyRequests", words, {"causes": [cause]})
        case ThrottledError():
            details = {"retryAfterSeconds": max(1, int(error.retry_after_s))}
            return status_body(429, "TooManyRequests", message, details)
        case RefusedError():
            return status_body(error.code, _REASONS.get(error.code, "Unknown"), message)
        case _:
            return status_body(500, "InternalError", message)
