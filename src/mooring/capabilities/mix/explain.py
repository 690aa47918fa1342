"""One workload in words: its slots, where each pod stands, what is wrong, what happens next, and why not yet.

It prints what the deciding code finds; nothing is decided here.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mooring.capabilities.drain.readiness import is_ready, subject_of
from mooring.capabilities.drain.replace_pod import replacing
from mooring.capabilities.drain.request import is_detached, request_of, workload_named
from mooring.capabilities.mix.interruption.notices import InterruptedNodes, mark_of, notice_of, unread
from mooring.capabilities.mix.labels import CONFLICT, ENABLED, MODE, RELAXED, Managed, Misconfigured, slot_of
from mooring.capabilities.mix.rebalance.diagnosis import NO_NOTES, Case, Diagnosis, WorkloadNotes
from mooring.capabilities.mix.rebalance.health import is_fast, workload_key
from mooring.capabilities.mix.slots import class_of
from mooring.capabilities.mix.worth import Worth, together, told
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.decision import Line, OperatorRecord, Verdict
from mooring.core.model.reasons import Reason, State
from mooring.core.model.spelling import counted
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead

if TYPE_CHECKING:
    from mooring.capabilities.mix.capability import Mix

#: Workloads between two pauses of a report.
PART: Final = 10


class PodReport(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    slot: int | None
    #: The class it counts as, and that of the node it is on.
    given: str
    node: str
    node_class: str
    ready: bool
    note: str = ""


class WorkloadReport(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    namespace: str
    name: str
    managed: bool
    mode: str = ""
    by_default: bool = False
    #: The policy that selects it, what it gives (a mode, also where it only observes), and why it does or does not.
    policy: str = ""
    gives: str = ""
    because: str = ""
    fast: bool = False
    replicas: int = 0
    ready: int = 0
    #: T(R), how many count as on-demand, and how many of those are Ready on nodes that stay.
    wanted: int = 0
    have: int = 0
    safe: int = 0
    sequence: str = ""
    state: str = State.STABLE
    reason: str = ""
    #: Share of spot, floor, saving; None: not managed.
    worth: Worth | None = None
    #: What is wrong, in one sentence; "" when nothing is.
    wrong: str = ""
    #: The same one by one, where several things are wrong with its labels.
    problems: tuple[str, ...] = ()
    #: What happens next, and what it waits for.
    next: str = ""
    not_yet: str = ""
    remedy: str = ""
    #: Those that count, by slot, then those that were detached and still serve.
    pods: tuple[PodReport, ...] = ()


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is about to go, or that we cordoned."""

    node: str
    signal: str
    #: None: voluntary, it goes when it is empty.
    seconds_left: float | None
    #: Only recommended: it may go, and nothing is taken down for it.
    likely: bool
    pods: int
    cordoned: bool
    #: A notice that cannot be read: the node is not emptied. In words.
    problem: str = ""


def report(
    mix: "Mix",
    workload: Workload,
    world: WorldRead,
    queue: QueueRead,
    now: float,
    running: Mapping[str, OperatorRecord] | None = None,
    notes: object = None,
) -> WorkloadReport:
    """`running`: the engine's operators, with what a move under way waits for; `notes`: its notes on this workload."""
    remembered = notes if isinstance(notes, WorkloadNotes) else NO_NOTES
    look = Diagnosis(mix, workload, world, queue, now, remembered)
    health, management = look.health, look.management
    pods = sorted((_pod(look, p, world) for p in health.pods), key=lambda p: (p.slot is None, p.slot or 0, p.name))
    detached = look.detached
    case = look.case()
    mine = [r for r in (running or {}).values() if (how := replacing(r.operator)) and how.workload_uid == workload.uid]
    verdict = _verdict(look, case, detached, mine)
    comes, not_yet = _next(look, case, detached, mine)
    target = management.target if isinstance(management, Managed) else None
    policy, gives, because = _by_policy(mix, workload)
    stays = [p for p in health.pods if p.node not in look.interrupted and is_ready(p, workload, now)]
    return WorkloadReport(
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        managed=target is not None,
        mode="" if target is None else str(target),
        by_default=isinstance(management, Managed) and management.by_default,
        policy=policy,
        gives=gives,
        because=because,
        fast=is_fast(workload),
        replicas=health.wanted,
        ready=health.ready,
        wanted=0 if target is None else target.on_demand(health.wanted),
        have=sum(class_of(p, world) is NodeClass.ON_DEMAND for p in health.pods),
        safe=sum(world.node_class(p.node) is NodeClass.ON_DEMAND for p in stays),
        sequence="" if target is None else target.sequence(health.wanted),
        state=verdict.state,
        reason=verdict.reason,
        worth=look.worth,
        wrong=verdict.detail,
        problems=management.problems if isinstance(management, Misconfigured) else (),
        next=comes,
        not_yet=not_yet,
        remedy=verdict.remedy or _remedy(look),
        pods=(*pods, *(_pod(look, pod, world) for pod in detached)),
    )


def _by_policy(mix: "Mix", workload: Workload) -> tuple[str, str, str]:
    policy = mix.policy.policy_of(workload)
    if policy is None:
        return "", "", ""
    own = ENABLED in workload.labels
    given = mix.policy.management_of(workload, mix.left_out) if own else mix.policy.given_by(policy, workload)
    gives = str(given.target) if isinstance(given, Managed) else ""
    if own:
        because = f"its own label {ENABLED}={workload.labels[ENABLED]} wins"
    elif workload.namespace in mix.left_out:
        because = f"namespace {workload.namespace} is left out by the webhook: nothing is done"
    elif policy.observe:
        because = "the policy only observes: nothing is done"
    else:
        because = f"its own label {MODE} says the mode" if MODE in workload.labels else "the policy"
    return policy.name, gives, because


def _verdict(look: Diagnosis, case: Case, detached: tuple[Pod, ...], running: list[OperatorRecord]) -> Verdict:
    """The first verdict that applies."""
    if isinstance(look.management, Misconfigured):
        return Verdict(State.BLOCKED, Reason.MISCONFIGURED, str(look.management))
    asks = case.verdict is not None and case.verdict.reason is Reason.NO_ROOM and look.asking
    if detached and not asks:
        ready, wanted = look.health.ready, look.health.wanted
        words = f"{counted(len(detached), 'pod')} leaving, still serving; {ready} of {wanted} others Ready"
        return Verdict(State.MOVING, _why_gone(detached[0]), words)
    found = case.verdict or Verdict(State.STABLE, Reason.DONE)
    waiting_on = next(
        (one.waiting_on for one in running if one.waiting_on is not None and one.waiting_on.state is State.BLOCKED),
        None,
    )
    if waiting_on is None:
        return found
    remedy = "scale up, or widen the budget" if waiting_on.reason is Reason.PDB else waiting_on.remedy
    return Verdict(State.BLOCKED, waiting_on.reason, f"{found.detail}; {waiting_on.detail}".removeprefix("; "), remedy)


def _why_gone(pod: Pod) -> Reason:
    mark = request_of(pod)
    return Reason(mark.reason) if mark is not None and mark.reason in set(Reason) else Reason.RESUMED


def _remedy(look: Diagnosis) -> str:
    """A command that a person could give, where only a person can help."""
    workload = look.workload
    label = f"kubectl -n {workload.namespace} label {workload.kind.lower()}/{workload.name}"
    if isinstance(look.management, Misconfigured):
        return f"correct its labels: kubectl -n {workload.namespace} edit {workload.kind.lower()}/{workload.name}"
    return "" if isinstance(look.management, Managed) else f"switch it on: {label} {ENABLED}=true --overwrite"


def _pod(look: Diagnosis, pod: Pod, world: WorldRead) -> PodReport:
    notes = []
    mark = request_of(pod)
    if mark is not None:
        notes.append(f"leaving: {mark.detail}")
    if is_detached(pod):
        by = f", {max(0.0, mark.deadline - look.now):.0f} s at most" if mark is not None and mark.deadline else ""
        notes.append(f"detached, serves until its replacement is Ready{by}")
    if CONFLICT in pod.annotations:
        notes.append(f"not placed: {pod.annotations[CONFLICT]}")
    if pod.node in look.interrupted:
        notes.append("its node is interrupted")
    if RELAXED in pod.annotations:
        notes.append("relaxed: on-demand was full")
    if not pod.node and not pod.schedulable:
        notes.append("finds no node")
    operator = look.queue.holder(subject_of(pod))
    if operator is not None:
        notes.append(f"op {operator.id} {'moves it' if look.queue.is_running(operator.id) else 'waits to move it'}")
    return PodReport(
        name=pod.name,
        slot=slot_of(pod),
        given=class_of(pod, world).value,
        node=pod.node,
        node_class=world.node_class(pod.node).value if pod.node else "",
        ready=is_ready(pod, look.workload, look.now),
        note="; ".join(notes),
    )


def _next(look: Diagnosis, case: Case, detached: tuple[Pod, ...], running: list[OperatorRecord]) -> tuple[str, str]:
    """Who goes next, and what it still waits for."""
    if detached:
        missing = look.health.missing
        comes = f"{detached[0].name} on {detached[0].node} goes ({len(detached)} to go)"
        return comes, f"{counted(missing, 'replacement')} not Ready yet" if missing else ""
    verdict = case.verdict
    if not case.candidates:
        return "", verdict.detail if verdict is not None and verdict.state is not State.STABLE else ""
    first = case.candidates[0]
    to = "" if first.wanted is NodeClass.UNKNOWN else f"; its successor goes to {first.wanted}"
    comes = f"{first.pod.name} on {first.pod.node or 'no node'} goes{to} ({case.off_by} to go)"
    operator = look.queue.holder(subject_of(first.pod))
    if operator is None:
        return comes, "not proposed yet"
    if look.queue.is_running(operator.id):
        waiting_on = next((one.waiting_on for one in running if one.operator.id == operator.id), None)
        return (
            comes,
            f"op {operator.id} {waiting_on.state}: {waiting_on.detail}"
            if waiting_on
            else f"op {operator.id} is on its way",
        )
    blocked = look.queue.why(operator.id)
    if blocked is None:
        return comes, f"op {operator.id} is next"
    fact = f": {blocked.facts[0].detail}" if blocked.facts else ""
    return comes, f"op {operator.id} waits for {blocked.target}{fact}; {blocked.sum()}"


def speaking(mix: "Mix", world: WorldRead) -> list[Workload]:
    """Every workload that says something about Mix, or that a policy speaks for."""
    return [workload for workload in world.workloads() if mix.policy.concerns(workload)]


def in_order(rows: Iterable[WorkloadReport]) -> list[WorkloadReport]:
    """Those that need a look first."""
    order = {State.BLOCKED: 0, State.MOVING: 1, State.WAITING: 2}
    return sorted(rows, key=lambda r: (order.get(State(r.state), 3), r.namespace, r.name, r.kind))


def interrupted(mix: "Mix", world: WorldRead, now: float) -> list[NodeReport]:
    rows = []
    index = world.index(InterruptedNodes)
    for name in sorted(index.names | index.likely | index.marked):
        node = world.node(name)
        notice = None if node is None else notice_of(node, mix.policy.interruption, world, now)
        if node is None:
            continue
        deadline = now if notice is None else notice.deadline
        problem = unread(node, mix.policy.interruption) if notice is None else ""
        rows.append(
            NodeReport(
                node=name,
                signal="" if notice is None else notice.signal,
                likely=notice is not None and notice.prepares_since is not None,
                seconds_left=None if deadline is None else round(max(0.0, deadline - now), 1),
                pods=len([p for p in world.pods_on(name) if p.active]),
                cordoned=mark_of(node) is not None,
                problem=problem,
            )
        )
    return rows


def lines(mix: "Mix", subject: str, world: WorldRead, queue: QueueRead, now: float) -> Iterator[Line]:
    """What `why` says about a workload, or about the place of a pod."""
    kind, _, rest = subject.partition("/")
    parts = rest.split("/")
    if kind == "workload" and len(parts) == 3:
        workload = workload_named(f"{parts[1]}/{parts[0]}/{parts[2]}", world)
        if workload is not None and mix.policy.concerns(workload):
            one = report(mix, workload, world, queue, now)
            yield Line("now", f"{one.have} of {one.replicas} on-demand, {one.mode or 'no mode'} wants {one.wanted}")
    elif kind == "pod" and len(parts) == 2:
        pod = world.pod(Key(parts[0], parts[1]))
        workload = world.workload_of(pod) if pod is not None else None
        if pod is not None and pod.owner is not None and pod.owner.kind == "Job":
            yield Line("why there", "it belongs to a Job: mix leaves Jobs alone, also on an interrupted node")
        if pod is None or workload is None:
            return
        management = mix.policy.management_of(workload, mix.left_out)
        slot = slot_of(pod)
        if isinstance(management, Managed) and slot is not None:
            given = class_of(pod, world)
            relaxed = (
                "; it only prefers on-demand, which was full when it was created" if RELAXED in pod.annotations else ""
            )
            yield Line("why there", f"slot {slot} of {workload.name}, {given}: {management.target}{relaxed}")


def all_workloads(engine: Any, _: Any) -> Generator[None, None, Mapping[str, Any]]:
    """What `GET /api/v1/mix` answers. Only the replica that leads knows what waits and runs."""
    rows = []
    for place, workload in enumerate(speaking(engine.capabilities["mix"], engine.world)):
        if place % PART == PART - 1:
            yield
        rows.append(_told(engine, workload))
    nodes = interrupted(engine.capabilities["mix"], engine.world, engine.now)
    policy = engine.capabilities["mix"].policy
    return {
        "leading": engine.deciding,
        "workloads": in_order(rows),
        "nodes": nodes,
        "policies": [one.name for one in policy.policies],
        "worth": told(together(row.worth for row in rows if row.worth is not None), policy.prices),
    }


def one_workload(engine: Any, name: str) -> Mapping[str, Any] | None:
    """What `GET /api/v1/mix/<kind>/<namespace>/<name>` answers."""
    workload = workload_named(name, engine.world)
    if workload is None:
        return None
    return {**msgspec.to_builtins(_told(engine, workload)), "leading": engine.deciding}


def _told(engine: Any, workload: Workload) -> WorkloadReport:
    mix, notes = engine.capabilities["mix"], engine.notes.get(("mix", workload_key(workload)))
    return report(mix, workload, engine.world, engine.queue, engine.now, engine.running, notes)
