"""What keeps a pod from being evicted."""

from typing import Final

from mooring.core.model.cluster import Pdb, Pod
from mooring.core.model.decision import Verdict
from mooring.core.model.reasons import Reason, State
from mooring.core.world.read import WorldRead

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
