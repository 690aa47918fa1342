"""Finds and removes what Mooring leaves in a cluster: for an uninstall, or after one that failed.

Webhook configurations first: no request may go to an address that is about to go. Then whatever a mark says we did,
with what was there before us kept; then our own objects. Settings that a person wrote are named and left alone. Of a
single feature only what disturbs others is taken back: what it remembers is for when it is switched on again.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import msgspec

from mooring.capabilities.registry import descriptors
from mooring.clients.kube.listing import list_all, tidb_clusters
from mooring.clients.ports import Json, KubeApi, NotFoundError, PortError
from mooring.clients.wire.kube import project
from mooring.core.model.cluster import ConfigMap, Node, Pod, ReplicaSet, Workload
from mooring.core.model.instructions import Outcome, Patch, Write
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import AGENT, HOME
from mooring.core.model.reasons import Reason
from mooring.install.cleanup.leftovers import leftovers
from mooring.install.cleanup.undo import Unfenced
from mooring.process.act import Actor
from mooring.process.admission.configurations import NAME as HOOKS
from mooring.process.admission.configurations import uninstall, webhooks_of
from mooring.process.pd_directory import PdOf


class Trace(msgspec.Struct, frozen=True):
    """One thing that is ours, and how it goes. Without `undo` it stays, for the reason in the words."""

    what: str
    undo: Callable[[], Awaitable[str]] | None = None
    #: Whose it is, when it disturbs others; "": a record, or of no single feature.
    feature: str = ""


async def traces(api: KubeApi, pds: PdOf, namespace: str, features: frozenset[str] = frozenset()) -> list[Trace]:
    """In the order in which they must go. `features`: only these are taken back; none: everything."""
    act = Actor(api, pds, Unfenced())
    every = list(descriptors())
    ours = {one: await _found(api, one[0], namespace, one[1]) for d in every for one in d.objects}
    found = await _webhooks(api, features)
    nodes = [o for o in await _all(api, Kind.NODE) if isinstance(o, Node)]
    clusters = await tidb_clusters(api)
    standing = leftovers(
        [o for o in await _all(api, Kind.POD) if isinstance(o, Pod)],
        nodes,
        clusters,
        {o.uid for o in await _all(api, Kind.REPLICA_SET) if isinstance(o, ReplicaSet)},
        [o for (kind, _), obj in ours.items() if obj and isinstance(o := _row(kind, obj), ConfigMap)],
    )
    found += [Trace(b.what, _doing(act, *b.writes) if b.writes else None, b.feature) for b in standing]
    records = [record for one in every for record in one.records.items()]
    sets = [o for o in await _all(api, Kind.STATEFUL_SET) if isinstance(o, Workload)]
    for one, (annotation, what) in ((o, record) for o in sets for record in records if record[0] in o.annotations):
        patch = {"metadata": {"annotations": {annotation: None}}}
        forget = Patch(kind=Kind.STATEFUL_SET, key=one.key, uid=one.uid, patch=patch, why="cleanup")
        found.append(Trace(f"statefulset {one.key}: delete the record of {what}", _doing(act, forget)))
    for tc in (o for o in clusters if o.v2 and HOME in o.annotations):
        patch = {"metadata": {"annotations": {HOME: None}}}
        forget = Patch(kind=tc.kind, key=tc.key, uid=tc.uid, patch=patch, why="cleanup")
        found.append(Trace(f"cluster {tc.key}: delete the record of its members' nodes", _doing(act, forget)))
    for node in (o for o in nodes if AGENT in o.annotations):
        patch = {"metadata": {"annotations": {AGENT: None}}}
        forget = Patch(kind=Kind.NODE, key=node.key, uid=node.uid, patch=patch, why="cleanup")
        found.append(Trace(f"node {node.name}: delete what the agent noted", _doing(act, forget)))
    ours[Kind.LEASE, "mooring"] = await _found(api, Kind.LEASE, namespace, "mooring")
    for (kind, name), obj in ours.items():
        if obj is not None:
            found.append(Trace(f"{kind} {namespace}/{name}", _deleting(api, kind, namespace, name)))
    for name in filter(None, (d.settings_map for d in every)):
        if await _found(api, Kind.CONFIG_MAP, namespace, name) is not None:
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


async def _webhooks(api: KubeApi, features: frozenset[str]) -> list[Trace]:
    """Both configurations. Where one has a webhook of another feature both stay, since Mooring may create none: only
    the webhooks of these features are taken out."""
    kinds = Kind.MUTATING_WEBHOOK, Kind.VALIDATING_WEBHOOK
    standing = {kind: one for kind in kinds if (one := await _found(api, kind, "", HOOKS)) is not None}
    if not features:
        return [Trace(f"{kind} {HOOKS}", lambda: _uninstalled(api)) for kind in standing]
    serving = {one.name: one.serves for one in descriptors() if one.name in features and webhooks_of(one.serves)}
    ours = webhooks_of([what for serves in serving.values() for what in serves])
    names = {kind: [webhook["name"] for webhook in one.get("webhooks") or ()] for kind, one in standing.items()}
    every = {name for some in names.values() for name in some}
    if not serving or (every and not every & ours):
        return []
    whose = min(serving)
    if every <= ours:
        return [Trace(f"{kind} {HOOKS}", lambda: _uninstalled(api), whose) for kind in standing]
    return [
        Trace(f"{kind} {HOOKS}: take out {', '.join(out)}", _without(api, kind, standing[kind], ours), whose)
        for kind in standing
        if (out := [name for name in names[kind] if name in ours])
    ]


def _without(api: KubeApi, kind: Kind, current: Json, names: Collection[str]) -> Callable[[], Awaitable[str]]:
    """Refused when somebody has changed it since it was read."""
    kept = current | {"webhooks": [webhook for webhook in current["webhooks"] if webhook["name"] not in names]}

    async def do() -> str:
        try:
            await api.replace(kind, kept)
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


async def _found(api: KubeApi, kind: Kind, namespace: str, name: str) -> Json | None:
    try:
        return await api.get(kind, namespace, name)
    except NotFoundError:
        return None


def _row(kind: Kind, obj: Json) -> object:
    return project(kind, obj) if kind is Kind.CONFIG_MAP else None


async def _all(api: KubeApi, kind: Kind) -> list[Any]:
    try:
        return await list_all(api, kind)
    except NotFoundError:
        return []  # the kind itself is not there
