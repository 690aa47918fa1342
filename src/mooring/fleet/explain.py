"""Why this machine: the terms of its score and the runner-up, in words."""

from mooring.fleet.score import Choice, Score, days_left
from mooring.model.machine import Machine


def choice_in_words(choice: Choice, now: float) -> str:
    """`score 1003 = (100 − 0 in rack 7) × 10 + 3 (1520 days left), runner-up 10.0.0.9: 993 = …`"""
    said = f"score {_score(choice.machine, choice.score, now)}"
    if choice.runner_up is None or choice.runner_up_score is None:
        return f"{said}, no other candidate"
    other = choice.runner_up
    if choice.runner_up_score.total == choice.score.total:
        return f"{said}, runner-up {other.address} in rack {other.rack} scores the same (ties: the smaller change, then the address)"
    return f"{said}, runner-up {other.address}: {_score(other, choice.runner_up_score, now)}"


def _score(machine: Machine, score: Score, now: float) -> str:
    days = days_left(machine, now)
    life = f" + {score.life}" if score.life >= 0 else f" − {-score.life}"
    health = (
        "" if score.healthy is None else " + 1000 (healthy)" if score.healthy else f" + 0 ({machine.state.lower()})"
    )
    return f"{score.total} = (100 − {score.same_rack} in rack {machine.rack}) × 10{life} ({days} days left){health}"


def machine_in_words(machine: Machine) -> str:
    return f"{machine.address} ({machine.serial})"


def listed(items: list[str], most: int = 5) -> str:
    shown = ", ".join(items[:most])
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown
