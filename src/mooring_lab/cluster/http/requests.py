"""What a request says: its body in JSON or YAML, where its object lives, who asks; reviews of oneself."""

from typing import Any, Final

import msgspec
import yaml
from aiohttp import web

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
from mooring.core.model.kinds import RESOURCES, Kind
from mooring_lab.cluster.apiserver.eviction import TwoBudgetsError
from mooring_lab.cluster.apiserver.labels import Predicate
from mooring_lab.cluster.apiserver.patch import PatchError
from mooring_lab.cluster.apiserver.server import ApiServer
from mooring_lab.cluster.apiserver.watch import WatchChange
from mooring_lab.cluster.http.tables import table

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Errors of the port as the API server tells them: an HTTP code and a metav1.Status.


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
            wish = error.retry_after_s
            details = {"retryAfterSeconds": max(1, int(wish))} if wish else None  # with it clients retry in silence
            return status_body(429, "TooManyRequests", message, details)
        case RefusedError():
            return status_body(error.code, _REASONS.get(error.code, "Unknown"), message)
        case _:
            return status_body(500, "InternalError", message)


_EVERYTHING: Final = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
#: What is asked about oneself → its kind, and what it is answered.
REVIEWS: Final[dict[str, tuple[str, Json]]] = {
    "selfsubjectaccessreviews": ("SelfSubjectAccessReview", {"allowed": True}),
    "selfsubjectrulesreviews": (
        "SelfSubjectRulesReview",
        {"resourceRules": [_EVERYTHING], "nonResourceRules": [], "incomplete": False},
    ),
    "selfsubjectreviews": ("SelfSubjectReview", {"userInfo": {"username": "sandbox"}}),
}


async def body_of(request: web.Request) -> Any:
    raw = await request.read()
    if not raw:
        return {}
    if "yaml" in request.content_type:
        return yaml.safe_load(raw)
    if "json" not in request.content_type:
        # `kubectl create namespace` and its like speak protobuf and nothing else.
        way = "kubectl create … --dry-run=client -o yaml | kubectl apply -f -"
        raise RefusedError(f"the sandbox reads JSON and YAML, not {request.content_type}; try: {way}", 415)
    return msgspec.json.decode(raw)


def at_home(obj: Json, namespace: str | None, name: str) -> Json:
    """The path says where an object lives; a body that says otherwise is refused."""
    metadata = obj.get("metadata") or {}
    if namespace and metadata.get("namespace", namespace) != namespace:
        raise RefusedError("the namespace of the object does not match the namespace of the request", 400)
    if namespace:
        metadata = {**metadata, "namespace": namespace}
    if name and metadata.get("name", name) != name:
        raise RefusedError("the name of the object does not match the name on the URL", 400)
    return {**obj, "metadata": metadata | ({"name": name} if name else {})}


def who(request: web.Request) -> str:
    """The client's name from its User-Agent: kubectl, mooring."""
    return request.headers.get("User-Agent", "unknown").split("/", 1)[0]


def wants_table(request: web.Request) -> bool:
    return "as=Table" in request.headers.get("Accept", "")


def dry_run(request: web.Request) -> bool:
    return request.query.get("dryRun") == "All"


def no_dry_run(request: web.Request) -> None:
    if dry_run(request):
        raise RefusedError("the sandbox serves dry runs of creations only", 422)


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# A watch over HTTP: one JSON object a line, selectors applied as the API server applies them.


_DEFAULT_TIMEOUT_S: Final = 1800.0


async def stream_watch(
    server: ApiServer,
    request: web.Request,
    kind: Kind,
    namespace: str | None,
    keep: Predicate | None,
    *,
    as_table: bool,
) -> web.StreamResponse:
    query = request.query
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    bookmarks = query.get("allowWatchBookmarks") in {"1", "true"}
    stream = server.watches.stream(
        kind,
        resource_version=query.get("resourceVersion", ""),
        timeout_s=float(query.get("timeoutSeconds") or _DEFAULT_TIMEOUT_S),
        initial_events=query.get("sendInitialEvents") in {"1", "true"},
    )
    first = True
    try:
        async for change in stream:
            line = _line(change, namespace, keep, bookmarks=bookmarks)
            if line is None:
                continue
            if as_table and change.object is not None:
                revision, now = str(change.revision), server.timeline.now()
                line["object"] = table(kind, [line["object"]], revision, now, headers=first)
                first = False
            await response.write(msgspec.json.encode(line) + b"\n")
        await response.write_eof()
    except ConnectionResetError:
        pass  # the client has gone
    finally:
        await stream.aclose()
    return response


def _line(change: WatchChange, namespace: str | None, keep: Predicate | None, *, bookmarks: bool) -> Json | None:
    if change.type == "ERROR":
        reason = "Expired" if change.code == 410 else "BadRequest"
        return {"type": "ERROR", "object": status_body(change.code, reason, change.message)}
    if change.object is None:
        return _bookmark(change) if bookmarks or change.initial_end else None
    if namespace is not None and change.object["metadata"].get("namespace") != namespace:
        return None
    event = change.type
    if keep is not None:
        now, before = keep(change.object), change.old is not None and keep(change.old)
        if event == "MODIFIED":
            if not now and not before:
                return None
            event = "MODIFIED" if now and before else "ADDED" if now else "DELETED"
        elif not now:
            return None
    return {"type": event, "object": change.object}


def _bookmark(change: WatchChange) -> Json:
    metadata: Json = {"resourceVersion": str(change.revision)}
    if change.initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    api_version = RESOURCES[change.kind].api_version
    body = {"kind": change.kind.value, "apiVersion": api_version, "metadata": metadata}
    return {"type": "BOOKMARK", "object": body}
