"""Which detached pods each workload has. They have no owner any more, so nothing else leads from one to the other."""

from typing import Final

from mooring.capabilities.drain.detach import is_detached, mark_on
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.events import Change, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.world.read import WorldRead

_WORKLOADS: Final = frozenset({Kind.DEPLOYMENT, Kind.STATEFUL_SET})


class DetachedPods:
    """An index of the world."""

    observes: frozenset[object] = frozenset({Kind.POD})

    def __init__(self) -> None:
        #: "Deployment/shop/web" → the keys of its detached pods.
        self._of: dict[str, set[Key]] = {}

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        assert isinstance(trigger, Change)
        if (old := _workload_of(trigger.old)) is not None:
            keys = self._of[old]
            keys.discard(trigger.key)
            if not keys:
                del self._of[old]
        if (new := _workload_of(trigger.new)) is not None:
            self._of.setdefault(new, set()).add(trigger.key)

    def advance(self) -> bool:
        return False

    def keys(self) -> list[Key]:
        return sorted((key for keys in self._of.values() for key in keys), key=str)

    def of(self, workload: str, world: WorldRead) -> tuple[Pod, ...]:
        """Those that still serve, the one with the least time first."""
        if workload not in self._of:
            return ()
        kind, namespace, name = (*workload.split("/"), "", "")[:3]
        owner = world.workload(Kind(kind), Key(namespace, name)) if kind in _WORKLOADS else None
        if owner is None:
            return ()
        rows = [world.pod(key) for key in self._of[workload]]
        return tuple(
            sorted((pod for pod in rows if pod is not None and pod.active and _was_of(pod, owner)), key=_farewell)
        )


def _was_of(pod: Pod, workload: Workload) -> bool:
    """Of this very workload: another one of its name, or a forged mark, does not make it a replica."""
    mark = mark_on(pod)
    return mark is not None and mark.before.get("workloadUID") == workload.uid


def _workload_of(row: object) -> str | None:
    if not isinstance(row, Pod) or row.owner is not None or not is_detached(row):
        return None
    mark = mark_on(row)
    return None if mark is None else mark.before.get("workload", "")


def _farewell(pod: Pod) -> tuple[float, str, str]:
    mark = mark_on(pod)
    deadline = mark.deadline if mark is not None and mark.deadline is not None else float("inf")
    return deadline, pod.namespace, pod.name
