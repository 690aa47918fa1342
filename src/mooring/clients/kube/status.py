"""What the API server's answers mean, as errors of the one small tree in `mooring.clients.ports`.

The caller needs to know one thing above all: did my request change anything? `Unanswered` says "look"; every other
leaf says "no".
"""

from typing import Final

import msgspec

from mooring.clients.ports import (
    AlreadyExistsError,
    ConflictError,
    EvictionBlockedError,
    ExpiredError,
    NotFoundError,
    PortError,
    RefusedError,
    ThrottledError,
    UnansweredError,
)


class Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    kind: str = ""
    causes: tuple[Cause, ...] | None = ()
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """metav1.Status, as far as it decides something."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None

    @property
    def causes(self) -> tuple[Cause, ...]:
        return (self.details.causes or ()) if self.details else ()


_STATUS: Final = msgspec.json.Decoder(Status)
#: All that the server says when a JSON patch does not apply: a `test` that failed, or a path that is not there.
_PATCH_DOES_NOT_APPLY: Final = "the server rejected our request due to an error in our request"
#: The server may ask for as much.
MAX_RETRY_AFTER_S: Final = 60.0
_TWO_BUDGETS: Final = "more than one PodDisruptionBudget"


def parse_status(body: bytes | msgspec.Raw) -> Status:
    """The Status in a body; whatever else is in there (a proxy's page) becomes its message."""
    try:
        status = _STATUS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        status = None
    if status is not None and status.kind == "Status":
        return status
    text = " ".join(bytes(body).decode(errors="replace").split())
    return Status(message=text[:200])


def retry_after_s(header: str | None, status: Status, default: float = 1.0) -> float:
    """The server's Retry-After in seconds, from the header or the Status, as far as we grant it.

    Dates (proxies send them) count as the default. A maintenance page may ask for hours: the cluster does not wait.
    """
    if header and header.strip().isdecimal():
        return min(float(header), MAX_RETRY_AFTER_S)
    if status.details and status.details.retry_after_seconds > 0:
        return min(float(status.details.retry_after_seconds), MAX_RETRY_AFTER_S)
    return default


def error_of(what: str, code: int, body: bytes, *, retry_after: str | None = None) -> PortError:
    """The error for an answer that is none of 2xx. `what` was asked, for people: "evict Pod default/web-1"."""
    status = parse_status(body)
    message = f"{what}: {code} {status.message or status.reason or 'no message'}"
    match code:
        case 404:
            return NotFoundError(message)
        case 409:
            return (AlreadyExistsError if status.reason == "AlreadyExists" else ConflictError)(message)
        case 410:
            return ExpiredError(message)
        case 412:
            return ConflictError(message)
        case 422 if _is_precondition(status):
            return ConflictError(message)
        case 429 if any(c.reason == "DisruptionBudget" for c in status.causes):
            return EvictionBlockedError(message)
        case 429:
            return ThrottledError(message, retry_after_s(retry_after, status))
        case 500 if _TWO_BUDGETS in status.message:
            # The eviction API answers 500 for a pod under two budgets. Nothing was changed, and nothing will be until
            # a person removes one of them.
            return EvictionBlockedError(message)
        case _ if code >= 500:
            return UnansweredError(message, retry_after_s(retry_after, status, default=0.0))
        case 401:
            return RefusedError(
                f"{message} (it does not accept these credentials: check the token, certificate or plugin)", code
            )
        case _ if 300 <= code < 400:
            return RefusedError(f"{message} (a redirect: is this the API server's address?)", code)
        case _:
            return RefusedError(message, code)


def _is_precondition(status: Status) -> bool:
    """A 422 that says "the object is not the one you mean": a JSON patch that does not apply, or a uid that differs."""
    return status.message == _PATCH_DOES_NOT_APPLY or any(c.field == "metadata.uid" for c in status.causes)


def describe(verb: str, kind: str, namespace: str = "", name: str = "") -> str:
    """Say what is asked: "evict Pod default/web-1", "list Node"."""
    subject = "/".join(p for p in (namespace, name) if p)
    return " ".join(p for p in (verb, kind, subject) if p)
