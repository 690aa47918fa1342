"""Preparing one pod for an eviction that others asked for: `replace-pod` without the deletion.

    Deployment:   marked and detached ──► replacement Ready ──► prepared ──► evicted by others ──► ended
    StatefulSet:  marked ──► all others Ready, and its turn ──► prepared ──► evicted by others ──► back, Ready ──► ended
                      └── the request was withdrawn: attached again or unmarked, ended

Prepared means that the next try of the eviction passes the gate. Nothing of the Deployment is written: `detach` takes
the pod from its ReplicaSet, which makes another at once.
"""

from typing import Any, Final

import msgspec

from mooring.capabilities.drain import replace_pod
from mooring.capabilities.drain.gate import IN_PROGRESS, SOURCE, Answer, Guard, guard_of, others_ready
from mooring.capabilities.drain.policy import DrainPolicy
from mooring.capabilities.drain.readiness import node_cost, ready_pods, target_of
from mooring.capabilities.drain.replace_pod import LOOK_S, Terms, mark_for, no_replacement, replacing
from mooring.capabilities.drain.request import (
    DETACH,
    EVICT,
    can_detach,
    detach,
    is_detached,
    put_mark,
    request_of,
    withdraw,
)
from mooring.core.model.cluster import Key, Pod, PodEviction, Workload
from mooring.core.model.decision import End, NextStep, OperatorRecord, Verdict
from mooring.core.model.instructions import Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import RESPONDER, Mark
from mooring.core.model.operator import Operator, Step, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.model.times import rfc3339
from mooring.core.world.read import WorldRead

KIND: Final = "prepare-pod"
#: What may be prepared at once in the whole cluster.
ALL: Final = "drain"
_GOES_FIRST: Final = (Step(StepKind.AWAIT_EVICTION), Step(StepKind.AWAIT_READY))
_REPLACED: Final = (Step(StepKind.ADD_REPLACEMENT), *_GOES_FIRST)


def operator(pod: Pod, workload: Workload, detail: str, id_: str = "") -> Operator:
    """One that is replaced first needs no room of its workload; the others go one by one."""
    detaches = is_detached(pod) or can_detach(pod, workload)
    made = replace_pod.replace_pod(
        pod,
        workload,
        source=SOURCE,
        way=DETACH if detaches else EVICT,
        reason=Reason.EVICTED,
        detail=detail,
        room="" if detaches else target_of(workload),
        costs={**node_cost(pod.node, pod.namespace), ALL: 1, f"share/{ALL}/{pod.namespace}": 1},
        id_=id_,
    )
    return msgspec.structs.replace(made, kind=KIND, steps=_REPLACED if detaches else _GOES_FIRST)


def next_step(running: OperatorRecord, world: WorldRead, policy: DrainPolicy, now: float) -> NextStep:
    op, how = running.operator, replacing(running.operator)
    assert how is not None
    namespace, _, name = how.pod.partition("/")
    pod, workload = world.pod(Key(namespace, name)), world.workload_by_uid(how.workload_uid)
    if workload is None:
        return NextStep(step=running.step, end=End(Reason.SUBJECT_GONE, "its workload is gone"))
    if pod is None or pod.uid != how.uid or not pod.active:
        terms = Terms(workload=workload, ready=ready_pods(workload, world, now), await_s=policy.ready_within_s)
        return replace_pod.next_step(running, terms, world, now)
    mark = request_of(pod)
    if mark is None:
        # Marked as asked for before it was proposed: a person, or the end of the request, took the mark away.
        return NextStep(step=0, end=End(Reason.WITHDRAWN, "its eviction is no longer requested"))
    if mark.source != SOURCE:
        return NextStep(step=0, end=End(Reason.CANCELED, f"{mark.source} is already taking it away"))
    if running.off:
        return NextStep(step=0, instructions=(withdraw(pod, "drain is off"),))
    if mark.operator != op.id:
        return NextStep(step=0, instructions=(_begin(op, pod, mark, workload, now),))
    return _prepare(running, pod, workload, world, now)


def _begin(op: Operator, pod: Pod, mark: Mark, workload: Workload, now: float) -> Patch:
    """The mark keeps since when it is asked for."""
    if is_detached(pod):
        begun = msgspec.structs.replace(mark_for(op, pod, now, EVICT), value=DETACH, since=mark.since)
        begun = msgspec.structs.replace(begun, before={**mark.before, **begun.before})
    else:
        way = DETACH if can_detach(pod, workload) else EVICT
        begun = msgspec.structs.replace(mark_for(op, pod, now, way), since=mark.since)
        if way == DETACH:
            return detach(pod, begun)
    return put_mark(pod, begun, "marks the pod before it may go")


def _prepare(running: OperatorRecord, pod: Pod, workload: Workload, world: WorldRead, now: float) -> NextStep:
    last = len(running.operator.steps) - 2
    ready, wanted = others_ready(pod, workload, world, now)
    if ready >= wanted:
        verdict = Verdict(State.WAITING, Reason.PREPARED, f"{pod.name} may go: {ready} others are Ready")
        at = running.notes.get("prepared_at", now)
        return NextStep(step=last, waiting_on=verdict, notes={"prepared_at": at}, again_at=now + LOOK_S)
    detail = f"{ready} of {wanted} others Ready"
    if is_detached(pod) or workload.failure:
        verdict = no_replacement(workload, pod.name, detail, world)
    else:
        verdict = Verdict(State.WAITING, Reason.FACT, f"{workload.name} has {detail}")
    return NextStep(step=0, progress=verdict.detail, waiting_on=verdict, notes={}, again_at=now + LOOK_S)


# ── The responder ───────────────────────────────────────────────────────────────────────────────────────────────────
#
# Mooring as a responder of Kubernetes' own Eviction API (`lifecycle.k8s.io`, KEP-4563; alpha in 1.37).
#
# A pod names its responders when it is created; for one that is guarded the webhook adds Mooring. When somebody
# requests its eviction and it is Mooring's turn, the pod is prepared as for an eviction at the gate. What the gate
# would answer goes into the status of the Eviction: refused is a heartbeat with the same words, passed is completed.
# Then comes the next responder, at last Kubernetes' own, whose eviction passes the gate.

#: Before those who manage pods (10000).
PRIORITY: Final = 11_000
#: A pod has at most so many responders.
MOST: Final = 10
#: How often it says that it lives, and how often at most when the words change. After 1200 s it would be passed over.
HEARTBEAT_S: Final = 60.0
SOONEST_S: Final = 20.0


def added(pod: Pod, have: list[dict[str, Any]], world: WorldRead, policy: DrainPolicy) -> list[dict[str, Any]] | None:
    """The JSON Patch that makes Mooring a responder of a pod that is being created and has these responders; None: its
    owner is not known yet."""
    if len(have) >= MOST or any(one.get("name") == RESPONDER for one in have):
        return []
    if guard_of(pod, world, policy) is Guard.NONE:
        owned = pod.owner is not None and pod.owner.kind in {Kind.REPLICA_SET, Kind.STATEFUL_SET}
        return None if owned and world.workload_of(pod) is None else []
    mine = {"name": RESPONDER, "priority": PRIORITY}
    where, value = ("/spec/evictionResponders/-", mine) if have else ("/spec/evictionResponders", [mine])
    return [{"op": "add", "path": where, "value": value}]


def is_turn(eviction: PodEviction | None) -> bool:
    return eviction is not None and eviction.state == "Active" and eviction.completed is None


def is_over(eviction: PodEviction | None) -> bool:
    """Nobody requests it any more."""
    return eviction is not None and eviction.state == "Canceled"


def reply(eviction: PodEviction, said: Answer, estimate_s: float | None, now: float) -> Patch | None:
    """What is to be written about it; None: it stands there, or was written a moment ago."""
    words = said.message.removeprefix("mooring: ").removesuffix(f" ({IN_PROGRESS})")
    status: dict[str, Any] = {"name": RESPONDER, "heartbeatTime": rfc3339(now)}
    if said.allowed:
        status |= {"completionTime": rfc3339(now), "message": words or "it may be evicted now"}
    else:
        since = now - eviction.heartbeat if eviction.heartbeat is not None else HEARTBEAT_S
        if since < (SOONEST_S if words != eviction.message else HEARTBEAT_S):
            return None
        status |= {"message": words}
        if estimate_s is not None:
            status["expectedCompletionTime"] = rfc3339(now + max(estimate_s, HEARTBEAT_S))
    why = f"the eviction of {eviction.pod} that {eviction.by} requests: {status['message']}"
    patch = {"status": {"responders": [status]}}
    return Patch(kind=Kind.EVICTION, key=eviction.key, uid=eviction.uid, patch=patch, subresource="status", why=why)
