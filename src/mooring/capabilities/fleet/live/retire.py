"""Retiring a machine: cordon, leaders handed over and pods moved, *then* NoExecute (O2).

    Cordon ──► EmptyNode ──► Taint ──► ended                        marks on the Node, written first
      │            │           │
      │            │           ├─ emptied: mark says so ──► stored in the cluster ──► tainted, mark gone
      │            │           └─ the cordon stays, with `mooring.dev/cordoned-by`
      │            ├─ time is over: as if emptied, with an Event that names what it breaks
      │            └─ `hold`: place given up, cordon kept, tried again later
      └────────────┴─ healthy again · switched off: requests and marks taken back, our cordon lifted
                   └─ machine or node vanished: ended, visibly

Everything is read from the node, its pods and the stored cluster: after a crash the next leader resumes from there.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from mooring.capabilities.drain import empty_node
from mooring.capabilities.drain.cordon import cordon, cordon_mark, lift_cordon
from mooring.capabilities.drain.empty_node import Emptiness, Emptying, Way, to_leave, way_of
from mooring.capabilities.drain.replace_pod import replacing
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.release import FLEET_TARGET, RETIRE_MACHINE, SOURCE
from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.fleet.planner.current import Member, wanted_state_taint
from mooring.core.model.cluster import NO_EXECUTE, Node, Pod, Taint
from mooring.core.model.decision import End, NextStep, OperatorRecord, Recovered, Verdict
from mooring.core.model.instructions import CutOff, EditTaints, EmitEvent, Instruction, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import Machine
from mooring.core.model.marks import CORDONED_BY, RETIRING, Mark, read_mark, write_mark
from mooring.core.model.operator import Operator, Payload, Step, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead

STEPS: Final = (Step(StepKind.CORDON), Step(StepKind.EMPTY_NODE), Step(StepKind.TAINT))
CORDON, EMPTY, TAINT = range(3)
EMPTYING: Final = "emptying"
EMPTIED: Final = "emptied"
BLOCKED: Final = "blocked"
_DAY_S: Final = 86_400.0
#: From here on the wait is a day in any case.
_DOUBLINGS: Final = 32


class RetireMachine(Payload, frozen=True, gc=False, kw_only=True):
    #: As the stored cluster names it.
    address: str


def how(operator: Operator) -> RetireMachine:
    assert isinstance(operator.payload, RetireMachine)
    return operator.payload


def retiring_mark(node: Node) -> Mark | None:
    """A kubelet may write it: one for another's machine is none."""
    mark = read_mark(node.annotations[RETIRING]) if RETIRING in node.annotations else None
    ours = mark is not None and mark.source == SOURCE and mark.node in {node.name, node.internal_ip}
    return mark if ours else None


def late_at(node: Node, policy: FleetPolicy) -> float:
    """When `retire-timeout` is over. It counts from the first cordon, not from the last try."""
    mark = cordon_mark(node, SOURCE) or retiring_mark(node)
    return mark.since + policy.retire_timeout_s if mark is not None else float("inf")


def taken_back(node: Node) -> bool:
    """Our mark says that we cordoned the node, and it is not cordoned: a person wants pods on it again."""
    return not node.unschedulable and cordon_mark(node, SOURCE) is not None


def emptying_of(name: str, node: Node | None, policy: FleetPolicy, now: float) -> Emptying:
    """How this node is to be emptied, by the mark on it."""
    mark = retiring_mark(node) if node is not None else None
    wanted = node is not None and mark is not None and mark.step != BLOCKED and not taken_back(node)
    return Emptying(
        node=name,
        source=SOURCE,
        reason=Reason.RETIRING,
        detail=f"{name} is being emptied: {mark.detail}" if mark is not None else "",
        since=mark.since if mark is not None else float("inf"),
        over="" if wanted else f"{name} is no longer being emptied",
        late=node is not None and policy.retire == "gentle" and now >= late_at(node, policy),
        bare_pods=policy.evict_bare_pods,
        hold_empty_dir=policy.gentle_empty_dir == "hold",
        serial=mark.machine if mark is not None else "",
        look_s=policy.recheck_s,
        patience_s=policy.retire_patience_s,
    )


class RetireSituation(msgspec.Struct, frozen=True):
    """What a retire operator sees."""

    running: OperatorRecord
    node: Node | None
    #: None: the registry no longer lists it.
    machine: Machine | None
    #: Its place in the stored cluster; None: it has none (any more).
    member: Member | None
    #: Whether the registry has answered since we lead, so that its absence there means something.
    registry_seen: bool
    #: Why fleet does nothing any more (switched off); "" while it does.
    off: str
    #: The write that stores the cluster with this node released; None: nothing is to be stored.
    store: Instruction | None
    queue: QueueRead
    now: float


def retire_operator(serial: str, address: str, node: str, detail: str, id_: str = "") -> Operator:
    subject = f"machine/{serial}"
    return Operator(
        id=id_,
        source=SOURCE,
        kind=RETIRE_MACHINE,
        subject=subject,
        claims=(subject,),
        steps=STEPS,
        # The last phase is for a machine whose members' volumes keep them, which may last for days: its place is free.
        phases=({FLEET_TARGET: 1}, {}),
        reason=Reason.RETIRING,
        detail=detail,
        payload=RetireMachine(node=node, serial=serial, address=address),
    )


def resumed(node: Node, mark: Mark) -> Iterator[Recovered]:
    operator = retire_operator(mark.machine, mark.node, node.name, mark.detail, mark.operator)
    yield Recovered(operator, TAINT if mark.step == EMPTIED else EMPTY, 0, mark.since)


def may_try(node: Node, policy: FleetPolicy) -> float:
    """When a machine that was given up on may be tried again; 0: at once."""
    mark = retiring_mark(node)
    if mark is None or mark.step != BLOCKED:
        return 0.0
    doubled: int = 2 ** (max(1, min(_tries(mark), _DOUBLINGS)) - 1)
    again = mark.since + min(policy.retire_hold_s * doubled, _DAY_S)
    over = late_at(node, policy)
    return min(again, over) if policy.retire == "gentle" and mark.since < over else again


def _tries(mark: Mark) -> int:
    """How often it was given up on. A mark is input: what is no number counts as none."""
    return int(mark.value) if mark.value.isdecimal() and len(mark.value) < 6 else 0


def still_wanted(member: Member | None, machine: Machine) -> bool:
    if member is None or member.control_plane:
        return False
    return member.leaving or wanted_state_taint(machine.state) is not None


def next_retire_step(situation: RetireSituation, world: WorldRead, policy: FleetPolicy) -> NextStep:
    running, node = situation.running, situation.node
    again = situation.now + policy.recheck_s
    if node is None:
        return _end(running, Reason.NODE_GONE, f"node {how(running.operator).node} is gone")
    if situation.off:
        return _undo(situation, node, world, Reason.FEATURE_OFF, situation.off, uncordon=True)
    if not situation.registry_seen:
        waiting_on = Verdict(State.WAITING, Reason.REGISTRY_UNREACHABLE, "the machine registry has not answered yet")
        return NextStep(step=running.step, waiting_on=waiting_on, again_at=again)
    if situation.machine is None:
        detail = f"machine {how(running.operator).serial} is not in the registry any more"
        return _undo(situation, node, world, Reason.SUBJECT_GONE, detail, uncordon=False)
    mark = retiring_mark(node)
    emptied = mark is not None and mark.step == EMPTIED
    tainted = situation.member is not None and situation.member.state_taint is not None
    if mark is None and (tainted or (running.step == TAINT and situation.member is None)):
        return _end(running, Reason.DONE, f"{node.name} is empty" + (" and tainted" if tainted else ""))
    if not still_wanted(situation.member, situation.machine) and not (emptied and situation.member is None):
        if situation.member is None:
            return _undo(situation, node, world, Reason.WITHDRAWN, "it is in the cluster no more", uncordon=False)
        detail = f"machine {situation.machine.serial} is {situation.machine.state.value} again"
        return _undo(situation, node, world, Reason.WITHDRAWN, detail, uncordon=True)
    if mark is None or (mark.step == BLOCKED and mark.operator != running.operator.id):
        return NextStep(step=CORDON, instructions=(_cordon(situation, node, mark),))
    if mark.step == BLOCKED:
        return _end(running, Reason.TIMEOUT, f"given up for now: {mark.detail}")
    if emptied:
        return _taint(situation, node, mark, world, policy)
    return _empty(situation, node, world, policy, mark)


def _cordon(situation: RetireSituation, node: Node, held: Mark | None) -> Patch:
    operator = situation.running.operator
    mark = Mark(
        operator=operator.id,
        source=SOURCE,
        reason=Reason.RETIRING,
        step=EMPTYING,
        since=situation.now,
        detail=operator.detail,
        node=how(operator).address,
        machine=how(operator).serial,
        value=held.value if held is not None else "",
    )
    # Where another feature cordoned before (a notice), its mark stays, and with it what was there before.
    first = None if CORDONED_BY in node.annotations else msgspec.structs.replace(mark, step="cordoned")
    return cordon(node, first, f"cordons {node.name}: {operator.detail}", {RETIRING: write_mark(mark)})


def _empty(situation: RetireSituation, node: Node, world: WorldRead, policy: FleetPolicy, mark: Mark) -> NextStep:
    running, now = situation.running, situation.now
    asked = emptying_of(node.name, node, policy, now)
    state = empty_node.emptiness(asked, world, now, situation.queue)
    if not state.left or policy.retire == "immediate":
        return NextStep(step=TAINT, instructions=(_say(node, mark, EMPTIED, "empty"),), progress="empty")
    if taken_back(node):
        return _give_up(situation, node, world, mark, f"{node.name} was uncordoned by hand")
    if not node.unschedulable:
        return NextStep(step=CORDON, instructions=(_cordon(situation, node, mark),))
    late = asked.late
    if late and _is_last_round_over(situation, world, state):
        return _break_off(node, mark, policy, state)
    if policy.retire == "hold" and now - mark.since >= policy.retire_timeout_s:
        return _give_up(situation, node, world, mark, state.words)
    progress = {"left": float(len(state.left)), "late": float(late)}
    same = all(running.notes.get(k) == v for k, v in progress.items())
    since = running.notes.get("since", now) if same else now
    waits = _waits_for_volumes(state)
    if now - since >= policy.retire_patience_s and not (waits or _is_handing_over(situation, state)):
        return _give_up(situation, node, world, mark, state.words, *state.held[:1])
    waiting_on = None
    if state.held:
        waiting_on = msgspec.structs.replace(state.held[0], detail="; ".join(h.detail for h in state.held[:3]))
    again = min(now + policy.recheck_s, now + policy.recheck_s if late else late_at(node, policy))
    return NextStep(
        step=EMPTY,
        phase=1 if waits else None,
        instructions=empty_node.ask_members(asked, running.operator.id, world, now),
        progress=f"time is over, evicted as budgets allow: {state.words}" if late else state.words,
        waiting_on=waiting_on,
        again_at=max(again, now + 0.5),
        notes={**progress, "since": since},
    )


def _waits_for_volumes(state: Emptiness) -> bool:
    """Only members are left, and their volumes keep them: their leaders leave, and are to stay away meanwhile."""
    kept = sum(held.reason is Reason.LOCAL_VOLUME for held in state.held)
    return 0 < kept == len(state.left)


def _is_handing_over(situation: RetireSituation, state: Emptiness) -> bool:
    """Leaders leave a member, or its restart has begun: that may take long, and goes on. One that only a person ends
    does not."""
    members = {str(p.key) for p in state.left}
    running = situation.queue.running_records()
    at_work = (r for r in running if r.operator.source == "handoff" and r.operator.payload.pod in members)
    return any(r.waiting_on is None or r.waiting_on.state is not State.BLOCKED for r in at_work)


def _is_last_round_over(situation: RetireSituation, world: WorldRead, state: Emptiness) -> bool:
    """Whether what is left is kept by budgets, and by nothing that ends by itself. TiKV and PD members are never cut
    off: their leaders would be. Nor is what serves and has room nowhere else, while the machine is well (F14)."""
    if any(_is_member(p, world, situation.now) for p in state.left):
        return False
    if any(held.reason is Reason.NO_ROOM for held in state.held):
        return False
    if len(state.held) < len(state.left):
        return False
    serial, here = how(situation.running.operator).serial, {p.uid for p in state.left}
    running = (one for r in situation.queue.running_records() if (one := replacing(r.operator)) is not None)
    return not any(one.serial == serial and one.uid not in here for one in running)


def _is_member(pod: Pod, world: WorldRead, now: float) -> bool:
    """Of TiKV or PD, and not long dead."""
    return way_of(pod, world) is Way.HANDED_OVER and not empty_node.is_stuck(pod, now)


def _give_up(
    situation: RetireSituation, node: Node, world: WorldRead, mark: Mark, detail: str, held: Verdict | None = None
) -> NextStep:
    """For now: the place is free for others, the cordon stays, and it is tried again later."""
    withdrawals = empty_node.take_back(node.name, SOURCE, world)
    if withdrawals:
        return NextStep(step=EMPTY, instructions=withdrawals, progress="gives up for now")
    given_up = msgspec.structs.replace(mark, step=BLOCKED, since=situation.now, value=str(_tries(mark) + 1))
    if held is None:
        given_up = msgspec.structs.replace(given_up, detail=detail)
    else:
        given_up = msgspec.structs.replace(given_up, detail=f"{detail}; {held.detail}", reason=held.reason)
    return NextStep(step=EMPTY, instructions=(_put(node, given_up, "gives up for now, and keeps the cordon"),))


def _break_off(node: Node, mark: Mark, policy: FleetPolicy, state: Emptiness) -> NextStep:
    cut_off = [p for p in state.left if p.deletion_at is None and not _tolerates(p)]
    names = ", ".join(str(p.key) for p in (cut_off or state.left)[:10])
    words = f"cuts off {names}" if cut_off else f"leaves {names}, which it does not drive out"
    told = EmitEvent(
        kind=Kind.NODE,
        key=node.key,
        uid=node.uid,
        reason=Reason.TIMEOUT,
        message=f"not empty after {int(policy.retire_timeout_s // 60)} min; NoExecute is set all the same and {words}",
        warning=True,
    )
    return NextStep(step=TAINT, instructions=(told, _say(node, mark, EMPTIED, f"time is over; {words}")))


def _tolerates(pod: Pod) -> bool:
    """For good, and whatever the state: which one is written is decided when it is stored."""
    stays = (t for t in pod.shape.tolerations if t.seconds is None)
    return any(t.tolerates(Taint(keys.STATE_TAINT, "NoExecute", t.value)) for t in stays)


def _taint(situation: RetireSituation, node: Node, mark: Mark, world: WorldRead, policy: FleetPolicy) -> NextStep:
    """Stored first, then on the node, where a live list must show what we see: no pod to cut off but what is kept by
    budgets once the time is over."""
    member, may_cut_off = situation.member, None
    if policy.retire != "immediate":
        asked, left = emptying_of(node.name, node, policy, situation.now), to_leave(node.name, world)
        held = ((p, empty_node.held_by(p, asked, world, situation.now)) for p in left if asked.late)
        kept = [p for p, by in held if by is not None and by.reason is not Reason.NO_ROOM]
        if len(kept) < len(left) or any(_is_member(p, world, situation.now) for p in left):
            return NextStep(step=EMPTY, instructions=(_say(node, mark, EMPTYING, situation.running.operator.detail),))
        may_cut_off = tuple(p.uid for p in kept)
    if situation.store is not None:
        return NextStep(step=TAINT, instructions=(situation.store,), progress="to be stored in the cluster")
    if member is not None and member.state_taint is None:
        # Empty, and the plan did not let it go yet: it is looked at again when something changes.
        return NextStep(step=TAINT, progress="empty; waits to be stored", again_at=situation.now + 5.0)
    taint = member.state_taint if member is not None else None
    add = (Taint(keys.STATE_TAINT, taint[1], taint[0]),) if taint is not None else ()
    why = f"{node.name}: {mark.detail}"
    gone: Mapping[str, str | None] = {RETIRING: None}
    if any(one.effect == NO_EXECUTE for one in add):
        cut = CutOff(node=node.name, uid=node.uid, add=add, annotations=gone, may_cut_off=may_cut_off, why=why)
        return NextStep(step=TAINT, instructions=(cut,))
    edit = EditTaints(node=node.name, uid=node.uid, add=add, annotations=gone, why=why)
    return NextStep(step=TAINT, instructions=(edit,))


def _undo(
    situation: RetireSituation, node: Node, world: WorldRead, reason: Reason, detail: str, *, uncordon: bool
) -> NextStep:
    """Take back what a mark says we did, requests first; ended once nothing of it is there."""
    step = situation.running.step
    withdrawals = empty_node.take_back(node.name, SOURCE, world)
    if withdrawals:
        return NextStep(step=step, instructions=withdrawals, progress=detail)
    if RETIRING in node.annotations and retiring_mark(node) is not None:
        told = EmitEvent(
            kind=Kind.NODE, key=node.key, uid=node.uid, reason=reason, message=f"no longer emptied: {detail}"
        )
        back = lift_cordon(node, SOURCE, detail, (RETIRING,)) if uncordon else _put(node, None, detail)
        return NextStep(step=step, instructions=(told, back), progress=detail)
    return _end(situation.running, reason, detail)


def _say(node: Node, mark: Mark, step: str, detail: str) -> Patch:
    return _put(node, msgspec.structs.replace(mark, step=step, detail=detail), detail)


def _put(node: Node, mark: Mark | None, why: str) -> Patch:
    text = write_mark(mark) if mark is not None else None
    patch = {"metadata": {"annotations": {RETIRING: text}}}
    return Patch(kind=Kind.NODE, key=node.key, uid=node.uid, patch=patch, why=why)


def _end(running: OperatorRecord, reason: Reason, detail: str) -> NextStep:
    return NextStep(step=running.step, end=End(reason, detail))
