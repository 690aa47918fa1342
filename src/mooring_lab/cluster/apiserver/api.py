"""`ports.KubeApi` on the sandbox: what the shell sees instead of a real API server.

One view per client (`by` names it in the log of writes); all views of one `ApiServer` share its objects, watches,
faults and hooks. `list` and `watch` answer in slim structs, the other verbs in plain JSON that the caller must not
change in place (as the real client's answers are the caller's own, `get` and the writes hand out copies).
"""

import itertools
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar, cast

from mooring.clients.ports import ExpiredError, Json, JsonPatch, ListPage, PatchType, WatchEvent
from mooring.clients.wire.kube import project
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.admission import Admission
from mooring_lab.cluster.apiserver.faults import Faults
from mooring_lab.cluster.apiserver.server import ApiServer, Hook, Write
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.apiserver.watch import WINDOW, WatchChange, WatchWindow

T = TypeVar("T")

#: How many paged lists may be half-read at a time; an older one gets 410.
_OPEN_LISTS: Final = 32
_NESTED: Final = frozenset({dict, list})


class Lists:
    """Paged lists over a snapshot: later pages show what the first one saw."""

    def __init__(self, store: ObjectStore, watches: WatchWindow) -> None:
        self._store = store
        self._open: OrderedDict[str, tuple[str, list[Json]]] = OrderedDict()
        self._ids = itertools.count(1)
        watches.on_compact(self._open.clear)

    def page(
        self,
        kind: Kind,
        limit: int,
        token: str,
        namespace: str | None = None,
        keep: Callable[[Json], bool] | None = None,
    ) -> tuple[list[Json], str, str]:
        """Objects, resourceVersion, continue token. Raises Expired for a token that is no longer known."""
        if token:
            list_id, _, start_text = token.partition(".")
            found = self._open.get(list_id)
            if found is None or not start_text.isdigit():
                raise ExpiredError("The provided continue parameter is too old to display a consistent list result")
            start, (revision, objects) = int(start_text), found
        else:
            objects = self._store.list(kind, namespace)
            if keep is not None:
                objects = [obj for obj in objects if keep(obj)]
            start, revision, list_id = 0, str(self._store.revision), f"{kind.value}-{next(self._ids)}"
        end = start + limit if limit else len(objects)
        if end >= len(objects):
            return objects[start:], revision, ""
        self._open[list_id] = (revision, objects)
        if len(self._open) > _OPEN_LISTS:
            self._open.popitem(last=False)
        return objects[start:end], revision, f"{list_id}.{end}"


class SandboxKubeApi:
    def __init__(
        self,
        store: ObjectStore,
        *,
        seed: int = 0,
        latency_s: float = 0.0,
        window: int = WINDOW,
        by: str = "mooring",
        server: ApiServer | None = None,
    ) -> None:
        self.server = server or ApiServer(store, seed=seed, latency_s=latency_s, window=window)
        self.by = by
        #: Kinds whose watches lag, and by how many seconds: what this client sees of them is that old.
        self.watch_lag_s: dict[Kind, float] = {}
        self._lists = Lists(store, self.server.watches)

    def as_client(self, by: str) -> "SandboxKubeApi":
        """The same server, for another client."""
        return SandboxKubeApi(self.server.store, by=by, server=self.server)

    @property
    def store(self) -> ObjectStore:
        return self.server.store

    @property
    def faults(self) -> Faults:
        return self.server.faults

    @property
    def admission(self) -> Admission:
        return self.server.admission

    @property
    def writes(self) -> "list[Write]":
        return self.server.writes

    def before_write(self, fn: Hook) -> None:
        self.server.before_write(fn)

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def watch(
        self, kind: Kind, *, resource_version: str = "", timeout_s: int = 300, initial_events: bool = False
    ) -> AsyncIterator[WatchEvent]:
        await self.server.arrive(f"watch {kind.value}")
        self.server.known(kind)
        stream = self.server.watches.stream(
            kind,
            resource_version=resource_version,
            timeout_s=timeout_s,
            initial_events=initial_events,
            lag_s=lambda: self.watch_lag_s.get(kind, 0.0),
        )
        try:
            async for change in stream:
                if change.code == 410 and self.faults.expired_as_status:
                    raise ExpiredError(change.message)
                yield _event(change)
        finally:
            await stream.aclose()

    async def get(self, kind: Kind, namespace: str, name: str) -> Json:
        return own_copy(await self.server.get(kind, namespace, name))

    # ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def create(self, kind: Kind, obj: Json, *, dry_run: bool = False) -> Json:
        return own_copy(await self.server.create(kind, own_copy(obj), by=self.by, dry_run=dry_run))

    async def replace(self, kind: Kind, obj: Json, *, subresource: str = "") -> Json:
        new = own_copy(obj)
        return own_copy(await self.server.replace(kind, new, by=self.by, subresource=subresource))

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
        own = own_copy(patch)
        return own_copy(
            await self.server.patch(
                kind, namespace, name, own, patch_type=patch_type, by=self.by, subresource=subresource
            )
        )

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
        await self.server.delete(
            kind, namespace, name, by=self.by, uid=uid, resource_version=resource_version, grace_s=grace_s
        )

    async def evict(self, namespace: str, name: str, *, uid: str = "", grace_s: int | None = None) -> None:
        await self.server.evict(namespace, name, by=self.by, uid=uid, grace_s=grace_s)

    async def bind(self, namespace: str, name: str, node: str, *, uid: str = "") -> None:
        await self.server.bind(namespace, name, node, by=self.by, uid=uid)

    # Last, since its name hides the builtin from annotations below it.
    async def list(
        self,
        kind: Kind,
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str | None = None,
        node: str = "",
    ) -> ListPage:
        """`resource_version` is accepted and not needed: every list is of now."""
        await self.server.arrive(f"list {kind.value}")
        self.server.known(kind)
        keep = (lambda obj: obj.get("spec", {}).get("nodeName") == node) if node else None
        objects, revision, token = self._lists.page(kind, limit, continue_token, keep=keep)
        return ListPage(tuple(project(kind, obj) for obj in objects), revision, token)


def own_copy(value: T) -> T:
    """A copy that its holder may change: what the store keeps is shared and must not be."""
    copied: Any = value
    if isinstance(value, dict):
        copied = dict(value)
        for key, part in value.items():
            if type(part) in _NESTED:
                copied[key] = own_copy(part)
    elif isinstance(value, list):
        copied = [own_copy(part) if type(part) in _NESTED else part for part in value]
    return cast("T", copied)


def _event(change: WatchChange) -> WatchEvent:
    if change.object is None:
        return WatchEvent(
            change.type,
            resource_version=str(change.revision) if change.revision else "",
            code=change.code,
            message=change.message,
            initial_end=change.initial_end,
        )
    return WatchEvent(change.type, change.projected(), str(change.revision))
