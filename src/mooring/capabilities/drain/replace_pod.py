"""Taking one pod off its node: the `replace-pod` operator, the only one that takes an ordinary pod away.

    detach:  marked and detached ──► replacement Ready, or the deadline's last call ──► deleted ──► ended
                  └── taken back: attached again, ended
    evict:   marked ──► evicted ──► as many Ready as wanted ──► ended

The replacement comes first where Kubernetes allows it (`request.can_detach`); else the pod is evicted, as budgets and
its workload allow; deleted only where the machine is lost anyway. The mark goes on the pod before it is disturbed.
Every turn starts from what is observed: the pod is there, leaving, or gone.

The operator knows how; the one who asks says what is allowed: `Terms`, made anew at each turn from the world. Mix (for
housekeeping and notices), fleet (for retirement) and drain (for people and the eviction gate) each pass their own.

With a deadline, the last call is deadline − grace − margin: after it a pod is let go even if its replacement is not
there, since ending with its grace period is better than being cut off. Where the last call comes before a replacement
could have started (a short notice), the pod serves until the machine goes, unless `serve` is False.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from mooring.capabilities.drain.readiness import blocked_by_budget, is_down, is_ready, subject_of, target_of
from mooring.capabilities.drain.request import (
    DETACH,
    EVICT,
    before_detach,
    can_detach,
    detach,
    is_detached,
    put_mark,
    request_of,
    withdraw,
)
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.decision import End, NextStep, OperatorRecord, Recovered, Verdict
from mooring.core.model.instructions import DeletePod, EmitEvent, Instruction
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import Mark
from mooring.core.model.operator import Operator, Payload, Step, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.world.read import WorldRead

KIND: Final = "replace-pod"
EVICT_STEPS: Final = (Step(StepKind.DELETE_POD), Step(StepKind.AWAIT_READY))
DETACH_STEPS: Final = (Step(StepKind.ADD_REPLACEMENT), *EVICT_STEPS)
#: How often a running one looks again when nothing tells it to.
LOOK_S: Final = 2.0
_BUDGET_LOOK_S: Final = 5.0
#: A pod that is still there so long after its grace period does not end by itself, and is not waited for.
_ENDLESS_S: Final = 60.0
_NO_COSTS: Mapping[str, int] = {}


class ReplacePod(Payload, frozen=True, gc=False, kw_only=True):
    """`workload` "": the pod has none that counts replicas (a Job's, a bare one): nothing is waited for."""

    uid: str
    #: DETACH or EVICT, as it was proposed.
    way: str = EVICT
    #: The class of nodes that its successor is to stand on (NodeClass), "" when that does not matter.
    node_class: str = ""


def replacing(operator: Operator | None) -> ReplacePod | None:
    """What a `replace-pod` operator is about; None for every other."""
    return operator.payload if operator is not None and isinstance(operator.payload, ReplacePod) else None


def replace_pod(
    pod: Pod,
    workload: Workload | None,
    *,
    source: str,
    way: str,
    reason: Reason,
    detail: str,
    room: str = "",
    costs: Mapping[str, int] = _NO_COSTS,
    deadline: float | None = None,
    node_class: NodeClass = NodeClass.UNKNOWN,
    serial: str = "",
    id_: str = "",
) -> Operator:
    """`room`: the target of its workload (`readiness.target_of`), where it needs one replica's room there; with DETACH
    only until it is detached, since the replacement that is not Ready yet is a fact of its own. `costs`: what else it
    takes until it has ended (`evict.node_cost`)."""
    first = {**({room: 1} if room else {}), **costs}
    subject = subject_of(pod)
    return Operator(
        id=id_,
        source=source,
        quota=pod.namespace,
        kind=KIND,
        subject=subject,
        claims=(subject,),
        steps=DETACH_STEPS if way == DETACH else EVICT_STEPS,
        phases=(first, dict(costs)) if way == DETACH and room else (first,),
        deadline=deadline,
        reason=reason,
        detail=detail,
        payload=ReplacePod(
            pod=str(pod.key),
            node=pod.node,
            workload="" if workload is None else f"{workload.kind}/{workload.key}",
            serial=serial,
            uid=pod.uid,
            workload_uid="" if workload is None else workload.uid,
            way=way,
            node_class=node_class.value,
        ),
    )


def mark_for(op: Operator, pod: Pod, now: float, way: str) -> Mark:
    how = replacing(op)
    assert how is not None
    before = {"workload": how.workload, "workloadUID": how.workload_uid} if how.workload else {}
    before["class"] = how.node_class
    if way == DETACH:
        before |= before_detach(pod, how.workload.partition("/")[0])
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


def read_back(pod: Pod, mark: Mark, workload: Workload | None, costs: Mapping[str, int] = _NO_COSTS) -> Operator:
    """The operator that wrote this mark, as it was."""
    node_class = mark.before.get("class", "")
    takes_room = workload is not None and mark.before.get("room") != "none"
    return replace_pod(
        pod,
        workload,
        source=mark.source,
        way=mark.value,
        reason=Reason(mark.reason) if mark.reason in set(Reason) else Reason.RESUMED,
        detail=mark.detail,
        room=target_of(workload) if takes_room and workload is not None else "",
        costs=costs,
        deadline=mark.deadline,
        node_class=NodeClass(node_class) if node_class in set(NodeClass) else NodeClass.UNKNOWN,
        id_=mark.operator,
    )


def resumed(operator: Operator, pod: Pod, mark: Mark) -> Recovered:
    return Recovered(operator, 0, len(operator.phases) - 1 if is_detached(pod) else 0, mark.since)


# ── What is allowed ───────────────────────────────────────────────────────────────────────────────────────────────


class Notice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When a pod has to be gone, and how that time is used."""

    #: Epoch seconds; None: whenever it may.
    deadline: float | None = None
    #: Since when that is known.
    since: float = 0.0
    margin_s: float = 5.0
    #: What a replacement is expected to need.
    start_s: float = 20.0
    #: On a short notice: serve until the machine goes, instead of going at once with all the grace there is.
    serve: bool = True

    def last_call(self, pod: Pod) -> float | None:
        """After this, waiting any longer would cost the pod some of its grace."""
        return None if self.deadline is None else self.deadline - pod.shape.grace_s - self.margin_s

    def serves_until(self, pod: Pod) -> float | None:
        """When a detached pod goes, its replacement Ready or not. Where the last call comes before a replacement could
        have started, going by it would only empty the workload."""
        call = self.last_call(pod)
        if call is None or self.deadline is None or not self.serve:
            return call
        return self.deadline - self.margin_s if call < self.since + self.start_s else call


NO_NOTICE: Final = Notice()


class Terms(msgspec.Struct, kw_only=True):
    """What the one who asks allows just now."""

    #: None: the pod has none, or it is gone, or another one has its name.
    workload: Workload | None
    #: How many of its replicas are available, and the active ones that carry a mark.
    ready: int = 0
    marked: tuple[Pod, ...] = ()
    #: Its detached pods that still serve, in the order in which they go.
    detached: tuple[Pod, ...] = ()
    #: UIDs of those whose own replacement is still on its way: what is Ready was made for another.
    awaited: frozenset[str] = frozenset()
    #: How many of the workload may be away at once.
    limit: int = 1
    notice: Notice = NO_NOTICE
    #: Not "": nobody wants it any more, in words. What has not begun ends, and what was marked or detached is undone.
    unwanted: str = ""
    #: Pods that only a person may take away, or what else keeps it before it is marked.
    held: Verdict | None = None
    #: The time is over: neither its workload nor a replacement is waited for. Budgets hold all the same.
    hurry: bool = False
    #: Its node is gone: nobody will ever report that a detached pod has ended.
    forget: bool = False
    #: Written before the pod is disturbed, where that is not written yet.
    guard: tuple[Instruction, ...] = ()
    #: A replacement that is not Ready by then has failed.
    ready_within_s: float = math.inf
    #: So long after it was evicted its workload is no longer waited for.
    await_s: float = math.inf
    #: One that a budget blocks for longer gives its place back, and is proposed again after a back-off.
    blocked_s: float = math.inf
    #: Whose marks this operator goes on from: a late write of a leader that stalled carries another id.
    sources: Collection[str] = ()
    look_s: float = LOOK_S

    @property
    def wanted(self) -> int:
        return 0 if self.workload is None else self.workload.replicas

    @property
    def missing(self) -> int:
        return max(0, self.wanted - self.ready)

    @property
    def shown(self) -> str:
        return f"{self.ready} of {self.wanted} Ready"


# ── What is next ──────────────────────────────────────────────────────────────────────────────────────────────────


class _Turn(msgspec.Struct, frozen=True):
    running: OperatorRecord
    how: ReplacePod
    terms: Terms
    world: WorldRead
    now: float

    @property
    def op(self) -> Operator:
        return self.running.operator

    def later(self, call: float | None, within_s: float = 0.0) -> float:
        """When to look again: at the last call if that comes first."""
        usual = self.now + (within_s or self.terms.look_s)
        return usual if call is None else min(max(call, self.now + 0.1), usual)


def next_step(running: OperatorRecord, terms: Terms, world: WorldRead, now: float) -> NextStep:
    how = replacing(running.operator)
    assert how is not None
    turn = _Turn(running, how, terms, world, now)
    namespace, _, name = how.pod.partition("/")
    pod = world.pod(Key(namespace, name))
    if pod is None or pod.uid != how.uid or pod.terminating or pod.terminal:
        return _await(turn, pod if pod is not None and pod.uid == how.uid else None, name)
    if how.workload and terms.workload is None and not is_detached(pod):
        return _ended(turn, Reason.SUBJECT_GONE, "its workload is gone")
    mark = request_of(pod)
    if mark is not None and mark.source not in {running.operator.source, *terms.sources}:
        return _ended(turn, Reason.CANCELED, f"{mark.source} is already taking it away")
    if mark is None and pod.owner is None and how.workload and not running.notes.get("gave_up"):
        # It was detached, and a person removed its mark: its workload is no longer known.
        return _ended(turn, Reason.CANCELED, f"{pod.name} has neither an owner nor our mark")
    if mark is None:
        return _begin(turn, pod)
    if is_detached(pod):
        return _part(turn, pod, mark)
    return _evict(turn, pod, mark)


def _ended(turn: _Turn, reason: Reason, detail: str, *, failed: bool = False) -> NextStep:
    return NextStep(step=turn.running.step, end=End(reason, detail, failed=failed))


def _begin(turn: _Turn, pod: Pod) -> NextStep:
    terms, notes, op = turn.terms, turn.running.notes, turn.op
    if notes.get("gave_up"):
        return _ended(turn, Reason.TIMEOUT, "its replacement did not become Ready in time", failed=True)
    if notes.get("blocked"):
        words = f"a PodDisruptionBudget kept {pod.name} for {terms.blocked_s:.0f} s; others go first meanwhile"
        return _ended(turn, Reason.PDB, words, failed=True)
    if terms.unwanted:
        return _ended(turn, Reason.WITHDRAWN, terms.unwanted)
    if terms.held is not None:
        again = turn.now + terms.look_s
        return NextStep(step=0, waiting_on=terms.held, progress=terms.held.detail, again_at=again)
    detaches = turn.how.way == DETACH and terms.workload is not None and can_detach(pod, terms.workload)
    mark = mark_for(op, pod, turn.now, DETACH if detaches else EVICT)
    if detaches:
        write: Instruction = detach(pod, mark)
        words = f"{pod.name} on {pod.node} leaves once its replacement is Ready: {op.detail}"
    else:
        write = put_mark(pod, mark, "marks the pod before it is moved")
        words = f"{pod.name} on {pod.node or 'no node'} is moved: {op.detail}"
    return NextStep(step=0, instructions=(*terms.guard, write, _tell(pod, terms.workload, op.reason, words)))


def _part(turn: _Turn, pod: Pod, mark: Mark) -> NextStep:
    """Detached: wait for the replacement, but not beyond the last call."""
    terms, phase = turn.terms, len(turn.op.phases) - 1
    call = terms.notice.serves_until(pod)
    if call is not None and turn.now >= call and not terms.unwanted:
        words = f"no time left to wait: {max(0.0, (terms.notice.deadline or 0.0) - turn.now):.0f} s left"
        return NextStep(step=1, phase=phase, instructions=(_delete(turn, pod, words),))
    if terms.workload is None and turn.world.replica_set(mark.before.get("replicaSetUID", "")) is None:
        # The garbage collector would have deleted it with its ReplicaSet, and asks no budget; nor could one ever allow
        # it, since a budget expects no pods where no workload is left.
        gone = DeletePod(key=pod.key, uid=pod.uid, evict=False, why="its workload is gone")
        return NextStep(step=1, instructions=(gone,))
    if terms.hurry or terms.workload is None or may_go(pod, terms, turn.world, turn.now):
        why = "its workload is gone" if terms.workload is None else "its replacement is Ready"
        # At the first try the budget may not have seen the replacement yet.
        kept = blocked_by_budget(pod, turn.world) if turn.running.step == 1 else None
        why = "the time is over" if terms.hurry else why
        return NextStep(step=1, phase=phase, instructions=(_delete(turn, pod, why),), waiting_on=kept)
    if terms.unwanted:
        return NextStep(step=0, phase=phase, instructions=(withdraw(pod, terms.unwanted),))
    if terms.notice.deadline is None and turn.now - mark.since > terms.ready_within_s:
        undo = withdraw(pod, "its replacement did not become Ready")
        return NextStep(step=0, phase=phase, instructions=(undo,), notes={"gave_up": 1.0})
    detail = f"{terms.shown} beside it"
    return NextStep(
        step=0,
        phase=phase,
        progress=f"still serving; {detail}",
        waiting_on=no_replacement(terms.workload, pod.name, detail, turn.world),
        again_at=turn.later(call),
    )


def _evict(turn: _Turn, pod: Pod, mark: Mark) -> NextStep:
    terms = turn.terms
    if terms.unwanted:
        return NextStep(step=0, instructions=(withdraw(pod, terms.unwanted),))
    if terms.guard:
        return NextStep(step=0, instructions=terms.guard)
    call = terms.notice.last_call(pod)
    if call is None or turn.now < call:
        waits = _kept_by_workload(turn, pod, mark)
        if waits is not None:
            return NextStep(step=0, waiting_on=waits, again_at=turn.later(call), progress=waits.detail)
        kept = blocked_by_budget(pod, turn.world)
        if kept is not None and call is None and turn.now - mark.since > terms.blocked_s:
            return NextStep(step=0, instructions=(withdraw(pod, kept.detail),), notes={"blocked": 1.0})
        if kept is not None:
            again = turn.later(call, _BUDGET_LOOK_S)
            return NextStep(step=0, waiting_on=kept, again_at=again, progress=kept.detail)
    return NextStep(step=0, instructions=(_delete(turn, pod, turn.op.detail),), again_at=turn.now + terms.look_s)


def _kept_by_workload(turn: _Turn, pod: Pod, mark: Mark) -> Verdict | None:
    """Too many of its workload are away already. Room was checked at promotion, and more may have gone since."""
    terms, workload = turn.terms, turn.terms.workload
    if workload is None or terms.hurry:
        return None
    bound = terms.notice.deadline is None or target_of(workload) in turn.op.cost
    # One that is down is missing already: nothing is lost by its going.
    if not bound or is_down(pod, workload, turn.world, turn.now):
        return None
    if terms.missing + going_before(pod, mark, terms, turn.now) < terms.limit:
        return None
    return Verdict(State.WAITING, Reason.FACT, f"{workload.name} has {terms.shown}")


def _delete(turn: _Turn, pod: Pod, why: str) -> DeletePod:
    deadline, call, grace = turn.terms.notice.deadline, turn.terms.notice.last_call(pod), None
    late = call is not None and turn.now >= call
    if deadline is not None and late and deadline > turn.now:
        # It is lost anyway: what is left of its time is its grace. After the deadline it is unknown how much that is,
        # and a node that is still there may allow all of it.
        grace = max(1, min(pod.shape.grace_s, int(deadline - turn.now)))
    return DeletePod(key=pod.key, uid=pod.uid, evict=not late, grace_s=grace, why=why)


def _await(turn: _Turn, pod: Pod | None, name: str) -> NextStep:
    """Its room is kept until its workload has what it wants."""
    terms, step = turn.terms, len(turn.op.steps) - 1
    workload = terms.workload
    if terms.forget and pod is not None and pod.terminating and is_detached(pod):
        gone = DeletePod(key=pod.key, uid=pod.uid, evict=False, grace_s=0, why="its node is gone")
        return NextStep(step=step, instructions=(gone,))
    if workload is None:
        ends_at = None if pod is None or pod.terminal else pod.deletion_at
        if ends_at is not None and turn.now < ends_at + _ENDLESS_S and not turn.how.workload:
            return NextStep(step=step, progress=f"{name} is terminating", again_at=turn.now + terms.look_s)
        reason = Reason.SUBJECT_GONE if turn.how.workload else Reason.DONE
        words = "its workload is gone" if turn.how.workload else f"{name} is gone"
        return NextStep(step=step, end=End(reason, words))
    if terms.missing == 0:
        return NextStep(step=step, end=End(Reason.DONE, f"{name} is gone, {terms.ready} of {terms.wanted} are Ready"))
    if turn.op.reason is Reason.NO_ROOM and pod is None:
        return NextStep(step=step, end=End(Reason.DONE, f"{name} is gone; it never had a node"))
    since = turn.running.step_since if turn.running.step == step else turn.now
    if turn.now - since >= terms.await_s:
        detail = f"{workload.name} has {terms.shown} {turn.now - since:.0f} s later"
        return NextStep(step=step, end=End(Reason.TIMEOUT, detail, failed=not terms.hurry))
    return NextStep(
        step=step,
        progress=terms.shown,
        waiting_on=no_replacement(workload, name, terms.shown, turn.world),
        again_at=turn.now + terms.look_s,
    )


def no_replacement(workload: Workload, name: str, detail: str, world: WorldRead) -> Verdict:
    """Why it waits for its replacement: that cannot even be created, has no room, or is not Ready yet."""
    if workload.failure:
        return Verdict(State.BLOCKED, Reason.NOT_CREATED, f"no replacement: {workload.failure}")
    homeless = next((p for p in world.pods_of(workload) if p.active and not p.node and not p.schedulable), None)
    if homeless is not None:
        asks = f"{homeless.shape.cpu_milli}m CPU and {homeless.shape.memory_bytes >> 20} MiB"
        words = f"no node has room for the replacement {homeless.name}, which asks for {asks}; {detail}"
        return Verdict(State.WAITING, Reason.POD_NOT_READY, words)
    return Verdict(State.WAITING, Reason.POD_NOT_READY, f"the replacement of {name} is not Ready yet; {detail}")


def _tell(pod: Pod, workload: Workload | None, reason: Reason, message: str) -> EmitEvent:
    if workload is None:
        return EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=reason, message=message)
    return EmitEvent(kind=Kind(workload.kind), key=workload.key, uid=workload.uid, reason=reason, message=message)


# ── Which of several goes first ───────────────────────────────────────────────────────────────────────────────────


def may_go(pod: Pod, terms: Terms, world: WorldRead, now: float) -> bool:
    """As many detached pods may go as there are Ready ones beyond what is wanted, the first by deadline and name of
    those that await nothing else."""
    workload = terms.workload
    assert workload is not None
    if is_down(pod, workload, world, now):
        return True
    if pod.uid in terms.awaited:
        return False
    serving = [p for p in terms.detached if p.uid == pod.uid or is_ready(p, workload, now)]
    turns = [p.uid for p in serving if p.uid not in terms.awaited]
    rank = turns.index(pod.uid) if pod.uid in turns else 0
    return terms.ready + max(1, len(serving)) - terms.wanted > rank


def going_before(pod: Pod, mark: Mark, terms: Terms, now: float) -> int:
    """How many other pods of the workload still serve and are about to go, before this one: their deletion may be on
    its way. In an order that all agree on, so that they do not wait for each other."""
    workload, ours, found = terms.workload, (mark.deadline or math.inf, pod.name), 0
    assert workload is not None
    for other, theirs in _to_be_evicted(terms.marked):
        if other.uid == pod.uid or not is_ready(other, workload, now):  # one that is not Ready is missing already
            continue
        call = msgspec.structs.replace(terms.notice, deadline=theirs.deadline).last_call(other)
        found += (theirs.deadline or math.inf, other.name) < ours or (call is not None and now >= call)
    return found


def _to_be_evicted(marked: Iterable[Pod]) -> list[tuple[Pod, Mark]]:
    marks = ((pod, request_of(pod)) for pod in marked)
    return [(pod, mark) for pod, mark in marks if mark is not None and mark.value == EVICT]
