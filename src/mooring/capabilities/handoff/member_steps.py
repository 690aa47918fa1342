"""What is next for the `restart-member` and `transfer-pd-leader` operators: the diagram is in `members`."""

from mooring.capabilities.drain.leaders import may_be_lost
from mooring.capabilities.drain.readiness import blocked_by_budget
from mooring.capabilities.drain.request import put_mark, request_of, withdraw
from mooring.capabilities.drain.room import stuck_volume
from mooring.capabilities.handoff.member_operators import (
    LOOK_S,
    SOURCE,
    TRANSFER,
    is_available,
    leads,
    member_payload,
    member_request,
    missing_members,
    own_mark,
    successor,
)
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.requests import DELETE_POD, NONE, RESTART, unattended
from mooring.capabilities.handoff.situation import is_short
from mooring.core.model.cluster import Key, Pod
from mooring.core.model.decision import PD_NOT_SEEN, End, NextStep, OperatorRecord, PdRefresh, Verdict
from mooring.core.model.instructions import DeletePod, EmitEvent, Patch, TransferPdLeader
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import Mark
from mooring.core.model.operator import StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import TidbCluster, pd_member_name
from mooring.core.world.read import WorldRead


def next_member_step(running: OperatorRecord, world: WorldRead, policy: HandoffPolicy, now: float) -> NextStep:
    payload = member_payload(running.operator)
    namespace, _, name = payload.pod.partition("/")
    cluster = Key(namespace, payload.cluster.partition("/")[2])
    tc, pod = world.tidb_cluster(cluster), world.pod(Key(namespace, name))
    delete = len(running.operator.steps) - 2
    if tc is None:
        return NextStep(step=running.step, end=End(Reason.CLUSTER_GONE, f"TidbCluster {cluster} is gone"))
    if pod is None or pod.uid != payload.uid or pod.terminating:
        return _await(running, tc, pod, world, now)
    request = member_request(pod, payload.component, policy)
    if running.off or request is None or request.expired(now) or request.value != payload.value:
        return _give_up(running, pod)
    unsettled = _unsettled(tc)
    if unsettled:
        return _wait(running.step, Reason.SETTLING, unsettled, now)
    if payload.component == "pd":
        before = _transfer_pd_leadership(running, world, cluster, pod, now)
        if before is not None:
            return before
        if request.value == NONE:
            return NextStep(step=0, end=End(Reason.DONE, f"{name} does not lead PD"))
    stuck = stuck_volume(pod, world)
    if stuck is not None:
        # Ended, not blocked: an operator that waits for a person here would make every other member wait, too.
        return _give_up(running, pod, End(Reason.LOCAL_VOLUME, f"not deleted: {stuck.detail}"))
    kept = blocked_by_budget(pod, world)
    if kept is not None:
        return NextStep(step=delete, waiting_on=kept, again_at=now + LOOK_S)
    # Room was checked at promotion; members that have gone away since are counted again.
    pods = {p.name: p for p in world.tidb_pods(cluster, payload.component)}
    view = None if world.pd_lost(cluster) else world.pd(cluster)
    away = missing_members(tc, payload.component, pods, view, world, now)
    missing = next((fact for fact in away if fact.subject != running.operator.subject), None)
    if missing is not None:
        return _wait(delete, Reason.FACT, missing.detail, now)
    # A mark that was copied from another pod tells the next leader nothing about this one.
    if request_of(pod) is None:
        return NextStep(step=delete, instructions=(_mark(running, pod, now),))
    if request.prepares:
        ready = Verdict(State.WAITING, Reason.PREPARED, f"{name} leads nothing, and its eviction may take it")
        notes = {"prepared_at": running.notes.get("prepared_at", now)}
        refreshes = (PdRefresh(cluster, now + LOOK_S),)
        return NextStep(step=delete, waiting_on=ready, notes=notes, refreshes=refreshes, again_at=now + LOOK_S)
    evict = DeletePod(key=pod.key, uid=pod.uid, why=f"{name} was asked to leave, and leads nothing")
    return NextStep(step=delete, instructions=(evict,))


def _transfer_pd_leadership(
    running: OperatorRecord, world: WorldRead, cluster: Key, pod: Pod, now: float
) -> NextStep | None:
    """Leadership of PD first, seen to have moved on a look that began after the last write; None: it leads nothing."""
    view, lost = world.pd(cluster), world.pd_lost(cluster)
    if lost or view is None:
        refreshes = (PdRefresh(cluster, now + LOOK_S),)
        return NextStep(step=0, waiting_on=lost or PD_NOT_SEEN, refreshes=refreshes, again_at=now + LOOK_S)
    if (world.pd_observed_at(cluster) or 0.0) <= max(running.promoted_at, running.acted_at):
        return NextStep(step=running.step, refreshes=(PdRefresh(cluster, now),))
    if not leads(view, pod) or (running.operator.kind != TRANSFER and may_be_lost(view, pod)):
        return None
    unready = {pd_member_name(p) for p in world.tidb_pods(cluster, "pd") if p.terminating or not p.ready}
    heir = successor(view, pod, unready)
    if heir is None:
        return _wait(0, Reason.QUORUM, f"no other PD member can lead instead of {pod.name}", now, state=State.BLOCKED)
    transfer = TransferPdLeader(cluster=cluster, to=heir.name, why=f"hands PD's leadership from {pod.name} on")
    return NextStep(step=0, instructions=(transfer,), refreshes=(PdRefresh(cluster, now + 1.0),))


def _await(running: OperatorRecord, tc: TidbCluster, pod: Pod | None, world: WorldRead, now: float) -> NextStep:
    payload = member_payload(running.operator)
    name, component = payload.pod.partition("/")[2], payload.component
    last = len(running.operator.steps) - 1
    new = pod is not None and pod.uid != payload.uid and not pod.terminating
    if pod is not None and new and RESTART in pod.annotations:
        return NextStep(step=last, instructions=_not_again(pod, component), again_at=now + LOOK_S)
    if pod is not None and new and is_available(pod, world, now):
        return NextStep(step=last, end=End(Reason.DONE, f"{name} is Ready on {pod.node}"))
    wanted = tc.ordinals(component)
    if pod is None and wanted is not None and name not in {f"{tc.name}-{component}-{i}" for i in wanted}:
        return NextStep(step=last, end=End(Reason.SUBJECT_GONE, f"{name} was scaled in"))
    if pod is None and tc.v2 and not is_short(tc, component, len(world.tidb_pods(tc.key, component))):
        return NextStep(step=last, end=End(Reason.SUBJECT_GONE, f"{name} was scaled in"))
    if running.operator.kind == TRANSFER:
        return NextStep(step=last, end=End(Reason.SUBJECT_GONE, f"the {name} that was asked about is gone"))
    return _wait(last, Reason.POD_NOT_READY, f"{name} is not back yet", now)


def _not_again(pod: Pod, component: str) -> tuple[Patch, EmitEvent]:
    """Its template hands the request to every new pod: followed, it would be restarted for ever."""
    patch = {"metadata": {"annotations": {RESTART: None}}}
    words = f"it came with {RESTART} from its template; remove it there (spec.{component}.annotations)"
    return (
        Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch=patch, why="it has just been restarted"),
        EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=Reason.MISCONFIGURED, message=words, warning=True),
    )


def _give_up(running: OperatorRecord, pod: Pod, why: End | None = None) -> NextStep:
    if own_mark(pod) is not None:
        return NextStep(step=running.step, instructions=(withdraw(pod, f"{pod.name} may stay"),))
    if why is not None:
        return NextStep(step=running.step, end=why)
    if running.off:
        return NextStep(step=running.step, end=End(Reason.FEATURE_OFF, "handoff was switched off"))
    return NextStep(step=running.step, end=End(Reason.WITHDRAWN, "the request was withdrawn or has expired"))


def _mark(running: OperatorRecord, pod: Pod, now: float) -> Patch:
    operator = running.operator
    mark = Mark(
        operator=operator.id,
        source=SOURCE,
        reason=operator.reason,
        detail=operator.detail,
        step=StepKind.DELETE_POD,
        since=now,
        pod_uid=pod.uid,
        node=pod.node,
        value=DELETE_POD,
        deadline=operator.deadline,
    )
    return put_mark(pod, mark, f"marks {pod.name} as leaving")


def _wait(
    step: int,
    reason: Reason,
    detail: str,
    now: float,
    *,
    state: State = State.WAITING,
    refreshes: tuple[PdRefresh, ...] = (),
) -> NextStep:
    return NextStep(step=step, waiting_on=Verdict(state, reason, detail), refreshes=refreshes, again_at=now + LOOK_S)


def _unsettled(tc: TidbCluster) -> str:
    if tc.unattended:
        return unattended(tc)[0]
    if tc.updating:
        return "tidb-operator brings members up to date"
    phases = {"PD": tc.pd_phase, "TiKV": tc.tikv_phase, "TiDB": tc.tidb_phase}
    busy = [f"{name} is in phase {phase}" for name, phase in phases.items() if phase in {"Upgrade", "Scale"}]
    return "; ".join(busy)
