"""Why this machine: the terms of its score and the runner-up, in words."""

from functools import lru_cache
from typing import Final

from mooring.capabilities.fleet.planner.score import Choice, days_left, life
from mooring.core.model.machine import Machine

_TIE: Final = " scores the same (ties: the smaller change, then the address)"


def choice_in_words(choice: Choice, now: float, before: str) -> str:
    """`<before>score 1003 = (100 − 0 in rack 7) × 10 + 3 (1520 days left), runner-up 10.0.0.9: 993 = …`"""
    machine, other = choice.machine, choice.runner_up
    if other is not None and not choice.removing and choice.runner_up_score == choice.score:
        # Nearly all of a first generation: said without a call for each part.
        return (
            f"{before}score {choice.score} = (100 − {choice.same_rack} in rack {machine.rack}) × 10 "
            f"{_life(machine.retire_at, now)}, runner-up {other.address} in rack {other.rack}{_TIE}"
        )
    mine = _score(machine, choice.score, choice.same_rack, now, removing=choice.removing)
    if other is None:
        return f"{before}score {mine}, no other candidate"
    if choice.runner_up_score == choice.score:
        return f"{before}score {mine}, runner-up {other.address} in rack {other.rack}{_TIE}"
    its = _score(other, choice.runner_up_score, choice.runner_up_same_rack, now, removing=choice.removing)
    return f"{before}score {mine}, runner-up {other.address}: {its}"


def _score(machine: Machine, total: int, same_rack: int, now: float, *, removing: bool) -> str:
    said = f"{total} = (100 − {same_rack} in rack {machine.rack}) × 10 {_life(machine.retire_at, now)}"
    if not removing:
        return said
    return f"{said} + 1000 (healthy)" if machine.state == "HEALTHY" else f"{said} + 0 ({machine.state.lower()})"


@lru_cache(maxsize=1 << 14)
def _life(retire_at: float, now: float) -> str:
    """Machines are bought, and retire, by the hundred."""
    days = days_left(retire_at, now)
    points = life(days)
    sign = f"+ {points}" if points >= 0 else f"− {-points}"
    return f"{sign} ({days} days left)"


def listed(items: list[str], most: int = 5) -> str:
    shown = ", ".join(items[:most])
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown
