"""Which replicas of a workload serve, and the facts about those that are missing.

What is missing is stated as facts on `workload/…`, so that "only while healthy" is the queue's own rule. Each fact
names the pod that is not Ready: moving that very pod is not blocked by it. Code that states facts about a workload
states the same ones, so that no absence is charged twice.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from mooring.core.model.cluster import Pdb, Pod, Workload
from mooring.core.model.decision import Fact, Verdict
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead

#: A pod that stopped being Ready so short a time ago may be Ready again before it could be replaced.
_FLAP_S: Final = 5.0
#: Members away that are named one by one.
_MOST_NAMED: Final = 100


def is_ready(pod: Pod, workload: Workload, now: float) -> bool:
    """Available, as Kubernetes means it: Ready for minReadySeconds."""
    if not pod.ready:
        return False
    return workload.min_ready_s == 0 or pod.ready_since is None or now - pod.ready_since >= workload.min_ready_s


def is_down(pod: Pod, workload: Workload, world: WorldRead, now: float) -> bool:
    """It does not serve, and nothing is lost by its going. Kubernetes calls all pods of a node NotReady as soon as the
    kubelet is silent: those may still serve, and so may one that was Ready a moment ago."""
    if is_ready(pod, workload, now):
        return False
    node = world.node(pod.node)
    if node is not None and node.ready == "Unknown":
        return False
    return pod.phase != "Running" or pod.ready_since is None or now - pod.ready_since >= _FLAP_S


def active_pods(workload: Workload, world: WorldRead) -> list[Pod]:
    """By name: neither ended nor leaving."""
    return sorted((p for p in world.pods_of(workload) if p.active), key=lambda p: p.name)


def ready_pods(workload: Workload, world: WorldRead, now: float) -> int:
    return sum(is_ready(p, workload, now) for p in active_pods(workload, world))


def target_of(workload: Workload) -> str:
    return f"workload/{workload.namespace}/{workload.kind}/{workload.name}"


def subject_of(pod: Pod) -> str:
    return f"pod/{pod.namespace}/{pod.name}"


def missing_facts(workload: Workload, pods: Iterable[Pod], queue: QueueRead, now: float) -> Iterator[Fact]:
    """As many as are missing, each under the name it is charged by. `pods`: the active ones, by name.

    - a replica that one of our running moves took away, under that move's pod: the queue takes the larger of the two;
    - one that is not Ready, under its own name;
    - a member of a StatefulSet that has no pod, under the name the pod will have, as handoff names it;
    - what has no pod and no name, under the workload's.
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
    away = _names_without_pod(workload, {p.name for p in mine}, moved)[:left]
    for name in away:
        yield Fact(target, f"pod/{workload.namespace}/{name}", 1, f"{name} is missing")
    left -= len(away)
    if left:
        yield Fact(target, f"missing/{target}", left, f"{workload.name} misses {left} of {workload.replicas}")


def _names_without_pod(workload: Workload, present: set[str], moved: list[str]) -> list[str]:
    """The members of a StatefulSet that have no active pod, by ordinal; a spec may ask for any number of them."""
    if workload.kind != "StatefulSet":
        return []
    wanted = range(workload.ordinals_start, workload.ordinals_start + min(workload.replicas, _MOST_NAMED))
    names = (f"{workload.name}-{ordinal}" for ordinal in wanted)
    return [name for name in names if name not in present and f"pod/{workload.namespace}/{name}" not in moved]


def _moved_away(target: str, serving: set[str], queue: QueueRead) -> list[str]:
    """Subjects of the running operators that hold room here for a pod that no longer serves.

    What an operator adds may be nothing by now, for our own fact stands there already: its phase is what counts.
    """
    running = ((queue.get(i), queue.phase(i) or 0) for i, _ in queue.holders(target))
    return [o.subject for o, phase in running if o and target in o.phases[phase] and o.payload.uid not in serving]


# ── Evictions ───────────────────────────────────────────────────────────────────────────────────────────────────────
#
# What keeps a pod from being evicted.

#: What one pod that leaves a node takes of `node/<name>`.
_NODE_COST: Final = 4


def node_cost(node: str, namespace: str) -> dict[str, int]:
    """What a pod takes that leaves this node. Its namespace leaves some to others, whatever deadline a mark names: a
    node that has a notice has no limit."""
    target = f"node/{node}"
    return {target: _NODE_COST, f"share/{target}/{namespace}": _NODE_COST} if node else {}


def closed_budget(pod: Pod, world: WorldRead) -> Pdb | None:
    """A PodDisruptionBudget that allows no disruption of this pod now. Evicting one that is not Ready disrupts
    nothing."""
    if not pod.ready:
        return None
    return next((b for b in world.pdbs_of(pod) if b.disruptions_allowed < 1), None)


def blocked_by_budget(pod: Pod, world: WorldRead) -> Verdict | None:
    """None: no budget keeps it."""
    budget = closed_budget(pod, world)
    if budget is None:
        return None
    detail = f"pdb/{budget.name} allows 0 disruptions ({budget.current_healthy} of {budget.desired_healthy})"
    return Verdict(State.BLOCKED, Reason.PDB, detail)
