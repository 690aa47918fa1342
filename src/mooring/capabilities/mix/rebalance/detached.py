"""Which detached pods each workload has. They have no owner any more, so nothing else leads from one to the other."""

from bisect import bisect_left, insort

from mooring.capabilities.drain.readiness import subject_of
from mooring.capabilities.drain.request import is_detached, request_of
from mooring.capabilities.mix.labels import AFFINITY, RELAXED
from mooring.capabilities.mix.rebalance.health import Health
from mooring.capabilities.mix.slots import GIVEN
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.events import Change, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import Mark
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead

#: Deadline, namespace, name.
Leaving = tuple[float, str, str]
#: And its workload's uid, and its row while it serves.
Entry = tuple[Leaving, str, Pod | None]


class DetachedPods:
    """An index of the world. Marks are read once per change, and not once per question: under a notice there are
    hundreds of detached pods, and each of them is asked about at every step of the others."""

    observes: frozenset[object] = frozenset({Kind.POD})

    def __init__(self) -> None:
        #: "Deployment/shop/web" → its detached pods in the order in which they go.
        self._of: dict[str, list[Entry]] = {}

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        assert isinstance(trigger, Change)
        if (old := _mark_of(trigger.old)) is not None:
            pods = self._of[old.before["workload"]]
            del pods[bisect_left(pods, _entry(trigger.key, old)[:1])]
            if not pods:
                del self._of[old.before["workload"]]
        if (new := _mark_of(trigger.new)) is not None:
            insort(self._of.setdefault(new.before["workload"], []), _entry(trigger.key, new, trigger.new))

    def advance(self) -> bool:
        return False

    def keys(self) -> list[Key]:
        found = [Key(namespace, name) for pods in self._of.values() for (_, namespace, name), *_ in pods]
        return sorted(found, key=str)

    def of(self, workload: Workload) -> tuple[Pod, ...]:
        """Those that still serve, the one with the least time first. Of this very workload: another one of its name,
        or a forged mark, does not make it a replica."""
        found = self._of.get(f"{workload.kind}/{workload.namespace}/{workload.name}", ())
        return tuple([pod for _, uid, pod in found if uid == workload.uid and pod is not None])


def going_first(detached: tuple[Pod, ...], queue: QueueRead) -> tuple[Pod, ...]:
    """Those that have been told to go come first: until that is seen they still seem to serve, and a pod that is
    detached meanwhile must not go in their place."""
    return tuple(sorted(detached, key=lambda pod: _stays(pod, queue))) if len(detached) > 1 else detached


def awaited(
    health: Health, detached: tuple[Pod, ...], floor: int, queue: QueueRead, world: WorldRead
) -> frozenset[str]:
    """UIDs of detached pods on on-demand nodes that stay while a replacement of that class is on its way: what is Ready
    meanwhile may be that of a spot pod, and the floor would be broken until the other is Ready, too."""
    node_class = world.node_classes().get
    mine = [p for p in detached if node_class(p.node) is NodeClass.ON_DEMAND]
    if not mine or not floor or not any(_comes(p, node_class(p.node)) for p in health.pods):
        return frozenset()
    serves = health.safe + sum(p.ready for p in mine)
    may_go = max(0, serves - floor)
    going = sum(not _stays(pod, queue) for pod in mine)
    return frozenset(p.uid for p in mine[max(going, may_go) :])


def _comes(pod: Pod, where: NodeClass | None) -> bool:
    """It will count as on-demand once it is Ready."""
    given = GIVEN.get(pod.shape.labels.get(AFFINITY, ""))
    on_its_way = given is NodeClass.ON_DEMAND and not pod.ready and RELAXED not in pod.annotations
    return on_its_way and where is not NodeClass.SPOT


def _stays(pod: Pod, queue: QueueRead) -> bool:
    """It has not been told to go."""
    record = queue.record_of(subject_of(pod))
    return record is None or record.step == 0


def _entry(key: Key, mark: Mark, row: object = None) -> Entry:
    deadline = float("inf") if mark.deadline is None else mark.deadline
    serves = row if isinstance(row, Pod) and row.active else None
    return (deadline, key.namespace, key.name), mark.before.get("workloadUID", ""), serves


def _mark_of(row: object) -> Mark | None:
    """Of a detached pod; None for every other."""
    if not isinstance(row, Pod) or row.owner is not None or not is_detached(row):
        return None
    return request_of(row)
