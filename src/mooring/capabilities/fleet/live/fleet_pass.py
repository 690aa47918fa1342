"""One pass: what is stored, what is seen and what is set → the plan, and the members to store next. Pure.

settings ─┐
machines ─┼─► decide ─► plan ─► only what may happen now ─► members to store, operators to propose
ledger  ──┤                      (settled? no operator running? released?)
nodes   ──┘
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from mooring.capabilities.fleet.live.affected import is_control_plane
from mooring.capabilities.fleet.live.ledger import HELD, PENDING, Pending, StoredCluster, next_data, write_ledger
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.release import Released, cluster_now
from mooring.capabilities.fleet.live.settings import FleetSettings
from mooring.capabilities.fleet.live.settling import unsettled
from mooring.capabilities.fleet.live.store import Decisions
from mooring.capabilities.fleet.planner.current import Current, Member
from mooring.capabilities.fleet.planner.decide import decide
from mooring.capabilities.fleet.planner.explain import listed
from mooring.capabilities.fleet.planner.plan import Action, Assignment, ClusterPlan, FleetView
from mooring.capabilities.fleet.planner.problem import ErrorCode, PlanError
from mooring.core.model.cluster import Node
from mooring.core.model.instructions import Instruction
from mooring.core.model.machine import Machine

#: These wait for a change of the control plane that is under way.
_OF_CONTROL_PLANE: Final = frozenset(
    {
        Action.INCREASE_CONTROL_PLANE,
        Action.DECREASE_CONTROL_PLANE,
        Action.REPLACE_CONTROL_PLANE,
        Action.REGENERATE,
    }
)


class Survey(msgspec.Struct, frozen=True):
    """Everything a pass depends on."""

    settings: FleetSettings
    ledger: StoredCluster
    #: By address.
    machines: Mapping[str, Machine]
    #: Live Nodes by address.
    nodes: Mapping[str, Node]
    now: float


class Pass(msgspec.Struct, frozen=True):
    #: The destination, or what stays when nothing may change just now.
    plan: ClusterPlan
    #: What the plan would have been, had the last change settled.
    wanted: ClusterPlan
    #: Why nothing may change just now; "" when something may.
    settling: str = ""
    #: Every machine has the role that the plan wants, and its taints: nothing to store, nothing to propose.
    quiet: bool = False


def make_pass(survey: Survey, policy: FleetPolicy, *, changing: bool = False) -> Pass:
    """`changing`: a change of the control plane is under way, so that nothing else of it may change.

    Machines that are being emptied delay nothing: their places do not change until they are empty.
    """
    wanted = _decide(survey, policy)
    waiting_on = unsettled(survey.ledger, survey.nodes, survey.now, policy.settle_timeout_s)
    if changing and not waiting_on and wanted.action in _OF_CONTROL_PLANE:
        waiting_on = "the control plane is being changed"
    if wanted.action is Action.NONE and wanted.error is None:
        return Pass(wanted, wanted, quiet=not any(m.leaving for m in survey.ledger.members))
    if wanted.action is Action.NONE or (wanted.error is None and not waiting_on):
        return Pass(wanted if wanted.error is None else stays(survey), wanted)
    return Pass(stays(survey), wanted, waiting_on if wanted.error is None else "")


def as_stored(survey: Survey) -> Pass:
    """No machine is added or removed: for a write of what was released alone."""
    plan = stays(survey)
    return Pass(plan, plan)


def _decide(survey: Survey, policy: FleetPolicy) -> ClusterPlan:
    settings, ledger, now = survey.settings, survey.ledger, survey.now
    members = ledger.members
    view = FleetView(
        template=settings.template,
        constraints=settings.constraints,
        machines=tuple(survey.machines.values()),
        now=now,
        current=Current(members) if members else None,
        node_taints={a: tuple(t.key for t in n.taints) for a, n in survey.nodes.items() if n.taints},
        wait_retired_s=policy.wait_retired_s,
        when_short=policy.when_short,
        hold_removal=True,
        confirmed_removals=settings.confirmed,
        held_removals=ledger.held,
        regenerate=bool(members) and ledger.decisions.revision != settings.revision,
    )
    plan = decide(view)
    if not members and plan.error is None:
        error = _adoption_guard(plan, survey.nodes)
        return plan if error is None else ClusterPlan(plan.action, error=error, notes=plan.notes)
    if plan.error is not None and plan.error.code is ErrorCode.MISSING_MACHINE:
        # A new template cannot be written for a machine that is not listed: the plain pass takes that one out first.
        return decide(msgspec.structs.replace(view, regenerate=False))
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
        "give the cluster that is there (mooring fleet set-cluster)",
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
    if not members or (members == ledger.members and revision == ledger.decisions.revision):
        if not beside or ledger.object is None:
            return None
        return write_ledger(
            namespace, ledger, beside, "notes which changes have settled and which removals are blocked"
        )
    action = plan.action if plan.action is not Action.NONE else Action.TAINT
    decisions = Decisions(revision, members)
    data = {**beside, **next_data(ledger, decisions, action, plan.changes, survey.now, keep=policy.history)}
    if beside.get(PENDING) and data[PENDING] == msgspec.json.encode(ledger.pending).decode():
        data[PENDING] = beside[PENDING]
    return write_ledger(namespace, ledger, data, why or f"stores revision {ledger.revision + 1}: {action.value}")


def _beside(survey: Survey, made: Pass, policy: FleetPolicy) -> dict[str, str]:
    """What else is to be noted: that the last change has settled (once is enough), and whose removal is blocked."""
    ledger, noted = survey.ledger, {}
    settled = not unsettled(ledger, survey.nodes, survey.now, policy.settle_timeout_s)
    if ledger.pending != Pending() and settled:
        noted[PENDING] = "{}"
    # Non-existent workers are removed before anything else is done: the removal of one that is still there was blocked.
    assigned = [s.address for s in made.wanted.assignments if s.machine is None and not s.control_plane]
    absent = (a for a in ledger.held if a not in survey.machines and a not in survey.settings.confirmed)
    held = frozenset(assigned) if made.wanted.error is None else frozenset(absent)
    if held != ledger.held:
        noted[HELD] = msgspec.json.encode(sorted(held)).decode()
    return noted
