"""The comparison the design asks for: one cluster under both schemes, and each optional setting varied alone."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from bench.regions.model import Model
from bench.regions.play import Figures, play
from bench.regions.scenarios import SCENARIOS
from bench.regions.schemes import LimitScheme, QueueScheme
from mooring.core.queue.config import Settings, parse
from mooring_lab.cluster.randomness import SeededRandomness

#: Regions per store: enough to move for minutes, few enough to be played in seconds.
REGIONS_PER_STORE: Final = 30
QUICK: Final = (5, 15)
LADDER: Final = (3, 10, 30, 100, 300, 1000)
#: In large clusters fewer per store: the time goes with the number of moves.
MANY_STORES, FEWER_REGIONS = 100, 10


class Row(msgspec.Struct, frozen=True):
    scenario: str
    stores: int
    regions: int
    figures: Figures


def compare(
    scenarios: Sequence[str], stores: Sequence[int], seed: int = 1, model: Model | None = None
) -> Iterator[Row]:
    """Both schemes, side by side, for each scenario and size."""
    for name in scenarios:
        for count in stores:
            regions = count * (FEWER_REGIONS if count >= MANY_STORES else REGIONS_PER_STORE)
            for scheme in (LimitScheme(), QueueScheme()):
                cluster = SCENARIOS[name](count, regions, SeededRandomness(f"{seed}/{name}/{count}").random)
                yield Row(name, count, regions, play(cluster, scheme, seed=seed, model=model))


class Variation(msgspec.Struct, frozen=True):
    setting: str
    value: str
    scenario: str
    figures: Figures


_FLAT: Final = {
    kind: dict.fromkeys(roles, 1)
    for kind, roles in {
        "TransferLeader": ("from", "to"),
        "AddLearner": ("leader", "to"),
        "PromoteLearner": ("to",),
        "RemovePeer": ("from",),
        "MergeRegion": ("peer", "leader"),
        "SplitRegion": ("peer", "leader"),
    }.items()
}
#: (setting, its value, which scenario shows it, the configuration). The first of each scenario is the default.
VARIATIONS: Final[tuple[tuple[str, str, str, dict[str, Any]], ...]] = (
    ("(defaults)", "", "mixed", {}),
    ("MaxScheduleCost", "10", "mixed", {"MaxScheduleCost": 10}),
    ("MaxScheduleCost", "40", "mixed", {"MaxScheduleCost": 40}),
    ("MaxScheduleCost", "null", "mixed", {"MaxScheduleCost": None}),
    ("OperatorStepCost", "1 for every step", "mixed", {"OperatorStepCost": _FLAT}),
    ("OperatorStepCost", "AddLearner twice", "mixed", {"OperatorStepCost": {"AddLearner": {"leader": 10, "to": 16}}}),
    ("MaxWaitingOperator", "1", "mixed", {"MaxWaitingOperator": 1}),
    ("MaxWaitingOperator", "10", "mixed", {"MaxWaitingOperator": 10}),
    ("MaxWaitingOperator", "null", "mixed", {"MaxWaitingOperator": None}),
    ("SchedulerMaxWaitingOperator", "replica 10", "mixed", {"SchedulerMaxWaitingOperator": {"replica": 10}}),
    ("SchedulerMaxWaitingOperator", "replica 1", "mixed", {"SchedulerMaxWaitingOperator": {"replica": 1}}),
    ("repairs_first", "true", "mixed", {}),
    ("(defaults)", "a slow new store", "slow-store", {}),
    ("StoreMaxScheduleCost", "its own: 10", "slow-store", {"StoreMaxScheduleCost": {"11": 10}}),
)
_STORES: Final = 10
#: The one new store copies at a fifth of the others' bandwidth, and its customers feel it all the more.
_SLOW: Final = {11: 20.0}


def vary(seed: int = 1, model: Model | None = None) -> Iterator[Variation]:
    """Each optional setting alone, on ten stores."""
    for setting, value, scenario, raw in VARIATIONS:
        settings: Settings = parse(raw)
        slow = _SLOW if scenario == "slow-store" else None
        make = SCENARIOS["scale-out" if slow else scenario]
        cluster = make(_STORES, _STORES * REGIONS_PER_STORE, SeededRandomness(f"{seed}/{scenario}").random)
        scheme = QueueScheme(settings, repairs_first=setting == "repairs_first")
        figures = play(cluster, scheme, seed=seed, model=model, slow=slow)
        yield Variation(setting, value, scenario, figures)


def bars(rows: Sequence[Row], width: int = 40) -> Iterator[str]:
    """A plot for a terminal: how long each took, and how high it went."""
    longest = max((row.figures.balanced_s or 0.0 for row in rows), default=0.0) or 1.0
    for row in rows:
        f = row.figures
        took = "not balanced" if f.balanced_s is None else f"{f.balanced_s:.0f} s"
        bar = "█" * max(1, round(width * (f.balanced_s or longest) / longest))
        mark = f"  above the limit for {f.above_limit_s:.0f} store-seconds" if f.above_limit_s else ""
        yield f"{row.scenario:<11}{row.stores:>5}  {f.scheme:<7}{bar} {took}, at most {f.peak_cost} a store{mark}"
