"""The key `plan`: settings, machines and the stored cluster → what is stored now, and what waits for its turn.

Most minutes no machine has changed, and a pass over ten thousand machines takes tens of milliseconds. So the answer of
a pass that found every machine in place is kept in the notes, with what it was made from: the very settings, ledger and
list of machines, and the count of changes of nodes. After some queries the pass is made again in any case: a lost
event delays a decision and never makes it wrong.
"""

from collections import Counter
from collections.abc import Iterator
from math import inf
from typing import Any, Final

import msgspec

from mooring.capabilities.fleet.live import retire
from mooring.capabilities.fleet.live.explain import retirement
from mooring.capabilities.fleet.live.fleet_pass import Pass, is_asked_for, make_pass, store
from mooring.capabilities.fleet.live.index import FleetIndex, Survey, claimed_twice, control_plane_facts, waits
from mooring.capabilities.fleet.live.ledger import StoredCluster
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.release import (
    CHANGE_CONTROL_PLANE,
    RETIRE_MACHINE,
    SOURCE,
    Released,
    change_operator,
    member_changes,
    to_empty,
)
from mooring.capabilities.fleet.live.retire import taken_back
from mooring.capabilities.fleet.planner.decide import FLAPPING, ONLY_ONE
from mooring.capabilities.fleet.planner.document import ErrorCode
from mooring.capabilities.fleet.planner.plan import Action
from mooring.capabilities.fleet.planner.score import listed
from mooring.core.model.decision import Evaluation, Verdict, Withdrawal
from mooring.core.model.machine import MachineState
from mooring.core.model.marks import RETIRING
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead


class FleetReport(msgspec.Struct, frozen=True):
    successful: bool = False
    at: float = 0.0
    workers: tuple[tuple[str, int], ...] = ()
    targets: tuple[tuple[str, float], ...] = ()
    unused: int = 0
    unmet: tuple[tuple[str, int], ...] = ()


def report_of(survey: Survey, made: Pass, before: FleetReport) -> FleetReport:
    """A failed pass says only that, and when: the other figures stay those of the last good one."""
    if made.wanted.error is not None:
        return msgspec.structs.replace(before, successful=False, at=survey.now, unmet=_unmet(made))
    machines, members = survey.machines, survey.ledger.members
    assigned = [machines[m.address] for m in members if not m.control_plane and m.address in machines]
    counted = Counter(m.role for m in assigned)
    roles = {t.role: t.weight for t in survey.settings.template.workers}
    weights = sum(roles.values())
    total = max(len(assigned), survey.settings.constraints.minimum_workers)
    in_cluster = {m.address for m in members}
    return FleetReport(
        True,
        survey.now,
        tuple(sorted({**dict.fromkeys(roles, 0), **counted}.items())),
        tuple((role, total * weight / weights) for role, weight in sorted(roles.items())),
        sum(1 for a, m in machines.items() if a not in in_cluster and m.state is MachineState.HEALTHY),
        _unmet(made),
    )


def _unmet(made: Pass) -> tuple[tuple[str, int], ...]:
    return tuple((u.constraint, abs(u.wanted - u.have)) for u in made.wanted.unmet)


def gauges(report: FleetReport) -> Iterator[tuple[str, dict[str, str], float]]:
    if not report.at:
        return
    yield "cke_sabakan_integration_successful", {}, float(report.successful)
    yield "cke_sabakan_integration_timestamp_seconds", {}, report.at
    yield "cke_sabakan_unused_machines", {}, float(report.unused)
    for role, count in report.workers:
        yield "cke_sabakan_workers", {"role": role}, float(count)
    for role, wanted in report.targets:
        yield "mooring_fleet_role_target", {"role": role}, wanted
    for constraint, short in report.unmet:
        yield "mooring_fleet_unmet", {"constraint": constraint}, float(short)


_REASONS: Final = {
    ErrorCode.NOT_AVAILABLE: Reason.UNMET,
    ErrorCode.TOO_MANY_NON_EXISTENT: Reason.QUORUM,
}
#: Queries after which the pass is made all the same.
_PASSES: Final = 10


class Quiet(msgspec.Struct, frozen=True):
    """A pass that found nothing to do."""

    #: What it was made from, compared by identity.
    of: tuple[Any, ...]
    nodes_version: int
    until: float
    evaluation: Evaluation


class PlanNotes(msgspec.Struct, frozen=True):
    #: The query in force, and since when: an older answer of the registry does not count.
    query: str = ""
    query_since: float = 0.0
    report: FleetReport = FleetReport()
    quiet: Quiet | None = None


def evaluate_plan(
    world: WorldRead, queue: QueueRead, notes: object, now: float, policy: FleetPolicy, namespace: str
) -> Evaluation:
    index, old = world.index(FleetIndex), notes if isinstance(notes, PlanNotes) else PlanNotes()
    settings, wrong, ledger = index.settings, index.wrong, index.ledger
    if settings is None:
        return Evaluation(verdict=Verdict(State.BLOCKED, Reason.MISCONFIGURED, wrong), notes=old)
    if not settings.enabled:
        verdict = Verdict(State.REFUSED, Reason.DISABLED, "fleet is switched off", "mooring fleet enable")
        return Evaluation(withdrawals=tuple(_all_waiting(queue, "fleet was switched off")), verdict=verdict, notes=old)
    if old.query != settings.query:
        old = msgspec.structs.replace(old, query=settings.query, query_since=now, quiet=None)
    ask_at = _ask_at(old, world, policy, now)
    if isinstance(ledger, str):
        remedy = "fix or remove it, or write it again from a cluster.yml: mooring fleet set cluster cluster.yml"
        verdict = Verdict(State.BLOCKED, Reason.MISCONFIGURED, ledger, remedy)
        return Evaluation(machines_by=ask_at, verdict=verdict, notes=old)
    seen_at, lost = world.machines_observed_at(), world.machines_lost()
    of = (settings, ledger, world.machines(), policy)
    if not lost and not wrong and not _any_ours(queue):
        same = _recalled(old.quiet, of, index.nodes_version, now)
        if same is not None:
            kept = msgspec.structs.replace(old, report=msgspec.structs.replace(old.report, at=now))
            return msgspec.structs.replace(same, machines_by=ask_at, notes=kept)
    if unclear := claimed_twice(world, index.addresses):
        verdict = Verdict(State.BLOCKED, Reason.MISCONFIGURED, unclear, "kubectl get nodes -o wide")
        return Evaluation(machines_by=ask_at, verdict=verdict, notes=old)
    survey = index.survey(settings, ledger, world, now)
    facts = tuple(control_plane_facts(ledger, survey.nodes, world.nodes()))
    if lost or seen_at is None or seen_at < old.query_since:
        failed = msgspec.structs.replace(old.report, successful=False, at=now)
        verdict = Verdict(State.WAITING, Reason.REGISTRY_UNREACHABLE, lost or "the registry has not answered yet")
        kept = msgspec.structs.replace(old, report=failed, quiet=None)
        return Evaluation(facts=facts, machines_by=ask_at, verdict=verdict, notes=kept)
    made = _pass(survey, policy, queue)
    word, told = _verdict(made, wrong), tuple(_on_their_way_out(survey, world, queue, policy))
    answer = Evaluation(
        **_answer(survey, made, queue, policy, namespace),
        facts=facts,
        machines_by=ask_at,
        verdict=word,
        verdicts=(*told, word) if told and word is not None else told,
    )
    until, quiet = now + _PASSES * policy.query_s, None
    if not _any_ours(queue) and _is_quiet(answer, made, ledger):
        quiet = Quiet(of, index.nodes_version, until, answer)
    report = report_of(survey, made, old.report)
    return msgspec.structs.replace(answer, notes=msgspec.structs.replace(old, report=report, quiet=quiet))


def _ask_at(notes: PlanNotes, world: WorldRead, policy: FleetPolicy, now: float) -> float:
    """At once when the query is another than the one that was asked last, else a minute after that."""
    asked_at = world.machines_asked_at()
    return now if asked_at is None or asked_at < notes.query_since else asked_at + policy.query_s


def _recalled(quiet: Quiet | None, of: tuple[Any, ...], nodes_version: int, now: float) -> Evaluation | None:
    if quiet is None or now >= quiet.until or nodes_version != quiet.nodes_version:
        return None
    return quiet.evaluation if all(a is b for a, b in zip(of, quiet.of, strict=True)) else None


def _is_quiet(answer: Evaluation, made: Pass, ledger: StoredCluster) -> bool:
    """Never while a machine waits for a time to pass: a retired one leaves after a while."""
    busy = answer.instructions or answer.proposals or answer.withdrawals or answer.again_at is not None
    tainted = any(m.state_taint is not None for m in ledger.members)
    return made.quiet and not (busy or tainted or made.wanted.unmet or made.wanted.notes)


def _pass(survey: Survey, policy: FleetPolicy, queue: QueueRead) -> Pass:
    running = [o for o in queue.operators() if o.source == SOURCE and queue.is_running(o.id)]
    return make_pass(survey, policy, changing=any(o.kind == CHANGE_CONTROL_PLANE for o in running))


def _answer(survey: Survey, made: Pass, queue: QueueRead, policy: FleetPolicy, namespace: str) -> dict[str, Any]:
    write = store(survey, made, Released(immediate=policy.retire == "immediate"), namespace, policy)
    given_up = (n for n in survey.nodes.values() if RETIRING in n.annotations)
    tries = [retire.may_try(n, policy) for n in given_up]
    if made.settling:
        tries.append(waits(survey.ledger, survey.nodes, survey.now, policy.settle_timeout_s).until)
    return {
        "proposals": tuple(_proposals(survey, made, policy)),
        "withdrawals": tuple(_withdrawn(survey, made, queue)),
        "instructions": (write,) if write is not None else (),
        "again_at": min((t for t in tries if survey.now < t < inf), default=None),
    }


def _proposals(survey: Survey, made: Pass, policy: FleetPolicy) -> Iterator[Operator]:
    plan, stored = made.plan, survey.ledger.members
    if made.quiet or not stored:
        return  # the first cluster is stored whole: there is nothing yet that could be disturbed
    for change in member_changes(stored, plan)[:1]:
        address = change.incoming or change.outgoing
        node = survey.nodes.get(address)
        yield change_operator(change, stored, plan, node.name if node is not None else address)
    members, why = {m.address: m for m in stored}, {c.address: c.why for c in plan.changes}
    for machine in to_empty(stored, plan, survey.machines):
        node = survey.nodes.get(machine.address)
        if node is None or policy.retire == "immediate" or retire.may_try(node, policy) > survey.now:
            continue
        if taken_back(node) or not retire.still_wanted(members[machine.address], machine):
            continue
        detail = why.get(machine.address, f"its machine is {machine.state.value}")
        yield retire.retire_operator(machine.serial, machine.address, node.name, detail)


def _withdrawn(survey: Survey, made: Pass, queue: QueueRead) -> Iterator[Withdrawal]:
    members = {m.address: m for m in survey.ledger.members}
    for operator in queue.operators():
        if operator.source != SOURCE or queue.is_running(operator.id):
            continue
        plans = (made.wanted, made.plan)
        if operator.kind == CHANGE_CONTROL_PLANE and not any(is_asked_for(operator, survey, p) for p in plans):
            yield Withdrawal(operator.id, Reason.WITHDRAWN, "the plan no longer asks for it")
        if operator.kind != RETIRE_MACHINE:
            continue
        machine = survey.machines.get(retire.how(operator).address)
        if machine is None:
            yield Withdrawal(operator.id, Reason.SUBJECT_GONE, "its machine is not in the registry any more")
        elif not retire.still_wanted(members.get(machine.address), machine):
            yield Withdrawal(operator.id, Reason.WITHDRAWN, f"its machine is {machine.state.value} again")


def _any_ours(queue: QueueRead) -> bool:
    return any(o.source == SOURCE for o in queue.operators())


def _on_their_way_out(survey: Survey, world: WorldRead, queue: QueueRead, policy: FleetPolicy) -> Iterator[Verdict]:
    """What the machines wait for that no operator is at work on: `why machine/<serial>` reads it."""
    for member in survey.ledger.members:
        machine, node = survey.machines.get(member.address), survey.nodes.get(member.address)
        if machine is None or node is None or (member.state_taint is None and RETIRING not in node.annotations):
            continue
        if queue.holder(f"machine/{machine.serial}") is None:
            verdict = retirement(node, member, machine, world, policy, survey.now)
            if verdict is not None:
                yield msgspec.structs.replace(verdict, subject=f"machine/{machine.serial}")


def _all_waiting(queue: QueueRead, words: str) -> Iterator[Withdrawal]:
    for operator in queue.operators():
        if operator.source == SOURCE and not queue.is_running(operator.id):
            yield Withdrawal(operator.id, Reason.FEATURE_OFF, words)


def _verdict(made: Pass, wrong: str) -> Verdict | None:
    """The verdict about the plan: the first that applies."""
    if wrong:
        return Verdict(State.BLOCKED, Reason.MISCONFIGURED, f"{wrong}; the last good settings stay in force")
    error = made.wanted.error
    if error is not None:
        reason = _REASONS.get(error.code, Reason.MISCONFIGURED)
        return Verdict(State.BLOCKED, reason, f"{error.code.value}: {error.message}")
    if made.settling:
        return Verdict(State.WAITING, Reason.SETTLING, f"{made.wanted.action.value} waits: {made.settling}")
    flapping = next((n for n in made.wanted.notes if n.startswith(FLAPPING)), "")
    if flapping and made.plan.action is Action.NONE:
        return Verdict(State.WAITING, Reason.BACK_OFF, flapping)
    held = next((n for n in made.wanted.notes if n.startswith("removal blocked")), "")
    if held:
        return Verdict(State.BLOCKED, Reason.REMOVAL_BLOCKED, held, "mooring fleet confirm-removal")
    if made.wanted.unmet:
        short = [f"{u.constraint} wants {u.wanted}, has {u.have}" for u in made.wanted.unmet]
        return Verdict(State.BLOCKED, Reason.UNMET, listed(short))
    only = next((n for n in made.wanted.notes if n.startswith(ONLY_ONE)), "")
    if only and made.plan.action in {Action.NONE, Action.TAINT}:
        remedy = "ask for three (control-plane-count: 3): mooring fleet set constraints constraints.yml"
        return Verdict(State.BLOCKED, Reason.QUORUM, only, remedy)
    if made.plan.action is not Action.NONE:
        return Verdict(State.MOVING, Reason.ASKED, f"{made.plan.action.value}: {len(made.plan.changes)} changes")
    return Verdict(State.STABLE, Reason.DONE, "every machine is where the plan wants it")
