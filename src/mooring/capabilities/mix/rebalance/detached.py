"""Which detached pods each workload has. They have no owner any more, so nothing else leads from one to the other."""

from typing import Final

from mooring.capabilities.drain.detach import is_detached, mark_on
from mooring.core.model.cluster import Key, Pod
from mooring.core.model.events import Change, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import Mark
from mooring.core.world.read import WorldRead

_WORKLOADS: Final = frozenset({Kind.DEPLOYMENT, Kind.STATEFUL_SET})
#: Deadline, namespace, name.
Farewell = tuple[float, str, str]


class DetachedPods:
    """An index of the world. Marks are read once per change, and not once per question: under a notice there are
    hundreds of detached pods, and each of them is asked about at every step of the others."""

    observes: frozenset[object] = frozenset({Kind.POD})

    def __init__(self) -> None:
        #: "Deployment/shop/web" → its detached pods: which goes first, and the workload's uid.
        self._of: dict[str, dict[Key, tuple[Farewell, str]]] = {}

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        assert isinstance(trigger, Change)
        if (old := _mark_of(trigger.old)) is not None:
            pods = self._of[old.before["workload"]]
            pods.pop(trigger.key, None)
            if not pods:
                del self._of[old.before["workload"]]
        if (new := _mark_of(trigger.new)) is not None:
            deadline = float("inf") if new.deadline is None else new.deadline
            farewell = (deadline, trigger.key.namespace, trigger.key.name)
            pods = self._of.setdefault(new.before["workload"], {})
            pods[trigger.key] = (farewell, new.before.get("workloadUID", ""))

    def advance(self) -> bool:
        return False

    def keys(self) -> list[Key]:
        return sorted((key for pods in self._of.values() for key in pods), key=str)

    def of(self, workload: str, world: WorldRead) -> tuple[Pod, ...]:
        """Those that still serve, the one with the least time first. Of this very workload: another one of its name,
        or a forged mark, does not make it a replica."""
        if workload not in self._of:
            return ()
        kind, namespace, name = (*workload.split("/"), "", "")[:3]
        owner = world.workload(Kind(kind), Key(namespace, name)) if kind in _WORKLOADS else None
        if owner is None:
            return ()
        uid = owner.uid
        mine = sorted((farewell, key) for key, (farewell, of) in self._of[workload].items() if of == uid)
        rows = [world.pod(key) for _, key in mine]
        return tuple([pod for pod in rows if pod is not None and pod.active])


def _mark_of(row: object) -> Mark | None:
    """Of a detached pod; None for every other."""
    if not isinstance(row, Pod) or row.owner is not None or not is_detached(row):
        return None
    return mark_on(row)
