"""A gate around a replica's writes: counts them, and can end the replica right before or right after one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mooring.model.kinds import Kind
from mooring.ports import Json, JsonPatch, KubeApi, PatchType, PlacementDriver

T = TypeVar("T")


class Gate:
    def __init__(self, count: Callable[[str, str], bool], die: Callable[[], None]) -> None:
        self._count = count
        self._die = die
        #: The process is dead: whatever it still wanted never leaves it.
        self.shut = False

    async def through(self, what: str, call: Callable[[], Awaitable[T]], *, counted: bool = True) -> T:
        self._check()
        if counted and self._count(what, "before"):
            self._end()
        result = await call()
        if counted and self._count(what, "after"):
            self._end()
        self._check()
        return result

    def _end(self) -> None:
        self._die()
        raise asyncio.CancelledError

    def _check(self) -> None:
        if self.shut:
            raise asyncio.CancelledError


class GatedApi:
    """`ports.KubeApi` through a gate. Leases and Events pass uncounted: they disturb nothing."""

    def __init__(self, api: KubeApi, gate: Gate) -> None:
        self._api = api
        self._gate = gate

    async def list(self, kind: Kind, **how: Any) -> Any:
        return await self._gate.through("", lambda: self._api.list(kind, **how), counted=False)

    async def watch(self, kind: Kind, **how: Any) -> Any:
        async for event in self._api.watch(kind, **how):
            if self._gate.shut:
                return
            yield event

    async def get(self, kind: Kind, namespace: str, name: str) -> Json:
        return await self._gate.through("", lambda: self._api.get(kind, namespace, name), counted=False)

    async def create(self, kind: Kind, obj: Json, *, dry_run: bool = False) -> Json:
        return await self._through(
            "create", kind, obj["metadata"], lambda: self._api.create(kind, obj, dry_run=dry_run)
        )

    async def replace(self, kind: Kind, obj: Json, *, subresource: str = "") -> Json:
        return await self._through(
            "replace", kind, obj["metadata"], lambda: self._api.replace(kind, obj, subresource=subresource)
        )

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
        return await self._through(
            "patch",
            kind,
            {"namespace": namespace, "name": name},
            lambda: self._api.patch(kind, namespace, name, patch, patch_type=patch_type, subresource=subresource),
        )

    async def delete(self, kind: Kind, namespace: str, name: str, **how: Any) -> None:
        await self._through(
            "delete",
            kind,
            {"namespace": namespace, "name": name},
            lambda: self._api.delete(kind, namespace, name, **how),
        )

    async def evict(self, namespace: str, name: str, **how: Any) -> None:
        await self._through(
            "evict", Kind.POD, {"namespace": namespace, "name": name}, lambda: self._api.evict(namespace, name, **how)
        )

    async def bind(self, namespace: str, name: str, node: str, *, uid: str = "") -> None:
        await self._through(
            "bind",
            Kind.POD,
            {"namespace": namespace, "name": name},
            lambda: self._api.bind(namespace, name, node, uid=uid),
        )

    async def _through(self, verb: str, kind: Kind, metadata: Json, call: Callable[[], Awaitable[T]]) -> T:
        what = f"{verb} {kind} {metadata.get('namespace', '')}/{metadata.get('name', '')}"
        return await self._gate.through(what, call, counted=kind not in {Kind.LEASE, Kind.EVENT})


#: What changes something in PD; the rest only looks.
_PD_WRITES = frozenset(
    {
        "add_evict_leader",
        "remove_evict_leader",
        "add_operator",
        "cancel_operator",
        "pause_scheduler",
        "transfer_pd_leader",
    }
)


class GatedPd:
    """`ports.PlacementDriver` through a gate."""

    def __init__(self, driver: PlacementDriver, gate: Gate) -> None:
        self._driver = driver
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._driver, name)

        async def gated(*args: Any, **how: Any) -> Any:
            what = f"pd {name} {' '.join(str(a) for a in args)}".rstrip()
            return await self._gate.through(what, lambda: call(*args, **how), counted=name in _PD_WRITES)

        return gated
