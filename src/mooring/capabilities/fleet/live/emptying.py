"""Emptying a node: which pods must leave it, how each of them goes, and what keeps one.

    stays         DaemonSet pods, mirror pods, what has ended: no taint and no drain moves them elsewhere
    handed over   TiKV and PD members: asked for by the mark `mooring.dev/leaving`, done by handoff
    evicted       everything else, one `evict-pod` operator each: workload 1 until the replacement is Ready
    held          a budget that allows none, emptyDir data, a bare pod: a person must act, and is told

The node itself is no target: it is cordoned by us and is to be emptied.
"""

from collections.abc import Container, Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.release import SOURCE
from mooring.core.model.cluster import Key, Node, Pod, Workload
from mooring.core.model.decision import End, Fact, NextStep, Running, Verdict
from mooring.core.model.instructions import DeletePod, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, RETIRING, Mark, read_mark, write_mark
from mooring.core.model.operator import Operator, Step, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import Queue
from mooring.core.world.indexes import member_of
from mooring.core.world.read import WorldRead

EVICT_POD: Final = "evict-pod"
STEPS: Final = (Step(StepKind.DELETE_POD), Step(StepKind.AWAIT_READY))
DELETE, AWAIT = range(2)
_HANDED_OVER: Final = frozenset({"tikv", "pd"})


class Way(StrEnum):
    STAYS = "stays"
    HANDED_OVER = "handed-over"
    EVICTED = "evicted"


def way_of(pod: Pod) -> Way:
    if pod.is_mirror or pod.terminal or (pod.owner is not None and pod.owner.kind == Kind.DAEMON_SET):
        return Way.STAYS
    member = member_of(pod)
    return Way.HANDED_OVER if member is not None and member[2] in _HANDED_OVER else Way.EVICTED


def to_leave(node: str, world: WorldRead) -> list[Pod]:
    """Pods that are still to leave this node, by name; those on their way out included."""
    return sorted((p for p in world.pods_on(node) if way_of(p) is not Way.STAYS), key=lambda p: (p.namespace, p.name))


def held_by(pod: Pod, world: WorldRead, policy: FleetPolicy) -> Verdict | None:
    """What keeps a pod that is to be evicted; None: nothing does."""
    if pod.owner is None and not policy.evict_bare_pods:
        return Verdict(
            State.BLOCKED,
            Reason.BARE_POD,
            f"{pod.name} has no controller: nobody would recreate it",
            f"kubectl -n {pod.namespace} delete pod {pod.name}, once it is no longer needed",
        )
    if pod.shape.has_empty_dir and not policy.evict_empty_dir:
        return Verdict(
            State.BLOCKED,
            Reason.EMPTY_DIR,
            f"{pod.name} has emptyDir data that would be lost",
            f"kubectl -n {pod.namespace} delete pod {pod.name}, or fleet: {{evict-empty-dir: true}}",
        )
    closed = next((b for b in world.pdbs_of(pod) if b.disruptions_allowed <= 0), None)
    if closed is not None:
        return Verdict(
            State.BLOCKED,
            Reason.PDB,
            f"{pod.name} is kept by PodDisruptionBudget {closed.name}: "
            f"{closed.current_healthy} of {closed.desired_healthy} healthy",
            f"let {closed.key} allow a disruption",
        )
    return None


def leaving_mark(pod: Pod) -> Mark | None:
    """Our own wish on a pod; somebody else's is not ours to read."""
    mark = read_mark(pod.annotations[LEAVING]) if LEAVING in pod.annotations else None
    return mark if mark is not None and mark.source == SOURCE else None


def mark_leaving(pod: Pod, operator: str, detail: str, now: float) -> Patch:
    mark = Mark(
        operator=operator,
        source=SOURCE,
        reason=Reason.RETIRING,
        step="leaving",
        since=now,
        detail=detail,
        node=pod.node,
        pod_uid=pod.uid,
    )
    return _annotate(pod, write_mark(mark), f"asks {pod.name} to leave {pod.node}")


def clear_leaving(pod: Pod) -> Patch:
    return _annotate(pod, None, f"{pod.name} may stay")


def _annotate(pod: Pod, text: str | None, why: str) -> Patch:
    patch = {"metadata": {"annotations": {LEAVING: text}}}
    return Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch=patch, why=why)


# ── One pod ───────────────────────────────────────────────────────────────────────────────────────────────────────


def target_of(pod: Pod, workload: Workload | None) -> str:
    """What counts this pod as one of its replicas; "" for a bare pod."""
    if workload is not None:
        return f"workload/{workload.namespace}/{workload.kind}/{workload.name}"
    return "" if pod.owner is None else f"workload/{pod.namespace}/{pod.owner.kind}/{pod.owner.name}"


def evict_operator(
    pod: Pod, world: WorldRead, policy: FleetPolicy, serial: str, detail: str, id_: str = ""
) -> Operator:
    workload, subject = world.workload_of(pod), f"pod/{pod.key}"
    target = target_of(pod, workload)
    held = held_by(pod, world, policy)
    # What only a person may delete is never evicted by us, so it takes nobody's room while it is shown.
    free = not target or (held is not None and held.reason in {Reason.BARE_POD, Reason.EMPTY_DIR})
    args = {"pod": str(pod.key), "uid": pod.uid, "node": pod.node, "serial": serial}
    if workload is not None:
        args["workload"] = f"{workload.kind}/{workload.key}"
    return Operator(
        id=id_,
        source=SOURCE,
        kind=EVICT_POD,
        subject=subject,
        claims=(subject,),
        steps=STEPS,
        phases=({} if free else {target: 1},),
        reason=Reason.RETIRING,
        detail=detail,
        args=args,
    )


def next_evict_step(running: Running, world: WorldRead, policy: FleetPolicy, now: float) -> NextStep:
    operator = running.operator
    namespace, _, name = operator.args["pod"].partition("/")
    pod = world.pod(Key(namespace, name))
    again = now + policy.recheck_s
    if pod is None or pod.uid != operator.args["uid"]:
        return _await(running, world, again, now)
    if world.is_leaving(pod):
        return NextStep(step=DELETE, progress=f"{name} is on its way out", again_at=again)
    mark = leaving_mark(pod)
    if not is_being_emptied(world.node(pod.node)):
        if mark is not None:
            return NextStep(step=DELETE, instructions=(clear_leaving(pod),))
        return NextStep(step=DELETE, end=End(Reason.WITHDRAWN, f"{pod.node} is no longer being emptied"))
    held = held_by(pod, world, policy)
    if held is not None:
        return NextStep(step=DELETE, waiting_on=held, progress=held.detail, again_at=again)
    if not operator.cost and target_of(pod, world.workload_of(pod)):
        # Nothing keeps it any more, and it was let in without its workload's room: it asks again, with it.
        return NextStep(step=DELETE, end=End(Reason.REPLACED, f"{name} may be evicted now and waits for its turn"))
    if mark is None:
        return NextStep(step=DELETE, instructions=(mark_leaving(pod, operator.id, operator.detail, now),))
    why = f"{pod.node} is being emptied"
    return NextStep(step=DELETE, instructions=(DeletePod(key=pod.key, uid=pod.uid, evict=True, why=why),))


def _await(running: Running, world: WorldRead, again: float, now: float) -> NextStep:
    """Gone. Its room is kept until its workload has what it wants."""
    kind, _, key = running.operator.args.get("workload", "").partition("/")
    namespace, _, name = key.partition("/")
    workload = world.workload(Kind(kind), Key(namespace, name)) if kind else None
    if workload is None:
        return NextStep(step=AWAIT, end=End(Reason.DONE, "gone"))
    missing = max(0, workload.replicas - ready_pods(workload, world, now))
    if not missing:
        return NextStep(step=AWAIT, end=End(Reason.DONE, f"gone; {workload.name} has all {workload.replicas} again"))
    detail = f"{workload.name} misses {missing} of {workload.replicas}"
    waiting_on = Verdict(State.WAITING, Reason.POD_NOT_READY, detail)
    return NextStep(step=AWAIT, progress=detail, waiting_on=waiting_on, again_at=again)


def is_being_emptied(node: Node | None) -> bool:
    mark = read_mark(node.annotations[RETIRING]) if node is not None and RETIRING in node.annotations else None
    return mark is not None and mark.source == SOURCE and mark.step != "held"


# ── Workloads ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _is_ready(pod: Pod, workload: Workload, now: float) -> bool:
    return pod.ready and (pod.ready_since is None or now - pod.ready_since >= workload.min_ready_s)


def ready_pods(workload: Workload, world: WorldRead, now: float) -> int:
    return sum(p.active and not world.is_leaving(p) and _is_ready(p, workload, now) for p in world.pods_of(workload))


def workload_facts(pods: Iterable[Pod], world: WorldRead, queue: Queue, now: float) -> Iterator[Fact]:
    """What is already missing in the workloads of these pods, under the names that mix uses, so that it counts once:
    a replica that a running move took away under that move's pod, one that is not Ready under its own."""
    workloads = {w.uid: w for p in pods if (w := world.workload_of(p)) is not None}
    for workload in sorted(workloads.values(), key=lambda w: (w.kind, w.namespace, w.name)):
        target = f"workload/{workload.namespace}/{workload.kind}/{workload.name}"
        left = max(0, workload.replicas - ready_pods(workload, world, now))
        if not left:
            continue
        mine = sorted(
            (p for p in world.pods_of(workload) if p.active and not world.is_leaving(p)), key=lambda p: p.name
        )
        serving = {p.uid for p in mine if _is_ready(p, workload, now)}
        moved = _moved_away(target, serving, queue)
        for subject in moved[:left]:
            yield Fact(target, subject, 1, f"{subject.rpartition('/')[2]} is being moved")
        left = max(0, left - len(moved))
        for pod in mine:
            subject = f"pod/{pod.key}"
            if left and pod.uid not in serving and subject not in moved:
                left -= 1
                where = f"on {pod.node}" if pod.node else "and has no node"
                yield Fact(target, subject, 1, f"{pod.name} is not Ready {where}")
        if left:
            yield Fact(target, f"missing/{target}", left, f"{workload.name} misses {left} of {workload.replicas}")


def _moved_away(target: str, serving: Container[str], queue: Queue) -> list[str]:
    """Subjects of the running operators that hold room here for a pod that no longer serves."""
    running = ((queue.get(i), queue.phase(i) or 0) for i, _ in queue.holders(target))
    return [o.subject for o, phase in running if o and target in o.phases[phase] and o.args.get("uid") not in serving]


class Emptiness(msgspec.Struct, frozen=True):
    """How far a node has come."""

    left: tuple[Pod, ...]
    held: tuple[Verdict, ...]

    @property
    def words(self) -> str:
        names = ", ".join(p.name for p in self.left[:5])
        more = f" and {len(self.left) - 5} more" if len(self.left) > 5 else ""
        pods = "pod" if len(self.left) == 1 else "pods"
        return f"{len(self.left)} {pods} still to leave: {names}{more}" if self.left else "empty"


def emptiness(node: str, world: WorldRead, policy: FleetPolicy) -> Emptiness:
    left = tuple(to_leave(node, world))
    held = (held_by(p, world, policy) for p in left if way_of(p) is Way.EVICTED and not world.is_leaving(p))
    return Emptiness(left, tuple(h for h in held if h is not None))
