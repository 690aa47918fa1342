"""What is wrong with an operator as such, before the queue is asked whether it has room.

A cost is a whole number, 0 or more, on each target; it may fall from phase to phase and never rises. What would need
more later is a second operator.
"""

from collections.abc import Mapping
from math import inf, isfinite

from mooring.core.model.operator import Operator


def fault(op: Operator) -> str:
    """Why an operator cannot be taken in, in words; "" when it can."""
    if not op.id or not op.source:
        return "it needs an id and a source"
    if not op.phases:
        return "it needs at least one phase"
    above: Mapping[str, int] | None = None
    number = 0
    for costs in op.phases:
        for target, cost in costs.items():
            if type(cost) is not int or cost < 0 or not target:
                return f"phase {number} costs {cost!r} on {target!r}: it must be a whole number, 0 or more, on a name"
            if above is not None and cost > above.get(target, 0):
                return f"phase {number} costs more on {target} than the one before: costs may only fall"
        number, above = number + 1, costs
    timeout_s = op.timeout_s
    if timeout_s is not None and not 0 <= timeout_s < inf:
        return f"its time-out is {timeout_s!r}: it must be 0 s or more"
    if op.deadline is not None and not isfinite(op.deadline):
        return f"its deadline is {op.deadline!r}: it must be a time"
    return ""


def charges(costs: Mapping[str, int]) -> Mapping[str, int]:
    """The costs without zeros; the same object when there are none."""
    if 0 in costs.values():
        return {target: cost for target, cost in costs.items() if cost}
    return costs


def claims_of(op: Operator) -> tuple[str, ...]:
    """Everything it claims, its subject included, each once."""
    claims = op.claims
    if op.subject and op.subject not in claims:
        claims = (op.subject, *claims)
    return claims if len(claims) < 2 else tuple(dict.fromkeys(claims))
