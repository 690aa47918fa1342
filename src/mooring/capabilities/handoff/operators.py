"""The two operators of a hand-over as values: what they cost, what they claim, and how a mark becomes them again.

- evict-leaders: the store 10 until it is empty; `evicting/…` 1, for a restart until the end, or until it is empty and
  waits for its volume
- restart-tikv: `tikv/…` 1 and the node 4 while the member is away; with tidb-operator v2, which takes the leaders off
  a pod that is being deleted, what the eviction costs, too: there is no operator before it
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mooring.capabilities.drain.readiness import node_cost
from mooring.capabilities.handoff.facts import evicting_target, pod_subject, store_target, tikv_target
from mooring.capabilities.handoff.requests import DELETE_POD, Request
from mooring.core.model.cluster import Key, Pod
from mooring.core.model.decision import Recovered
from mooring.core.model.instructions import Patch
from mooring.core.model.marks import HANDOFF, Mark, read_marks, write_marks
from mooring.core.model.operator import Operator, Payload, Step, StepKind
from mooring.core.model.reasons import Reason
from mooring.core.model.tidb import Store, TidbCluster

#: Takes leaders off a store and keeps them off.
EVICT_LEADERS: Final = "evict-leaders"
EVICTION_STEPS: Final = (Step(StepKind.EVICT_LEADERS), Step(StepKind.HOLD_EMPTY), Step(StepKind.END_EVICTION))
EVICT, HOLD, END = range(3)
#: Deletes the pod of a store that is proven empty, and waits for its successor.
RESTART_TIKV: Final = "restart-tikv"
RESTART_STEPS: Final = (Step(StepKind.DELETE_POD), Step(StepKind.AWAIT_READY))
DELETE, AWAIT = range(2)
#: The step word of a mark whose pod is being deleted by us.
DELETING: Final = StepKind.DELETE_POD
#: Taking leaders off loads a store; the pod's absence loads its node's neighbours.
STORE_COST: Final = 10


#: Of a cluster that is gone: only PD's lock is ours, beside another client's scheduler.
LOCK_ALONE: Final = "lock"


class TikvPayload(Payload, frozen=True, gc=False, kw_only=True):
    """One TiKV member and its store (`store_id`)."""

    #: What to do once the leaders have left: `none` or `delete-pod`.
    value: str
    #: PD's name in targets (`facts.pd_name`).
    pd: str


def _payload(cluster: Key, pod: str, uid: str, store_id: int, value: str, pd: str) -> TikvPayload:
    return TikvPayload(
        cluster=str(cluster), pod=f"{cluster.namespace}/{pod}", uid=uid, store_id=store_id, value=value, pd=pd
    )


def tikv_payload(operator: Operator) -> TikvPayload:
    assert isinstance(operator.payload, TikvPayload)
    return operator.payload


def eviction_for(cluster: Key, pod: Pod, request: Request, store_id: int, pd: str) -> Operator:
    return eviction_operator(
        cluster, pod.name, pod.uid, store_id, request.value, request.detail, pd, deadline=request.deadline
    )


def eviction_operator(
    cluster: Key,
    pod: str,
    uid: str,
    store_id: int,
    value: str,
    detail: str,
    pd: str,
    *,
    deadline: float | None = None,
    id_: str = "",
    reason: Reason = Reason.ASKED,
) -> Operator:
    store, evicting = store_target(cluster, store_id), evicting_target(pd)
    # On an interrupted node no store waits for another: every store there loses its leaders one way or the other.
    exclusive = {evicting: 1} if deadline is None else {}
    # The last phase of a restart is for a member that waits for its volume: it is empty, so no other member waits for
    # it.
    held = (exclusive, {}) if value == DELETE_POD and exclusive else ({},)
    return Operator(
        id=id_,
        source="handoff",
        quota=str(cluster),
        kind=EVICT_LEADERS,
        subject=store,
        claims=(store,),
        steps=EVICTION_STEPS,
        phases=({store: STORE_COST, **exclusive}, *held),
        deadline=deadline,
        # What was read back from a mark says so, with a deadline too: its scheduler is ours to end.
        reason=Reason.DEADLINE if deadline is not None and reason is Reason.ASKED else reason,
        detail=detail,
        payload=_payload(cluster, pod, uid, store_id, value, pd),
    )


def restart_for(cluster: Key, pod: Pod, request: Request, store: Store, pd: str, *, v2: bool = False) -> Operator:
    return restart_operator(
        cluster, pod.name, pod.uid, pod.node, store.id, request.detail, pd, deadline=request.deadline, v2=v2
    )


def restart_operator(
    cluster: Key,
    pod: str,
    uid: str,
    node: str,
    store_id: int,
    detail: str,
    pd: str,
    *,
    deadline: float | None = None,
    id_: str = "",
    reason: Reason = Reason.ASKED,
    v2: bool = False,
) -> Operator:
    subject, of_store = pod_subject(Key(cluster.namespace, pod)), store_target(cluster, store_id)
    cost = {tikv_target(pd): 1, **node_cost(node, cluster.namespace)}
    if v2:
        cost |= {of_store: STORE_COST, **({evicting_target(pd): 1} if deadline is None else {})}
    return Operator(
        id=id_,
        source="handoff",
        quota=str(cluster),
        kind=RESTART_TIKV,
        subject=subject,
        claims=(subject, of_store) if v2 else (subject,),
        steps=RESTART_STEPS,
        phases=(cost,),
        deadline=deadline,
        reason=reason,
        detail=detail,
        payload=_payload(cluster, pod, uid, store_id, DELETE_POD, pd),
    )


def marked_restart(cluster: Key, name: str, mark: Mark, node: str, *, reason: Reason, v2: bool = False) -> Operator:
    return restart_operator(
        cluster,
        name,
        mark.pod_uid,
        node,
        mark.store_id,
        mark.detail,
        mark.pd_id or str(cluster),
        deadline=mark.deadline,
        id_=mark.restart or f"{mark.operator}-restart",
        reason=reason,
        v2=v2,
    )


def read_back(cluster: Key, name: str, mark: Mark, node: str, *, v2: bool = False) -> Iterator[Recovered]:
    """`node`: where the pod is that the mark names."""
    if v2:
        yield Recovered(marked_restart(cluster, name, mark, node, reason=Reason.RESUMED, v2=True), 0, 0, mark.since)
        return
    pd = mark.pd_id or str(cluster)
    evicts = eviction_operator(
        cluster,
        name,
        mark.pod_uid,
        mark.store_id,
        mark.value,
        mark.detail,
        pd,
        deadline=mark.deadline,
        id_=mark.operator,
        reason=Reason.RESUMED,
    )
    begun = mark.step == DELETING
    waits = mark.step == StepKind.HOLD_EMPTY
    yield Recovered(
        evicts, HOLD if begun or waits else 0, len(evicts.phases) - 1 if waits else 1 if begun else 0, mark.since
    )
    if begun:
        restarts = marked_restart(cluster, name, mark, node, reason=Reason.ASKED)
        yield Recovered(restarts, 0, 0, mark.since)


# ── Mark ────────────────────────────────────────────────────────────────────────────────────────────────────────────
#
# The mark on the TidbCluster, and the design's status beside it: one compare-and-swap patch writes both.
#
# The mark (`mooring.dev/handoff`) is what counts, since tidb-operator rewrites the status from its own types. The entry
# `status.tikv.evictLeaderStatus[<pod>]` is the design's and is kept in step for people who read it. All marks of a
# cluster are in one annotation, so two replicas that both act as leader cannot both begin: the second one's swap fails.


def marks_of(tc: TidbCluster) -> dict[str, Mark] | None:
    """Marks by pod name; None when the annotation cannot be read (then nothing is touched). Any user who may edit the
    cluster can write it, so only members of this very cluster count; the next write removes the others."""
    marks = read_marks(tc.annotations.get(HANDOFF, ""))
    if not marks:
        return marks
    return {
        name: mark for name, mark in marks.items() if tc.may_have(name, "tikv") and mark.store_id > 0 and mark.pod_uid
    }


def names_of_no_member(tc: TidbCluster, marks: Mapping[str, Mark]) -> list[str]:
    """Names in the annotation that do not count."""
    return sorted((read_marks(tc.annotations.get(HANDOFF, "")) or {}).keys() - marks.keys())


def put_mark(tc: TidbCluster, marks: Mapping[str, Mark], pod: str, mark: Mark, why: str) -> Patch:
    entry: dict[str, Any] = {"value": mark.value, "podCreateTime": mark.pod_create_time}
    return _patch(tc, {**marks, pod: mark}, {pod: entry}, why)


def clear_mark(tc: TidbCluster, marks: Mapping[str, Mark], pod: str, why: str) -> Patch:
    left = {name: mark for name, mark in marks.items() if name != pod}
    return _patch(tc, left, {pod: None}, why)


def replace_with_memory(tc: TidbCluster, marks: Mapping[str, Mark], pod: str, mark: Mark, why: str) -> Patch:
    """Keep the mark as a record that this was given up, without an entry in the status."""
    return _patch(tc, {**marks, pod: mark}, {pod: None}, why)


def _patch(tc: TidbCluster, marks: Mapping[str, Mark], entries: Mapping[str, Any], why: str) -> Patch:
    patch: dict[str, Any] = {"metadata": {"annotations": {HANDOFF: write_marks(marks)}}}
    if not tc.v2:
        patch["status"] = {"tikv": {"evictLeaderStatus": dict(entries)}}
    return Patch(kind=tc.kind, key=tc.key, uid=tc.uid, resource_version=tc.resource_version, patch=patch, why=why)
