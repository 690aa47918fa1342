"""Moving one replica: the `move-replica` operator.

    evict:   marked ──► evicted ──► as many Ready as wanted ──► ended
    detach:  marked and detached ──► replacement Ready, or the deadline's last call ──► deleted ──► ended
                  └── the notice was taken back: attached again, ended

The mark goes on the pod before it is disturbed. Every turn starts from what is observed: the pod is there, leaving, or
gone. With a deadline, the last call is deadline − grace − margin: after it a pod is let go even if its replacement is
not there, since ending with its grace period is better than being cut off.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from mooring.capabilities.drain import detach as detaching
from mooring.capabilities.drain.detach import DETACH, EVICT, is_detached, mark_on
from mooring.capabilities.drain.evict import blocked_by_budget, node_cost
from mooring.capabilities.drain.readiness import is_ready, subject_of, target_of
from mooring.capabilities.mix.interruption.notices import SOURCE as SPOT
from mooring.capabilities.mix.interruption.notices import mark_of
from mooring.capabilities.mix.pace import InterruptionPolicy, RebalancePolicy
from mooring.capabilities.mix.policy import SOURCES
from mooring.capabilities.mix.rebalance.health import Health
from mooring.capabilities.mix.rebalance.order import going_before, last_call, may_go
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.decision import End, NextStep, OperatorRecord, Verdict
from mooring.core.model.instructions import DeletePod, EmitEvent, Instruction
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import Mark
from mooring.core.model.operator import Operator, Step, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.world.read import WorldRead

KIND: Final = "move-replica"
#: What housekeeping may have under way in the whole cluster.
ALL_MOVES: Final = "mix"
EVICT_STEPS: Final = (Step(StepKind.DELETE_POD), Step(StepKind.AWAIT_READY))
DETACH_STEPS: Final = (Step(StepKind.ADD_REPLACEMENT), *EVICT_STEPS)
#: How often a running move looks again when nothing tells it to.
LOOK_S: Final = 2.0
#: A move that a budget blocks for longer gives its place back, and is proposed again after a back-off.
BLOCKED_S: Final = 60.0


def operator(
    pod: Pod,
    workload: Workload,
    *,
    source: str,
    way: str,
    reason: Reason,
    detail: str,
    wanted: NodeClass = NodeClass.UNKNOWN,
    deadline: float | None = None,
    takes_room: bool = True,
    id_: str = "",
) -> Operator:
    """`takes_room`: it needs its workload's room, at least until its replacement has been asked for."""
    room = {target_of(workload): 1} if takes_room else {}
    rest = node_cost(pod.node, pod.namespace)
    if deadline is None and (source == SPOT or way == EVICT):
        # The quicker way goes as far as its workload's own surge allows.
        rest |= {ALL_MOVES: 1, f"share/{ALL_MOVES}/{pod.namespace}": 1}
    phases: tuple[Mapping[str, int], ...] = ({**room, **rest},)
    if way == DETACH and room:
        # Once detached, the replacement that is not Ready yet is a fact of its own.
        phases = (phases[0], rest)
    subject = subject_of(pod)
    return Operator(
        id=id_,
        source=source,
        quota=pod.namespace,
        kind=KIND,
        subject=subject,
        claims=(subject,),
        steps=DETACH_STEPS if way == DETACH else EVICT_STEPS,
        phases=phases,
        deadline=deadline,
        reason=reason,
        detail=detail,
        args={
            "pod": f"{pod.namespace}/{pod.name}",
            "uid": pod.uid,
            "node": pod.node,
            "workload": f"{workload.kind}/{workload.namespace}/{workload.name}",
            "workload_uid": workload.uid,
            "way": way,
            "class": wanted.value,
        },
    )


def mark_for(op: Operator, pod: Pod, now: float, way: str) -> Mark:
    before = {"workload": op.args["workload"], "workloadUID": op.args["workload_uid"], "class": op.args["class"]}
    if way == DETACH:
        before |= detaching.before_detach(pod)
    if len(op.phases) == 1 and not any(t.startswith("workload/") for t in op.cost):
        before["room"] = "none"
    return Mark(
        operator=op.id,
        source=op.source,
        reason=op.reason.value,
        step=op.steps[0].kind.value,
        since=now,
        detail=op.detail,
        pod_uid=pod.uid,
        node=pod.node,
        value=way,
        deadline=op.deadline,
        before=before,
    )


def read_back(pod: Pod, mark: Mark, workload: Workload) -> Operator:
    """The operator that wrote this mark, as it was."""
    reason = Reason(mark.reason) if mark.reason in set(Reason) else Reason.RESUMED
    wanted = mark.before.get("class", "")
    return operator(
        pod,
        workload,
        source=mark.source,
        way=mark.value,
        reason=reason,
        detail=mark.detail,
        wanted=NodeClass(wanted) if wanted in set(NodeClass) else NodeClass.UNKNOWN,
        deadline=mark.deadline,
        takes_room=mark.before.get("room") != "none",
        id_=mark.operator,
    )


class MoveSituation(msgspec.Struct, kw_only=True):
    """What a running move sees."""

    op: Operator
    world: WorldRead
    rebalance: RebalancePolicy
    notice: InterruptionPolicy
    now: float
    #: None: the workload is gone, or another one has its name.
    health: Health | None
    #: Detached pods of the workload that still serve, by deadline and name.
    detached: tuple[Pod, ...] = ()
    #: Why it is still wanted is decided elsewhere; "" means it is.
    unwanted: str = ""
    #: Other pods of the workload are between leaving and coming back.
    in_transit: bool = False
    #: Its node has a notice. False for a move of `spot`: it was taken back.
    interrupted: bool = False
    #: How many of the workload may be away at once.
    limit: int = 1
    #: What is to be remembered before the pod is disturbed, where that is not written yet.
    guard: tuple[Instruction, ...] = ()

    @property
    def deadline(self) -> float | None:
        """As the node has it now: a notice may be corrected, and an interruption may follow a disruption."""
        if self.op.source != SPOT:
            return None
        node = self.world.node(self.op.args["node"])
        mark = None if node is None else mark_of(node)
        return self.op.deadline if mark is None or mark.deadline is None else mark.deadline

    @property
    def taken_back(self) -> bool:
        return self.op.source == SPOT and not self.interrupted

    @property
    def pod(self) -> Pod | None:
        """The very pod, if it is still there."""
        namespace, _, name = self.op.args["pod"].partition("/")
        found = self.world.pod(Key(namespace, name))
        return found if found is not None and found.uid == self.op.args["uid"] else None


def next_step(running: OperatorRecord, situation: MoveSituation) -> NextStep:
    pod = situation.pod
    if pod is None or pod.terminating or pod.terminal:
        return _await(running, situation)
    if situation.health is None and not is_detached(pod):
        return NextStep(step=running.step, end=End(Reason.SUBJECT_GONE, "its workload is gone"))
    mark = mark_on(pod)
    # One of our own under another id is a late write of a leader that stalled: this operator goes on from it.
    if mark is not None and mark.source not in SOURCES:
        return NextStep(step=running.step, end=End(Reason.CANCELED, f"{mark.source} is already taking it away"))
    if mark is None and pod.owner is None:
        # It was detached, and a person removed its mark: its workload is no longer known.
        return NextStep(step=running.step, end=End(Reason.CANCELED, f"{pod.name} has neither an owner nor our mark"))
    if mark is None:
        return _begin(running, situation, pod)
    if is_detached(pod):
        return _part(running, situation, pod, mark)
    return _evict(situation, pod, mark)


def _begin(running: OperatorRecord, situation: MoveSituation, pod: Pod) -> NextStep:
    if running.notes.get("gave_up"):
        return NextStep(step=0, end=End(Reason.TIMEOUT, "its replacement did not become Ready in time", failed=True))
    if running.notes.get("blocked"):
        detail = f"a PodDisruptionBudget kept {pod.name} for {BLOCKED_S:.0f} s; others go first meanwhile"
        return NextStep(step=0, end=End(Reason.PDB, detail, failed=True))
    if situation.unwanted:
        return NextStep(step=running.step, end=End(Reason.WITHDRAWN, situation.unwanted))
    if situation.in_transit:
        waits = Verdict(State.WAITING, Reason.SETTLING, "other pods of its workload are on their way")
        return NextStep(step=running.step, waiting_on=waits, again_at=situation.now + LOOK_S)
    op = situation.op
    assert situation.health is not None
    detaches = op.args["way"] == DETACH and detaching.can_detach(pod, situation.health.workload)
    mark = mark_for(op, pod, situation.now, DETACH if detaches else EVICT)
    if detaches:
        write: Instruction = detaching.detach(pod, mark)
        words = f"{pod.name} on {pod.node} leaves once its replacement is Ready: {op.detail}"
    else:
        write = detaching.put_mark(pod, mark, "marks the pod before it is moved")
        words = f"{pod.name} on {pod.node or 'no node'} is moved: {op.detail}"
    tell = _tell(situation.health.workload, op.reason, words)
    return NextStep(step=0, instructions=(*situation.guard, write, tell))


def _part(running: OperatorRecord, situation: MoveSituation, pod: Pod, mark: Mark) -> NextStep:
    """Detached: wait for the replacement, but not beyond the last call."""
    phase = len(situation.op.phases) - 1
    call = last_call(situation.deadline, pod, situation.notice)
    late = call is not None and situation.now >= call
    if late and situation.interrupted:
        why = f"{max(0.0, situation.deadline - situation.now):.0f} s left" if situation.deadline is not None else ""
        return NextStep(step=1, phase=phase, instructions=(_delete(situation, pod, f"no time left to wait: {why}"),))
    if situation.health is None and situation.world.replica_set(mark.before.get("replicaSetUID", "")) is None:
        # The garbage collector would have deleted it with its ReplicaSet, and asks no budget; nor could one ever allow
        # it, since a budget expects no pods where no workload is left.
        gone = DeletePod(key=pod.key, uid=pod.uid, evict=False, why="its workload is gone")
        return NextStep(step=1, instructions=(gone,))
    if situation.health is None or may_go(pod, situation.health, situation.detached, situation.now):
        why = "its workload is gone" if situation.health is None else "its replacement is Ready"
        # At the first try the budget may not have seen the replacement yet.
        kept = blocked_by_budget(pod, situation.world) if running.step == 1 else None
        return NextStep(step=1, phase=phase, instructions=(_delete(situation, pod, why),), waiting_on=kept)
    if situation.taken_back:
        patch = detaching.attach(pod, mark, "the notice was taken back")
        return NextStep(step=0, phase=phase, instructions=(patch,))
    if situation.deadline is None and situation.now - mark.since > situation.rebalance.ready_within_s:
        patch = detaching.attach(pod, mark, "its replacement did not become Ready")
        return NextStep(step=0, phase=phase, instructions=(patch,), notes={"gave_up": 1.0})
    detail = f"{situation.health.ready} of {situation.health.wanted} Ready beside it"
    return NextStep(
        step=0,
        phase=phase,
        progress=f"still serving; {detail}",
        waiting_on=_no_replacement(situation.health, pod.name, detail),
        again_at=situation.now + LOOK_S
        if call is None
        else min(max(call, situation.now + 0.1), situation.now + LOOK_S),
    )


def _evict(situation: MoveSituation, pod: Pod, mark: Mark) -> NextStep:
    if situation.unwanted:
        return NextStep(step=0, instructions=(detaching.drop_mark(pod, situation.unwanted),))
    if situation.guard:
        return NextStep(step=0, instructions=situation.guard)
    call = last_call(situation.deadline, pod, situation.notice)
    late = call is not None and situation.now >= call
    if not late:
        health = situation.health
        assert health is not None
        # One that is not Ready is missing already: nothing is lost by its going.
        serves = is_ready(pod, health.workload, situation.now)
        bound = situation.deadline is None or target_of(health.workload) in situation.op.cost
        counts = bound and serves
        going = going_before(pod, mark, health, situation.notice, situation.now) if counts else 0
        if counts and health.missing + going >= situation.limit:
            detail = f"{health.workload.name} has {health.ready} of {health.wanted} Ready"
            waits = Verdict(State.WAITING, Reason.FACT, detail)
            again = situation.now + LOOK_S if call is None else min(call, situation.now + LOOK_S)
            return NextStep(step=0, waiting_on=waits, again_at=again, progress=detail)
        kept = blocked_by_budget(pod, situation.world)
        if kept is not None and situation.deadline is None and situation.now - mark.since > BLOCKED_S:
            return NextStep(step=0, instructions=(detaching.drop_mark(pod, kept.detail),), notes={"blocked": 1.0})
        if kept is not None:
            again = situation.now + 5.0 if call is None else min(call, situation.now + 5.0)
            return NextStep(step=0, waiting_on=kept, again_at=again, progress=kept.detail)
    return NextStep(
        step=0, instructions=(_delete(situation, pod, situation.op.detail),), again_at=situation.now + LOOK_S
    )


def _delete(situation: MoveSituation, pod: Pod, why: str) -> DeletePod:
    deadline, grace = situation.deadline, None
    call = last_call(deadline, pod, situation.notice)
    late = call is not None and situation.now >= call
    if deadline is not None and late and deadline > situation.now:
        # It is lost anyway: what is left of its time is its grace. After the deadline it is unknown how much that is,
        # and a node that is still there may allow all of it.
        grace = max(1, min(pod.shape.grace_s, int(deadline - situation.now)))
    return DeletePod(key=pod.key, uid=pod.uid, evict=not late, grace_s=grace, why=why)


def _await(running: OperatorRecord, situation: MoveSituation) -> NextStep:
    step = len(situation.op.steps) - 1
    health, name = situation.health, situation.op.args["pod"].rpartition("/")[2]
    if health is None:
        return NextStep(step=step, end=End(Reason.SUBJECT_GONE, "its workload is gone"))
    if health.missing == 0:
        return NextStep(step=step, end=End(Reason.DONE, f"{name} is gone, {health.ready} of {health.wanted} are Ready"))
    if situation.op.reason is Reason.NO_ROOM and situation.pod is None:
        return NextStep(step=step, end=End(Reason.DONE, f"{name} is gone; it never had a node"))
    since = running.step_since if running.step == step else situation.now
    if situation.now - since > situation.rebalance.ready_within_s:
        detail = (
            f"{health.workload.name} has {health.ready} of {health.wanted} Ready {situation.now - since:.0f} s later"
        )
        return NextStep(step=step, end=End(Reason.TIMEOUT, detail, failed=True))
    detail = f"{health.ready} of {health.wanted} Ready"
    return NextStep(
        step=step,
        progress=detail,
        waiting_on=_no_replacement(health, name, detail),
        again_at=situation.now + LOOK_S,
    )


def _no_replacement(health: Health, name: str, detail: str) -> Verdict:
    """Why it waits for its replacement: that is not Ready yet, or cannot even be created."""
    if health.workload.failure:
        return Verdict(State.BLOCKED, Reason.NOT_CREATED, f"no replacement: {health.workload.failure}")
    return Verdict(State.WAITING, Reason.POD_NOT_READY, f"the replacement of {name} is not Ready yet; {detail}")


def _tell(workload: Workload, reason: Reason, message: str) -> EmitEvent:
    return EmitEvent(kind=Kind(workload.kind), key=workload.key, uid=workload.uid, reason=reason, message=message)
