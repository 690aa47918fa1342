"""A watch over HTTP: one JSON object a line, selectors applied as the API server applies them.

An object that begins to match is ADDED to the watcher, one that no longer matches DELETED, whatever happened to it.
"""

from typing import Final

import msgspec
from aiohttp import web

from mooring.clients.ports import Json
from mooring.core.model.kinds import RESOURCES, Kind
from mooring.sandbox.apiserver.labels import Predicate
from mooring.sandbox.apiserver.server import ApiServer
from mooring.sandbox.apiserver.watch import WatchChange
from mooring.sandbox.http.httpstatus import status_body
from mooring.sandbox.http.tables import table

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
