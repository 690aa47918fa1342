"""One pass: what is stored, what is seen and what is set → the plan, and the members to store next. Pure.

settings ─┐
machines ─┼─► decide ─► plan ─► only what may happen now ─► members to store, operators to propose
ledger  ──┤                      (settled? no operator running? released?)
nodes   ──┘
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from mooring.capabilities.fleet.live.ledger import (
    HELD,
    MACHINES,
    PENDING,
    REMEMBERED_S,
    REPLACED,
    Pending,
    StoredCluster,
    next_data,
    write_ledger,
    write_pending,
)
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.release import Released, cluster_now, member_changes
from mooring.capabilities.fleet.live.settings import FleetSettings
from mooring.capabilities.fleet.live.settling import Waits, is_control_plane, is_ready, waits
from mooring.capabilities.fleet.live.store import Decisions, as_shown, encode_machines
from mooring.capabilities.fleet.planner.current import Current, Member
from mooring.capabilities.fleet.planner.decide import decide
from mooring.capabilities.fleet.planner.draft import doubtful
from mooring.capabilities.fleet.planner.explain import listed
from mooring.capabilities.fleet.planner.plan import Action, Assignment, ClusterPlan, FleetView
from mooring.capabilities.fleet.planner.problem import ErrorCode, PlanError
from mooring.core.model.cluster import Node
from mooring.core.model.instructions import Instruction
from mooring.core.model.machine import Machine

#: These go before a new template: it is the cluster as it should be that is written again.
_REPAIRS: Final = frozenset({Action.REMOVE_NON_EXISTENT, Action.INCREASE_CONTROL_PLANE, Action.REPLACE_CONTROL_PLANE})


class Survey(msgspec.Struct, frozen=True):
    """Everything a pass depends on."""

    settings: FleetSettings
    ledger: StoredCluster
    #: By address.
    machines: Mapping[str, Machine]
    #: Live Nodes by address.
    nodes: Mapping[str, Node]
    now: float
    #: Of the registry, that cannot be used.
    bad_rows: tuple[Machine, ...] = ()


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
