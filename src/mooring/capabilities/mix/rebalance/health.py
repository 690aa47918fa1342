"""The health of a workload: what it wants, what is there, what is missing, and whether it is being changed."""

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any, Final, TypeVar

import msgspec

from mooring.capabilities.drain.readiness import is_ready, missing_facts
from mooring.capabilities.drain.request import RECREATE
from mooring.capabilities.mix.labels import AFFINITY, CONFLICT, REBALANCE, RELAXED, RESERVATION
from mooring.capabilities.mix.slots import GIVEN, class_changed, class_of
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Node, Pod, ReplicaSet, Workload
from mooring.core.model.decision import Fact
from mooring.core.model.events import Change, Trigger
from mooring.core.model.kinds import POD_OWNERS, WORKLOADS, Kind
from mooring.core.model.marks import LEAVING
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_ON_DEMAND: Final = NodeClass.ON_DEMAND
_SPOT: Final = NodeClass.SPOT
_name: Final = attrgetter("name")

T = TypeVar("T")


class Health(msgspec.Struct, frozen=True, gc=False):
    workload: Workload
    #: Active pods, by name: neither ended nor leaving.
    pods: tuple[Pod, ...]
    #: Of those, Ready for long enough.
    ready: int
    #: "" or, in words, why the workload is not to be touched just now.
    changing: str = ""
    #: Of those, the ones without a node, and the ones that carry a mark.
    unplaced: tuple[Pod, ...] = ()
    marked: tuple[Pod, ...] = ()
    #: How many count as on-demand, and the spot ones that found no spot node and run on on-demand ones.
    on_demand: int = 0
    fallen_back: tuple[Pod, ...] = ()
    #: On-demand ones that run on spot nodes: they were let go there, or the node's label was changed under them.
    exposed: tuple[Pod, ...] = ()
    #: How many run on spot nodes; how many are Ready on on-demand ones; how many only prefer on-demand.
    on_spot: int = 0
    safe: int = 0
    relaxed: int = 0
    #: When the last of those that were created without our webhook was.
    alone_at: float | None = None
    #: When a pod of it last came or became Ready.
    last_change: float = 0.0
    #: What follows from this look alone, once it was asked for.
    followed: dict[object, Any] = msgspec.field(default_factory=dict)

    @property
    def wanted(self) -> int:
        return self.workload.replicas

    @property
    def missing(self) -> int:
        """A surge pod that hangs in a fully available workload is not missed."""
        return max(0, self.wanted - self.ready)

    def once(self, question: object, answer: Callable[[], T]) -> T:
        """The answer to a question that this look decides: a burst asks for it again and again."""
        if question not in self.followed:
            self.followed[question] = answer()
        found: T = self.followed[question]
        return found


def health_of(workload: Workload, world: WorldRead, now: float) -> Health:
    """In one pass: this is most of what a look at a workload costs."""
    pods: list[Pod] = []
    unplaced: list[Pod] = []
    marked: list[Pod] = []
    fallen: list[Pod] = []
    exposed: list[Pod] = []
    owners: set[str] = set()
    ready = on_demand = on_spot = safe = relaxed = 0
    alone_at: float | None = None
    last_change = 0.0
    plain, node_class = workload.min_ready_s == 0, world.node_classes().get
    for pod in sorted(world.pods_of(workload), key=_name):
        if pod.phase in _ENDED or pod.deletion_at is not None:
            continue
        pods.append(pod)
        notes, where = pod.annotations, node_class(pod.node)
        last_change = max(last_change, pod.ready_since or pod.created_at)
        if not pod.node:
            unplaced.append(pod)
        if LEAVING in notes:
            marked.append(pod)
        if RELAXED in notes:
            relaxed += 1
        if pod.owner is not None:
            owners.add(pod.owner.uid)
        if RESERVATION not in notes and (alone_at is None or pod.created_at > alone_at):
            alone_at = pod.created_at
        given = GIVEN.get(pod.shape.labels.get(AFFINITY, ""))
        if given is None or CONFLICT in notes:
            given = class_of(pod, world)
        on_demand += given is _ON_DEMAND
        if where is _SPOT:
            on_spot += 1
            if given is _ON_DEMAND:
                exposed.append(pod)
        elif where is _ON_DEMAND and given is _SPOT:
            fallen.append(pod)
        if pod.ready:
            ready += plain or is_ready(pod, workload, now)
            safe += where is _ON_DEMAND
    changing = _changing(workload, owners, world)
    return Health(
        workload,
        tuple(pods),
        ready,
        changing,
        tuple(unplaced),
        tuple(marked),
        on_demand,
        tuple(fallen),
        tuple(exposed),
        on_spot,
        safe,
        relaxed,
        alone_at,
        last_change,
    )


class Healths:
    """An index of the world: the last look at each workload. A burst asks for it thousands of times, at every step of
    every move, and nine times out of ten nothing of the workload has changed since. It is no state: a fresh look gives
    the same, so none is kept."""

    observes: frozenset[object] = frozenset({Kind.POD, Kind.NODE, Kind.REPLICA_SET, *WORKLOADS})

    def __init__(self) -> None:
        self._last: dict[str, Health] = {}

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        assert isinstance(trigger, Change)
        old, new = trigger.old, trigger.new
        if trigger.kind is not Kind.NODE:
            self._forget((old, new), world)
        elif not (isinstance(old, Node) and isinstance(new, Node)) or class_changed(old, new, world.rules):
            self._last.clear()  # pods count by the class of their node
        elif old.unschedulable != new.unschedulable:
            self._forget(world.pods_on(new.name), world)  # pods of a cordoned node go first

    def _forget(self, rows: Iterable[object], world: WorldRead) -> None:
        for row in rows:
            self._last.pop(_uid_of(row, world), None)

    def advance(self) -> bool:
        return False

    def __reduce__(self) -> tuple[type["Healths"], tuple[()]]:
        return Healths, ()

    def of(self, workload: Workload, world: WorldRead, now: float) -> Health:
        known = self._last.get(workload.uid)
        if known is None or known.workload is not workload or workload.min_ready_s:  # time alone makes a pod available
            known = self._last[workload.uid] = health_of(workload, world, now)
        return known


def _uid_of(row: object, world: WorldRead) -> str:
    """Of the workload that a row belongs to; "": none."""
    if isinstance(row, Workload):
        return row.uid
    owner = row.owner if isinstance(row, Pod | ReplicaSet) else None
    if isinstance(row, Pod) and owner is not None and owner.kind == Kind.REPLICA_SET:
        replica_set = world.replica_set(owner.uid)
        owner = None if replica_set is None else replica_set.owner
    return "" if owner is None else owner.uid


def _changing(workload: Workload, owners: set[str], world: WorldRead) -> str:
    if workload.deletion_at is not None:
        return "is being deleted"
    if workload.observed_generation < workload.generation:
        return "was just changed and its controller has not looked at it yet"
    if workload.paused:
        return "is paused"
    if workload.kind in POD_OWNERS:
        if workload.update_revision and workload.current_revision not in {"", workload.update_revision}:
            return "has a rollout in progress"
        return ""
    wanted = {rs.uid for rs in world.replica_sets_of(workload.uid) if rs.replicas > 0}
    return "has a rollout in progress" if len(owners | wanted) > 1 else ""


def is_fast(workload: Workload) -> bool:
    """The quicker way is asked for by annotation, and only a Deployment or Rollout can surge, unless its strategy
    forbids it."""
    surges = workload.kind not in POD_OWNERS and workload.strategy != RECREATE
    return surges and workload.annotations.get(REBALANCE) == "fast"


def workload_key(workload: Workload) -> str:
    return f"workload/{workload.kind}/{workload.namespace}/{workload.name}"


def facts_of(health: Health, queue: QueueRead, now: float) -> Iterator[Fact]:
    return missing_facts(health.workload, health.pods, queue, now) if health.missing else iter(())
