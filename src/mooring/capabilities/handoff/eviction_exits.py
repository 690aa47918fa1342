"""How an eviction ends: the reasons to end it, and the way out, which leaves nothing behind in PD or on the cluster."""

import msgspec

from mooring.capabilities.drain.leaders import others_take_leaders, others_up, quorum_at_risk, stranded
from mooring.capabilities.handoff.operators import END, LOCK_ALONE, clear_mark, replace_with_memory, tikv_payload
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.proof import absent_at
from mooring.capabilities.handoff.requests import DELETE_POD, EXPIRATION, without_requests
from mooring.capabilities.handoff.situation import (
    FROM_MARKS,
    Situation,
    is_back,
    other_evictions,
    pd_wait,
    release_lock,
)
from mooring.core.model.cluster import Pod
from mooring.core.model.decision import PD_NOT_SURE, End, NextStep, PdRefresh
from mooring.core.model.instructions import EmitEvent, Instruction, Patch, ReleasePdLock, RemoveEvictLeader
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import GAVE_UP
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdView, TidbCluster

LOOP = "remove it there (spec.tikv.annotations), it would be restarted again and again"
#: Reasons that only a person ends. The evaluation that finds them reports them, for as long as they hold.
TOLD = frozenset({Reason.ONE_STORE, Reason.LOCAL_VOLUME, Reason.QUORUM})


def reason_to_end(here: Situation) -> End | None:
    """Why this eviction should end now; None while it should go on."""
    if here.tc is None:
        return End(Reason.CLUSTER_GONE, f"TidbCluster {here.cluster} is gone")
    pod = here.pod
    ours = pod is not None and pod.uid == here.asked_uid
    if not ours or here.begun:
        if not here.wanted and pod is None:
            return End(Reason.SUBJECT_GONE, f"{here.name} was scaled in")
        if not ours and pod is not None and is_back(here):
            return End(Reason.DONE, f"{here.name} is back and Ready, its store is Up")
        return None
    assert pod is not None
    if here.restarting:
        return None
    if here.running.off:
        return End(Reason.FEATURE_OFF, "handoff was switched off")
    if here.request is None and "expired" in here.notes:
        return End(Reason.EXPIRED, f"annotation {EXPIRATION} has passed")  # it was us who removed the annotation
    if here.request is None:
        return End(Reason.WITHDRAWN, "the annotation was removed")
    if here.request.expired(here.now):
        return End(Reason.EXPIRED, f"annotation {EXPIRATION} has passed")
    if here.request.value != tikv_payload(here.running.operator).value:
        return End(Reason.WITHDRAWN, f"the request changed to {here.request.value}")
    if here.stuck is not None and here.request.may_wait:
        return End(Reason.LOCAL_VOLUME, f"the leaders may stay: {here.stuck.detail}")
    if here.view is not None and not here.lost:
        store = here.store
        if len(here.view.claimants(here.tc, here.name)) > 1:
            return End(Reason.STORE_CHANGED, f"it cannot be told any more which store is that of {here.name}")
        if store is not None and store.id != here.store_id:
            return End(Reason.STORE_CHANGED, f"{here.name} is store {store.id} now, was {here.store_id}")
        kept = stranded(here.view, store, here.name) if store is not None else None
        if kept is not None or not others_up(here.view, here.store_id):
            why = kept.detail if kept is not None else "no other store is Up"
            return End(Reason.ONE_STORE, f"the leaders of {here.name} may stay: {why}")
        risk = quorum_at_risk(here.view, here.store_id, pod) if here.request.value == DELETE_POD else None
        if risk is not None and risk.state is State.BLOCKED and here.request.may_wait:
            return End(Reason.QUORUM, f"the leaders of {here.name} may stay: {risk.detail}")
        nowhere = _nowhere_to_go(here, here.view)
        if nowhere:
            return End(Reason.ONE_STORE, f"the leaders of {here.name} may stay: {nowhere}")
    # A node that is to be emptied asks for as long as it takes: a person is told, and giving the leaders back would
    # only move them twice.
    late = here.now - here.running.promoted_at > here.policy.timeout_s and here.request.may_wait
    if here.request.value == DELETE_POD and late:
        return End(Reason.TIMEOUT, f"leaders did not leave within {here.policy.timeout_s:.0f} s", failed=True)
    return None


def _nowhere_to_go(here: Situation, view: PdView) -> str:
    """Every other store is being evicted, so PD moves nothing: whose evictions they are; "" while leaders can go.

    Our eviction ends in favour of those of others and of stores that are empty already. Among those of ours that still
    have leaders (several nodes to be emptied at once) the last one ends, so that the others can move leaders there.
    """
    assert here.tc is not None
    store = here.store
    if others_take_leaders(view, here.store_id) or (here.mark is not None and store is not None and not store.leads):
        return ""
    others = other_evictions(here.tc, view, here.store_id, here.sharing)
    if here.mark is not None:
        empty = store is None or store.leader_count == 0
        rivals = [one.store.id for one in others if not one.remedy and one.store.leader_count]
        if empty or here.store_id < max(rivals, default=0):
            return ""
    return f"leaders are being taken off {', '.join(one.words for one in others)}"


def leave(here: Situation, end: End) -> NextStep:
    """Scheduler out of PD first, then mark and status: a crash in between resumes here."""
    view = here.view
    added = "added" in here.notes
    if here.tc is not None and here.mark is None and not added:
        # Nothing was begun, or everything is undone and seen to be so.
        return NextStep(step=END, end=end)
    if here.tc is None:
        return _leave_deleted_cluster(here, end)
    if here.lost or here.look is None or view is None or view.evicting is None:
        return pd_wait(here, here.lost or PD_NOT_SURE)
    if here.holds_lock:
        return release_lock(here, END)
    if not here.not_ours and not here.never_added:
        if here.seen_at <= max(here.running.acted_at, here.running.promoted_at):
            return NextStep(step=END, refreshes=(PdRefresh(here.cluster, here.now),))
        # One that is listed after our DELETE was answered is another client's, not ours to remove (E3).
        answered = 0.0 < here.notes.get("removed_at", 0.0) <= here.running.acted_at
        if here.store_id in view.evicting and not answered:
            here.notes["removed_at"] = here.now
            remove = RemoveEvictLeader(
                cluster=here.cluster,
                store_id=here.store_id,
                why=f"lets leaders return to store {here.store_id}",
            )
            return NextStep(step=END, instructions=(remove,), refreshes=(PdRefresh(here.cluster, here.now + 1.0),))
        again_at = None if answered else absent_at(here.look, here.policy)
        if again_at is not None:
            return NextStep(step=END, refreshes=(PdRefresh(here.cluster, again_at),))
    here.notes.pop("added", None)
    if here.mark is None:
        return NextStep(step=END, end=end)
    return NextStep(step=END, instructions=unmark(here, here.tc, end))


def unmark(here: Situation, tc: TidbCluster, end: End) -> tuple[Instruction, ...]:
    """Takes the mark off, or keeps it as the memory of what was given up."""
    assert here.marks is not None
    assert here.mark is not None
    instructions: list[Instruction] = []
    if end.reason == Reason.EXPIRED and here.pod is not None and here.request is not None:
        here.notes["expired"] = 1.0
        instructions.append(drop_requests(here.pod, here.policy))
    if "born_asking" in here.notes and asks_again(here):
        detail = f"the new {here.name} came with the request again, from its template: {LOOP}"
        end = End(Reason.MISCONFIGURED, detail, failed=True)
    if end.failed:
        uid = here.pod.uid if here.pod is not None else here.mark.pod_uid
        memory = msgspec.structs.replace(here.mark, step=GAVE_UP, reason=end.reason, detail=end.detail, pod_uid=uid)
        instructions.append(replace_with_memory(tc, here.marks, here.name, memory, "remembers what was given up"))
        if here.pod is not None:
            instructions.append(_warn(here.pod, end))
        return tuple(instructions)
    instructions.append(clear_mark(tc, here.marks, here.name, "clears the mark of the hand-over"))
    if end.reason not in TOLD:
        instructions.append(_tell_end(here, tc, end))
    return tuple(instructions)


def _leave_deleted_cluster(here: Situation, end: End) -> NextStep:
    """The cluster is gone, and the mark with it. Its PD may run on: remove the scheduler, in at most three tries, or
    until one is answered, after which what PD lists is another client's. Another TidbCluster on that PD shows the
    way."""
    tries, via = here.notes.get("tries", 0.0), here.other
    ours = here.notes.keys() & {"ours", "added"}
    if not ours and ("not_ours" in here.notes or here.running.operator.reason not in FROM_MARKS):
        return NextStep(step=END, end=end)  # nothing of it is ours to end
    if here.running.acted_at > 0.0 and tries > 0.0 and here.running.acted_at >= here.notes["tried_at"]:
        return NextStep(step=END, end=end)
    if tries >= 3:
        return NextStep(step=END, end=msgspec.structs.replace(end, detail=f"{end.detail}, and its PD with it"))
    if via is not None and here.lost:
        return pd_wait(here, here.lost)
    here.notes["tries"], here.notes["tried_at"] = tries + 1, here.now
    why, evicts = "the cluster is gone", tikv_payload(here.running.operator).value != LOCK_ALONE
    remove = RemoveEvictLeader(cluster=here.cluster, store_id=here.store_id, via=via, why=why)
    release = ReleasePdLock(cluster=here.cluster, lock_id=here.lock_id, via=via, why=why)
    return NextStep(step=END, instructions=(*((release,) if here.holds_lock else ()), *((remove,) if evicts else ())))


def drop_requests(pod: Pod, policy: HandoffPolicy) -> Patch:
    gone = without_requests(pod, leave_to_tidb_operator=policy.leaves_all)
    patch = {"metadata": {"annotations": gone}}
    return Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch=patch, why="the request has expired")


def _tell_end(here: Situation, tc: TidbCluster, end: End) -> EmitEvent:
    """On the pod that is there now, else on its cluster: either shows how it ended."""
    text = f"{end.detail}; leaders may return to store {here.store_id}"
    if here.pod is not None:
        return EmitEvent(kind=Kind.POD, key=here.pod.key, uid=here.pod.uid, reason=end.reason, message=text)
    return EmitEvent(kind=tc.kind, key=tc.key, uid=tc.uid, reason=end.reason, message=text)


def _warn(pod: Pod, end: End) -> EmitEvent:
    return EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=end.reason, message=end.detail, warning=True)


def asks_again(here: Situation) -> bool:
    return here.request is not None and here.request.value == DELETE_POD and here.request.may_wait
