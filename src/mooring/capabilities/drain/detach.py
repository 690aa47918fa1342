"""The replacement first: take a pod away from its ReplicaSet without taking it from its Service.

Deleting a pod ends its service before its replacement exists. Instead one patch changes its `pod-template-hash` and
drops its owner: the ReplicaSet no longer counts it and makes another at once, while Services, which select on the
application's own labels, keep sending to it. Neither the Deployment nor its replicas are written.

    attached ──detach──► detached, still serving ──replacement Ready, or no time left──► deleted
        ▲                       │
        └──────attach───────────┘   the notice was taken back, or `mooring mix release`

A detached pod has no owner any more, so it carries a mark with its deadline and what was there before; the
mark is in the same patch, and the next leader reads it.
"""

from collections.abc import Mapping
from typing import Any, Final

from mooring.core.model.cluster import Pod, Workload
from mooring.core.model.instructions import Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, Mark, leaving, write_mark

HASH: Final = "pod-template-hash"
#: On a pod that Mix placed: the class of nodes that it counts for.
AFFINITY: Final = "vacant.io/affinity"
DETACH: Final = "detach"
EVICT: Final = "evict"
RECREATE: Final = "Recreate"
_AWAY: Final = "-leaving"


def mark_on(pod: Pod) -> Mark | None:
    """The mark on a pod that is leaving; None for one that cannot be read, or is not about this pod: not ours."""
    return leaving(pod)


def is_detached(pod: Pod) -> bool:
    """By us: its label says so, and its mark says what it was before."""
    label = pod.labels.get(HASH, "")
    mark = leaving(pod) if label.endswith(_AWAY) else None
    return mark is not None and mark.before.get(HASH) == label.removesuffix(_AWAY) and "workload" in mark.before


def can_detach(pod: Pod, workload: Workload) -> bool:
    """A StatefulSet's pod keeps its name, so its replacement cannot run beside it; and the strategy Recreate says that
    two pods of a Deployment must not run side by side."""
    owned = pod.owner is not None and pod.owner.kind == Kind.REPLICA_SET
    return owned and HASH in pod.labels and workload.strategy != RECREATE


def before_detach(pod: Pod) -> dict[str, str]:
    assert pod.owner is not None
    return {HASH: pod.labels[HASH], "replicaSet": pod.owner.name, "replicaSetUID": pod.owner.uid}


def detach(pod: Pod, mark: Mark) -> Patch:
    """Mark and detach in one write: there is no moment in which only one of them holds."""
    metadata: dict[str, Any] = {
        "labels": {HASH: f"{pod.labels[HASH]}{_AWAY}"},
        # If the owner reference stayed, the controller would remove it itself, with one more write per pod.
        "ownerReferences": None,
        "annotations": {LEAVING: write_mark(mark)},
    }
    why = f"detached from {mark.before['replicaSet']}, so that its replacement comes first"
    return Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch={"metadata": metadata}, why=why)


def attach(pod: Pod, mark: Mark, why: str) -> Patch:
    """Give it back: its ReplicaSet takes it up again and, being one over, lets the one go that serves least."""
    return Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch={"metadata": attach_metadata(mark.before)}, why=why)


def attach_metadata(before: Mapping[str, str]) -> dict[str, Any]:
    return {"labels": {HASH: before[HASH]}, "annotations": {LEAVING: None}}


def put_mark(pod: Pod, mark: Mark, why: str) -> Patch:
    patch = {"metadata": {"annotations": {LEAVING: write_mark(mark)}}}
    return Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch=patch, why=why)


def drop_mark(pod: Pod, why: str) -> Patch:
    patch = {"metadata": {"annotations": {LEAVING: None}}}
    return Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch=patch, why=why)
