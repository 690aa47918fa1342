"""One pass: what is stored, what is seen and what is set → the plan, and the members to store next. Pure.

settings ─┐
machines ─┼─► decide ─► plan ─► only what may happen now ─► members to store, operators to propose
ledger  ──┤                      (settled? no operator running? released?)
nodes   ──┘
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from mooring.capabilities.fleet.live.index import Survey, Waits, is_control_plane, is_ready, waits
from mooring.capabilities.fleet.live.ledger import (
    HELD,
    MACHINES,
    PENDING,
    REMEMBERED_S,
    REPLACED,
    Decisions,
    Pending,
    as_shown,
    encode_machines,
    next_data,
    write_ledger,
    write_pending,
)
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.release import (
    MemberChange,
    Released,
    cluster_now,
    control_plane_change,
    member_changes,
)
from mooring.capabilities.fleet.planner.current import Current, Member
from mooring.capabilities.fleet.planner.decide import decide
from mooring.capabilities.fleet.planner.document import ErrorCode, PlanError
from mooring.capabilities.fleet.planner.draft import doubtful
from mooring.capabilities.fleet.planner.plan import Action, Assignment, ClusterPlan, FleetView
from mooring.capabilities.fleet.planner.score import listed
from mooring.core.model.cluster import Node
from mooring.core.model.decision import End, NextStep, OperatorRecord, Verdict
from mooring.core.model.instructions import Instruction
from mooring.core.model.machine import Machine
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State

#: These go before a new template: it is the cluster as it should be that is written again.
_REPAIRS: Final = frozenset({Action.REMOVE_NON_EXISTENT, Action.INCREASE_CONTROL_PLANE, Action.REPLACE_CONTROL_PLANE})


class Pass(msgspec.Struct, frozen=True):
    #: The destination, or what stays when nothing may change just now.
    plan: ClusterPlan
    #: What the plan would have been, had the last change settled.
    wanted: ClusterPlan
    #: Why what is wanted first may not begin just now; "" when it may.
    settling: str = ""
    #: Every machine has the role that the plan wants, and its taints: nothing to store, nothing to propose.
    quiet: bool = False


def make_pass(survey: Survey, policy: FleetPolicy, *, changing: bool = False) -> Pass:
    """`changing`: a change of the control plane is under way, so that nothing else of it may change.

    An action that waits for its own concern lets the others have their turn. Machines that are being emptied delay
    nothing: their places do not change until they are empty.
    """
    still = waits(survey.ledger, survey.nodes, survey.now, policy.settle_timeout_s)
    if changing and not still.control_plane:
        still = msgspec.structs.replace(still, control_plane="the control plane is being changed")
    skipped: list[Action] = []
    settling = ""
    wanted = plan = _decide(survey, policy)
    while plan.error is None and plan.action is not Action.NONE:
        waiting_on = _waits_for(plan, survey, still)
        if not waiting_on:
            return Pass(plan, wanted, settling)
        settling = settling or waiting_on
        skipped.append(plan.action)
        plan = _decide(survey, policy, frozenset(skipped))  # another concern may have its turn
    if wanted.action is Action.NONE and wanted.error is None:
        return Pass(wanted, wanted, quiet=not any(m.leaving for m in survey.ledger.members))
    return Pass(stays(survey), wanted, settling)


def _waits_for(plan: ClusterPlan, survey: Survey, still: Waits) -> str:
    """What a plan has to wait for: changes of its own concern alone."""
    match plan.action:
        case Action.REGENERATE:
            return still.of_all()
        case Action.INCREASE_WORKERS if still.joining:
            return still.joining
        case Action.DECREASE_WORKERS if still.leaving:
            return still.leaving
        case _:
            return still.control_plane if member_changes(survey.ledger.members, plan) else ""


def as_stored(survey: Survey) -> Pass:
    """No machine is added or removed: for a write of what was released alone."""
    plan = stays(survey)
    return Pass(plan, plan)


def _decide(survey: Survey, policy: FleetPolicy, skip: frozenset[Action] = frozenset()) -> ClusterPlan:
    settings, ledger, now = survey.settings, survey.ledger, survey.now
    members = ledger.members
    view = FleetView(
        template=settings.template,
        constraints=settings.constraints,
        machines=(*survey.machines.values(), *survey.bad_rows),
        now=now,
        current=Current(members) if members else None,
        node_taints={a: tuple(t.key for t in n.taints) for a, n in survey.nodes.items() if n.taints},
        wait_retired_s=policy.wait_retired_s,
        when_short=policy.when_short,
        hold_removal=True,
        confirmed_removals=settings.confirmed,
        held_removals=ledger.held,
        replaced=ledger.replaced,
        replace_backoff_s=policy.replace_backoff_s,
        skip=skip,
    )
    renewed = bool(members) and ledger.decisions.revision != settings.revision and Action.REGENERATE not in skip
    plan = decide(view)
    if renewed and not (plan.error is None and plan.action in _REPAIRS):
        plan = decide(msgspec.structs.replace(view, regenerate=True))
    if not members and plan.error is None:
        error = _adoption_guard(plan, survey.nodes)
        return plan if error is None else ClusterPlan(plan.action, error=error, notes=plan.notes)
    if plan.error is not None and plan.error.code is ErrorCode.MISSING_MACHINE:
        # A new template cannot be written for a machine that is not listed: the plain pass takes that one out first.
        return decide(view)
    return plan


def _adoption_guard(plan: ClusterPlan, nodes: Mapping[str, Node]) -> PlanError | None:
    """Nothing is stored, and yet there is a control plane: the record was deleted, or the cluster was never
    imported."""
    planned = {s.address for s in plan.control_planes}
    lost = sorted(a for a, n in nodes.items() if is_control_plane(n) and a not in planned)
    if not lost:
        return None
    return PlanError(
        ErrorCode.INVALID_CLUSTER,
        f"no cluster is stored, and a first one would do without {listed(lost)}, a control plane in Kubernetes: "
        "give the cluster that is there (mooring fleet set cluster)",
    )


def stays(survey: Survey) -> ClusterPlan:
    """The stored cluster as a plan: no machine is added or removed, and taints follow as far as they are released."""
    machines = survey.machines
    assignments = [
        Assignment(m.address, m.control_plane, machines.get(m.address)) for m in survey.ledger.members if not m.leaving
    ]
    return ClusterPlan(Action.NONE, tuple(assignments))


def members_next(survey: Survey, plan: ClusterPlan, released: Released) -> tuple[Member, ...]:
    # What has no Node has nothing to be emptied.
    absent = frozenset(m.address for m in survey.ledger.members if m.address not in survey.nodes)
    widened = msgspec.structs.replace(released, emptied=released.emptied | absent)
    members = survey.ledger.members
    if not members and plan.error is not None:
        return ()
    return cluster_now(members, plan, widened, survey.machines, survey.settings.constraints.maximum_workers)


def store(
    survey: Survey, made: Pass, released: Released, namespace: str, policy: FleetPolicy, why: str = ""
) -> Instruction | None:
    """The write that stores what may happen now; None when that is what is stored already."""
    ledger, plan = survey.ledger, made.plan
    members = ledger.members if made.quiet else members_next(survey, plan, released)
    beside = _beside(survey, made, policy)
    # A plain pass that went before a new template keeps the old revision: the new one's turn is still to come.
    renewed = plan.action in {Action.REGENERATE, Action.GENERATE}
    revision = survey.settings.revision if renewed else ledger.decisions.revision
    machines = _machines_next(survey, members)
    same = members == ledger.members and revision == ledger.decisions.revision
    if not members or (same and machines == ledger.machines):
        if not beside or ledger.object is None:
            return None
        return write_ledger(
            namespace, ledger, beside, "notes which changes have settled and which removals are blocked"
        )
    action = plan.action if plan.action is not Action.NONE else Action.UPDATE if same else Action.TAINT
    decisions = Decisions(revision, members)
    settled = msgspec.structs.replace(ledger, pending=_still_pending(survey, policy))
    data = {**beside, **next_data(settled, decisions, action, plan.changes, survey.now, keep=policy.history)}
    if machines != ledger.machines:
        data[MACHINES] = encode_machines(machines.values())
    change = released.control_plane
    if change is not None and change.outgoing and action in _REPAIRS:
        recent = {a: at for a, at in ledger.replaced.items() if survey.now - at < REMEMBERED_S}
        data[REPLACED] = msgspec.json.encode({**recent, change.outgoing: survey.now}).decode()
    return write_ledger(namespace, ledger, data, why or f"stores revision {ledger.revision + 1}: {action.value}")


def _machines_next(survey: Survey, members: tuple[Member, ...]) -> dict[str, Machine]:
    """The members' machines as cluster.yml shows them: as they are listed, else as they were."""
    listed_now, before, found = survey.machines, survey.ledger.machines, {}
    for m in members:
        machine = listed_now.get(m.address)
        if machine is not None:
            found[m.address] = as_shown(machine)
        elif m.address in before:
            found[m.address] = before[m.address]
    return found


def _still_pending(survey: Survey, policy: FleetPolicy) -> Pending:
    """What has come, all of it, and what has gone, all of it, is forgotten: two writes a change, not one a machine."""
    pending, nodes = survey.ledger.pending, survey.nodes
    young = (a for a, at in pending.added.items() if survey.now - at < policy.settle_timeout_s)
    coming = any(not is_ready(a, nodes) for a in young)
    return Pending(pending.added if coming else {}, pending.removed if any(a in nodes for a in pending.removed) else {})


def _beside(survey: Survey, made: Pass, policy: FleetPolicy) -> dict[str, str]:
    """What else is to be noted: that the last change has settled (once is enough), and whose removal is blocked."""
    ledger, noted = survey.ledger, {}
    left = _still_pending(survey, policy)
    if left != ledger.pending:
        noted[PENDING] = write_pending(left)
    # Non-existent workers are removed before anything else is done: the removal of one that is still there was blocked.
    unclear = doubtful(ledger.members, survey.bad_rows)
    vanished = (s.address for s in made.wanted.assignments if s.machine is None and not s.control_plane)
    assigned = [a for a in vanished if a not in unclear]
    absent = (a for a in ledger.held if a not in survey.machines and a not in survey.settings.confirmed)
    held = frozenset(assigned) if made.wanted.error is None else frozenset(absent)
    if held != ledger.held:
        noted[HELD] = msgspec.json.encode(sorted(held)).decode()
    return noted


# ── The `change-control-plane` operator ─────────────────────────────────────────────────────────────────────────────
#
# Changing the control plane, one member and one stored revision at a time. It is carried out by storing it; the queue's
# room (`control-plane` 1) is kept until the newcomer is a Ready node and the member that left is gone, or a worker, and
# at most as long as a change has to settle: what is still missing then takes its room as a fact, which does not block
# its own repair. After a crash the stored revision is the only record: what is not stored has not begun, and what is
# stored and not yet Ready takes its room as a fact.


def next_change_step(
    running: OperatorRecord, survey: Survey, policy: FleetPolicy, namespace: str, unseen: str
) -> NextStep:
    """`unseen`: why the registry's list is not current, in words."""
    change = _change_of(running.operator)
    planes = {m.address for m in survey.ledger.members if m.control_plane}
    again = survey.now + policy.recheck_s
    if (not change.incoming or change.incoming in planes) and change.outgoing not in planes:
        waiting_on = _unsettled(change, survey)
        if not waiting_on:
            return NextStep(step=0, end=End(Reason.DONE, _words(change)))
        if survey.now - (running.acted_at or running.promoted_at) >= policy.settle_timeout_s:
            return NextStep(step=0, end=End(Reason.TIMEOUT, f"{waiting_on} after {policy.settle_timeout_s / 60:g} min"))
        return NextStep(
            step=0, progress=waiting_on, waiting_on=Verdict(State.WAITING, Reason.SETTLING, waiting_on), again_at=again
        )
    if unseen:
        return NextStep(step=0, waiting_on=Verdict(State.WAITING, Reason.REGISTRY_UNREACHABLE, unseen), again_at=again)
    made = make_pass(survey, policy)
    if not is_asked_for(running.operator, survey, made.plan):
        return NextStep(step=0, end=End(Reason.WITHDRAWN, "the plan no longer asks for it"))
    released = Released(control_plane=change, immediate=policy.retire == "immediate")
    why = f"stores revision {survey.ledger.revision + 1}: {_words(change)}"
    write = store(survey, made, released, namespace, policy, why)
    if write is None:
        return NextStep(step=0, end=End(Reason.WITHDRAWN, "nothing is left to store"))
    return NextStep(step=0, instructions=(write,), progress="to be stored")


def is_asked_for(operator: Operator, survey: Survey, plan: ClusterPlan) -> bool:
    """Whether the way from the stored control plane to the planned one still has this change in it."""
    return _change_of(operator) in member_changes(survey.ledger.members, plan)


def _change_of(operator: Operator) -> MemberChange:
    change = control_plane_change(operator)
    return MemberChange(change.incoming, change.outgoing)


def _unsettled(change: MemberChange, survey: Survey) -> str:
    """What is still to come, or to go; "" when nothing is."""
    node = survey.nodes.get(change.incoming)
    if change.incoming and (node is None or node.ready != "True"):
        return f"{change.incoming} is not a Ready node yet"
    members = {m.address for m in survey.ledger.members}
    if change.outgoing and change.outgoing not in members and change.outgoing in survey.nodes:
        return f"{change.outgoing} is not gone yet"
    return ""


def _words(change: MemberChange) -> str:
    if change.incoming and change.outgoing:
        return f"{change.incoming} replaces {change.outgoing} in the control plane"
    return f"{change.incoming} joins the control plane" if change.incoming else f"{change.outgoing} leaves it"
