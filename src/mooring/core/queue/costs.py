"""What a region operator costs each store: the sum of its steps, walked with the leader as it then is.

The sum is frozen at admission and released verbatim: recomputing it at the end, when the region looks different, leaks
or underflows. Every store that a step affects is charged at least 1, whatever the settings say: what costs nothing
would be without limit.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from mooring.core.model import subjects
from mooring.core.model.operator import Operator, Step, StepKind
from mooring.core.model.reasons import Reason
from mooring.core.queue.config import ROLES, Settings
from mooring.core.queue.targets import store_target

_SLOW_S: Final = 600.0
_FAST_S: Final = 60.0
_SLOW_STEPS: Final = frozenset({StepKind.ADD_PEER, StepKind.ADD_LEARNER, StepKind.MERGE_REGION})
_RECEIVES: Final = frozenset({StepKind.ADD_PEER, StepKind.ADD_LEARNER, StepKind.PROMOTE_LEARNER})


class BadStepsError(ValueError):
    """A step list that cannot be priced; the message says which step and what is missing."""


class RegionMove(msgspec.Struct, frozen=True, gc=False):
    """Steps on regions, with the leader and the peers of the first of them as they are now."""

    regions: tuple[int, ...]
    steps: tuple[Step, ...]
    leader: int | None = None
    peers: tuple[int, ...] = ()


def price(move: RegionMove, settings: Settings) -> dict[int, int]:
    """Cost per store id. Raises BadStepsError for what is not a region step or names no store."""
    total: dict[int, int] = {}
    leader = move.leader
    for number, step in enumerate(move.steps):
        if step.kind not in ROLES:
            raise BadStepsError(f"step {number}: {step.kind} is not a region step")
        for role, cost in settings.step_cost(step.kind).items():
            for store in _stores(move, step, role, leader, number):
                total[store] = total.get(store, 0) + cost
        if step.kind is StepKind.TRANSFER_LEADER:
            leader = step.to_store
    return {store: max(1, cost) for store, cost in total.items()}


def timeout_s(steps: Iterable[Step]) -> float:
    """The sum of the steps' time-outs: 600 s for what copies data or merges, 60 s for the others."""
    return sum(_SLOW_S if step.kind in _SLOW_STEPS else _FAST_S for step in steps)


def region_operator(
    *,
    id: str,  # noqa: A002
    source: str,
    move: RegionMove,
    settings: Settings,
    cluster: str = "",
    timeout: float | None = None,
    reason: Reason = Reason.BALANCE,
    detail: str = "",
    priority: int = 0,
    cause: str = "",
) -> Operator:
    """A priced operator on one or more regions of a cluster; it claims them all. Raises BadStepsError."""
    if not move.regions:
        raise BadStepsError("it names no region")
    if not move.steps:
        raise BadStepsError("it has no steps")
    claims = region_claims(move.regions, cluster)
    return Operator(
        id=id,
        source=source,
        kind="region",
        subject=claims[0],
        claims=claims,
        steps=move.steps,
        phases=({store_target(cluster, store): cost for store, cost in price(move, settings).items()},),
        timeout_s=timeout_s(move.steps) if timeout is None else timeout,
        reason=reason,
        detail=detail,
        priority=priority,
        cause=cause,
    )


def region_claims(regions: Sequence[int], cluster: str = "") -> tuple[str, ...]:
    return tuple(dict.fromkeys(subjects.region(cluster, region) for region in regions))


def _stores(move: RegionMove, step: Step, role: str, leader: int | None, number: int) -> tuple[int, ...]:
    """The stores that play a role in a step."""
    store: int | None
    if role == "peer":
        if not move.peers:
            raise BadStepsError(f"step {number}: {step.kind} needs the region's peers")
        return tuple(dict.fromkeys(move.peers))
    if role == "leader":
        store = leader
    elif step.kind is StepKind.TRANSFER_LEADER:
        store = step.from_store if role == "from" else step.to_store
    elif (role == "to") == (step.kind in _RECEIVES):
        store = step.store
    else:
        store = None
    if store is None:
        raise BadStepsError(f"step {number}: {step.kind} names no {role} store")
    return (store,)
