"""Emptying a node: which pods must leave it, how each of them goes, and what keeps one.

    stays         DaemonSet pods, mirror pods, what has ended: no taint and no drain moves them elsewhere
    handed over   TiKV and PD members: asked for by the mark `mooring.dev/leaving`, done by handoff, while that is on
    replaced      everything else, one `replace-pod` operator each
    blocked       a budget that allows none, a bare pod, emptyDir data where policy says so, one that does not end,
                  one that came past the cordon (evicted, it would come again), one that serves and has room nowhere
                  else (F14): a person must act

`Emptying` is what the one who asks (fleet, a person) wants of this node. When its time is over, bare pods and emptyDir
data go too, and a workload that stays short of replicas is no longer waited for; budgets hold all the same, and so does
room while the machine is well. The node is no target of the queue: it is cordoned and is to be emptied.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from mooring.capabilities.drain.cordon import came_past
from mooring.capabilities.drain.leaders import is_handed_over, kept_leaders
from mooring.capabilities.drain.readiness import (
    active_pods,
    blocked_by_budget,
    is_ready,
    missing_facts,
    ready_pods,
    subject_of,
    target_of,
)
from mooring.capabilities.drain.replace_pod import KIND, Terms, next_step, replace_pod, replacing, resumed
from mooring.capabilities.drain.request import (
    AFFINITY,
    DETACH,
    EVICT,
    ask,
    can_detach,
    is_detached,
    request_of,
    withdraw,
    workload_behind,
    workload_named,
)
from mooring.capabilities.drain.room import NodeRoom, Room, is_going, needs_of, stuck_volume
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Key, Pod, Taint, Workload
from mooring.core.model.decision import End, Fact, NextStep, OperatorRecord, Recovered, Verdict, Withdrawal
from mooring.core.model.instructions import Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead

#: A pod that is still there so long after its grace period does not end by itself.
_STUCK_S: Final = 60.0
#: Once the time is over, a workload that stays short of replicas holds its next eviction up for so long at most.
_LATE_S: Final = 300.0
#: What only a person may end.
_PERSON: Final = frozenset({Reason.BARE_POD, Reason.EMPTY_DIR, Reason.CONFLICT})
#: Nothing is charged meanwhile: it serves on, and other moves of its workload are none of its business.
_UNCHARGED: Final = _PERSON | {Reason.NO_ROOM}
#: What Kubernetes puts on a cordoned node.
_CORDON: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
_WAITS_LONG: Final = _UNCHARGED | {Reason.PDB}


class Emptying(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How one node is to be emptied, and for whom."""

    node: str
    source: str
    reason: Reason
    detail: str
    #: Since when: a pod that was created later came past the cordon.
    since: float
    #: "": it is wanted. Else why not any more: what has begun is undone.
    over: str = ""
    #: Its time is over.
    late: bool = False
    bare_pods: bool = False
    #: Pods with emptyDir data stay until the time is over.
    hold_empty_dir: bool = False
    serial: str = ""
    look_s: float = 5.0
    #: How long it may stand still before it is given up on.
    patience_s: float = 600.0


class Way(StrEnum):
    STAYS = "stays"
    HANDED_OVER = "handed-over"
    REPLACED = "replaced"


def way_of(pod: Pod, world: WorldRead) -> Way:
    if pod.is_mirror or pod.terminal or (pod.owner is not None and pod.owner.kind == Kind.DAEMON_SET):
        return Way.STAYS
    return Way.HANDED_OVER if is_handed_over(pod, world) else Way.REPLACED


def to_leave(node: str, world: WorldRead) -> list[Pod]:
    """Pods that are still to leave this node, by name; those on their way out included."""
    return sorted(
        (p for p in world.pods_on(node) if way_of(p, world) is not Way.STAYS), key=lambda p: (p.namespace, p.name)
    )


# ── What keeps a pod ──────────────────────────────────────────────────────────────────────────────────────────────


def held_by(pod: Pod, asked: Emptying, world: WorldRead, now: float, queue: QueueRead | None = None) -> Verdict | None:
    """What keeps a pod on the node; None: nothing does. What a hand-over under way waits for is in the queue."""
    if pod.deletion_at is not None:
        return _endless(pod, pod.deletion_at, now) if is_stuck(pod, now) else None
    # Of this try: it is evicted once per try, and tries are ever further apart.
    stays = None if is_detached(pod) else came_past(pod, asked.since)
    if stays is not None:
        return stays
    if is_handed_over(pod, world):
        return _kept_member(pod, world, queue)
    if is_detached(pod):
        return None
    if pod.owner is None and not asked.bare_pods and not asked.late:
        return Verdict(
            State.BLOCKED,
            Reason.BARE_POD,
            f"{pod.name} has no controller that would recreate it",
            f"once it is no longer needed: kubectl -n {pod.namespace} delete pod {pod.name}",
        )
    if pod.shape.has_empty_dir and asked.hold_empty_dir and not asked.late:
        return Verdict(
            State.BLOCKED,
            Reason.EMPTY_DIR,
            f"{pod.name} has emptyDir data that would be lost",
            f"set fleet.gentle-empty-dir to evict, or let it go: kubectl -n {pod.namespace} delete pod {pod.name}",
        )
    budget = blocked_by_budget(pod, world)
    if budget is not None:
        return msgspec.structs.replace(budget, detail=f"{pod.name}: {budget.detail}")
    return _without_room(pod, world, queue)


def is_stuck(pod: Pod, now: float) -> bool:
    """Deleted, and still there after its grace period: its kubelet is dead, or its finalizers stay."""
    return pod.deletion_at is not None and now >= pod.deletion_at + _STUCK_S


def _endless(pod: Pod, since: float, now: float) -> Verdict:
    words = f"{pod.name} was deleted and should have ended {(now - since) / 60:.0f} min ago"
    delete = f"kubectl -n {pod.namespace} delete pod {pod.name} --force"
    remedy = f"see its finalizers; where the machine is off: {delete}"
    return Verdict(State.BLOCKED, Reason.LEAVING, words, remedy)


def _without_room(pod: Pod, world: WorldRead, queue: QueueRead | None) -> Verdict | None:
    """It serves, its machine is well, and no other node would take it. Where somebody makes nodes for Pending pods that
    is no reason to stay; nor where its own node is open to it, which then has its place."""
    node = world.node(pod.node)
    if node is None or not node.unschedulable or node.ready != "True" or is_going(node) or not pod.ready:
        return None
    if world.index(NodeRoom).autoscaler or any(t.tolerates(_CORDON) for t in pod.shape.tolerations):
        return None
    room, needs = Room(world), needs_of(pod, world)
    others = _on_their_way(pod, world, queue) if queue is not None else 0
    if room.fits(needs, others=others):
        return None
    shape = pod.shape
    asks = f"{pod.name} asks for {shape.cpu_milli}m CPU and {shape.memory_bytes >> 20} MiB"
    if others and room.fits(needs):
        words = f"{asks}, and what is left on other nodes is for {others} that go before it"
        return Verdict(State.WAITING, Reason.NO_ROOM, words)
    most, left = room.most(needs), ""
    if most is not None:
        used = world.usage(most.name)
        cpu, memory = most.cpu_milli - used.cpu_milli, (most.memory_bytes - used.memory_bytes) >> 20
        left = f"; the most is left on {most.name}: {cpu}m CPU, {memory} MiB, {most.pods_limit - used.pods} pods"
    words = f"{asks}, and no other node has room ({room.lack(needs).words}){left}"
    remedy = f"add a node or make room; to let it go all the same: kubectl -n {pod.namespace} delete pod {pod.name}"
    return Verdict(State.BLOCKED, Reason.NO_ROOM, words, remedy)


def _on_their_way(pod: Pod, world: WorldRead, queue: QueueRead) -> int:
    """How many pods like this one would fit where those are to go that were promoted before it, or have begun."""
    found, before = 0, True
    for record in queue.running_records():
        how = replacing(record.operator)
        if how is None:
            continue
        if how.uid == pod.uid:
            before = False
            continue
        waits = record.waiting_on is not None and record.waiting_on.reason in _WAITS_LONG
        if record.acted_at or (before and not waits):
            found += _worth(how.workload, pod, world)
    return found


def _worth(workload: str, pod: Pod, world: WorldRead) -> int:
    """How many copies of this pod take the room of one of that workload."""
    named = workload_named(workload, world)
    other = next(iter(world.pods_of(named)), None) if named is not None else None
    if other is None:
        return 1
    cpu, memory = max(1, pod.shape.cpu_milli), max(1, pod.shape.memory_bytes)
    return max(1, -(-other.shape.cpu_milli // cpu), -(-other.shape.memory_bytes // memory))


def _kept_member(pod: Pod, world: WorldRead, queue: QueueRead | None) -> Verdict | None:
    if not world.is_on("handoff"):
        words = f"{pod.name} is a member with leaders and the feature handoff is off: its leaders would not leave first"
        return Verdict(State.BLOCKED, Reason.FEATURE_OFF, words, "--features handoff=true")
    stuck = stuck_volume(pod, world)
    if stuck is not None:
        return Verdict(State.BLOCKED, Reason.LOCAL_VOLUME, stuck.detail, stuck.remedy)
    return kept_leaders(pod, world, queue)


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


def emptiness(asked: Emptying, world: WorldRead, now: float, queue: QueueRead | None = None) -> Emptiness:
    left = tuple(to_leave(asked.node, world))
    held = (held_by(p, asked, world, now, queue) for p in left)
    return Emptiness(left, tuple(h for h in held if h is not None))


# ── Members of TiKV and PD ────────────────────────────────────────────────────────────────────────────────────────


def ask_members(asked: Emptying, operator: str, world: WorldRead, now: float) -> tuple[Patch, ...]:
    """Requests that are to be written on members that have none yet."""
    members = (p for p in to_leave(asked.node, world) if way_of(p, world) is Way.HANDED_OVER and not p.terminating)
    return tuple(
        ask(p, asked.source, asked.reason, asked.detail, now, why=f"asks {p.name} to leave {p.node}", operator=operator)
        for p in members
        if request_of(p, asked.source) is None and _may_ask(held_by(p, asked, world, now))
    )


def _may_ask(held: Verdict | None) -> bool:
    """Leaders with nowhere to go are asked away all the same: handoff tells it on the pod, and begins once they can. So
    are those of a pod whose volumes keep it: they leave, and the pod stays."""
    return held is None or held.reason in {Reason.ONE_STORE, Reason.LOCAL_VOLUME}


def take_back(node: str, source: str, world: WorldRead) -> tuple[Patch, ...]:
    """Every request of this source on pods of the node."""
    pods = sorted(world.pods_on(node), key=lambda p: (p.namespace, p.name))
    asked = (p for p in pods if LEAVING in p.annotations and request_of(p, source) is not None)
    return tuple(withdraw(p, f"{p.name} may stay") for p in asked if p.deletion_at is None)


# ── All other pods ────────────────────────────────────────────────────────────────────────────────────────────────


def proposals(asked: Emptying, world: WorldRead, now: float) -> list[Operator]:
    """One operator for each pod that Mooring itself takes off the node."""
    pods = (p for p in to_leave(asked.node, world) if way_of(p, world) is Way.REPLACED and p.deletion_at is None)
    return [operator_for(p, asked, world, now) for p in pods]


def outdated(proposed: list[Operator], queue: QueueRead) -> Iterator[Withdrawal]:
    """Operators that wait for room which they need no longer: the time is over."""
    for one in proposed:
        standing = queue.holder(one.subject)
        if standing is None or standing.kind != KIND or standing.source != one.source or queue.is_running(standing.id):
            continue
        if standing.cost != one.cost:
            yield Withdrawal(standing.id, Reason.REPLACED, "the time is over: it waits for less")


def workload_facts(node: str, world: WorldRead, queue: QueueRead, now: float) -> Iterator[Fact]:
    """What is already missing in the workloads of its pods."""
    workloads = {w.uid: w for p in to_leave(node, world) if (w := world.workload_of(p)) is not None}
    for workload in sorted(workloads.values(), key=lambda w: (w.kind, w.namespace, w.name)):
        yield from missing_facts(workload, active_pods(workload, world), queue, now)


def read_back(pod: Pod, asked: Emptying, world: WorldRead, now: float) -> Iterator[Recovered]:
    """What a mark of this source on a pod says has begun."""
    mark = request_of(pod, asked.source)
    if mark is not None and way_of(pod, world) is Way.REPLACED:
        yield resumed(operator_for(pod, asked, world, now, mark.operator), pod, mark)


def operator_for(pod: Pod, asked: Emptying, world: WorldRead, now: float, id_: str = "") -> Operator:
    workload = workload_behind(pod, world)
    held = held_by(pod, asked, world, now)
    target = _target_of(pod, workload)
    if held is not None and held.reason in _UNCHARGED:
        target = ""  # nothing is charged while it is shown
    elif asked.late:
        # Still one replica of a workload at a time; what it lacks besides keeps the machine no longer.
        target = target.replace("workload/", "late/", 1)
    return replace_pod(
        pod,
        workload,
        source=asked.source,
        way=_way(pod, workload, world, now),
        reason=asked.reason,
        detail=asked.detail,
        room=target,
        serial=asked.serial,
        id_=id_,
    )


def _target_of(pod: Pod, workload: Workload | None) -> str:
    """What counts this pod as one of its replicas; "" for a bare pod."""
    if workload is not None:
        return target_of(workload)
    return "" if pod.owner is None else f"workload/{pod.namespace}/{pod.owner.kind}/{pod.owner.name}"


def _way(pod: Pod, workload: Workload | None, world: WorldRead, now: float) -> str:
    """The replacement first where the pod is the only one of its Deployment that serves: evicted, it would be down. And
    where Mix keeps it on on-demand nodes: evicted, fewer would be there than its workload is promised."""
    if is_detached(pod):
        return DETACH
    if workload is None or not can_detach(pod, workload) or not is_ready(pod, workload, now):
        return EVICT
    promised = pod.labels.get(AFFINITY) == NodeClass.ON_DEMAND
    return DETACH if promised or ready_pods(workload, world, now) == 1 else EVICT


def next_pod_step(running: OperatorRecord, asked: Emptying, world: WorldRead, queue: QueueRead, now: float) -> NextStep:
    """What is next for one of `proposals`."""
    how = replacing(running.operator)
    assert how is not None
    namespace, _, name = how.pod.partition("/")
    pod = world.pod(Key(namespace, name))
    workload = workload_named(how.workload, world)
    if workload is not None and workload.uid != how.workload_uid:
        workload = None
    terms = Terms(
        workload=workload,
        ready=0 if workload is None else ready_pods(workload, world, now),
        unwanted=asked.over,
        hurry=asked.late,
        await_s=min(_LATE_S, asked.patience_s / 2) if asked.late else float("inf"),
        look_s=asked.look_s,
    )
    if workload is not None:
        terms.marked = tuple(p for p in active_pods(workload, world) if LEAVING in p.annotations)
    if pod is None or pod.uid != how.uid or is_stuck(pod, now) or asked.over or request_of(pod) is not None:
        return next_step(running, terms, world, now)
    way = _way(pod, workload, world, now)
    terms.held = held_by(pod, asked, world, now, queue)
    if terms.held is not None and way == DETACH and terms.held.reason is Reason.PDB:
        terms.held = None  # a budget does not keep a pod whose replacement comes first
    charged = bool(running.operator.cost) or not _target_of(pod, workload)
    if terms.held is None and (way != how.way or not charged):
        # It was promoted for another way, or without its workload's room: it is proposed again, as it is now.
        return NextStep(step=0, end=End(Reason.REPLACED, f"{name} may be evicted now and waits for its turn"))
    lacks = terms.held is not None and (terms.held.state, terms.held.reason) == (State.BLOCKED, Reason.NO_ROOM)
    if terms.held is not None and lacks and running.operator.cost:
        return NextStep(step=0, end=End(Reason.REPLACED, terms.held.detail))  # it gives its workload's room back
    return next_step(running, terms, world, now)


__all__ = [
    "Emptiness",
    "Emptying",
    "Way",
    "ask_members",
    "emptiness",
    "held_by",
    "is_stuck",
    "next_pod_step",
    "operator_for",
    "outdated",
    "proposals",
    "read_back",
    "subject_of",
    "take_back",
    "to_leave",
    "way_of",
    "workload_facts",
]
