"""Deleting a TiKV pod whose store is proven empty, and waiting for its successor: the `restart-tikv` operator.

    released ──► proven once more ──► marked ──► deleted ──► new pod Ready, store Up ──► ended
                      │
                      └── leaders came back · annotation removed · nowhere to come back to · another member away:
                          ended, nothing deleted, and proposed again when that is over

With tidb-operator v2 no proof comes first: it ends every eviction that it did not begin, and takes the leaders off a
pod that is being deleted, whose preStop waits for them. What stays ours is that it is one at a time, that no region
loses its quorum, that there are stores for the leaders, and that its successor is Up before the next one goes.

The proof is made again, on looks at PD that began after the release: PD may have restarted or failed over since the
eviction was proven, and a PD that has just begun may give leaders to a store before it evicts them again.
"""

from typing import Final

import msgspec

from mooring.capabilities.drain.leaders import others_take_leaders, quorum_at_risk, stranded
from mooring.capabilities.handoff.eviction import unreadable
from mooring.capabilities.handoff.eviction_exits import asks_again, unmark
from mooring.capabilities.handoff.facts import held_lock, members_away
from mooring.capabilities.handoff.operators import AWAIT, DELETE, DELETING, marks_of, put_mark
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.proof import disproof, elected_at, prove, recheck_reason
from mooring.capabilities.handoff.requests import DELETE_POD, unattended
from mooring.capabilities.handoff.situation import Situation, awaited, is_back, observe, release_lock
from mooring.core.model.cluster import Pod
from mooring.core.model.decision import PD_NOT_SEEN, PD_NOT_SURE, End, NextStep, OperatorRecord, PdRefresh, Verdict
from mooring.core.model.instructions import DeletePod, EmitEvent, HoldPdLock
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import Mark
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdView, Store, TidbCluster
from mooring.core.model.times import rfc3339
from mooring.core.world.read import PdLook, WorldRead

#: How often PD is looked at while the store is empty and waits for an eviction: no older proof lets its pod go.
PREPARED_LOOK_S: Final = 2.0


def next_restart_step(running: OperatorRecord, world: WorldRead, policy: HandoffPolicy, now: float) -> NextStep:
    here = observe(running, world, policy, now)
    answer = _next(here, world)
    if answer.end is not None and here.holds_lock:
        answer = release_lock(here, answer.step)
    elif answer.end is not None and here.tc is not None and here.tc.v2 and _is_own(here.mark, here):
        answer = NextStep(step=answer.step, instructions=unmark(here, here.tc, answer.end))
    return msgspec.structs.replace(answer, notes=here.notes)


def _next(here: Situation, world: WorldRead) -> NextStep:
    if here.tc is None:
        return NextStep(step=here.running.step, end=End(Reason.CLUSTER_GONE, f"TidbCluster {here.cluster} is gone"))
    pod = here.pod
    if pod is None or pod.uid != here.asked_uid or pod.terminating:
        return _await(here, world)
    if here.running.off:
        return NextStep(step=DELETE, end=End(Reason.FEATURE_OFF, "handoff was switched off before the pod was deleted"))
    v2 = here.tc.v2
    if v2 and here.marks is None:
        return unreadable(here)
    if here.request is None or here.request.value != DELETE_POD:
        return NextStep(
            step=DELETE, end=End(Reason.WITHDRAWN, "the request to restart was withdrawn before the pod was deleted")
        )
    if v2 and here.request.expired(here.now):
        return NextStep(step=DELETE, end=End(Reason.EXPIRED, "the request has expired"))
    if here.stuck is not None:
        # Ended, not blocked: a restart that waits for a person would make every other member's wait, too.
        return NextStep(step=DELETE, end=End(Reason.LOCAL_VOLUME, f"not deleted: {here.stuck.detail}"))
    if here.lost or here.look is None:
        return _wait(here, here.lost or PD_NOT_SEEN)
    if here.seen_at <= max(here.running.promoted_at, here.running.acted_at):
        return NextStep(step=DELETE, refreshes=(PdRefresh(here.cluster, here.now, (here.store_id,)),))
    view, mark = here.look.view, here.mark
    if mark is None and not v2:
        return NextStep(step=DELETE, end=End(Reason.CANCELED, "the mark of the hand-over is gone"))
    if here.store is None or here.store.id != here.store_id:
        why = f"it cannot be told any more that store {here.store_id} is that of {here.name}"
        return NextStep(step=DELETE, end=End(Reason.STORE_CHANGED, f"not deleted: {why}"))
    if another_pd(here.tc, view):
        return NextStep(step=DELETE, end=End(Reason.MISCONFIGURED, f"not deleted: {another_pd(here.tc, view)}"))
    unproven = _unproven(here, here.look, mark) if mark is not None and not v2 else _unfit(here, view, here.store)
    if unproven is not None:
        return unproven
    risk = quorum_at_risk(view, here.store_id, pod)
    if risk is not None and risk.state is State.WAITING:
        again = PdRefresh(here.cluster, here.now, (here.store_id,))
        return NextStep(step=DELETE, progress=risk.detail, refreshes=(again,))
    if risk is not None:
        return NextStep(step=DELETE, end=End(Reason.QUORUM, f"not deleted: {risk.detail}"))
    if rolling(here.tc):
        return NextStep(step=DELETE, end=End(Reason.SETTLING, f"not deleted: {rolling(here.tc)}"))
    # Room was checked at promotion, some looks ago.
    pods = {p.name: p for p in world.tidb_pods(here.cluster, "tikv")}
    if v2 and pod.name not in pods:
        return NextStep(step=DELETE, end=End(Reason.SUBJECT_GONE, f"{pod.name} is no member of {here.cluster}"))
    away = [
        *members_away(here.tc, pods, view, here.now, here.policy.heartbeat_s, here.sharing),
        *held_lock(here.cluster, view, {here.lock_id}),
    ]
    missing = next((fact for fact in away if fact.subject != here.running.operator.subject), None)
    if missing is not None:
        return NextStep(step=DELETE, end=End(Reason.FACT, f"not deleted: {missing.detail}"))
    if mark is None or mark.step != DELETING or mark.restart != here.running.operator.id:
        others = [n for one in here.sharing or (here.tc,) for n in marks_of(one) or {} if n != here.name]
        if mark is None and others and here.request.deadline is None:
            # Written by another replica while two acted as leader, or about to be swept.
            words = f"{', '.join(sorted(others))} is marked as handing over"
            return _wait(here, Verdict(State.WAITING, Reason.BEHIND, words))
        mark = mark if mark is not None else _first_mark(here, view, pod)
        begun = msgspec.structs.replace(mark, step=DELETING, restart=here.running.operator.id)
        return NextStep(
            step=DELETE,
            instructions=(put_mark(here.tc, here.marks or {}, here.name, begun, "marks the deletion"),),
            refreshes=(PdRefresh(here.cluster, here.now, (here.store_id,)),),
        )
    if view.lockable and not here.holds_lock:
        # Other Kubernetes clusters may have stores in this PD, and a Mooring of their own.
        words = f"Mooring restarts {pod.key} ({here.running.operator.detail})"
        why = f"nobody else restarts a store of this PD while {here.name} is away"
        hold = HoldPdLock(cluster=here.cluster, lock_id=here.lock_id, description=words, why=why)
        return NextStep(
            step=DELETE, instructions=(hold,), refreshes=(PdRefresh(here.cluster, here.now, (here.store_id,)),)
        )
    if here.request.prepares:
        here.notes.setdefault("prepared_at", here.now)
        words = "is next, and its eviction may take it" if v2 else "leads nothing, and its eviction may take it"
        ready = Verdict(State.WAITING, Reason.PREPARED, f"{here.name} {words}")
        return NextStep(step=DELETE, waiting_on=ready, refreshes=(PdRefresh(here.cluster, here.now + PREPARED_LOOK_S),))
    # `evict=False`: a PodDisruptionBudget knows nothing of leaders; the rules above are stricter.
    why = "tidb-operator takes its leaders off before it stops" if v2 else "its store is proven empty"
    delete = DeletePod(key=pod.key, uid=pod.uid, evict=False, why=why)
    about = why if v2 else f"its store {here.store_id} is proven empty"
    text = f"deleted by Mooring ({here.running.operator.detail}): {about}"
    told = EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=here.running.operator.reason, message=text)
    return NextStep(step=DELETE, instructions=(delete, told))


def _unproven(here: Situation, look: PdLook, mark: Mark) -> NextStep | None:
    """What to do while the store is not proven empty, or may not stay so; None: it is, and will."""
    doubted = disproof(look.view, here.store_id, here.now, here.policy)
    if doubted is not None:
        return NextStep(step=DELETE, end=End(doubted.reason, f"not deleted: {doubted.detail}"))
    proven_at = prove(here.notes, look, mark.pd, here.now, here.policy)
    if proven_at is not None:
        return NextStep(
            step=DELETE,
            progress=f"empty; {recheck_reason(here.notes, proven_at, here.policy)}",
            refreshes=(PdRefresh(here.cluster, proven_at, (here.store_id,)),),
        )
    restarted = elected_at(look.view, here.store_id, here.seen_at, here.policy)
    if restarted is None:
        return None
    at, other = restarted
    return NextStep(
        step=DELETE,
        progress=f"empty; waiting for elections after the start of store {other}",
        refreshes=(PdRefresh(here.cluster, at, (here.store_id,)),),
    )


def _unfit(here: Situation, view: PdView, store: Store) -> NextStep | None:
    """Why tidb-operator v2 should not be asked to take the leaders off now; None: it may."""
    tc, nowhere = here.tc, stranded(view, store, here.name)
    assert tc is not None
    heard = store.last_heartbeat_at
    if tc.unattended:
        end = End(Reason.MISCONFIGURED, f"not deleted: {unattended(tc)[0]}")
    elif view.evicting is None:
        return _wait(here, PD_NOT_SURE)
    elif store.state != "Up" or heard is None or here.now - heard > here.policy.heartbeat_s:
        end = End(Reason.STORE_NOT_UP, f"not deleted: store {store.id} is {store.state}, or has not reported of late")
    elif nowhere is not None or not others_take_leaders(view, store.id):
        detail = nowhere.detail if nowhere is not None else "leaders are being taken off every other store"
        end = End(Reason.ONE_STORE, f"not deleted: {detail}")
    else:
        return None
    return NextStep(step=DELETE, end=end)


def _is_own(mark: Mark | None, here: Situation) -> bool:
    return mark is not None and mark.pod_uid == here.asked_uid


def _first_mark(here: Situation, view: PdView, pod: Pod) -> Mark:
    operator = here.running.operator
    return Mark(
        operator=operator.id,
        source=operator.source,
        reason=operator.reason,
        detail=operator.detail,
        step=DELETING,
        since=here.now,
        pod_uid=pod.uid,
        pod_create_time=rfc3339(pod.created_at),
        store_id=here.store_id,
        node=pod.node,
        value=DELETE_POD,
        deadline=operator.deadline,
        pd=view.life,
        pd_id=str(view.cluster_id or ""),
    )


def another_pd(tc: TidbCluster, view: PdView) -> str:
    """The PD that answers is not the one that tidb-operator sees there; "": it is, or one of them did not say."""
    if not tc.pd_id or not view.cluster_id or tc.pd_id == view.cluster_id:
        return ""
    return f"the PD that answers has cluster id {view.cluster_id}, and that of {tc.key} is {tc.pd_id}"


def rolling(tc: TidbCluster) -> str:
    """A rolling update by tidb-operator, which restarts members regardless of others; "" when none is under way."""
    if tc.updating:
        return "tidb-operator brings members up to date"
    return (
        "TiKV is in phase Upgrade, and tidb-operator restarts its members itself" if tc.tikv_phase == "Upgrade" else ""
    )


def _await(here: Situation, world: WorldRead) -> NextStep:
    if is_back(here):
        node = here.pod.node if here.pod is not None else ""
        return NextStep(step=AWAIT, end=End(Reason.DONE, f"{here.name} is Ready on {node}, its store is Up"))
    if here.pod is None and not here.wanted:
        return NextStep(step=AWAIT, end=End(Reason.SUBJECT_GONE, f"{here.name} was scaled in"))
    pod = here.pod
    unbound = pod is not None and pod.uid != here.asked_uid and not pod.node
    if unbound and here.tc is not None and here.tc.v2 and asks_again(here):
        here.notes["born_asking"] = 1.0  # a pod is not annotated by hand before it has a node
    waiting_on = awaited(here, world)
    return NextStep(
        step=AWAIT,
        progress=waiting_on.detail,
        waiting_on=waiting_on,
        refreshes=(PdRefresh(here.cluster, here.now + min(5.0, here.policy.recheck_s)),),
    )


def _wait(here: Situation, on: Verdict) -> NextStep:
    return NextStep(
        step=DELETE,
        waiting_on=on,
        refreshes=(PdRefresh(here.cluster, here.now + here.policy.recheck_s),),
        again_at=here.now + here.policy.recheck_s,
    )
