"""Changing the control plane, one member and one stored revision at a time: the `change-control-plane` operator.

It is carried out by storing it; the queue's room (`control-plane` 1) is kept until the newcomer is a Ready node and
the member that left is gone, or a worker, and at most as long as a change has to settle: what is still missing then
takes its room as a fact, which does not block its own repair. After a crash the stored revision is the only record:
what is not stored has not begun, and what is stored and not yet Ready takes its room as a fact.
"""

from mooring.capabilities.fleet.live.fleet_pass import Survey, make_pass, store
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.release import MemberChange, Released, control_plane_change, member_changes
from mooring.capabilities.fleet.planner.plan import ClusterPlan
from mooring.core.model.decision import End, NextStep, OperatorRecord, Verdict
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State


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
