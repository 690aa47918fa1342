"""Deleting a TiKV pod whose store is proven empty, and waiting for its successor: the `restart-tikv` operator.

    released ──► proven once more ──► marked ──► deleted ──► new pod Ready, store Up ──► ended
                      │
                      └── leaders came back · annotation removed · nowhere to come back to · another member away:
                          ended, nothing deleted, and proposed again when that is over

The proof is made anew, on looks at PD that began after the release: PD may have restarted or failed over since the
eviction was proven, and a PD that has just begun may give leaders to a store before it evicts them again.
"""

import msgspec

from mooring.capabilities.handoff.eviction import prove
from mooring.capabilities.handoff.facts import members_away
from mooring.capabilities.handoff.mark import put_mark
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.proof import doubt
from mooring.capabilities.handoff.requests import DELETE_POD
from mooring.capabilities.handoff.situation import DELETING, Scene, awaited, is_back, observe
from mooring.core.model.decision import End, NextStep, PdRefresh, Running, Verdict
from mooring.core.model.instructions import DeletePod, EmitEvent
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Step, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import TidbCluster
from mooring.core.world.read import WorldRead

KIND = "restart-tikv"
STEPS = (Step(StepKind.DELETE_POD), Step(StepKind.AWAIT_READY))
DELETE, AWAIT = range(2)


def next_restart_step(running: Running, world: WorldRead, policy: HandoffPolicy, now: float) -> NextStep:
    scene = observe(running, world, policy, now)
    if scene.tc is None:
        return NextStep(step=running.step, end=End(Reason.CLUSTER_GONE, f"TidbCluster {scene.cluster} is gone"))
    pod = scene.pod
    if pod is None or pod.uid != scene.asked_uid or pod.terminating:
        return _await(scene, world, policy)
    if running.off:
        return NextStep(step=DELETE, end=End(Reason.FEATURE_OFF, "handoff was switched off before the pod was deleted"))
    if scene.wish is None or scene.wish.value != DELETE_POD:
        return NextStep(
            step=DELETE, end=End(Reason.WITHDRAWN, "the wish to restart was withdrawn before the pod was deleted")
        )
    if scene.stuck is not None:
        # Ended, not held: a restart that waits for a person would keep every other member's waiting, too.
        return NextStep(step=DELETE, end=End(Reason.LOCAL_VOLUME, f"not deleted: {scene.stuck.detail}"))
    if scene.lost or scene.view is None:
        return _wait(scene, policy, scene.lost or "PD has not been looked at yet")
    if scene.seen_at <= max(running.promoted_at, running.acted_at):
        return NextStep(step=DELETE, refreshes=(PdRefresh(scene.cluster, now),))
    doubted = doubt(scene.view, scene.store_id, now, heartbeat_s=policy.heartbeat_s, young_s=policy.young_pd_s)
    if doubted is not None:
        return NextStep(step=DELETE, end=End(doubted.reason, f"not deleted: {doubted.detail}"))
    proven_at = prove(running, scene, scene.view, policy)
    if proven_at is not None:
        return NextStep(
            step=DELETE, progress="empty, looking once more", refreshes=(PdRefresh(scene.cluster, proven_at),)
        )
    mark = scene.mark
    if mark is None:
        return NextStep(step=DELETE, end=End(Reason.CANCELED, "the mark of the hand-over is gone"))
    if rolling(scene.tc):
        return NextStep(step=DELETE, end=End(Reason.SETTLING, f"not deleted: {rolling(scene.tc)}"))
    # Room was given when this was released, and that was some looks ago.
    pods = {p.name: p for p in world.tidb_pods(scene.cluster, "tikv")}
    away = members_away(scene.tc, pods, scene.view, now, policy.heartbeat_s)
    missing = next((fact for fact in away if fact.subject != running.operator.subject), None)
    if missing is not None:
        return NextStep(step=DELETE, end=End(Reason.FACT, f"not deleted: {missing.detail}"))
    if mark.step != DELETING or mark.restart != running.operator.id:
        begun = msgspec.structs.replace(mark, step=DELETING, restart=running.operator.id)
        return NextStep(
            step=DELETE,
            instructions=(put_mark(scene.tc, scene.marks or {}, scene.name, begun, "marks the deletion"),),
            refreshes=(PdRefresh(scene.cluster, now),),
        )
    # `evict=False`: a PodDisruptionBudget knows nothing of leaders; the rules above are stricter.
    delete = DeletePod(key=pod.key, uid=pod.uid, evict=False, why="its store is proven empty")
    text = f"deleted by Mooring ({running.operator.detail}): its store {scene.store_id} is proven empty"
    told = EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=running.operator.reason, message=text)
    return NextStep(step=DELETE, instructions=(delete, told))


def rolling(tc: TidbCluster) -> str:
    """tidb-operator's rolling update takes members away without asking who else is; "" when none is under way."""
    return (
        "TiKV is in phase Upgrade, and tidb-operator restarts its members itself" if tc.tikv_phase == "Upgrade" else ""
    )


def _await(scene: Scene, world: WorldRead, policy: HandoffPolicy) -> NextStep:
    if is_back(scene, policy):
        node = scene.pod.node if scene.pod is not None else ""
        return NextStep(step=AWAIT, end=End(Reason.DONE, f"{scene.name} is Ready on {node}, its store is Up"))
    if scene.pod is None and not scene.wanted:
        return NextStep(step=AWAIT, end=End(Reason.SUBJECT_GONE, f"{scene.name} was scaled in"))
    waiting_on = awaited(scene, world)
    return NextStep(
        step=AWAIT,
        progress=waiting_on.detail,
        waiting_on=waiting_on,
        refreshes=(PdRefresh(scene.cluster, scene.now + min(5.0, policy.recheck_s)),),
    )


def _wait(scene: Scene, policy: HandoffPolicy, detail: str) -> NextStep:
    return NextStep(
        step=DELETE,
        waiting_on=Verdict(State.WAITING, Reason.PD_UNREACHABLE, detail),
        refreshes=(PdRefresh(scene.cluster, scene.now + policy.recheck_s),),
        again_at=scene.now + policy.recheck_s,
    )
