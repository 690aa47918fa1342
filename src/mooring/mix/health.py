"""How a workload is: what it wants, what is there, what is missing, and whether it is being changed.

What is missing is stated as facts on `workload/…`, so that "only while healthy" is the queue's own rule. Each fact
names the pod that is not Ready: moving that very pod is not blocked by it.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from mooring.mix.labels import REBALANCE
from mooring.model.cluster import Key, Pod, Workload
from mooring.model.decision import Fact
from mooring.model.kinds import Kind
from mooring.world.read import WorldRead

_WORKLOADS: Final = frozenset({Kind.DEPLOYMENT, Kind.STATEFUL_SET})


class Health(msgspec.Struct, frozen=True, gc=False):
    workload: Workload
    #: Active pods, by name: neither ended nor leaving.
    pods: tuple[Pod, ...]
    #: Of those, Ready for long enough.
    ready: int
    #: "" or, in words, why the workload is not to be touched just now.
    changing: str = ""

    @property
    def wanted(self) -> int:
        return self.workload.replicas

    @property
    def missing(self) -> int:
        """A surge pod that hangs in a fully available workload is not missed."""
        return max(0, self.wanted - self.ready)

    @property
    def last_change(self) -> float:
        """When a pod of it last came or became Ready."""
        return max((p.ready_since or p.created_at for p in self.pods), default=0.0)


def is_ready(pod: Pod, workload: Workload, now: float) -> bool:
    """Available, as Kubernetes means it: Ready for minReadySeconds."""
    if not pod.ready:
        return False
    return workload.min_ready_s == 0 or pod.ready_since is None or now - pod.ready_since >= workload.min_ready_s


def health_of(workload: Workload, world: WorldRead, now: float) -> Health:
    pods = tuple(sorted((p for p in world.pods_of(workload) if p.active and not world.is_leaving(p)), key=_name))
    ready = sum(is_ready(pod, workload, now) for pod in pods)
    return Health(workload, pods, ready, _changing(workload, pods, world))


def _name(pod: Pod) -> str:
    return pod.name


def _changing(workload: Workload, pods: tuple[Pod, ...], world: WorldRead) -> str:
    if workload.deletion_at is not None:
        return "is being deleted"
    if workload.observed_generation < workload.generation:
        return "was just changed and its controller has not looked at it yet"
    if workload.kind == Kind.STATEFUL_SET:
        if workload.update_revision and workload.current_revision not in {"", workload.update_revision}:
            return "has a rollout in progress"
        return ""
    if workload.paused:
        return "is paused"
    owners = {pod.owner.uid for pod in pods if pod.owner is not None}
    owners |= {rs.uid for rs in world.replica_sets_of(workload.uid) if rs.replicas > 0}
    return "has a rollout in progress" if len(owners) > 1 else ""


def is_fast(workload: Workload) -> bool:
    """The quicker way is asked for by annotation, and only a Deployment can surge."""
    return workload.kind == Kind.DEPLOYMENT and workload.annotations.get(REBALANCE) == "fast"


def workload_key(workload: Workload) -> str:
    return f"workload/{workload.kind}/{workload.namespace}/{workload.name}"


def find_workload(text: str, world: WorldRead) -> Workload | None:
    """By "Deployment/shop/web"."""
    kind, _, rest = text.partition("/")
    namespace, _, name = rest.partition("/")
    if kind not in _WORKLOADS:
        return None
    return world.workload(Kind(kind), Key(namespace, name))


def target_of(workload: Workload) -> str:
    return f"workload/{workload.namespace}/{workload.kind}/{workload.name}"


def subject_of(pod: Pod) -> str:
    return f"pod/{pod.namespace}/{pod.name}"


def facts_of(health: Health, now: float) -> Iterator[Fact]:
    """One per pod that is not Ready, as many as are missing; what has no pod is charged to the workload itself."""
    target, left = target_of(health.workload), health.missing
    for pod in health.pods:
        if left and not is_ready(pod, health.workload, now):
            left -= 1
            where = f"on {pod.node}" if pod.node else "and has no node"
            yield Fact(target, subject_of(pod), 1, f"{pod.name} is not Ready {where}")
    if left:
        yield Fact(target, f"missing/{target}", left, f"{health.workload.name} misses {left} of {health.wanted}")
