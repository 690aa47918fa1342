"""The mark on the TidbCluster, and the design's status beside it: one compare-and-swap patch writes both.

The mark (`mooring.dev/handoff`) is what counts, since tidb-operator rewrites the status from its own types. The entry
`status.tikv.evictLeaderStatus[<pod>]` is the design's and is kept in step for people who read it. All marks of a
cluster are in one annotation, so two replicas that both act as leader cannot both begin: the second one's swap fails.
"""

from collections.abc import Mapping
from typing import Any, Final

from mooring.core.model.instructions import Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import GAVE_UP, HANDOFF, Mark, read_marks, write_marks
from mooring.core.model.tidb import TidbCluster

#: Holds a TidbCluster that is deleted while its marks say that something is begun in a PD that outlives it: with the
#: cluster the marks would go, and nobody would know whose the scheduler in that PD is (E5).
FINALIZER: Final = HANDOFF


def marks_of(tc: TidbCluster) -> dict[str, Mark] | None:
    """Marks by pod name; None when the annotation cannot be read (then nothing is touched). Any user who may edit the
    cluster can write it, so only members of this very cluster count; the next write removes the others."""
    marks = read_marks(tc.annotations.get(HANDOFF, ""))
    if not marks:
        return marks
    return {name: mark for name, mark in marks.items() if _is_member(name, tc) and mark.store_id > 0 and mark.pod_uid}


def names_of_no_member(tc: TidbCluster, marks: Mapping[str, Mark]) -> list[str]:
    """Names in the annotation that do not count."""
    return sorted((read_marks(tc.annotations.get(HANDOFF, "")) or {}).keys() - marks.keys())


def _is_member(name: str, tc: TidbCluster) -> bool:
    ordinal = name.removeprefix(f"{tc.name}-tikv-")
    return ordinal != name and ordinal.isascii() and ordinal.isdigit() and len(ordinal) <= 10


def put_mark(tc: TidbCluster, marks: Mapping[str, Mark], pod: str, mark: Mark, why: str) -> Patch:
    entry: dict[str, Any] = {"value": mark.value, "podCreateTime": mark.pod_create_time}
    return _patch(tc, {**marks, pod: mark}, {pod: entry}, why)


def clear_mark(tc: TidbCluster, marks: Mapping[str, Mark], pod: str, why: str) -> Patch:
    left = {name: mark for name, mark in marks.items() if name != pod}
    return _patch(tc, left, {pod: None}, why)


def replace_with_memory(tc: TidbCluster, marks: Mapping[str, Mark], pod: str, mark: Mark, why: str) -> Patch:
    """Keep the mark as a record that this was given up, without an entry in the status."""
    return _patch(tc, {**marks, pod: mark}, {pod: None}, why)


def let_go(tc: TidbCluster, marks: Mapping[str, Mark]) -> Patch | None:
    """Nothing is begun (any more), whoever took the marks away: the cluster may go."""
    if FINALIZER not in tc.finalizers or _begun(marks):
        return None
    patch = {"metadata": {"finalizers": _finalizers(tc, marks)}}
    why = "nothing is begun in its PD any more"
    return Patch(
        kind=Kind.TIDB_CLUSTER, key=tc.key, uid=tc.uid, resource_version=tc.resource_version, patch=patch, why=why
    )


def _begun(marks: Mapping[str, Mark]) -> bool:
    return any(mark.step != GAVE_UP for mark in marks.values())


def _finalizers(tc: TidbCluster, marks: Mapping[str, Mark]) -> list[str]:
    others = [one for one in tc.finalizers if one != FINALIZER]
    # The API server takes no new finalizer of an object that is being deleted.
    held = _begun(marks) and (FINALIZER in tc.finalizers or tc.deletion_at is None)
    return [*others, FINALIZER] if held else others


def _patch(tc: TidbCluster, marks: Mapping[str, Mark], entries: Mapping[str, Any], why: str) -> Patch:
    metadata: dict[str, Any] = {"annotations": {HANDOFF: write_marks(marks)}}
    if tc.outlived_by_pd or FINALIZER in tc.finalizers:
        metadata["finalizers"] = _finalizers(tc, marks)
    return Patch(
        kind=Kind.TIDB_CLUSTER,
        key=tc.key,
        uid=tc.uid,
        resource_version=tc.resource_version,
        patch={
            "metadata": metadata,
            "status": {"tikv": {"evictLeaderStatus": dict(entries)}},
        },
        why=why,
    )
