"""PD and TiDB pods leave gently too: the `restart-member` and `transfer-pd-leader` operators.

    asked ──► [PD leads? leadership handed on, seen to have moved] ──► marked ──► evicted ──► new pod Ready ──► ended
                 │                                                       │
                 └── no other member to lead: held, nothing deleted      └── wish withdrawn: mark cleared, ended

`tidb.pingcap.com/pd-transfer-leader` and `tidb.pingcap.com/tidb-graceful-shutdown` take `none` and `delete-pod`; an
unknown value acts as `none`. `none` on a PD pod only hands leadership on; on a TiDB pod there is nothing to do. A
`mooring.dev/leaving` mark of fleet, mix or spot on a PD pod is the same wish as `delete-pod`.

Room is the workload's: one member away at a time, and members that are missing take it up as facts. Nothing here needs
undoing but the mark: leadership that has moved may stay where it is.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from mooring.capabilities.drain.evict import NODE_COST, blocked_by_budget
from mooring.capabilities.drain.readiness import is_ready
from mooring.capabilities.drain.volumes import stuck_volume
from mooring.capabilities.handoff.facts import pod_subject
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.requests import ALLOWED, DELETE_POD, NONE, Wish, expiry_of, leaving_wish, legible
from mooring.core.model.cluster import Key, Pod
from mooring.core.model.decision import End, Fact, NextStep, PdRefresh, Recovered, Running, Verdict, Withdrawal
from mooring.core.model.instructions import DeletePod, EmitEvent, Instruction, Patch, TransferPdLeader
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, Mark, read_mark, write_mark
from mooring.core.model.operator import NO_COST, Operator, Step, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdMember, PdView, TidbCluster
from mooring.core.queue import Queue
from mooring.core.world.read import WorldRead

RESTART: Final = "restart-member"
TRANSFER: Final = "transfer-pd-leader"
KINDS: Final = frozenset({RESTART, TRANSFER})
COMPONENTS: Final = ("pd", "tidb")

PD_TRANSFER_LEADER: Final = "tidb.pingcap.com/pd-transfer-leader"
PD_EXPIRATION: Final = "tidb.pingcap.com/pd-evict-leader-expiration-time"
TIDB_GRACEFUL_SHUTDOWN: Final = "tidb.pingcap.com/tidb-graceful-shutdown"
_KEYS: Final[Mapping[str, str]] = {"pd": PD_TRANSFER_LEADER, "tidb": TIDB_GRACEFUL_SHUTDOWN}

#: Steps by component: only PD has leadership to hand on.
_STEPS: Final[Mapping[str, tuple[Step, ...]]] = {
    "pd": (Step(StepKind.TRANSFER_PD_LEADER), Step(StepKind.DELETE_POD), Step(StepKind.AWAIT_READY)),
    "tidb": (Step(StepKind.DELETE_POD), Step(StepKind.AWAIT_READY)),
}
SOURCE: Final = "handoff"
LOOK_S: Final = 2.0


def member_wish(pod: Pod, component: str, policy: HandoffPolicy) -> Wish | None:
    """What is asked of a PD or TiDB pod, or None."""
    leaving = leaving_wish(pod) if component == "pd" else None
    if leaving is not None and leaving.source != SOURCE:
        return leaving
    key = _KEYS[component]
    if policy.leave_to_tidb_operator or key not in pod.annotations:
        return None
    value = pod.annotations[key]
    return Wish(
        value=DELETE_POD if value == DELETE_POD else NONE,
        key=key,
        detail=f"annotation {key}={legible(value)}" if value else f"annotation {key}",
        unknown="" if value in ALLOWED or value == "" else legible(value),
        expires_at=expiry_of(pod, PD_EXPIRATION) if component == "pd" else None,
    )


# ── Is there something to do? ─────────────────────────────────────────────────────────────────────────────────────


class MemberLook:
    """What a look at one TidbCluster finds about its PD and TiDB pods."""

    def __init__(self, tc: TidbCluster, world: WorldRead, policy: HandoffPolicy, queue: Queue, now: float) -> None:
        self.proposals: list[Operator] = []
        self.instructions: list[Instruction] = []
        self.verdicts: list[Verdict] = []
        self.facts: list[Fact] = []
        self.withdrawals: list[Withdrawal] = []
        lost, view = world.pd_lost(tc.key), world.pd(tc.key)
        for component in COMPONENTS:
            pods = {p.name: p for p in world.tidb_pods(tc.key, component)}
            wishes = list(_wishes(pods, component, policy))
            busy = [o for name in sorted(pods) if (o := _ours(queue, pods[name])) is not None]
            if wishes or busy:
                self.facts.extend(_missing(tc, component, pods, view, world, now))
            asked = {}
            for pod, wish in wishes:
                if wish.expired(now):
                    self.instructions.append(_expire(pod, wish))
                    continue
                asked[pod.name] = wish
                stuck = stuck_volume(pod, world) if wish.value == DELETE_POD else None
                if stuck is not None and _ours(queue, pod) is None:
                    self._held(pod, Reason.LOCAL_VOLUME, stuck.detail, stuck.remedy)
                else:
                    self._consider(tc, pod, component, wish, None if lost else view, lost)
            for operator in busy:
                name = operator.args["pod"].partition("/")[2]
                wish_now = asked.get(name)
                if wish_now is None or wish_now.value != operator.args["value"]:
                    text = "the wish was withdrawn or has expired"
                    self.withdrawals.append(Withdrawal(operator.id, Reason.WITHDRAWN, text))

    @property
    def busy(self) -> bool:
        return bool(self.proposals or self.verdicts)

    def _consider(self, tc: TidbCluster, pod: Pod, component: str, wish: Wish, view: PdView | None, lost: str) -> None:
        if wish.unknown:
            text = f"{wish.key}={wish.unknown!r} acts as none; allowed: {', '.join(ALLOWED)}"
            self.instructions.append(
                EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=Reason.INVALID, message=text, warning=True)
            )
        subject = pod_subject(pod.key)
        if component == "tidb":
            if wish.value == DELETE_POD:
                self.proposals.append(operator_for(tc.key, pod, component, wish))
            return
        if view is None:
            detail = lost or "PD has not been looked at yet"
            self.verdicts.append(
                Verdict(State.WAITING, Reason.PD_UNREACHABLE, f"{pod.name}: {detail}", subject=subject)
            )
        elif leads(view, pod.name) and successor(view, pod.name) is None:
            self._held(pod, Reason.QUORUM, f"{pod.name} is the only PD member: its leadership has nowhere to go")
        elif wish.value == DELETE_POD or leads(view, pod.name):
            self.proposals.append(operator_for(tc.key, pod, component, wish))

    def _held(self, pod: Pod, reason: Reason, detail: str, remedy: str = "") -> None:
        """A person must act: told where a person looks."""
        self.verdicts.append(Verdict(State.BLOCKED, reason, detail, remedy, pod_subject(pod.key)))
        text = f"{detail}; {remedy}" if remedy else detail
        self.instructions.append(
            EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=reason, message=text, warning=True)
        )


def _wishes(pods: Mapping[str, Pod], component: str, policy: HandoffPolicy) -> Iterator[tuple[Pod, Wish]]:
    for name in sorted(pods):
        wish = None if pods[name].terminating else member_wish(pods[name], component, policy)
        if wish is not None:
            yield pods[name], wish


def _ours(queue: Queue, pod: Pod) -> Operator | None:
    holder = queue.holder(pod_subject(pod.key))
    return holder if holder is not None and holder.kind in KINDS else None


def _missing(
    tc: TidbCluster, component: str, pods: Mapping[str, Pod], view: PdView | None, world: WorldRead, now: float
) -> Iterator[Fact]:
    """Members that are not there, not Ready or, as PD says of its own, not well take the workload's room."""
    wanted = tc.ordinals(component)
    names = sorted(pods) if wanted is None else [f"{tc.name}-{component}-{i}" for i in wanted]
    target = workload_target(tc.key, component)
    for name in names:
        pod = pods.get(name)
        if pod is None or pod.terminating or not _available(pod, world, now):
            word = "missing" if pod is None else "leaving" if pod.terminating else "not Ready"
            yield Fact(target, pod_subject(Key(tc.namespace, name)), 1, f"{name} is {word}")
        elif component == "pd" and view is not None and _unwell(view, name):
            yield Fact(
                target, pod_subject(Key(tc.namespace, name)), 1, f"PD says that its member {name} is not healthy"
            )


def _available(pod: Pod, world: WorldRead, now: float) -> bool:
    """Ready for its StatefulSet's minReadySeconds."""
    workload = world.workload_of(pod)
    return pod.ready if workload is None else is_ready(pod, workload, now)


def _unwell(view: PdView, pod_name: str) -> bool:
    """Without a readiness probe a pod is Ready as soon as it runs; PD asks its members."""
    return any(m.healthy is False and m.name.partition(".")[0] == pod_name for m in view.members)


def workload_target(cluster: Key, component: str) -> str:
    return f"workload/{cluster.namespace}/StatefulSet/{cluster.name}-{component}"


def operator_for(cluster: Key, pod: Pod, component: str, wish: Wish, id_: str = "") -> Operator:
    subject = pod_subject(pod.key)
    restarts = wish.value == DELETE_POD
    cost = {workload_target(cluster, component): 1, **({f"node/{pod.node}": NODE_COST} if pod.node else {})}
    return Operator(
        id=id_,
        source=SOURCE,
        kind=RESTART if restarts else TRANSFER,
        subject=subject,
        claims=(subject,),
        steps=_STEPS[component] if restarts else _STEPS["pd"][:1],
        phases=(cost if restarts else NO_COST,),
        deadline=wish.deadline,
        reason=Reason.ASKED if wish.deadline is None else Reason.DEADLINE,
        detail=wish.detail,
        args={
            "cluster": str(cluster),
            "pod": str(pod.key),
            "uid": pod.uid,
            "node": pod.node,
            "component": component,
            "value": wish.value,
            "workload": f"StatefulSet/{cluster.namespace}/{cluster.name}-{component}",
        },
    )


# ── What is next? ─────────────────────────────────────────────────────────────────────────────────────────────────


def next_member_step(running: Running, world: WorldRead, policy: HandoffPolicy, now: float) -> NextStep:
    args = running.operator.args
    namespace, _, name = args["pod"].partition("/")
    cluster = Key(namespace, args["cluster"].partition("/")[2])
    tc, pod = world.tidb_cluster(cluster), world.pod(Key(namespace, name))
    delete = len(running.operator.steps) - 2
    if tc is None:
        return NextStep(step=running.step, end=End(Reason.CLUSTER_GONE, f"TidbCluster {cluster} is gone"))
    if pod is None or pod.uid != args["uid"] or pod.terminating:
        return _await(running, tc, pod, world, now)
    wish = member_wish(pod, args["component"], policy)
    if running.off or wish is None or wish.expired(now) or wish.value != args["value"]:
        return _give_up(running, pod)
    unsettled = _unsettled(tc)
    if unsettled:
        return _wait(running.step, Reason.SETTLING, unsettled, now)
    if args["component"] == "pd":
        before = _hand_on(running, world, cluster, pod, now)
        if before is not None:
            return before
        if wish.value == NONE:
            return NextStep(step=0, end=End(Reason.DONE, f"{name} does not lead PD"))
    stuck = stuck_volume(pod, world)
    if stuck is not None:
        # Ended, not held: what waits for a person here would keep every other member waiting, too.
        return _give_up(running, pod, End(Reason.LOCAL_VOLUME, f"not deleted: {stuck.detail}"))
    kept = blocked_by_budget(pod, world)
    if kept is not None:
        return NextStep(step=delete, waiting_on=kept, again_at=now + LOOK_S)
    # Room was given when this was released; who is away since then is asked again.
    pods = {p.name: p for p in world.tidb_pods(cluster, args["component"])}
    view = None if world.pd_lost(cluster) else world.pd(cluster)
    away = _missing(tc, args["component"], pods, view, world, now)
    missing = next((fact for fact in away if fact.subject != running.operator.subject), None)
    if missing is not None:
        return _wait(delete, Reason.FACT, missing.detail, now)
    if LEAVING not in pod.annotations:
        return NextStep(step=delete, instructions=(_mark(running, pod, now),))
    evict = DeletePod(key=pod.key, uid=pod.uid, why=f"{name} was asked to leave, and leads nothing")
    return NextStep(step=delete, instructions=(evict,))


def _hand_on(running: Running, world: WorldRead, cluster: Key, pod: Pod, now: float) -> NextStep | None:
    """Leadership of PD first, seen to have moved on a look that began after the last write; None: it leads nothing."""
    view, lost = world.pd(cluster), world.pd_lost(cluster)
    if lost or view is None:
        refreshes = (PdRefresh(cluster, now + LOOK_S),)
        return _wait(0, Reason.PD_UNREACHABLE, lost or "PD has not been looked at yet", now, refreshes=refreshes)
    if (world.pd_observed_at(cluster) or 0.0) <= max(running.promoted_at, running.acted_at):
        return NextStep(step=running.step, refreshes=(PdRefresh(cluster, now),))
    if not leads(view, pod.name):
        return None
    unready = {p.name for p in world.tidb_pods(cluster, "pd") if p.terminating or not p.ready}
    heir = successor(view, pod.name, unready)
    if heir is None:
        return _wait(0, Reason.QUORUM, f"no other PD member can lead instead of {pod.name}", now, state=State.BLOCKED)
    transfer = TransferPdLeader(cluster=cluster, to=heir.name, why=f"hands PD's leadership from {pod.name} on")
    return NextStep(step=0, instructions=(transfer,), refreshes=(PdRefresh(cluster, now + 1.0),))


def _await(running: Running, tc: TidbCluster, pod: Pod | None, world: WorldRead, now: float) -> NextStep:
    name, component = running.operator.args["pod"].partition("/")[2], running.operator.args["component"]
    last = len(running.operator.steps) - 1
    if (
        pod is not None
        and pod.uid != running.operator.args["uid"]
        and not pod.terminating
        and _available(pod, world, now)
    ):
        return NextStep(step=last, end=End(Reason.DONE, f"{name} is Ready on {pod.node}"))
    wanted = tc.ordinals(component)
    if pod is None and wanted is not None and name not in {f"{tc.name}-{component}-{i}" for i in wanted}:
        return NextStep(step=last, end=End(Reason.SUBJECT_GONE, f"{name} was scaled in"))
    if running.operator.kind == TRANSFER:
        return NextStep(step=last, end=End(Reason.SUBJECT_GONE, f"the {name} that was asked about is gone"))
    return _wait(last, Reason.POD_NOT_READY, f"{name} is not back yet", now)


def _give_up(running: Running, pod: Pod, why: End | None = None) -> NextStep:
    if own_mark(pod) is not None:
        patch = {"metadata": {"annotations": {LEAVING: None}}}
        clear = Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch=patch, why=f"{pod.name} may stay")
        return NextStep(step=running.step, instructions=(clear,))
    if why is not None:
        return NextStep(step=running.step, end=why)
    if running.off:
        return NextStep(step=running.step, end=End(Reason.FEATURE_OFF, "handoff was switched off"))
    return NextStep(step=running.step, end=End(Reason.WITHDRAWN, "the wish was withdrawn or has expired"))


def _mark(running: Running, pod: Pod, now: float) -> Patch:
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
    patch = {"metadata": {"annotations": {LEAVING: write_mark(mark)}}}
    return Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch=patch, why=f"marks {pod.name} as leaving")


def _expire(pod: Pod, wish: Wish) -> Patch:
    patch = {"metadata": {"annotations": {wish.key: None, PD_EXPIRATION: None}}}
    return Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch=patch, why="the wish has expired")


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


# ── After a crash ─────────────────────────────────────────────────────────────────────────────────────────────────


def own_mark(pod: Pod) -> Mark | None:
    mark = read_mark(pod.annotations[LEAVING]) if LEAVING in pod.annotations else None
    return mark if mark is not None and mark.source == SOURCE else None


def resumed_members(tc: TidbCluster, world: WorldRead) -> Iterator[Recovered]:
    """Pods that carry our mark: their restart goes on. Without one nothing had begun, and the wish says it again."""
    for component in COMPONENTS:
        for pod in sorted(world.tidb_pods(tc.key, component), key=lambda p: p.name):
            mark = own_mark(pod)
            if mark is not None and mark.pod_uid == pod.uid:
                wish = Wish(value=DELETE_POD, key=LEAVING, detail=mark.detail, deadline=mark.deadline)
                operator = operator_for(tc.key, pod, component, wish, id_=mark.operator)
                yield Recovered(operator, len(operator.steps) - 2, 0, mark.since)


# ── Small questions ───────────────────────────────────────────────────────────────────────────────────────────────


def leads(view: PdView, pod_name: str) -> bool:
    """A member is named after its pod, or by the pod's full domain name."""
    return view.leader.partition(".")[0] == pod_name


def successor(view: PdView, pod_name: str, unready: Collection[str] = ()) -> PdMember | None:
    """Who leads next: the first other member by name that is not known to be unwell."""
    others = [m for m in sorted(view.members, key=lambda m: m.name) if m.healthy is not False]
    return next((m for m in others if m.name.partition(".")[0] not in {pod_name, *unready}), None)


def _unsettled(tc: TidbCluster) -> str:
    phases = {"PD": tc.pd_phase, "TiKV": tc.tikv_phase, "TiDB": tc.tidb_phase}
    busy = [f"{name} is in phase {phase}" for name, phase in phases.items() if phase in {"Upgrade", "Scale"}]
    return "; ".join(busy)
