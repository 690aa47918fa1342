"""What a real API server holds, as a store to read from at once; what is written to it goes to the server.

The sandbox's cloud and its stand-in for tidb-operator work on an `ObjectStore`. Here the store is a mirror: watches
fill it, a write is sent and comes back by the watch. After a write that the server refuses with a conflict, the
object's subscribers are notified once more, so that they look again: they are level-triggered.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from mooring.clients.kube import HttpKubeApi
from mooring.clients.kube.config import Connection
from mooring.clients.kube.transport import ApiRequest, Transport
from mooring.clients.ports import AlreadyExistsError, Json, NotFoundError, PortError
from mooring.core.model.kinds import RESOURCES, Kind
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.apiserver.table import ObjectKey, key_of
from mooring_lab.cluster.clock import Timeline

#: What acts and the sandbox's controllers read.
KINDS = (
    Kind.NODE,
    Kind.POD,
    Kind.DEPLOYMENT,
    Kind.REPLICA_SET,
    Kind.STATEFUL_SET,
    Kind.TIDB_CLUSTER,
    Kind.CONFIG_MAP,
    Kind.ENDPOINT_SLICE,
    Kind.MUTATING_WEBHOOK,
)
LIST_S, SILENCE_S, AGAIN_S = 30.0, 330.0, 0.2


class _MirrorFrame(msgspec.Struct):
    type: str
    object: dict[str, Any]


class Mirror(ObjectStore):
    def __init__(self, timeline: Timeline, connection: Connection, api: HttpKubeApi) -> None:
        super().__init__(timeline)
        self._api = api
        self._transport = Transport(connection)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._listed = {kind: asyncio.Event() for kind in Kind}

    # ── Following ─────────────────────────────────────────────────────────────────────────────────────────────────

    def follow(self, kinds: Sequence[Kind] = KINDS) -> None:
        for kind in kinds:
            self._spawn(self._follow(kind))

    async def synced(self, kinds: Sequence[Kind] = KINDS) -> None:
        for kind in kinds:
            await self._listed[kind].wait()

    async def close(self) -> None:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._transport.close()

    async def _follow(self, kind: Kind) -> None:
        """List, watch, and list again when the watch ends."""
        while True:
            try:
                version = await self._list(kind)
                await self._watch(kind, version)
            except PortError:
                await asyncio.sleep(AGAIN_S)

    async def _list(self, kind: Kind) -> str:
        request = ApiRequest("GET", RESOURCES[kind].path(), f"list {kind}")
        page: Json = msgspec.json.decode(await self._transport.send(request, LIST_S))
        found = {key_of(obj): obj for obj in page.get("items") or ()}
        for gone in [key for key in self.keys(kind) if key not in found]:
            self._take("DELETED", kind, self.get(kind, *gone))
        for obj in found.values():
            self._take("MODIFIED", kind, obj)
        self._listed[kind].set()
        return str(page["metadata"]["resourceVersion"])

    async def _watch(self, kind: Kind, version: str) -> None:
        params = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "300"}
        request = ApiRequest("GET", RESOURCES[kind].path(), f"watch {kind}", params)
        async with self._transport.lines(request, SILENCE_S) as lines:
            while line := await lines.next():
                frame = msgspec.json.decode(line, type=_MirrorFrame)
                if frame.type == "ERROR":
                    return
                self._take(frame.type, kind, frame.object)

    def _take(self, event: str, kind: Kind, obj: Json) -> None:
        key = key_of(obj)
        old = self.find(kind, *key)
        if event == "DELETED":
            if old is not None:
                self._commit(kind, key, "DELETED", old, obj)
            return
        if old is not None and old["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]:
            return
        # Lists leave both out, and the server writes an empty time into every template.
        known = {"apiVersion": RESOURCES[kind].api_version, "kind": kind.value, **obj}
        template = (known.get("spec") or {}).get("template") or {}
        if "metadata" in template:
            template["metadata"].pop("creationTimestamp", None)
        if old is not None and old["metadata"]["uid"] != obj["metadata"]["uid"]:
            self._commit(kind, key, "DELETED", old, old)
            old = None
        self._commit(kind, key, "ADDED" if old is None else "MODIFIED", old, known)

    # ── Writing: sent, and seen when it comes back ────────────────────────────────────────────────────────────────

    def create(self, kind: Kind, obj: Json, *, prepared: bool = False) -> Json:
        self._send(kind, key_of(obj), lambda: self._api.create(kind, obj))
        return obj

    def update(self, kind: Kind, obj: Json, *, status: bool = False) -> Json:
        subresource = "status" if status else ""
        self._send(kind, key_of(obj), lambda: self._api.replace(kind, obj, subresource=subresource))
        return obj

    def mutate(self, kind: Kind, namespace: str, name: str, fn: Callable[[Json], Json | None]) -> Json | None:
        """Read again right before it is written: others write these objects too."""

        async def once() -> None:
            current = await self._api.get(kind, namespace, name)
            wanted = fn(current)
            if wanted is not None and wanted != current:
                await self._api.replace(kind, wanted)

        self._send(kind, (namespace, name), once)
        return self.find(kind, namespace, name)

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        self._send(kind, (namespace, name), lambda: self._api.delete(kind, namespace, name, grace_s=0))

    def _send(self, kind: Kind, key: ObjectKey, call: Callable[[], Any]) -> None:
        async def sent() -> None:
            try:
                await call()
            except (AlreadyExistsError, NotFoundError):
                return
            except PortError:
                await asyncio.sleep(AGAIN_S)
                found = self.find(kind, *key)
                for subscriber in self._delivery.subscribers[kind] if found is not None else ():
                    subscriber("MODIFIED", found, found)

        self._spawn(sent())

    def _spawn(self, work: Any) -> None:
        if self._closing:
            work.close()
            return
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
