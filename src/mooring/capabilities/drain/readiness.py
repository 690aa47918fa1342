"""Which replicas of a workload serve, and the facts about those that are missing.

What is missing is stated as facts on `workload/…`, so that "only while healthy" is the queue's own rule. Each fact
names the pod that is not Ready: moving that very pod is not blocked by it. Code that states facts about a workload
states the same ones, so that no absence is charged twice.
"""

from collections.abc import Iterable, Iterator

from mooring.core.model.cluster import Pod, Workload
from mooring.core.model.decision import Fact
from mooring.core.queue import Queue
from mooring.core.world.read import WorldRead


def is_ready(pod: Pod, workload: Workload, now: float) -> bool:
    """Available, as Kubernetes means it: Ready for minReadySeconds."""
    if not pod.ready:
        return False
    return workload.min_ready_s == 0 or pod.ready_since is None or now - pod.ready_since >= workload.min_ready_s


def active_pods(workload: Workload, world: WorldRead) -> list[Pod]:
    """By name: neither ended nor leaving."""
    return sorted((p for p in world.pods_of(workload) if p.active), key=lambda p: p.name)


def ready_pods(workload: Workload, world: WorldRead, now: float) -> int:
    return sum(is_ready(p, workload, now) for p in active_pods(workload, world))


def target_of(workload: Workload) -> str:
    return f"workload/{workload.namespace}/{workload.kind}/{workload.name}"


def subject_of(pod: Pod) -> str:
    return f"pod/{pod.namespace}/{pod.name}"


def missing_facts(workload: Workload, pods: Iterable[Pod], queue: Queue, now: float) -> Iterator[Fact]:
    """As many as are missing, each under the name it is charged by. `pods`: the active ones, by name.

    - a replica that one of our running moves took away, under that move's pod: the queue takes the larger of the two;
    - one that is not Ready, under its own name;
    - what has no pod, under the workload's.
    """
    mine = tuple(pods)
    serving = {p.uid for p in mine if is_ready(p, workload, now)}
    left = max(0, workload.replicas - len(serving))
    if not left:
        return
    target = target_of(workload)
    moved = _moved_away(target, serving, queue)[:left]
    for subject in moved:
        yield Fact(target, subject, 1, f"{subject.rpartition('/')[2]} is being moved")
    left -= len(moved)
    broken = [p for p in mine if p.uid not in serving and subject_of(p) not in moved][:left]
    for pod in broken:
        where = f"on {pod.node}" if pod.node else "and has no node"
        yield Fact(target, subject_of(pod), 1, f"{pod.name} is not Ready {where}")
    left -= len(broken)
    if left:
        yield Fact(target, f"missing/{target}", left, f"{workload.name} misses {left} of {workload.replicas}")


def _moved_away(target: str, serving: set[str], queue: Queue) -> list[str]:
    """Subjects of the running operators that hold room here for a pod that no longer serves.

    What an operator adds may be nothing by now, for our own fact stands there already: its phase is what counts.
    """
    running = ((queue.get(i), queue.phase(i) or 0) for i, _ in queue.holders(target))
    return [
        o.subject for o, phase in running if o and target in o.phases[phase] and o.args.get("uid", "") not in serving
    ]
