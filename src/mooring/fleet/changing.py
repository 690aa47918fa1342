"""Changing the control plane, one member and one stored revision at a time: the `change-control-plane` operator.

It is carried out by storing it; the queue's room (`control-plane` 1) is kept until the newcomer is a Ready node and
whoever left is gone, or a worker. After a crash the stored revision is the only witness: what is not stored has not
begun, and what is stored and not yet Ready takes its room as a fact.
"""

from mooring.fleet.passing import Survey, make_pass, store
from mooring.fleet.policy import FleetPolicy
from mooring.fleet.release import MemberChange, Released, member_changes
from mooring.model.decision import Course, End, Running, Verdict
from mooring.model.reasons import Reason, State


def steer_change(running: Running, survey: Survey, policy: FleetPolicy, namespace: str, unseen: str) -> Course:
    """`unseen`: why the registry's list cannot be trusted just now, in words."""
    args = running.operator.args
    change = MemberChange(args["incoming"], args["outgoing"])
    planes = {m.address for m in survey.ledger.members if m.control_plane}
    again = survey.now + policy.recheck_s
    if (not change.incoming or change.incoming in planes) and change.outgoing not in planes:
        return _settle(change, survey, again)
    if unseen:
        return Course(step=0, waits=Verdict(State.WAITS, Reason.REGISTRY_UNREACHABLE, unseen), again_at=again)
    made = make_pass(survey, policy, retiring=False, changing=False)
    if change not in member_changes(survey.ledger.members, made.plan):
        return Course(step=0, end=End(Reason.WITHDRAWN, "the plan no longer asks for it"))
    released = Released(control_plane=change, immediate=policy.retire == "immediate")
    why = f"stores revision {survey.ledger.revision + 1}: {_words(change)}"
    write = store(survey, made, released, namespace, policy, why)
    if write is None:
        return Course(step=0, end=End(Reason.WITHDRAWN, "nothing is left to store"))
    return Course(step=0, instructions=(write,), progress="to be stored")


def _settle(change: MemberChange, survey: Survey, again: float) -> Course:
    node = survey.nodes.get(change.incoming)
    if change.incoming and (node is None or node.ready != "True"):
        detail = f"{change.incoming} is not a Ready node yet"
        return Course(step=0, progress=detail, waits=Verdict(State.WAITS, Reason.SETTLING, detail), again_at=again)
    members = {m.address for m in survey.ledger.members}
    if change.outgoing and change.outgoing not in members and change.outgoing in survey.nodes:
        detail = f"{change.outgoing} is not gone yet"
        return Course(step=0, progress=detail, waits=Verdict(State.WAITS, Reason.SETTLING, detail), again_at=again)
    return Course(step=0, end=End(Reason.DONE, _words(change)))


def _words(change: MemberChange) -> str:
    if change.incoming and change.outgoing:
        return f"{change.incoming} replaces {change.outgoing} in the control plane"
    return f"{change.incoming} joins the control plane" if change.incoming else f"{change.outgoing} leaves it"
