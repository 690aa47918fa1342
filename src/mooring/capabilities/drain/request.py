"""Who asks a pod to leave, and until when: the one codec of the mark `mooring.dev/leaving`.

A mark is written before the pod is disturbed, and the next leader reads it. It counts only on the very pod that it was
written for: a pod template hands a copied annotation to every pod of it (`request_of`).

The replacement first: deleting a pod ends its service before its replacement exists. Instead one patch changes its
`pod-template-hash` and drops its owner: the ReplicaSet no longer counts it and makes another at once, while Services,
which select on the application's own labels, keep sending to it. Neither the Deployment nor its replicas are written.

    attached ──detach──► detached, still serving ──replacement Ready, or no time left──► deleted
        ▲                       │
        └──────withdraw─────────┘   the request was taken back, or `mooring mix release`

A detached pod has no owner any more, so its mark says what was there before; both are in the same patch.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.descriptor import Leftover
from mooring.core.model.instructions import DeletePod, Patch
from mooring.core.model.kinds import WORKLOADS, Kind
from mooring.core.model.marks import LEAVING, Mark, leaving, read_mark, write_mark
from mooring.core.world.read import WorldRead

HASH: Final = "pod-template-hash"
#: What Argo Rollouts writes instead.
_ROLLOUTS_HASH: Final = "rollouts-pod-template-hash"
#: On a pod that Mix placed: the class of nodes that it counts for.
AFFINITY: Final = "vacant.io/affinity"
DETACH: Final = "detach"
EVICT: Final = "evict"
RECREATE: Final = "Recreate"
#: The step of a mark that asks another capability (handoff) to take the pod away.
ASKED: Final = "request"
_AWAY: Final = "-leaving"

# ── Read ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def request_of(pod: Pod, *sources: str) -> Mark | None:
    """The mark that this very pod leaves, of one of these sources (none given: of any). None for one that cannot be
    read, was copied from another pod, or names a workload of another namespace: it is not ours."""
    mark = leaving(pod)
    return mark if mark is not None and (not sources or mark.source in sources) else None


def is_detached(pod: Pod) -> bool:
    """By us: its label says so, and its mark says what it was before."""
    labels = pod.labels
    if not labels.get(HASH, "").endswith(_AWAY) and not labels.get(_ROLLOUTS_HASH, "").endswith(_AWAY):
        return False
    mark = leaving(pod)
    if mark is None or "workload" not in mark.before:
        return False
    key = _hash_key(mark)
    return key in mark.before and labels.get(key, "") == f"{mark.before[key]}{_AWAY}"


def workload_named(text: str, world: WorldRead) -> Workload | None:
    """By "Deployment/shop/web"."""
    kind, _, rest = text.partition("/")
    namespace, _, name = rest.partition("/")
    return world.workload(Kind(kind), Key(namespace, name)) if kind in WORKLOADS else None


def workload_behind(pod: Pod, world: WorldRead) -> Workload | None:
    """Also of a detached pod, by its mark: the very workload, not another of its name."""
    mark = request_of(pod) if is_detached(pod) else None
    if mark is None:
        return world.workload_of(pod)
    found = workload_named(mark.before["workload"], world)
    return found if found is not None and found.uid == mark.before.get("workloadUID") else None


# ── Write ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def ask(
    pod: Pod,
    source: str,
    reason: str,
    detail: str,
    now: float,
    *,
    why: str,
    deadline: float | None = None,
    operator: str = "",
) -> Patch:
    """Ask the capability that may take this pod away (handoff, for TiKV and PD) to do so."""
    mark = Mark(
        operator=operator,
        source=source,
        reason=reason,
        step=ASKED,
        since=now,
        detail=detail,
        pod_uid=pod.uid,
        node=pod.node,
        deadline=deadline,
    )
    return put_mark(pod, mark, why)


def put_mark(pod: Pod, mark: Mark, why: str) -> Patch:
    return _patch(pod, {"annotations": {LEAVING: write_mark(mark)}}, why)


def ask_sooner(pod: Pod, mark: Mark, deadline: float | None, why: str) -> Patch | None:
    """A request without a deadline, or with a later one, takes this earlier one; None: it is early enough."""
    if deadline is None or (mark.deadline is not None and mark.deadline <= deadline):
        return None
    return put_mark(pod, msgspec.structs.replace(mark, deadline=deadline), why)


def withdraw(pod: Pod, why: str) -> Patch:
    """The request is taken back. A detached pod goes back to its ReplicaSet, which, being one over, lets the one go
    that serves least."""
    mark = request_of(pod)
    metadata: dict[str, Any] = {"annotations": {LEAVING: None}}
    if mark is not None and is_detached(pod):
        key = _hash_key(mark)
        metadata["labels"] = {key: mark.before[key]}
    return _patch(pod, metadata, why)


def can_detach(pod: Pod, workload: Workload) -> bool:
    """A StatefulSet's pod keeps its name, so its replacement cannot run beside it; and the strategy Recreate says that
    two pods of a Deployment must not run side by side."""
    owned = pod.owner is not None and pod.owner.kind == Kind.REPLICA_SET
    return owned and hash_label(workload.kind) in pod.labels and workload.strategy != RECREATE


def hash_label(kind: str) -> str:
    """By which a ReplicaSet of this kind of workload knows its pods."""
    return _ROLLOUTS_HASH if kind == Kind.ROLLOUT else HASH


def _hash_key(mark: Mark) -> str:
    return hash_label(mark.before["workload"].partition("/")[0])


def before_detach(pod: Pod, kind: str) -> dict[str, str]:
    assert pod.owner is not None
    key = hash_label(kind)
    return {key: pod.labels[key], "replicaSet": pod.owner.name, "replicaSetUID": pod.owner.uid}


def detach(pod: Pod, mark: Mark) -> Patch:
    """Mark and detach in one write: there is no moment in which only one of them holds."""
    metadata: dict[str, Any] = {
        "labels": {_hash_key(mark): f"{pod.labels[_hash_key(mark)]}{_AWAY}"},
        # If the owner reference stayed, the controller would remove it itself, with one more write per pod.
        "ownerReferences": None,
        "annotations": {LEAVING: write_mark(mark)},
    }
    return _patch(pod, metadata, f"detached from {mark.before['replicaSet']}, so that its replacement comes first")


def _patch(pod: Pod, metadata: Mapping[str, Any], why: str) -> Patch:
    return Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch={"metadata": metadata}, why=why)


# ── What outlives a process ───────────────────────────────────────────────────────────────────────────────────────


def leftovers(
    pods: Iterable[Pod],
    sources: Collection[str],
    replica_sets: Collection[str],
    nodes: Collection[str] | None = None,
    why: str = "cleanup",
) -> Iterator[Leftover]:
    """Marks that these sources have left on pods, and the write that ends each: for an uninstall, or when no replica
    leads any more. `replica_sets`: the uids of those that exist: a detached pod goes back to its own; where that is
    gone, or its node is (`nodes`: those that exist), nothing else would delete it."""
    for pod in sorted(pods, key=lambda p: (p.namespace, p.name)):
        # A copy of a mark is none, and is dropped like one.
        mark = request_of(pod) or read_mark(pod.annotations.get(LEAVING, ""))
        if mark is None or mark.source not in sources or pod.terminating:
            continue
        name, there = f"pod {pod.key}", nodes is None or pod.node in nodes
        if not is_detached(pod):
            yield Leftover(f"{name}: drop the mark {mark.reason}", (withdraw(pod, why),))
        elif mark.before.get("replicaSetUID") in replica_sets and there:
            owner = mark.before.get("replicaSet", "its ReplicaSet")
            yield Leftover(f"{name}: give it back to {owner}", (withdraw(pod, why),))
        else:
            gone = DeletePod(key=pod.key, uid=pod.uid, evict=False, why=f"{why}: its ReplicaSet or node is gone")
            yield Leftover(f"{name}: delete it, its ReplicaSet or node is gone", (gone,))
