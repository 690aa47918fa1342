"""Which detached pods each workload has. They have no owner any more, so nothing else leads from one to the other."""

from bisect import insort

from mooring.capabilities.drain.detach import is_detached, mark_on
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.events import Change, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import Mark
from mooring.core.world.read import WorldRead

#: Deadline, namespace, name.
Leaving = tuple[float, str, str]


class DetachedPods:
    """An index of the world. Marks are read once per change, and not once per question: under a notice there are
    hundreds of detached pods, and each of them is asked about at every step of the others."""

    observes: frozenset[object] = frozenset({Kind.POD})

    def __init__(self) -> None:
        #: "Deployment/shop/web" → its detached pods in the order in which they go, each with its workload's uid.
        self._of: dict[str, list[tuple[Leaving, str]]] = {}

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        assert isinstance(trigger, Change)
        if (old := _mark_of(trigger.old)) is not None:
            pods = self._of[old.before["workload"]]
            pods.remove(_entry(trigger.key, old))
            if not pods:
                del self._of[old.before["workload"]]
        if (new := _mark_of(trigger.new)) is not None:
            insort(self._of.setdefault(new.before["workload"], []), _entry(trigger.key, new))

    def advance(self) -> bool:
        return False

    def keys(self) -> list[Key]:
        found = [Key(namespace, name) for pods in self._of.values() for (_, namespace, name), _ in pods]
        return sorted(found, key=str)

    def of(self, workload: Workload, world: WorldRead) -> tuple[Pod, ...]:
        """Those that still serve, the one with the least time first. Of this very workload: another one of its name,
        or a forged mark, does not make it a replica."""
        found = self._of.get(f"{workload.kind}/{workload.namespace}/{workload.name}", ())
        mine = [pod for pod, uid in found if uid == workload.uid]
        rows = [world.pod(Key(namespace, name)) for _, namespace, name in mine]
        return tuple([pod for pod in rows if pod is not None and pod.active])


def _entry(key: Key, mark: Mark) -> tuple[Leaving, str]:
    deadline = float("inf") if mark.deadline is None else mark.deadline
    return (deadline, key.namespace, key.name), mark.before.get("workloadUID", "")


def _mark_of(row: object) -> Mark | None:
    """Of a detached pod; None for every other."""
    if not isinstance(row, Pod) or row.owner is not None or not is_detached(row):
        return None
    return mark_on(row)
