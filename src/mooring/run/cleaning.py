"""What Mooring leaves in a cluster, found and taken back: for an uninstall, or after one that went wrong.

Webhook configurations first: nobody may be asked at an address that is about to go. Then whatever a mark says we did,
with what was there before us kept; then our own objects. Settings that a person wrote are named and left alone.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from mooring.home.seats import has_seat_taint, seat_on, seat_taint
from mooring.model.cluster import Node, Pod, Workload
from mooring.model.instructions import EditTaints, Outcome, Patch, RemoveEvictLeader, Write
from mooring.model.kinds import Kind
from mooring.model.marks import CORDONED_BY, HANDOFF, HOME, LEAVING, RETIRING, SEAT, read_mark, read_marks
from mooring.model.tidb import TidbCluster
from mooring.ports import KubeApi, NotFound, PortError
from mooring.run.act import Act, PdDirectory
from mooring.run.undoing import released
from mooring.run.webhooks import NAME as HOOKS
from mooring.run.webhooks import uninstall

#: Ours by name, in our own namespace. `mooring-fleet` holds a person's settings and stays.
OBJECTS: Final = (
    (Kind.CONFIG_MAP, "mooring-mix-memory"),
    (Kind.CONFIG_MAP, "mooring-fleet-cluster"),
    (Kind.SECRET, "mooring-webhook-tls"),
    (Kind.LEASE, "mooring"),
)
KEPT: Final = ((Kind.CONFIG_MAP, "mooring-fleet"),)


class Trace(msgspec.Struct, frozen=True):
    """One thing that is ours, and how it goes. Without `undo` it stays, for the reason in the words."""

    what: str
    undo: Callable[[], Awaitable[str]] | None = None


class _Unfenced:
    """A person asked: there is no lease to hold."""

    def may_write(self) -> bool:
        return True


async def traces(api: KubeApi, pds: PdDirectory, namespace: str) -> list[Trace]:
    """In the order in which they must go."""
    act = Act(api, pds, _Unfenced())
    found: list[Trace] = []
    for kind in (Kind.MUTATING_WEBHOOK, Kind.VALIDATING_WEBHOOK):
        if await _there(api, kind, "", HOOKS):
            found.append(Trace(f"{kind} {HOOKS}", lambda: _uninstalled(api)))
    done, _ = await released(api, dry_run=True)
    found += [Trace(line, lambda: _released(api)) for line in done]
    nodes = [o for o in await _all(api, Kind.NODE) if isinstance(o, Node)]
    pods = [o for o in await _all(api, Kind.POD) if isinstance(o, Pod)]
    sets = [o for o in await _all(api, Kind.STATEFUL_SET) if isinstance(o, Workload)]
    for tc in [o for o in await _all(api, Kind.TIDB_CLUSTER) if isinstance(o, TidbCluster)]:
        found += _of_cluster(tc, act)
    for pod in pods:
        mark = read_mark(pod.annotations.get(LEAVING, ""))
        if mark is not None and mark.source not in {"mix", "spot"}:
            found.append(_patch(act, Kind.POD, pod, f"pod {pod.key}: drop the mark {mark.reason}", {LEAVING: None}))
    for node in nodes:
        found += _of_node(node, act)
    found += [
        _patch(act, Kind.STATEFUL_SET, s, f"statefulset {s.key}: forget where its members were", {HOME: None})
        for s in sets
        if HOME in s.annotations
    ]
    for kind, name in OBJECTS:
        if await _there(api, kind, namespace, name):
            found.append(Trace(f"{kind} {namespace}/{name}", _deleting(api, kind, namespace, name)))
    for kind, name in KEPT:
        if await _there(api, kind, namespace, name):
            found.append(Trace(f"{kind} {namespace}/{name} holds settings that a person wrote"))
    return found


def _of_cluster(tc: TidbCluster, act: Act) -> list[Trace]:
    """Schedulers that we added go first, then the marks: what a mark says must be true until it is gone."""
    text = tc.annotations.get(HANDOFF, "")
    marks = read_marks(text)
    if marks is None:
        return [Trace(f"tidbcluster {tc.key}: {HANDOFF} cannot be read, so it is not ours to touch")]
    found = []
    for name, mark in sorted(marks.items()):
        if mark.store_id and mark.before.get("evicting") != "true":
            remove = RemoveEvictLeader(cluster=tc.key, store_id=mark.store_id, why="cleanup")
            found.append(
                Trace(f"PD of {tc.key}: let store {mark.store_id} ({name}) have leaders again", _doing(act, remove))
            )
    if marks or text:
        entries = {"status": {"tikv": {"evictLeaderStatus": dict.fromkeys(marks)}}} if marks else {}
        what = f"tidbcluster {tc.key}: drop {len(marks)} marks"
        found.append(_patch(act, Kind.TIDB_CLUSTER, tc, what, {HANDOFF: None}, entries))
    return found


def _of_node(node: Node, act: Act) -> list[Trace]:
    found = []
    seat = seat_on(node)
    if seat is not None or has_seat_taint(node):
        taint = seat_taint(seat.pod.rpartition("/")[2] if seat is not None else "")
        edit = EditTaints(node=node.name, uid=node.uid, remove=(taint,), annotations={SEAT: None}, why="cleanup")
        found.append(Trace(f"node {node.name}: free the held seat", _doing(act, edit)))
    cordon = read_mark(node.annotations.get(CORDONED_BY, ""))
    gone: dict[str, None] = {}
    if RETIRING in node.annotations:
        gone[RETIRING] = None
    lift = False
    if cordon is not None and cordon.source == "fleet":
        gone[CORDONED_BY] = None
        lift = cordon.before.get("unschedulable") == "false"
    if gone:
        what = f"node {node.name}: drop {', '.join(gone)}{' and lift our cordon' if lift else ''}"
        found.append(_patch(act, Kind.NODE, node, what, gone, {"spec": {"unschedulable": None}} if lift else {}))
    return found


def _patch(
    act: Act, kind: Kind, obj: Any, what: str, annotations: dict[str, None], more: dict[str, Any] | None = None
) -> Trace:
    body = {"metadata": {"annotations": annotations}, **(more or {})}
    return Trace(what, _doing(act, Patch(kind=kind, key=obj.key, uid=obj.uid, patch=body, why="cleanup")))


def _doing(act: Act, write: Write) -> Callable[[], Awaitable[str]]:
    async def do() -> str:
        outcome: Outcome = await act.carry_out(write)
        return "" if outcome.reason is None else outcome.detail or str(outcome.reason)

    return do


def _deleting(api: KubeApi, kind: Kind, namespace: str, name: str) -> Callable[[], Awaitable[str]]:
    async def do() -> str:
        try:
            await api.delete(kind, namespace, name)
        except NotFound:
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


async def _released(api: KubeApi) -> str:
    _, failed = await released(api, dry_run=False)
    return "; ".join(failed)


async def _there(api: KubeApi, kind: Kind, namespace: str, name: str) -> bool:
    try:
        await api.get(kind, namespace, name)
    except NotFound:
        return False
    return True


async def _all(api: KubeApi, kind: Kind) -> list[Any]:
    found: list[Any] = []
    token = ""
    try:
        while True:
            page = await api.list(kind, continue_token=token)
            found += page.items
            token = page.continue_token
            if not token:
                return found
    except NotFound:
        return found  # the kind itself is not there
