"""Writes only while we lead: the last check before a request is sent.

Wrap any `KubeApi`; reads pass, and every write asks `may_write` first. It shortens the window in which two leaders
overlap to a request under way, and preconditions on the objects close that (docs/decisions/0004).
"""

from collections.abc import AsyncIterator, Callable

from mooring.clients.ports import Json, JsonPatch, KubeApi, ListPage, PatchType, PortError, WatchEvent
from mooring.core.model.kinds import Kind


class NotLeaderError(PortError):
    """The lease was not renewed in time, so nothing was sent and nothing was changed."""


class Fenced:
    """A `KubeApi` that refuses to write unless `may_write()`."""

    def __init__(self, api: KubeApi, may_write: Callable[[], bool]) -> None:
        self._api = api
        self._may_write = may_write

    def _check(self, what: str) -> None:
        if not self._may_write():
            raise NotLeaderError(f"{what}: not sent, this process does not hold the lease (any more)")

    async def list(
        self,
        kind: Kind,
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str | None = None,
        node: str = "",
    ) -> ListPage:
        return await self._api.list(
            kind, limit=limit, continue_token=continue_token, resource_version=resource_version, node=node
        )

    def watch(
        self, kind: Kind, *, resource_version: str = "", timeout_s: int = 300, initial_events: bool = False
    ) -> AsyncIterator[WatchEvent]:
        return self._api.watch(
            kind, resource_version=resource_version, timeout_s=timeout_s, initial_events=initial_events
        )

    async def get(self, kind: Kind, namespace: str, name: str) -> Json:
        return await self._api.get(kind, namespace, name)

    async def create(self, kind: Kind, obj: Json, *, dry_run: bool = False) -> Json:
        self._check(f"create {kind}")
        return await self._api.create(kind, obj, dry_run=dry_run)

    async def replace(self, kind: Kind, obj: Json, *, subresource: str = "") -> Json:
        self._check(f"replace {kind}")
        return await self._api.replace(kind, obj, subresource=subresource)

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
        self._check(f"patch {kind} {namespace}/{name}")
        return await self._api.patch(kind, namespace, name, patch, patch_type=patch_type, subresource=subresource)

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
        self._check(f"delete {kind} {namespace}/{name}")
        await self._api.delete(kind, namespace, name, uid=uid, resource_version=resource_version, grace_s=grace_s)

    async def evict(self, namespace: str, name: str, *, uid: str = "", grace_s: int | None = None) -> None:
        self._check(f"evict Pod {namespace}/{name}")
        await self._api.evict(namespace, name, uid=uid, grace_s=grace_s)

    async def bind(self, namespace: str, name: str, node: str, *, uid: str = "") -> None:
        self._check(f"bind Pod {namespace}/{name}")
        await self._api.bind(namespace, name, node, uid=uid)
