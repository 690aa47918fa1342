"""What an evaluation of one StatefulSet with leaders finds: members to hand over, facts, reasons not to."""

from collections.abc import Iterator, Mapping
from typing import Final

from mooring.capabilities.drain.leaders import LeaderLook, look_at, refused
from mooring.capabilities.drain.readiness import is_ready
from mooring.capabilities.drain.room import stuck_volume
from mooring.capabilities.handoff.facts import counted, pod_subject
from mooring.capabilities.handoff.leaders.operators import (
    KIND,
    asked_members,
    clear_marks,
    leaders_target,
    marks_of,
    operator_for,
)
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.decision import Evaluation, Fact, LeadersRefresh, Verdict, Withdrawal
from mooring.core.model.instructions import EmitEvent, HarmlessWrite
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import DRIVERS, driver_of
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import QueueRead
from mooring.core.world.members import members_of, ordinals
from mooring.core.world.read import WorldRead

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
