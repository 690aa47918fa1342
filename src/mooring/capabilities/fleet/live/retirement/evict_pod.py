"""Taking one pod off a node that is being emptied: the `evict-pod` operator.

    evict:   marked ──► evicted ──► as many Ready as wanted ──► ended
    detach:  marked and detached ──► replacement Ready, or the time is over ──► evicted ──► ended
                  │
                  └── the node is no longer being emptied: attached again, ended

The replacement comes first where the pod is the only one of its Deployment that serves: evicted, it would be down. And
where Mix keeps it on on-demand nodes: evicted, fewer would be there than its workload is promised.
Everything else goes one replica of a workload at a time.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from mooring.capabilities.drain import readiness
from mooring.capabilities.drain.detach import (
    AFFINITY,
    DETACH,
    EVICT,
    attach,
    before_detach,
    can_detach,
    detach,
    is_detached,
)
from mooring.capabilities.drain.evict import blocked_by_budget
from mooring.capabilities.drain.readiness import is_ready, ready_pods, subject_of
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.release import SOURCE
from mooring.capabilities.fleet.live.retirement.emptying import (
    Way,
    clear_leaving,
    held_by,
    is_being_emptied,
    is_late,
    is_stuck,
    leaving_mark,
    mark_leaving,
    new_mark,
    way_of,
)
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.decision import End, NextStep, OperatorRecord, Recovered, Verdict
from mooring.core.model.instructions import DeletePod, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator, Step, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.world.read import WorldRead

EVICT_POD: Final = "evict-pod"
_STEPS: Final = (Step(StepKind.DELETE_POD), Step(StepKind.AWAIT_READY))
_DETACH_STEPS: Final = (Step(StepKind.ADD_REPLACEMENT), *_STEPS)
#: What only a person may end.
_PERSON: Final = frozenset({Reason.BARE_POD, Reason.EMPTY_DIR, Reason.CONFLICT})
#: Once the time is over, a workload that stays short of replicas holds its next eviction up for so long.
_LATE_S: Final = 300.0
_WORKLOADS: Final = frozenset({Kind.DEPLOYMENT, Kind.STATEFUL_SET})


def target_of(pod: Pod, workload: Workload | None) -> str:
    """What counts this pod as one of its replicas; "" for a bare pod."""
    if workload is not None:
        return readiness.target_of(workload)
    return "" if pod.owner is None else f"workload/{pod.namespace}/{pod.owner.kind}/{pod.owner.name}"


def workload_behind(pod: Pod, world: WorldRead) -> Workload | None:
    """Also of a detached pod, by its mark: the very workload, not another of its name."""
    mark = leaving_mark(pod) if is_detached(pod) else None
    if mark is None:
        return world.workload_of(pod)
    found = _find(mark.before.get("workload", ""), world)
    return found if found is not None and found.uid == mark.before.get("workloadUID") else None


def _find(text: str, world: WorldRead) -> Workload | None:
    kind, _, key = text.partition("/")
    namespace, _, name = key.partition("/")
    return world.workload(Kind(kind), Key(namespace, name)) if kind in _WORKLOADS else None


def _way_of(pod: Pod, workload: Workload | None, world: WorldRead, now: float) -> str:
    if is_detached(pod):
        return DETACH
    if workload is None or not can_detach(pod, workload) or not is_ready(pod, workload, now):
        return EVICT
    promised = pod.labels.get(AFFINITY) == NodeClass.ON_DEMAND
    return DETACH if promised or ready_pods(workload, world, now) == 1 else EVICT


def evict_operator(
    pod: Pod, world: WorldRead, policy: FleetPolicy, serial: str, detail: str, now: float, id_: str = ""
) -> Operator:
    workload, subject = workload_behind(pod, world), subject_of(pod)
    target, way = target_of(pod, workload), _way_of(pod, workload, world, now)
    held = held_by(pod, world, policy, now)
    # What only a person may delete is never evicted by Mooring, so it is charged nothing while it is shown.
    free = not target or (held is not None and held.reason in _PERSON)
    if is_late(world.node(pod.node), policy, now):
        # Still one replica of a workload at a time; what it lacks besides keeps the machine no longer.
        target = target.replace("workload/", "late/", 1)
    args = {"pod": str(pod.key), "uid": pod.uid, "node": pod.node, "serial": serial, "way": way}
    if workload is not None:
        args["workload"] = f"{workload.kind}/{workload.key}"
    room = {} if free else {target: 1}
    return Operator(
        id=id_,
        source=SOURCE,
        quota=pod.namespace,
        kind=EVICT_POD,
        subject=subject,
        claims=(subject,),
        steps=_DETACH_STEPS if way == DETACH else _STEPS,
        # Once detached, the replacement that is not Ready yet is a fact of its own.
        phases=(room, {}) if way == DETACH else (room,),
        reason=Reason.RETIRING,
        detail=detail,
        args=args,
    )


def resumed_eviction(pod: Pod, world: WorldRead, policy: FleetPolicy, serial: str, now: float) -> Iterator[Recovered]:
    """What our mark on a pod says has begun."""
    mark = leaving_mark(pod)
    if mark is None or way_of(pod, world) is not Way.EVICTED:
        return
    operator = evict_operator(pod, world, policy, serial, mark.detail, now, mark.operator)
    yield Recovered(operator, 0, len(operator.phases) - 1 if is_detached(pod) else 0, mark.since)


def stay(pod: Pod) -> Patch:
    """Take our request back: what was detached is attached again."""
    mark = leaving_mark(pod)
    if mark is not None and is_detached(pod):
        return attach(pod, mark, f"{pod.name} may stay")
    return clear_leaving(pod)


def next_evict_step(running: OperatorRecord, world: WorldRead, policy: FleetPolicy, now: float) -> NextStep:
    operator, again = running.operator, now + policy.recheck_s
    namespace, _, name = operator.args["pod"].partition("/")
    pod, last = world.pod(Key(namespace, name)), len(operator.steps) - 1
    if pod is None or pod.uid != operator.args["uid"]:
        return _await(running, world, policy, now, "gone")
    if is_stuck(pod, now):
        return _await(running, world, policy, now, f"{name} does not end")
    if pod.terminating:
        return NextStep(step=last - 1, progress=f"{name} is terminating", again_at=again)
    node = world.node(pod.node)
    if not is_being_emptied(node):
        if leaving_mark(pod) is not None:
            return NextStep(step=0, instructions=(stay(pod),))
        return NextStep(step=0, end=End(Reason.WITHDRAWN, f"{pod.node} is no longer being emptied"))
    late = is_late(node, policy, now)
    if is_detached(pod):
        return _part(running, pod, world, late, again, now)
    workload = world.workload_of(pod)
    way = _way_of(pod, workload, world, now)
    held = held_by(pod, world, policy, now)
    # A budget does not keep a pod whose replacement comes first.
    if held is not None and not (way == DETACH and held.reason is Reason.PDB):
        return NextStep(step=0, waiting_on=held, progress=held.detail, again_at=again)
    if way != operator.args["way"] or (not operator.cost and target_of(pod, workload)):
        # It was promoted for another way, or without its workload's room: it is proposed again, as it is now.
        return NextStep(step=0, end=End(Reason.REPLACED, f"{name} may be evicted now and waits for its turn"))
    if way == DETACH and workload is not None:
        origin = {"workload": f"{workload.kind}/{workload.key}", "workloadUID": workload.uid}
        mark = new_mark(pod, operator.id, operator.detail, now)
        mark = msgspec.structs.replace(mark, before={**origin, **before_detach(pod)})
        return NextStep(step=0, instructions=(detach(pod, mark),))
    if leaving_mark(pod) is None:
        return NextStep(step=0, instructions=(mark_leaving(pod, operator.id, operator.detail, now),))
    return NextStep(step=0, instructions=(_evict(pod),))


def _part(running: OperatorRecord, pod: Pod, world: WorldRead, late: bool, again: float, now: float) -> NextStep:
    """Detached and still serving: it goes once its replacement is Ready."""
    phase = len(running.operator.phases) - 1
    workload = workload_behind(pod, world)
    ready = ready_pods(workload, world, now) if workload is not None else 0
    if workload is not None and ready < workload.replicas and not late and is_ready(pod, workload, now):
        detail = f"the replacement of {pod.name} is not Ready yet; it serves meanwhile"
        waiting_on = Verdict(State.WAITING, Reason.POD_NOT_READY, detail)
        return NextStep(step=0, phase=phase, progress=detail, waiting_on=waiting_on, again_at=again)
    kept = blocked_by_budget(pod, world)
    if kept is not None:
        return NextStep(step=1, phase=phase, waiting_on=kept, progress=kept.detail, again_at=again)
    return NextStep(step=1, phase=phase, instructions=(_evict(pod),))


def _evict(pod: Pod) -> DeletePod:
    return DeletePod(key=pod.key, uid=pod.uid, evict=True, why=f"{pod.node} is being emptied")


def _await(running: OperatorRecord, world: WorldRead, policy: FleetPolicy, now: float, gone: str) -> NextStep:
    """Its room is kept until its workload has what it wants."""
    args, last = running.operator.args, len(running.operator.steps) - 1
    workload = _find(args.get("workload", ""), world)
    if workload is None:
        return NextStep(step=last, end=End(Reason.DONE, gone))
    missing = max(0, workload.replicas - ready_pods(workload, world, now))
    if not missing:
        return NextStep(step=last, end=End(Reason.DONE, f"{gone}; {workload.name} has all {workload.replicas} again"))
    detail = f"{workload.name} misses {missing} of {workload.replicas}"
    since = running.step_since if running.step == last else now
    if is_late(world.node(args["node"]), policy, now) and now - since >= min(_LATE_S, policy.retire_patience_s / 2):
        return NextStep(
            step=last, end=End(Reason.TIMEOUT, f"{gone}; {detail}, and the time for {args['node']} is over")
        )
    waiting_on = Verdict(State.WAITING, Reason.POD_NOT_READY, detail)
    return NextStep(step=last, progress=detail, waiting_on=waiting_on, again_at=now + policy.recheck_s)
