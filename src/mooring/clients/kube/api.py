"""The Kubernetes API over HTTP, verb by verb: no cache, no retries, every wait bounded.

Promises
- What comes back from `list` and `watch` is projected onto slim structs at once (`clients.wire.kube`); the other verbs
  speak plain JSON.
- An answer is a value or one leaf of `PortError` (`clients.kube.status`). Connection lost, time-out, 5xx: `Unanswered`.
- A write takes at most `WRITE_TIMEOUT_S`, and the server is told so too (`?timeout=`): shorter than lease − renew
  deadline, so that a write begun by a leader has ended before another replica may lead
  (`mooring.process.lease.election`).
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Self

import msgspec

from mooring.clients.kube.auth import Credentials
from mooring.clients.kube.config import Connection
from mooring.clients.kube.status import describe
from mooring.clients.kube.stream import read_line, read_page
from mooring.clients.kube.transport import ApiRequest, Transport
from mooring.clients.ports import Json, JsonPatch, ListPage, PatchType, UnansweredError, WatchEvent
from mooring.core.model.kinds import RESOURCES, Kind

FIELD_MANAGER: Final = "mooring"
READ_TIMEOUT_S: Final = 10.0
LIST_TIMEOUT_S: Final = 60.0
#: Shorter than lease − renew deadline (10 − 7 s).
WRITE_TIMEOUT_S: Final = 2.5
#: No line for this long while the server still owes us initial events: it has stalled.
INITIAL_STALL_S: Final = 30.0
#: The server ends a watch after `timeout_s`; this long later we give it up.
WATCH_GRACE_S: Final = 30.0
#: Lines handled in one go before others get their turn (under a millisecond).
LINES_PER_TURN: Final = 16


class Scope(msgspec.Struct, frozen=True):
    """What part of a kind is listed and watched: a namespace ("" = all) and selectors as the API server takes them."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""

    @property
    def params(self) -> dict[str, str]:
        pairs = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}
        return {k: v for k, v in pairs.items() if v}


_EVERYTHING: Final = Scope()


class HttpKubeApi:
    """`ports.KubeApi` on a real API server. Use as an async context manager, or call `close()`."""

    def __init__(
        self,
        connection: Connection,
        *,
        scopes: Mapping[Kind, Scope] | None = None,
        credentials: Credentials | None = None,
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        self.connection = connection
        self._transport = Transport(connection, credentials)
        self._scopes = dict(scopes or {})
        self._write_timeout_s = write_timeout_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def list(
        self,
        kind: Kind,
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str | None = None,
        node: str = "",
    ) -> ListPage:
        scope = self._scopes.get(kind, _EVERYTHING)
        params = scope.params
        if limit:
            params["limit"] = str(limit)
        if node:
            params["fieldSelector"] = f"spec.nodeName={node}"
        if continue_token:
            params["continue"] = continue_token
        elif resource_version is not None:
            params["resourceVersion"] = resource_version
        request = ApiRequest("GET", RESOURCES[kind].path(scope.namespace), describe("list", kind), params)
        return read_page(kind, await self._transport.send(request, LIST_TIMEOUT_S))

    async def watch(
        self, kind: Kind, *, resource_version: str = "", timeout_s: int = 300, initial_events: bool = False
    ) -> AsyncIterator[WatchEvent]:
        scope = self._scopes.get(kind, _EVERYTHING)
        params = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_s), **scope.params}
        if initial_events:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        if resource_version:
            params["resourceVersion"] = resource_version
        request = ApiRequest("GET", RESOURCES[kind].path(scope.namespace), describe("watch", kind), params)
        async with self._transport.lines(request, timeout_s + WATCH_GRACE_S) as lines:
            owed, count = initial_events, 0
            while line := await lines.next(INITIAL_STALL_S if owed else None):
                event = read_line(kind, line)
                owed = owed and not event.initial_end
                yield event
                count += 1
                if count % LINES_PER_TURN == 0:
                    # Buffered lines come without a pause; a relist must not starve admission on the same loop.
                    await asyncio.sleep(0)

    async def get(self, kind: Kind, namespace: str, name: str) -> Json:
        request = ApiRequest("GET", RESOURCES[kind].path(namespace, name), describe("get", kind, namespace, name))
        return _json(request, await self._transport.send(request, READ_TIMEOUT_S))

    async def raw(self, method: str, path: str, body: Any = None) -> Any:
        """For rare calls (`/version`, `/readyz`): JSON as values, anything else as text. Not bounded as a write is."""
        answer = await self._transport.send(ApiRequest(method, path, f"{method} {path}", body=body), READ_TIMEOUT_S)
        try:
            return msgspec.json.decode(answer)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return answer.decode(errors="replace")

    # ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def create(self, kind: Kind, obj: Json, *, dry_run: bool = False) -> Json:
        meta = obj.get("metadata", {})
        namespace, name = meta.get("namespace", ""), meta.get("name") or meta.get("generateName", "")
        params = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
        what = describe("create", kind, namespace, name)
        return await self._write(ApiRequest("POST", RESOURCES[kind].path(namespace), what, params, _typed(kind, obj)))

    async def replace(self, kind: Kind, obj: Json, *, subresource: str = "") -> Json:
        meta = obj.get("metadata", {})
        namespace, name = meta.get("namespace", ""), meta["name"]
        path = RESOURCES[kind].path(namespace, name, subresource)
        what = describe("replace", kind, namespace, name)
        params = {"fieldManager": FIELD_MANAGER}
        return await self._write(ApiRequest("PUT", path, what, params, _typed(kind, obj)))

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Json | JsonPatch,
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
    ) -> Json:
        path = RESOURCES[kind].path(namespace, name, subresource)
        params = {"fieldManager": FIELD_MANAGER}
        if patch_type is PatchType.APPLY:
            # Take ownership of the fields that we apply: a controller that yields to the last writer would flap.
            params["force"] = "true"
        what = describe("patch", kind, namespace, name)
        return await self._write(ApiRequest("PATCH", path, what, params, patch, patch_type.value))

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_s: int | None = None,
    ) -> None:
        what = describe("delete", kind, namespace, name)
        options = _delete_options(uid, resource_version, grace_s)
        await self._write(ApiRequest("DELETE", RESOURCES[kind].path(namespace, name), what, body=options))

    async def evict(self, namespace: str, name: str, *, uid: str = "", grace_s: int | None = None) -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": _delete_options(uid, "", grace_s),
        }
        path = RESOURCES[Kind.POD].path(namespace, name, "eviction")
        await self._write(ApiRequest("POST", path, describe("evict", Kind.POD, namespace, name), body=body))

    async def bind(self, namespace: str, name: str, node: str, *, uid: str = "") -> None:
        meta = {"namespace": namespace, "name": name} | ({"uid": uid} if uid else {})
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": meta,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = RESOURCES[Kind.POD].path(namespace, name, "binding")
        what = f"{describe('bind', Kind.POD, namespace, name)} to {node}"
        await self._write(ApiRequest("POST", path, what, body=body))

    async def _write(self, request: ApiRequest) -> Json:
        limit_s = self._write_timeout_s
        params = {**request.params, "timeout": f"{int(limit_s * 1000)}ms"}
        request = msgspec.structs.replace(request, params=params)
        return _json(request, await self._transport.send(request, limit_s))


def _typed(kind: Kind, obj: Json) -> Json:
    return {"apiVersion": RESOURCES[kind].api_version, "kind": kind.value, **obj}


def _delete_options(uid: str, resource_version: str, grace_s: int | None) -> Json:
    options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
    held = {"uid": uid, "resourceVersion": resource_version}
    if preconditions := {k: v for k, v in held.items() if v}:
        options["preconditions"] = preconditions
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    return options


def _json(request: ApiRequest, body: bytes) -> Json:
    try:
        answer: Json = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnansweredError(f"{request.what}: the answer is not a JSON object: {body[:60]!r}") from error
    return answer
