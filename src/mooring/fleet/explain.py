"""Why this machine: the terms of its score and the runner-up, in words."""

from functools import lru_cache

from mooring.fleet.score import Choice, days_left, life
from mooring.model.machine import Machine


def choice_in_words(choice: Choice, now: float) -> str:
    """`score 1003 = (100 − 0 in rack 7) × 10 + 3 (1520 days left), runner-up 10.0.0.9: 993 = …`"""
    mine = _score(choice.machine, choice.score, choice.same_rack, now, removing=choice.removing)
    other = choice.runner_up
    if other is None:
        return f"score {mine}, no other candidate"
    if choice.runner_up_score == choice.score:
        return (
            f"score {mine}, runner-up {other.address} in rack {other.rack} scores the same "
            "(ties: the smaller change, then the address)"
        )
    its = _score(other, choice.runner_up_score, choice.runner_up_same_rack, now, removing=choice.removing)
    return f"score {mine}, runner-up {other.address}: {its}"


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
