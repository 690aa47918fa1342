"""Emptying a node: which pods must leave it, how each of them goes, and what keeps one.

    stays         DaemonSet pods, mirror pods, what has ended: no taint and no drain moves them elsewhere
    handed over   TiKV and PD members: asked for by the mark `mooring.dev/leaving`, done by handoff, while that is on
    evicted       everything else, one `evict-pod` operator each
    blocked       a budget that allows none, a bare pod, emptyDir data where policy says `hold`, one that does not end,
                  one that came past the cordon (evicted, it would come again): a person must act

When the time is over, bare pods and emptyDir data go too. The node is no target: it is cordoned and is to be emptied.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from mooring.capabilities.drain.component import is_handed_over
from mooring.capabilities.drain.cordon import came_past, cordon_mark
from mooring.capabilities.drain.detach import is_detached
from mooring.capabilities.drain.evict import blocked_by_budget
from mooring.capabilities.drain.leaders import kept_leaders
from mooring.capabilities.drain.readiness import active_pods, missing_facts
from mooring.capabilities.drain.volumes import stuck_volume
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.release import SOURCE
from mooring.core.model.cluster import Node, Pod
from mooring.core.model.decision import Fact, Verdict
from mooring.core.model.instructions import Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, RETIRING, Mark, leaving, read_mark, write_mark
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import Queue
from mooring.core.world.read import WorldRead

#: A pod that is still there so long after its grace period does not end by itself.
_STUCK_S: Final = 60.0


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


def held_by(pod: Pod, world: WorldRead, policy: FleetPolicy, now: float, queue: Queue | None = None) -> Verdict | None:
    """What keeps a pod on the node; None: nothing does. When the time is over, bare pods and emptyDir data do not. What
    a hand-over under way waits for is in the queue."""
    node = world.node(pod.node)
    if pod.deletion_at is not None:
        return _endless(pod, pod.deletion_at, now) if is_stuck(pod, now) else None
    mark = retiring_mark(node) if node is not None else None
    # Of this try: it is evicted once per try, and tries are ever further apart.
    stays = came_past(pod, mark.since) if mark is not None and not is_detached(pod) else None
    if stays is not None:
        return stays
    late = is_late(node, policy, now)
    if is_handed_over(pod, world):
        return _kept_member(pod, world, queue)
    if is_detached(pod):
        return None
    if pod.owner is None and not policy.evict_bare_pods and not late:
        return Verdict(
            State.BLOCKED,
            Reason.BARE_POD,
            f"{pod.name} has no controller that would recreate it",
            f"once it is no longer needed: kubectl -n {pod.namespace} delete pod {pod.name}",
        )
    if pod.shape.has_empty_dir and policy.gentle_empty_dir == "hold" and not late:
        return Verdict(
            State.BLOCKED,
            Reason.EMPTY_DIR,
            f"{pod.name} has emptyDir data that would be lost",
            f"set fleet.gentle-empty-dir to evict, or let it go: kubectl -n {pod.namespace} delete pod {pod.name}",
        )
    budget = blocked_by_budget(pod, world)
    return None if budget is None else msgspec.structs.replace(budget, detail=f"{pod.name}: {budget.detail}")


def is_stuck(pod: Pod, now: float) -> bool:
    """Deleted, and still there after its grace period: its kubelet is dead, or its finalizers stay."""
    return pod.deletion_at is not None and now >= pod.deletion_at + _STUCK_S


def _endless(pod: Pod, since: float, now: float) -> Verdict:
    words = f"{pod.name} was deleted and should have ended {(now - since) / 60:.0f} min ago"
    delete = f"kubectl -n {pod.namespace} delete pod {pod.name} --force"
    remedy = f"see its finalizers; where the machine is off: {delete}"
    return Verdict(State.BLOCKED, Reason.LEAVING, words, remedy)


def _kept_member(pod: Pod, world: WorldRead, queue: Queue | None) -> Verdict | None:
    if not world.is_on("handoff"):
        words = f"{pod.name} is a TiKV or PD member and the feature handoff is off: its leaders would not leave first"
        return Verdict(State.BLOCKED, Reason.FEATURE_OFF, words, "--features handoff=true")
    stuck = stuck_volume(pod, world)
    if stuck is not None:
        return Verdict(State.BLOCKED, Reason.LOCAL_VOLUME, stuck.detail, stuck.remedy)
    return kept_leaders(pod, world, queue)


def retiring_mark(node: Node) -> Mark | None:
    """A kubelet may write it: one for another's machine is none."""
    mark = read_mark(node.annotations[RETIRING]) if RETIRING in node.annotations else None
    ours = mark is not None and mark.source == SOURCE and mark.node in {node.name, node.internal_ip}
    return mark if ours else None


def is_late(node: Node | None, policy: FleetPolicy, now: float) -> bool:
    """`gentle`: whether `retire-timeout` is over. It counts from the first cordon, not from the last try."""
    return node is not None and policy.retire == "gentle" and now >= late_at(node, policy)


def late_at(node: Node, policy: FleetPolicy) -> float:
    mark = cordon_mark(node, SOURCE) or retiring_mark(node)
    return mark.since + policy.retire_timeout_s if mark is not None else float("inf")


def taken_back(node: Node) -> bool:
    """Our mark says that we cordoned the node, and it is not cordoned: a person wants pods on it again."""
    return not node.unschedulable and cordon_mark(node, SOURCE) is not None


def leaving_mark(pod: Pod) -> Mark | None:
    """Our own request on a pod; None for one of another source."""
    mark = leaving(pod)
    return mark if mark is not None and mark.source == SOURCE else None


def new_mark(pod: Pod, operator: str, detail: str, now: float) -> Mark:
    return Mark(
        operator=operator,
        source=SOURCE,
        reason=Reason.RETIRING,
        step="leaving",
        since=now,
        detail=detail,
        node=pod.node,
        pod_uid=pod.uid,
    )


def mark_leaving(pod: Pod, operator: str, detail: str, now: float) -> Patch:
    mark = new_mark(pod, operator, detail, now)
    return _annotate(pod, write_mark(mark), f"asks {pod.name} to leave {pod.node}")


def clear_leaving(pod: Pod) -> Patch:
    return _annotate(pod, None, f"{pod.name} may stay")


def _annotate(pod: Pod, text: str | None, why: str) -> Patch:
    patch = {"metadata": {"annotations": {LEAVING: text}}}
    return Patch(kind=Kind.POD, key=pod.key, uid=pod.uid, patch=patch, why=why)


def is_being_emptied(node: Node | None) -> bool:
    mark = retiring_mark(node) if node is not None else None
    return node is not None and mark is not None and mark.step != "blocked" and not taken_back(node)


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


def emptiness(node: Node, world: WorldRead, policy: FleetPolicy, now: float, queue: Queue | None = None) -> Emptiness:
    left = tuple(to_leave(node.name, world))
    held = (held_by(p, world, policy, now, queue) for p in left)
    return Emptiness(left, tuple(h for h in held if h is not None))
