"""The fewest deeds that still break the same promise: halves first, then one by one."""

from collections.abc import Callable

import msgspec

from mooring.sim.whole.plan import Plan
from mooring.sim.whole.simulation import Result, simulate


def shrink(plan: Plan, tell: Callable[[str], None] = lambda _: None) -> tuple[Plan, tuple[int, ...], Result]:
    """The smaller plan, the numbers of the deeds that it keeps, and how it fails. `plan` must fail."""
    result = simulate(plan)
    if result.failure is None:
        raise ValueError(f"seed {plan.seed} does not fail")
    invariant = result.failure.invariant
    # What happens after the failure has no part in it.
    kept = [i for i, deed in enumerate(plan.deeds) if deed.at_s <= result.failure.at]
    size = max(1, len(kept) // 2)
    while True:
        smaller = _without_one_part(plan, kept, size, invariant)
        if smaller is not None:
            kept, result = smaller
            tell(f"{len(kept)} actions still break it")
        elif size == 1:
            return _of(plan, kept), tuple(kept), result
        else:
            size = max(1, size // 2)


def _without_one_part(plan: Plan, kept: list[int], size: int, invariant: str) -> tuple[list[int], Result] | None:
    for start in range(0, len(kept), size):
        rest = kept[:start] + kept[start + size :]
        result = simulate(_of(plan, rest))
        if result.failure is not None and result.failure.invariant == invariant:
            return rest, result
    return None


def _of(plan: Plan, kept: list[int]) -> Plan:
    return msgspec.structs.replace(plan, deeds=tuple(plan.deeds[i] for i in kept))
