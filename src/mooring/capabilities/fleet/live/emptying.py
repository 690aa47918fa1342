"""Emptying a node: which pods must leave it, how each of them goes, and what keeps one.

    stays         DaemonSet pods, mirror pods, what has ended: no taint and no drain moves them elsewhere
    handed over   TiKV and PD members: asked for by the mark `mooring.dev/leaving`, done by handoff, while that is on
    evicted       everything else, one `evict-pod` operator each: workload 1 until the replacement is Ready
    blocked       a budget that allows none, a bare pod, emptyDir data where policy says `hold`: a person must act

When the time is over, only budgets and members keep a pod. The node is no target: it is cordoned and is to be emptied.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from mooring.capabilities.drain import readiness
from mooring.capabilities.drain.component import is_handed_over
from mooring.capabilities.drain.cordon import cordon_mark
from mooring.capabilities.drain.evict import blocked_by_budget
from mooring.capabilities.drain.readiness import active_pods, missing_facts, ready_pods, subject_of
from mooring.capabilities.drain.volumes import stuck_volume
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.release import SOURCE
from mooring.core.model.cluster import Key, Node, Pod, Workload
from mooring.core.model.decision import End, Fact, NextStep, Running, Verdict
from mooring.core.model.instructions import DeletePod, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, RETIRING, Mark, leaving, read_mark, write_mark
from mooring.core.model.operator import Operator, Step, StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import Queue
from mooring.core.world.read import WorldRead

EVICT_POD: Final = "evict-pod"
STEPS: Final = (Step(StepKind.DELETE_POD), Step(StepKind.AWAIT_READY))
DELETE, AWAIT = range(2)


class Way(StrEnum):
    STAYS = "stays"
    HANDED_OVER = "handed-over"
    EVICTED = "evicted"


def way_of(pod: Pod, world: WorldRead) -> Way:
    if pod.is_mirror or pod.terminal or (pod.owner is not None and pod.owner.kind == Kind.DAEMON_SET):
        return Way.STAYS
    return Way.HANDED_OVER if is_handed_over(pod, world) else Way.EVICTED


def to_leave(node: str, world: WorldRead) -> list[Pod]:
    """Pods that are still to leave this node, by name; those on their way out included."""
    return sorted(
        (p for p in world.pods_on(node) if way_of(p, world) is not Way.STAYS), key=lambda p: (p.namespace, p.name)
    )


def held_by(pod: Pod, world: WorldRead, policy: FleetPolicy, *, late: bool = False) -> Verdict | None:
    """What keeps a pod on the node; None: nothing does. `late`: the time is over, only budgets and members count."""
    if is_handed_over(pod, world):
        return _kept_member(pod, world)
    if pod.owner is None and not policy.evict_bare_pods and not late:
        return Verdict(
            State.BLOCKED,
            Reason.BARE_POD,
            f"{pod.name} has no controller: nobody would recreate it",
            f"kubectl -n {pod.namespace} delete pod {pod.name}, once it is no longer needed",
        )
    if pod.shape.has_empty_dir and policy.gentle_empty_dir == "hold" and not late:
        return Verdict(
            State.BLOCKED,
            Reason.EMPTY_DIR,
            f"{pod.name} has emptyDir data that would be lost",
            f"kubectl -n {pod.namespace} delete pod {pod.name}, or fleet: {{gentle-empty-dir: evict}}",
        )
    budget = blocked_by_budget(pod, world)
    return None if budget is None else msgspec.structs.replace(budget, detail=f"{pod.name}: {budget.detail}")


def _kept_member(pod: Pod, world: WorldRead) -> Verdict | None:
    if not world.is_on("handoff"):
        words = f"{pod.name} is a TiKV or PD member and the feature handoff is off: nobody takes its leaders off"
        return Verdict(State.BLOCKED, Reason.FEATURE_OFF, words, "--features handoff=true")
    stuck = stuck_volume(pod, world)
    return None if stuck is None else Verdict(State.BLOCKED, Reason.LOCAL_VOLUME, stuck.detail, stuck.remedy)


def retiring_mark(node: Node) -> Mark | None:
    mark = read_mark(node.annotations[RETIRING]) if RETIRING in node.annotations else None
    return mark if mark is not None and mark.source == SOURCE else None


def is_late(node: Node | None, policy: FleetPolicy, now: float) -> bool:
    """`gentle`: whether `retire-timeout` is over. It counts from the first cordon, not from the last try."""
    return node is not None and policy.retire == "gentle" and now >= late_at(node, policy)


def late_at(node: Node, policy: FleetPolicy) -> float:
    mark = cordon_mark(node, SOURCE) or retiring_mark(node)
    return mark.since + policy.retire_timeout_s if mark is not None else float("inf")


def taken_back(node: Node) -> bool:
    """Our mark says that we cordoned it, and it is not: a person wants pods on it again."""
    return not node.unschedulable and cordon_mark(node, SOURCE) is not None


def leaving_mark(pod: Pod) -> Mark | None:
    """Our own wish on a pod; somebody else's is not ours to read."""
    mark = leaving(pod)
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
        return readiness.target_of(workload)
    return "" if pod.owner is None else f"workload/{pod.namespace}/{pod.owner.kind}/{pod.owner.name}"


def evict_operator(
    pod: Pod, world: WorldRead, policy: FleetPolicy, serial: str, detail: str, now: float, id_: str = ""
) -> Operator:
    workload, subject = world.workload_of(pod), subject_of(pod)
    target = target_of(pod, workload)
    held = held_by(pod, world, policy, late=is_late(world.node(pod.node), policy, now))
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
    if pod.deletion_at is not None:
        return NextStep(step=DELETE, progress=f"{name} is on its way out", again_at=again)
    mark = leaving_mark(pod)
    if not is_being_emptied(world.node(pod.node)):
        if mark is not None:
            return NextStep(step=DELETE, instructions=(clear_leaving(pod),))
        return NextStep(step=DELETE, end=End(Reason.WITHDRAWN, f"{pod.node} is no longer being emptied"))
    held = held_by(pod, world, policy, late=is_late(world.node(pod.node), policy, now))
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
    mark = retiring_mark(node) if node is not None else None
    return node is not None and mark is not None and mark.step != "held" and not taken_back(node)


# ── Workloads ─────────────────────────────────────────────────────────────────────────────────────────────────────


def workload_facts(pods: Iterable[Pod], world: WorldRead, queue: Queue, now: float) -> Iterator[Fact]:
    """What is already missing in the workloads of these pods."""
    workloads = {w.uid: w for p in pods if (w := world.workload_of(p)) is not None}
    for workload in sorted(workloads.values(), key=lambda w: (w.kind, w.namespace, w.name)):
        yield from missing_facts(workload, active_pods(workload, world), queue, now)


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


def emptiness(node: Node, world: WorldRead, policy: FleetPolicy, now: float) -> Emptiness:
    left, late = tuple(to_leave(node.name, world)), is_late(node, policy, now)
    held = (held_by(p, world, policy, late=late) for p in left if p.deletion_at is None)
    return Emptiness(left, tuple(h for h in held if h is not None))
