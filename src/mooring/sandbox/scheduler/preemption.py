"""Preemption: a pod that fits nowhere may take the place of pods with lower priority.

For each node where it would fit without them: who must go, as few and as unimportant as possible (those that can be
spared are spared, the most important first, PDB-protected ones before others). Then the node where that does the least
harm.
The victims leave with their grace; meanwhile the node is nominated (`nominatedNodeName`).
"""

from collections.abc import Callable, Iterable

import msgspec

from mooring.sandbox.scheduler.classes import refuses
from mooring.sandbox.scheduler.constraints import Out
from mooring.sandbox.scheduler.needs import Needs
from mooring.sandbox.scheduler.snapshot import NodeState, PodUse, SchedulerSnapshot


class Victims(msgspec.Struct, frozen=True):
    node: str
    pods: tuple[PodUse, ...]
    pdb_violations: int


def _importance(pod: PodUse) -> tuple[int, float, str]:
    """Most important first: priority, then who has run longest."""
    return (-pod.needs.priority, pod.started_at, pod.uid)


def victims_on(node: NodeState, needs: Needs, protected: Callable[[PodUse], bool]) -> Victims | None:
    lower = [pod for pod in node.pods.values() if pod.needs.priority < needs.priority]
    if not lower or not node.fits(needs, without=lower):
        return None
    guarded = {pod.key for pod in lower if protected(pod)}
    lower.sort(key=lambda pod: (pod.key not in guarded, *_importance(pod)))
    going = list(lower)
    for pod in lower:  # keep those that need not go
        without = [one for one in going if one.key != pod.key]
        if node.fits(needs, without=without):
            going = without
    going.sort(key=_importance)
    return Victims(node.name, tuple(going), sum(pod.key in guarded for pod in going))


def candidates(
    snapshot: SchedulerSnapshot, needs: Needs, hopeless: Out, protected: Callable[[PodUse], bool]
) -> Iterable[Victims]:
    """Nodes where preemption helps: not those whose face refuses the pod, nor those out for good."""
    for node in snapshot.order:
        if node.index in hopeless or refuses(node, needs):
            continue
        found = victims_on(node, needs, protected)
        if found is not None and found.pods:
            yield found


def least_harm(found: Iterable[Victims]) -> Victims | None:
    """Fewest PDBs broken, then the lowest highest priority, then the lowest sum, then fewest pods, then name."""
    return min(
        found,
        key=lambda one: (
            one.pdb_violations,
            max(pod.needs.priority for pod in one.pods),
            sum(pod.needs.priority + 2**31 for pod in one.pods),
            len(one.pods),
            -min(pod.started_at for pod in one.pods),
            one.node,
        ),
        default=None,
    )
