"""Comparisons and calibrations of the queue, as tables and sentences."""

from collections.abc import Iterator, Sequence
from typing import Final

from bench.regions.calibrate import Calibration
from bench.regions.compare import Row, Variation
from bench.regions.play import Figures
from mooring.core.model.operator import StepKind

_FIGURES: Final = (
    "SCHEME",
    "BALANCED",
    "REPAIRED",
    "MOVES",
    "PEAK",
    "P99",
    "ABOVE",
    "OVERRUN",
    "UNDONE",
    "JAIN",
    "LATENCY",
)


def _figures(f: Figures) -> tuple[str, ...]:
    return (
        f.scheme,
        "not in time" if f.balanced_s is None else f"{f.balanced_s:.0f} s",
        "–" if f.repaired_s is None else f"{f.repaired_s:.0f} s",
        str(f.moves),
        str(f.peak_cost),
        str(f.p99_cost),
        f"{f.above_limit_s:.0f} s",
        str(f.overshoots),
        str(f.undone),
        f"{f.jain:.2f}",
        f"×{f.peak_latency:.2f}",
    )


Table = tuple[Sequence[str], list[tuple[str, ...]]]


def comparison(rows: Sequence[Row]) -> Table:
    return ("SCENARIO", "STORES", *_FIGURES), [(r.scenario, str(r.stores), *_figures(r.figures)) for r in rows]


def settings_alone(rows: Sequence[Variation]) -> Table:
    head = ("SCENARIO", "SETTING", "VALUE", *_FIGURES)
    return head, [(r.scenario, r.setting, r.value, *_figures(r.figures)) for r in rows]


def calibration_lines(result: Calibration, bound: float, limit: int, assumptions: Sequence[str]) -> Iterator[str]:
    holds = "within the bound" if result.design.fits else "beyond the bound"
    yield f"bound: the slowest store at most {bound:g} times an idle store's latency, MaxScheduleCost {limit}"
    yield f"the design's costs: slowest store ×{result.design.peak_latency:.2f} → {holds}"
    if result.trial is None:
        yield "no costs keep it: customers alone come close; raise --bound, or move less at a time"
    else:
        after, instead = result.trial.balanced_s, result.design.balanced_s
        yield (
            f"the answer: slowest store ×{result.trial.peak_latency:.2f}, "
            f"balanced after {after:.0f} s instead of {instead:.0f} s"
        )
    most = "none that lets a move pass" if result.design_limit is None else str(result.design_limit)
    yield f"with the design's costs, the largest MaxScheduleCost that keeps it: {most}"
    yield "what it stands on:"
    yield from (f"  - {line}" for line in assumptions)


def answers(rows: Sequence[tuple[str, Calibration]]) -> Table:
    """The design's open question: costs by loads, and how wrong the design's 1, 2, 5 and 8 are there."""
    found = []
    for named, result in rows:
        costs = "none keeps it"
        if result.answer is not None:
            add = result.answer[StepKind.ADD_LEARNER]
            one, two = result.answer[StepKind.TRANSFER_LEADER]["from"], result.answer[StepKind.REMOVE_PEER]["from"]
            costs = f"{one} / {two} / {add['leader']} / {add['to']}"
        kept = "–" if result.trial is None else f"×{result.trial.peak_latency:.1f}"
        most = "none" if result.design_limit is None else str(result.design_limit)
        found.append((named, f"×{result.design.peak_latency:.1f}", most, costs, kept))
    return ("LOADS", "SLOWEST, DESIGN", "LARGEST LIMIT, DESIGN", "COSTS THAT KEEP IT", "SLOWEST, THEN"), found
