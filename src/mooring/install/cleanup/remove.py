"""Finds and removes what Mooring leaves in a cluster: for an uninstall, or after one that failed.

Webhook configurations first: no request may go to an address that is about to go. Then whatever a mark says we did,
with what was there before us kept; then our own objects. Settings that a person wrote are named and left alone. Of a
single feature only what disturbs others is taken back: what it remembers is for when it is switched on again.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from mooring.capabilities.registry import descriptors
from mooring.clients.kube.listing import list_all
from mooring.clients.ports import KubeApi, NotFoundError, PortError
from mooring.core.model.cluster import Node, Pod, ReplicaSet, Workload
from mooring.core.model.instructions import Outcome, Patch, Write
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason
from mooring.core.model.tidb import TidbCluster
from mooring.install.cleanup.leftovers import leftovers
from mooring.install.cleanup.undo import Unfenced
from mooring.process.act import Actor
from mooring.process.admission.configurations import NAME as HOOKS
from mooring.process.admission.configurations import uninstall
from mooring.process.pd_directory import PdOf


class Trace(msgspec.Struct, frozen=True):
    """One thing that is ours, and how it goes. Without `undo` it stays, for the reason in the words."""

    what: str
    undo: Callable[[], Awaitable[str]] | None = None
    #: Whose it is, when it disturbs others; "": a record, or of no single feature.
    feature: str = ""


async def traces(api: KubeApi, pds: PdOf, namespace: str) -> list[Trace]:
    """In the order in which they must go."""
    act = Actor(api, pds, Unfenced())
    found: list[Trace] = []
    (hooked,) = (one.name for one in descriptors() if "webhook" in one.serves)
    for kind in (Kind.MUTATING_WEBHOOK, Kind.VALIDATING_WEBHOOK):
        if await _there(api, kind, "", HOOKS):
            found.append(Trace(f"{kind} {HOOKS}", lambda: _uninstalled(api), hooked))
    standing = leftovers(
        [o for o in await _all(api, Kind.POD) if isinstance(o, Pod)],
        [o for o in await _all(api, Kind.NODE) if isinstance(o, Node)],
        [o for o in await _all(api, Kind.TIDB_CLUSTER) if isinstance(o, TidbCluster)],
        {o.uid for o in await _all(api, Kind.REPLICA_SET) if isinstance(o, ReplicaSet)},
    )
    found += [Trace(b.what, _doing(act, *b.writes) if b.writes else None, b.feature) for b in standing]
    every = list(descriptors())
    records = [record for one in every for record in one.records.items()]
    sets = [o for o in await _all(api, Kind.STATEFUL_SET) if isinstance(o, Workload)]
    for one, (annotation, what) in ((o, record) for o in sets for record in records if record[0] in o.annotations):
        patch = {"metadata": {"annotations": {annotation: None}}}
        forget = Patch(kind=Kind.STATEFUL_SET, key=one.key, uid=one.uid, patch=patch, why="cleanup")
        found.append(Trace(f"statefulset {one.key}: delete the record of {what}", _doing(act, forget)))
    for kind, name in (*(ours for d in every for ours in d.objects), (Kind.LEASE, "mooring")):
        if await _there(api, kind, namespace, name):
            found.append(Trace(f"{kind} {namespace}/{name}", _deleting(api, kind, namespace, name)))
    for name in filter(None, (d.settings_map for d in every)):
        if await _there(api, Kind.CONFIG_MAP, namespace, name):
            found.append(Trace(f"{Kind.CONFIG_MAP} {namespace}/{name} holds settings that a person wrote"))
    return found


def _doing(act: Actor, *writes: Write) -> Callable[[], Awaitable[str]]:
    async def do() -> str:
        for write in writes:
            outcome: Outcome = await act.carry_out(write)
            # What is gone meanwhile needs no undoing.
            if outcome.reason not in {None, Reason.SUBJECT_GONE}:
                return outcome.detail or str(outcome.reason)
        return ""

    return do


def _deleting(api: KubeApi, kind: Kind, namespace: str, name: str) -> Callable[[], Awaitable[str]]:
    async def do() -> str:
        try:
            await api.delete(kind, namespace, name)
        except NotFoundError:
            return ""
        except PortError as error:
            return str(error)
        return ""

    return do


async def _uninstalled(api: KubeApi) -> str:
    try:
        await uninstall(api)
    except PortError as error:
        return str(error)
    return ""


async def _there(api: KubeApi, kind: Kind, namespace: str, name: str) -> bool:
    try:
        await api.get(kind, namespace, name)
    except NotFoundError:
        return False
    return True


async def _all(api: KubeApi, kind: Kind) -> list[Any]:
    try:
        return await list_all(api, kind)
    except NotFoundError:
        return []  # the kind itself is not there
