"""One operator per hand-over of a member of a system with leaders, as a value, and how a mark becomes it again.

The mark stands on the StatefulSet (`mooring.dev/handoff`, all members in one annotation, compare-and-swap): it outlives
the pod, and two replicas that both act as leader cannot both begin.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Final

from mooring.capabilities.drain.leaders import led_set, refused
from mooring.capabilities.drain.nodes import RESTART, asked_by, restarts
from mooring.capabilities.drain.readiness import is_ready, node_cost
from mooring.capabilities.drain.room import stuck_volume
from mooring.capabilities.handoff.facts import counted, pod_subject
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.requests import DELETE_POD, Request, leaving_request
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.decision import Evaluation, Fact, LeadersRefresh, ReadBack, Recovered, Verdict, Withdrawal
from mooring.core.model.instructions import EmitEvent, HarmlessWrite, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import DRIVERS, driver_of
from mooring.core.model.marks import HANDOFF, Mark, read_marks, write_marks
from mooring.core.model.operator import Operator, Payload, Step, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import QueueRead
from mooring.core.world.leaders import LeaderLook, look_at
from mooring.core.world.members import members_of, ordinals
from mooring.core.world.read import WorldRead

KIND: Final = "restart-led-member"
SOURCE: Final = "handoff"
STEPS: Final = (Step(StepKind.MOVE_LEADERS), Step(StepKind.DELETE_POD), Step(StepKind.AWAIT_READY))
MOVE, DELETE, AWAIT = range(3)
#: How keys of these systems begin; the others are TidbClusters.
PREFIX: Final = "leaders/"


class LedPayload(Payload, frozen=True, gc=False, kw_only=True):
    """One member of a system with leaders."""


def key_of(workload: Key) -> str:
    return f"{PREFIX}{workload}"


def leaders_target(workload: Key) -> str:
    return f"leaders/{workload}"


def request_for(pod: Pod) -> Request | None:
    """What is asked of a member: by another capability's mark, or by a person."""
    leaving = leaving_request(pod)
    if leaving is not None:
        return leaving
    if not restarts(pod):
        return None
    return Request(value=DELETE_POD, key=RESTART, detail=f"restart asked by {asked_by(pod.annotations[RESTART])}")


def operator_for(workload: Key, pod: Key, uid: str, node: str, request: Request, id_: str = "") -> Operator:
    subject = pod_subject(pod)
    return Operator(
        id=id_,
        source=SOURCE,
        quota=workload.namespace,
        kind=KIND,
        subject=subject,
        claims=(subject,),
        steps=STEPS,
        phases=({leaders_target(workload): 1, **node_cost(node, workload.namespace)},),
        deadline=request.deadline,
        reason=Reason.ASKED if request.deadline is None else Reason.DEADLINE,
        detail=request.detail,
        payload=LedPayload(pod=str(pod), uid=uid, node=node, workload=f"{Kind.STATEFUL_SET}/{workload}"),
    )


def set_of(operator: Operator) -> Key:
    _, namespace, name = operator.payload.workload.split("/")
    return Key(namespace, name)


def asked_members(pods: Mapping[str, Pod], world: WorldRead) -> Iterator[tuple[Pod, Request]]:
    for pod in pods.values():
        request = None if pod.terminating or led_set(pod, world) is None else request_for(pod)
        if request is not None:
            yield pod, request


# ── Marks ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def marks_of(workload: Workload) -> dict[str, Mark] | None:
    """By pod; None: the annotation cannot be read, and nothing is touched. Any user who may edit the StatefulSet can
    write it, so only its own members count."""
    marks = read_marks(workload.annotations.get(HANDOFF, ""))
    return marks and {n: m for n, m in marks.items() if _is_member(n, workload) and m.pod_uid}


def _is_member(name: str, workload: Workload) -> bool:
    ordinal = name.removeprefix(f"{workload.name}-")
    return ordinal != name and ordinal.isascii() and ordinal.isdigit() and len(ordinal) <= 10


def put_mark(running: Operator, workload: Workload, pod: Pod, now: float) -> Patch:
    mark = Mark(
        operator=running.id,
        source=SOURCE,
        reason=running.reason,
        detail=running.detail,
        step=StepKind.MOVE_LEADERS,
        since=now,
        pod_uid=pod.uid,
        node=pod.node,
        value=DELETE_POD,
        deadline=running.deadline,
    )
    return _patch(workload, {**(marks_of(workload) or {}), pod.name: mark}, f"marks that {pod.name} hands over")


def clear_marks(workload: Workload, pods: Collection[str], why: str) -> Patch:
    left = {name: mark for name, mark in (marks_of(workload) or {}).items() if name not in pods}
    return _patch(workload, left, why)


def _patch(workload: Workload, marks: Mapping[str, Mark], why: str) -> Patch:
    return Patch(
        kind=Kind.STATEFUL_SET,
        key=workload.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        patch={"metadata": {"annotations": {HANDOFF: write_marks(marks)}}},
        why=why,
    )


def resumed_members(world: WorldRead) -> Iterator[ReadBack]:
    """What had begun goes on, also of a StatefulSet whose annotation is gone: its mark is to be ended."""
    for workload in world.workloads():
        if workload.kind == Kind.STATEFUL_SET and HANDOFF in workload.annotations:
            for name, mark in sorted((marks_of(workload) or {}).items()):
                yield partial(_resumed, workload.key, name, mark)


def _resumed(workload: Key, name: str, mark: Mark) -> Iterator[Recovered]:
    request = Request(value=DELETE_POD, key=HANDOFF, detail=mark.detail, deadline=mark.deadline)
    pod = Key(workload.namespace, name)
    operator = operator_for(workload, pod, mark.pod_uid, mark.node, request, id_=mark.operator)
    yield Recovered(operator, MOVE, 0, mark.since)


# ── Evaluation ──────────────────────────────────────────────────────────────────────────────────────────────────────
#
# What an evaluation of one StatefulSet with leaders finds: members to hand over, facts, reasons not to.

#: How often a system is asked while one of its members is to leave.
LOOK_S: Final = 5.0


def evaluate_led(key: Key, world: WorldRead, policy: HandoffPolicy, queue: QueueRead, now: float) -> Evaluation:
    workload = world.workload(Kind.STATEFUL_SET, key)
    if workload is None:
        return Evaluation()
    driver, pods, look = driver_of(workload), members_of(workload, world), look_at(workload, world)
    live = {name: o for name in pods if (o := _ours(queue, pods[name])) is not None}
    instructions: list[HarmlessWrite] = []
    marks = marks_of(workload)
    swept = [n for n in marks or {} if queue.holder(pod_subject(Key(key.namespace, n))) is None]
    if swept:
        instructions.append(clear_marks(workload, swept, "no hand-over of theirs is under way"))
    if not driver:
        return Evaluation(instructions=tuple(instructions))
    asked = {pod.name: request for pod, request in asked_members(pods, world)}
    verdicts: list[Verdict] = []
    proposals: list[Operator] = []
    for name, request in asked.items():
        pod = pods[name]
        found = _refused(workload, pod, world, unreadable=marks is None) if name not in live else None
        if found is not None:
            verdicts.append(found)
            instructions.append(_told(pod, found))
        else:
            proposals.append(operator_for(key, pod.key, pod.uid, pod.node, request))
    if look.lost and asked:
        words = f"{driver} of {key} cannot be read: {look.lost}"
        verdicts.append(
            Verdict(
                State.WAITING,
                Reason.LEADERS_UNREACHABLE,
                words,
                subject=f"workload/{key.namespace}/{Kind.STATEFUL_SET}/{key.name}",
            )
        )
    busy = bool(asked or live)
    every = LOOK_S if busy else policy.idle_s
    again_at = max(look.at, 0.0) + every if look.at and not look.lost else now + (every if look.lost else 0.0)
    return Evaluation(
        proposals=tuple(proposals),
        withdrawals=tuple(_withdrawals(asked, live)),
        facts=tuple(away(workload, pods, look, now)) if busy else (),
        instructions=tuple(instructions),
        refreshes=(LeadersRefresh(key, again_at),) if driver in DRIVERS else (),
        verdict=verdicts[0] if verdicts else None,
        verdicts=tuple(verdicts),
    )


def _ours(queue: QueueRead, pod: Pod) -> Operator | None:
    holder = queue.holder(pod_subject(pod.key))
    return holder if holder is not None and holder.kind == KIND else None


def _withdrawals(asked: Mapping[str, object], live: Mapping[str, Operator]) -> Iterator[Withdrawal]:
    for name, operator in live.items():
        if name not in asked:
            yield Withdrawal(operator.id, Reason.WITHDRAWN, "the request was withdrawn")


def _refused(workload: Workload, pod: Pod, world: WorldRead, *, unreadable: bool) -> Verdict | None:
    found, subject = refused(workload, pod), pod_subject(pod.key)
    if found is None and unreadable:
        words = f"mooring.dev/handoff of {workload.name} cannot be read, so nothing of it is restarted"
        found = Verdict(State.BLOCKED, Reason.MISCONFIGURED, words, subject=subject)
    stuck = stuck_volume(pod, world) if found is None else None
    if stuck is not None:
        return Verdict(State.BLOCKED, Reason.LOCAL_VOLUME, stuck.detail, stuck.remedy, subject)
    return found


def _told(pod: Pod, verdict: Verdict) -> EmitEvent:
    text = f"{verdict.detail}; {verdict.remedy}" if verdict.remedy else verdict.detail
    return EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=verdict.reason, message=text, warning=True)


# ── Facts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def away(workload: Workload, pods: Mapping[str, Pod], look: LeaderLook, now: float) -> Iterator[Fact]:
    """Members that are not there, not Ready or, by the system's own word, not well take the system's room."""
    return counted(leaders_target(workload.key), _away(workload, pods, look, now))


def _away(workload: Workload, pods: Mapping[str, Pod], look: LeaderLook, now: float) -> Iterator[Fact]:
    target = leaders_target(workload.key)
    for ordinal in ordinals(workload):
        name = f"{workload.name}-{ordinal}"
        pod, member = pods.get(name), None if look.view is None else look.view.member(name)
        if pod is None or pod.terminating or not is_ready(pod, workload, now):
            words = f"{name} is {'missing' if pod is None else 'leaving' if pod.terminating else 'not Ready'}"
        elif member is not None and not member.is_well:
            words = f"{name} is {'not in sync' if member.healthy else 'not healthy'}"
            words = f"{words}: {member.detail}" if member.detail else words
        elif member is None and look.view is not None:
            words = f"{driver_of(workload)} knows no member {name}"
        else:
            continue
        yield Fact(target, pod_subject(Key(workload.namespace, name)), 1, words)
