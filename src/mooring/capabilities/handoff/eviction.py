"""Taking leaders off a store and keeping them off: the state machine of the `evict-leaders` operator.

    recorded ──► evicting ──► proven empty ──► (restart deletes the pod) ──► new pod Ready, store Up ──► ended
       │            │              │                                                                      ▲
       │            ▼              ▼                                                                      │
       └── annotation removed · expired · timeout · store id changed · scaled in · one store · stuck ─────┘
                            each way out: scheduler removed from PD, then mark and status entry cleared

`next_eviction_step` is a pure function of what is observed. Each call finds its place in the diagram, so a crash at
any point resumes: the mark says what was begun, PD says what is on, the pod says whether it is back.

    mark absent ............................ write it (compare-and-swap), with what PD evicted before us
    mark there, scheduler absent ........... add it
    scheduler there, leaders left .......... look again
    proven empty ........................... hold; `restart` follows when the wish is to delete the pod
    pod is another one, Ready, store Up .... end
"""

import zlib

import msgspec

from mooring.capabilities.handoff.mark import clear_mark, put_mark, replace_with_memory, rfc3339
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.progress import note_leaders, pace_of
from mooring.capabilities.handoff.proof import doubt
from mooring.capabilities.handoff.requests import DELETE_POD, EXPIRATION, without_wishes
from mooring.capabilities.handoff.situation import (
    GAVE_UP,
    Scene,
    awaited,
    is_back,
    observe,
    others_take_leaders,
    others_up,
)
from mooring.core.model.cluster import Pod
from mooring.core.model.decision import End, NextStep, PdRefresh, Running, Verdict
from mooring.core.model.instructions import AddEvictLeader, EmitEvent, Instruction, Patch, RemoveEvictLeader
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import Mark
from mooring.core.model.operator import Step, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdView, TidbCluster
from mooring.core.world.read import WorldRead

KIND = "evict-leaders"
STEPS = (Step(StepKind.EVICT_LEADERS), Step(StepKind.HOLD_EMPTY), Step(StepKind.END_EVICTION))
EVICT, HOLD, END = range(3)
#: What to look at when leaders do not move.
STUCK = "pd-ctl region check down-peer, pending-peer or miss-peer; pd-ctl config show (leader-schedule-limit)"
LOOP = "remove it there (spec.tikv.annotations), it would be restarted for ever"
#: The second look comes no sooner than this.
AGAIN_S = 0.1
#: A look this old still says what was there before us; looks come a minute apart while nothing is asked.
FRESH_S = 2.0
#: An operator of these was read from a mark: it had begun.
FROM_MARKS = frozenset({Reason.RESUMED, Reason.SWEPT})
#: Reasons that only a person ends. The look that finds them tells them, for as long as they hold.
TOLD = frozenset({Reason.ONE_STORE, Reason.LOCAL_VOLUME})


def next_eviction_step(
    running: Running, world: WorldRead, policy: HandoffPolicy, now: float, *, restarting: bool = False
) -> NextStep:
    scene = observe(running, world, policy, now, restarting=restarting)
    if scene.marks is None:
        return _unreadable(running, scene, policy)
    if scene.mark is not None:
        running.notes["not_ours" if scene.not_ours else "ours"] = 1.0
    end = _exit(running, scene, policy)
    if end is not None:
        return _leave(running, scene, policy, end)
    if _expects_pod(scene):
        return _await_pod(running, scene, world, policy)
    if scene.lost or scene.view is None:
        return _wait(running, scene, policy, Reason.PD_UNREACHABLE, scene.lost or "PD has not been looked at yet")
    if scene.view.evicting is None:
        return _wait(
            running, scene, policy, Reason.PD_UNSURE, "PD cannot say which stores it evicts (it has just started)"
        )
    if scene.mark is None:
        if scene.seen_at < running.promoted_at - FRESH_S:
            # What is there before us is asked now: the last look may be older than a person's pd-ctl.
            return NextStep(step=EVICT, refreshes=(PdRefresh(scene.cluster, now),))
        return _record(running, scene, scene.view.evicting, policy)
    if scene.store_id not in scene.view.evicting:
        if scene.seen_at <= running.acted_at:
            return NextStep(step=EVICT, refreshes=(PdRefresh(scene.cluster, now),))
        return _add(running, scene, EVICT, f"takes the leaders off store {scene.store_id}")
    return _watch_leaders(running, scene, scene.view, policy)


# ── On the way ────────────────────────────────────────────────────────────────────────────────────────────────────


def _record(running: Running, scene: Scene, evicting: tuple[int, ...], policy: HandoffPolicy) -> NextStep:
    """Write down what is about to begin, and what PD evicted before us."""
    assert scene.tc is not None
    operator = running.operator
    if scene.pod is None or scene.wish is None:
        # Its restart has been released, and the mark was taken away together with the wish: that one ends first.
        return _wait(running, scene, policy, Reason.WITHDRAWN, "the mark and the wish are gone")
    others = [name for name, m in (scene.marks or {}).items() if name != scene.name and _holds_eviction(m)]
    if others and operator.phases[0].get(f"evicting/{scene.cluster}"):
        # Another leader's doing, in a moment of overlap: its mark is on the object both must swap.
        return _wait(running, scene, policy, Reason.BEHIND, f"{', '.join(sorted(others))} is marked as handing over")
    mark = Mark(
        operator=operator.id,
        source=operator.source,
        reason=operator.reason,
        detail=operator.detail,
        step=StepKind.EVICT_LEADERS,
        since=scene.now,
        pod_uid=scene.pod.uid,
        pod_create_time=rfc3339(scene.pod.created_at),
        store_id=scene.store_id,
        node=scene.pod.node,
        value=scene.wish.value,
        deadline=operator.deadline,
        before={"evicting": "true"} if scene.store_id in evicting and "added" not in running.notes else {},
    )
    then = "then the pod is deleted" if scene.wish.value == DELETE_POD else "and stay off while the annotation is there"
    begins = EmitEvent(
        kind=Kind.POD,
        key=scene.pod.key,
        uid=scene.pod.uid,
        reason=operator.reason,
        message=f"leaders leave store {scene.store_id} ({operator.detail}), {then}",
    )
    return NextStep(
        step=EVICT,
        instructions=(put_mark(scene.tc, scene.marks or {}, scene.name, mark, "marks the hand-over"), begins),
    )


def _add(running: Running, scene: Scene, step: int, why: str) -> NextStep:
    """PD does not evict that store (any more). Where somebody's own scheduler is gone, what we add now is ours to end,
    and the mark says so first."""
    assert scene.tc is not None
    assert scene.mark is not None
    phase = 1 if step == HOLD else None
    if scene.not_ours:
        ours = msgspec.structs.replace(scene.mark, before={})
        swap = put_mark(scene.tc, scene.marks or {}, scene.name, ours, "the scheduler that was there before is gone")
        return NextStep(step=step, phase=phase, instructions=(swap,))
    running.notes["added"] = 1.0
    add = AddEvictLeader(cluster=scene.cluster, store_id=scene.store_id, why=why)
    return NextStep(step=step, phase=phase, instructions=(add,), refreshes=(PdRefresh(scene.cluster, scene.now + 1.0),))


def _watch_leaders(running: Running, scene: Scene, view: PdView, policy: HandoffPolicy) -> NextStep:
    doubted = doubt(view, scene.store_id, scene.now, heartbeat_s=policy.heartbeat_s, young_s=policy.young_pd_s)
    notes = running.notes
    if doubted is not None:
        notes.pop("zero_at", None)
        if doubted.leaders is None:
            return _wait(running, scene, policy, doubted.reason, doubted.detail)
        note_leaders(notes, doubted.leaders, scene.seen_at)
        pace = pace_of(notes)
        return NextStep(
            step=EVICT,
            progress=pace.words if pace is not None else "",
            figure=float(doubted.leaders),
            waiting_on=Verdict(State.WAITING, Reason.LEADERS_LEFT, pace.stuck, STUCK) if pace and pace.stuck else None,
            refreshes=(PdRefresh(scene.cluster, scene.now + policy.recheck_s),),
        )
    if running.step == HOLD:
        return _hold(scene, policy)
    proven_at = prove(running, scene, view, policy)
    if proven_at is not None:
        return NextStep(
            step=EVICT, progress="0 leaders left, looking once more", refreshes=(PdRefresh(scene.cluster, proven_at),)
        )
    return _hold(scene, policy)


def prove(running: Running, scene: Scene, view: PdView, policy: HandoffPolicy) -> float | None:
    """Zero must last, seen from one PD. When the next look would prove it; None: it is proven."""
    notes = running.notes
    # One life of one PD, with no fewer regions than before: else what is known is still coming in.
    life = float(view.start_timestamp * 1000 + zlib.crc32(view.leader.encode()) % 1000)
    if notes.get("zero_at") is None or notes.get("zero_pd") != life or view.region_count < notes.get("regions", 0.0):
        notes["zero_at"], notes["zero_pd"] = scene.seen_at, life
    notes["regions"] = float(view.region_count)
    at = notes["zero_at"] + policy.prove_s
    if scene.seen_at == notes["zero_at"]:
        return max(at, scene.now + AGAIN_S)  # seen once is not seen twice, however short it need last
    return at if scene.seen_at < at else None


def _hold(scene: Scene, policy: HandoffPolicy) -> NextStep:
    waits_for_restart = scene.wish is not None and scene.wish.value == DELETE_POD
    every = policy.recheck_s if waits_for_restart else policy.idle_s
    return NextStep(
        step=HOLD, phase=1, progress="empty, leaders kept off", refreshes=(PdRefresh(scene.cluster, scene.now + every),)
    )


def _await_pod(running: Running, scene: Scene, world: WorldRead, policy: HandoffPolicy) -> NextStep:
    """Leaders stay away until the new pod is Ready and its store is Up."""
    pod = scene.pod
    if _ended_by_others(running, scene):
        return _add(running, scene, HOLD, f"keeps the leaders off store {scene.store_id}")
    if pod is not None and not pod.node and pod.uid != scene.asked_uid and _asks_again(scene):
        running.notes["born_asking"] = 1.0  # nobody annotates a pod before it has a node
    waiting_on = None if is_back(scene, policy) else awaited(scene, world)
    return NextStep(
        step=HOLD,
        phase=1,
        progress=waiting_on.detail if waiting_on is not None else "back",
        refreshes=(PdRefresh(scene.cluster, scene.now + min(5.0, policy.recheck_s)),),
        waiting_on=waiting_on,
    )


# ── Ways out ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _exit(running: Running, scene: Scene, policy: HandoffPolicy) -> End | None:
    """Why this eviction should end now; None while it should go on."""
    if scene.tc is None:
        return End(Reason.CLUSTER_GONE, f"TidbCluster {scene.cluster} is gone")
    pod = scene.pod
    ours = pod is not None and pod.uid == scene.asked_uid
    if not ours or scene.begun:
        if not scene.wanted and pod is None:
            return End(Reason.SUBJECT_GONE, f"{scene.name} was scaled in")
        if not ours and pod is not None and is_back(scene, policy):
            return End(Reason.DONE, f"{scene.name} is back and Ready, its store is Up")
        return None
    assert pod is not None
    if scene.restarting:
        return None
    if running.off:
        return End(Reason.FEATURE_OFF, "handoff was switched off")
    if scene.wish is None and "expired" in running.notes:
        return End(Reason.EXPIRED, f"annotation {EXPIRATION} has passed")  # it was us who removed the annotation
    if scene.wish is None:
        return End(Reason.WITHDRAWN, "the annotation was removed")
    if scene.wish.expired(scene.now):
        return End(Reason.EXPIRED, f"annotation {EXPIRATION} has passed")
    if scene.wish.value != running.operator.args["value"]:
        return End(Reason.WITHDRAWN, f"the wish changed to {scene.wish.value}")
    if scene.stuck is not None and scene.wish.may_wait:
        return End(Reason.LOCAL_VOLUME, f"the leaders may stay: {scene.stuck.detail}")
    if scene.view is not None and not scene.lost:
        store = scene.store
        if store is not None and store.id != scene.store_id:
            return End(Reason.STORE_CHANGED, f"{scene.name} is store {store.id} now, was {scene.store_id}")
        if not others_up(scene.view, scene.store_id):
            return End(Reason.ONE_STORE, f"no other store is there to take the leaders of {scene.name}")
        if scene.mark is None and not others_take_leaders(scene.view, scene.store_id):
            return End(Reason.ONE_STORE, f"the leaders of {scene.name} may stay: all other stores are being evicted")
    if scene.wish.value == DELETE_POD and scene.now - running.promoted_at > policy.timeout_s:
        return End(Reason.TIMEOUT, f"leaders did not leave within {policy.timeout_s:.0f} s", failed=True)
    return None


def _leave(running: Running, scene: Scene, policy: HandoffPolicy, end: End) -> NextStep:
    """Scheduler out of PD first, then mark and status: a crash in between resumes here."""
    view = scene.view
    added = "added" in running.notes
    if scene.tc is not None and scene.mark is None and not added:
        # Nothing was begun, or everything is undone and seen to be so.
        return NextStep(step=END, end=end)
    if scene.tc is None:
        return _leave_ruins(running, scene, end)
    if scene.lost or view is None or view.evicting is None:
        return _wait(
            running, scene, policy, Reason.PD_UNREACHABLE, scene.lost or "PD cannot say which stores it evicts"
        )
    if not scene.not_ours:
        if scene.seen_at <= max(running.acted_at, running.promoted_at):
            return NextStep(step=END, refreshes=(PdRefresh(scene.cluster, scene.now),))
        if scene.store_id in view.evicting:
            remove = RemoveEvictLeader(
                cluster=scene.cluster, store_id=scene.store_id, why=f"lets leaders return to store {scene.store_id}"
            )
            return NextStep(step=END, instructions=(remove,), refreshes=(PdRefresh(scene.cluster, scene.now + 1.0),))
    running.notes.pop("added", None)
    if scene.mark is None:
        return NextStep(step=END, end=end)
    assert scene.marks is not None
    instructions: list[Instruction] = []
    if end.reason == Reason.EXPIRED and scene.pod is not None and scene.wish is not None:
        running.notes["expired"] = 1.0
        instructions.append(drop_wishes(scene.pod, policy))
    if "born_asking" in running.notes and _asks_again(scene):
        detail = f"the new {scene.name} came with the wish again, from its template: {LOOP}"
        end = End(Reason.MISCONFIGURED, detail, failed=True)
    if end.failed:
        uid = scene.pod.uid if scene.pod is not None else scene.mark.pod_uid
        memory = msgspec.structs.replace(scene.mark, step=GAVE_UP, reason=end.reason, detail=end.detail, pod_uid=uid)
        instructions.append(
            replace_with_memory(scene.tc, scene.marks, scene.name, memory, "remembers what was given up")
        )
        if scene.pod is not None:
            instructions.append(_warn(scene.pod, end))
        return NextStep(step=END, instructions=tuple(instructions))
    instructions.append(clear_mark(scene.tc, scene.marks, scene.name, "clears the mark of the hand-over"))
    if end.reason not in TOLD:
        instructions.append(_tell_end(scene, scene.tc, end))
    return NextStep(step=END, instructions=tuple(instructions))


def _leave_ruins(running: Running, scene: Scene, end: End) -> NextStep:
    """The cluster is gone, and the mark with it. Its PD may outlive it for a while: ask it three times, then let go."""
    tries = running.notes.get("tries", 0.0)
    if "ours" not in running.notes and ("not_ours" in running.notes or running.operator.reason not in FROM_MARKS):
        return NextStep(step=END, end=end)  # nothing of it is ours to end
    if running.acted_at > 0.0 and tries > 0.0 and running.acted_at >= running.notes["tried_at"]:
        return NextStep(step=END, end=end)
    if tries >= 3:
        return NextStep(step=END, end=msgspec.structs.replace(end, detail=f"{end.detail}, and its PD with it"))
    running.notes["tries"], running.notes["tried_at"] = tries + 1, scene.now
    remove = RemoveEvictLeader(cluster=scene.cluster, store_id=scene.store_id, why="the cluster is gone")
    return NextStep(step=END, instructions=(remove,))


def drop_wishes(pod: Pod, policy: HandoffPolicy) -> Patch:
    gone = without_wishes(pod, leave_to_tidb_operator=policy.leave_to_tidb_operator)
    patch = {"metadata": {"annotations": gone}}
    return Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch=patch, why="the wish has expired")


def _tell_end(scene: Scene, tc: TidbCluster, end: End) -> EmitEvent:
    """On the pod that is there now, else on its cluster: whoever looks at either reads how it ended."""
    text = f"{end.detail}; leaders may return to store {scene.store_id}"
    if scene.pod is not None:
        return EmitEvent(kind=Kind.POD, key=scene.pod.key, uid=scene.pod.uid, reason=end.reason, message=text)
    return EmitEvent(kind=Kind.TIDB_CLUSTER, key=tc.key, uid=tc.uid, reason=end.reason, message=text)


def _warn(pod: Pod, end: End) -> EmitEvent:
    return EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=end.reason, message=end.detail, warning=True)


# ── Small questions ───────────────────────────────────────────────────────────────────────────────────────────────


def _expects_pod(scene: Scene) -> bool:
    """The pod that was asked about is gone, by us or by others: its successor decides."""
    return scene.begun or scene.pod is None or scene.pod.uid != scene.asked_uid


def _ended_by_others(running: Running, scene: Scene) -> bool:
    """Somebody ended our eviction while the pod is away (tidb-operator does, after an upgrade)."""
    view, mark = scene.view, scene.mark
    if view is None or scene.lost or view.evicting is None or mark is None or not scene.begun:
        return False
    if scene.store_id in view.evicting:
        return False
    return scene.seen_at > running.acted_at and any(s.id == scene.store_id for s in view.stores)


def _asks_again(scene: Scene) -> bool:
    return scene.wish is not None and scene.wish.value == DELETE_POD and scene.wish.may_wait


def _holds_eviction(mark: Mark) -> bool:
    return mark.step != GAVE_UP and mark.value == DELETE_POD


def _unreadable(running: Running, scene: Scene, policy: HandoffPolicy) -> NextStep:
    detail = "annotation mooring.dev/handoff cannot be read; left alone"
    remedy = f"kubectl -n {scene.cluster.namespace} annotate tc {scene.cluster.name} mooring.dev/handoff-"
    waiting_on = Verdict(State.BLOCKED, Reason.MISCONFIGURED, detail, remedy)
    return NextStep(step=running.step, waiting_on=waiting_on, again_at=scene.now + policy.recheck_s)


def _wait(running: Running, scene: Scene, policy: HandoffPolicy, reason: Reason, detail: str) -> NextStep:
    return NextStep(
        step=running.step,
        waiting_on=Verdict(State.WAITING, reason, detail),
        refreshes=(PdRefresh(scene.cluster, scene.now + policy.recheck_s),),
    )
