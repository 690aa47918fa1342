"""The design's open question: which step costs keep the slowest store's latency within a bound?

Loads add up and so do costs, so a cost that is proportional to the load keeps both within their limits together:

    headroom = 1 - 1/bound - what customers use on the busiest store
    cost     = MaxScheduleCost x load / headroom, rounded up

That is the careful answer, for an operator is charged for all its steps while only one of them runs. So the costs are
then lowered together as far as plays of three scenarios stay within the bound; that is the answer.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from bench.regions.model import Model
from bench.regions.play import play
from bench.regions.scenarios import SCENARIOS
from bench.regions.schemes import QueueScheme
from mooring.core.model.operator import StepKind
from mooring.core.queue.config import DEFAULT_STEP_COST, Settings, StepCosts
from mooring_lab.cluster.randomness import SeededRandomness

#: What is played: data in, data out, and leaders.
PLAYED: Final = ("scale-out", "scale-in", "store-loss")
STORES, REGIONS = 10, 200
#: Shares of the careful costs that are tried, from the cheapest.
FACTORS: Final = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LIMITS: Final = (10, 12, 14, 16, 18, 20, 24, 28, 32, 40)


class Trial(msgspec.Struct, frozen=True):
    """One set of costs, played: the slowest store ever, and how long the longest scenario took."""

    peak_latency: float
    balanced_s: float
    fits: bool


class Calibration(msgspec.Struct, frozen=True):
    bound: float
    limit: int
    headroom: float
    careful: StepCosts
    design: Trial
    #: None: the bound cannot be kept even by the careful costs (customers alone break it, or moves no longer fit).
    answer: StepCosts | None
    factor: float | None
    trial: Trial | None
    #: With the design's costs, the largest MaxScheduleCost that keeps the bound; None: none that lets a move pass.
    design_limit: int | None


def calibrate(bound: float, *, limit: int = 20, seed: int = 1, model: Model | None = None) -> Calibration:
    model = model or Model()
    headroom = 1.0 - 1.0 / bound - model.busy_high
    design = _try(Settings(max_schedule_cost=limit), bound, seed, model)
    if headroom <= 0:
        return Calibration(bound, limit, headroom, {}, design, None, None, None, None)
    careful = _costs(model, limit, headroom, 1.0)
    answer, factor, trial = _cheapest(model, limit, headroom, bound, seed)
    return Calibration(bound, limit, headroom, careful, design, answer, factor, trial, _limit(bound, seed, model))


def _costs(model: Model, limit: int, headroom: float, factor: float) -> StepCosts:
    """Role by role, in proportion to the load."""

    def cost(load: float) -> int:
        return max(1, math.ceil(round(factor * limit * load / headroom, 6)))

    loads: Mapping[StepKind, Mapping[str, float]] = {
        StepKind.TRANSFER_LEADER: {"from": model.transfer.sender, "to": model.transfer.receiver},
        StepKind.ADD_LEARNER: {"leader": model.copy.sender, "to": model.copy.receiver},
        StepKind.ADD_PEER: {"leader": model.copy.sender, "to": model.copy.receiver},
        StepKind.PROMOTE_LEARNER: {"to": model.promote.receiver},
        StepKind.REMOVE_PEER: {"from": model.remove.sender},
        StepKind.MERGE_REGION: {"peer": model.reshape.every_peer},
        StepKind.SPLIT_REGION: {"peer": model.reshape.every_peer},
    }
    return {kind: {role: cost(load) for role, load in roles.items()} for kind, roles in loads.items()}


def _cheapest(
    model: Model, limit: int, headroom: float, bound: float, seed: int
) -> tuple[StepCosts | None, float | None, Trial | None]:
    for factor in FACTORS:
        costs = _costs(model, limit, headroom, factor)
        trial = _try(Settings(max_schedule_cost=limit, operator_step_cost=costs), bound, seed, model)
        if trial.fits:
            return costs, factor, trial
    return None, None, None


def _limit(bound: float, seed: int, model: Model) -> int | None:
    found = None
    for limit in LIMITS:
        if not _try(Settings(max_schedule_cost=limit), bound, seed, model).fits:
            break
        found = limit
    return found


def _try(settings: Settings, bound: float, seed: int, model: Model) -> Trial:
    peak, longest, balanced = 0.0, 0.0, True
    for name in PLAYED:
        cluster = SCENARIOS[name](STORES, REGIONS, SeededRandomness(f"{seed}/{name}").random)
        figures = play(cluster, QueueScheme(settings), seed=seed, model=model, at_most_s=3600.0)
        peak = max(peak, figures.peak_latency)
        # A cost above the limit lets nothing pass: then nothing was moved, and that is no answer.
        balanced = balanced and figures.balanced_s is not None and bool(figures.moves)
        longest = max(longest, figures.balanced_s or 3600.0)
    return Trial(peak, longest, balanced and peak <= bound)


def table(result: Calibration) -> Iterator[Sequence[str]]:
    """Step, role, the design's cost, the careful one, the answer."""
    for kind, roles in (result.careful or DEFAULT_STEP_COST).items():
        for role in roles:
            design = DEFAULT_STEP_COST[kind].get(role, 0)
            answer = "–" if result.answer is None else str(result.answer[kind][role])
            careful = str(result.careful[kind][role]) if result.careful else "–"
            yield kind.value, role, str(design), careful, answer
