"""One operator per hand-over of a member of a system with leaders, as a value, and how a mark becomes it again.

The mark stands on the StatefulSet (`mooring.dev/handoff`, all members in one annotation, compare-and-swap): it outlives
the pod, and two replicas that both act as leader cannot both begin.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Final

from mooring.capabilities.drain.leaders import led_set
from mooring.capabilities.drain.nodes import RESTART, asked_by, restarts
from mooring.capabilities.drain.readiness import node_cost
from mooring.capabilities.handoff.facts import pod_subject
from mooring.capabilities.handoff.requests import DELETE_POD, Request, leaving_request
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.decision import ReadBack, Recovered
from mooring.core.model.instructions import Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, Mark, read_marks, write_marks
from mooring.core.model.operator import Operator, Payload, Step, StepKind
from mooring.core.model.reasons import Reason
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
