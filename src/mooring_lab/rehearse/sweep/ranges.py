"""One event, many draws: what kube-scheduler decides at random varies by seed, and each workload gets a range."""

from collections.abc import Callable, Sequence
from statistics import median_low
from typing import Final

import msgspec

from mooring.core.model.times import clock
from mooring_lab.judge.lines import columns, some
from mooring_lab.rehearse.events.catalog import Act, BadEventError
from mooring_lab.rehearse.outcome import BROKEN, CANNOT_TELL, KEPT, Interrupted, RehearsalOutcome
from mooring_lab.rehearse.play import Play
from mooring_lab.rehearse.sweep.forks import Failed, Task, play_each

_WORST_FIRST: Final = (BROKEN, CANNOT_TELL, KEPT)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What one seed gave. `mooring rehearse play EVENT --seed SEED` shows the whole of it."""

    seed: int
    verdict: str
    answer: str
    interrupted: tuple[Interrupted, ...]
    played_s: float


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, or replicas: in the worst draw, in the one in the middle, in the best."""

    worst: float
    median: float
    best: float


class WorkloadRange(msgspec.Struct, frozen=True, kw_only=True):
    workload: str
    wanted: int
    short_s: Spread
    lowest: Spread
    #: In so many of the draws it was still short at the end.
    not_over: int


class Ranges(msgspec.Struct, frozen=True, kw_only=True):
    format: str = "mooring-rehearsal-ranges"
    version: int = 1
    events: tuple[str, ...]
    seeds: int
    #: The worst of all.
    verdict: str
    answer: str
    verdicts: dict[str, int]
    workloads: tuple[WorkloadRange, ...]
    runs: tuple[Run, ...]
    failed: tuple[str, ...] = ()


def ranges(
    play: Play, planned: list[Act], seeds: Sequence[int], jobs: int, told: Callable[[int], None] = lambda _: None
) -> Ranges:
    """`told`: how many are done. After Ctrl-C it is about those that were."""
    if not seeds:
        raise BadEventError("--seeds: how many, e.g. 20")
    runs: dict[int, Run] = {}
    failed: list[str] = []

    def found(number: int, result: Run | Failed) -> None:
        if isinstance(result, Failed):
            failed.append(f"seed {seeds[number]}: {result.why}")
        else:
            runs[result.seed] = result
        told(len(runs) + len(failed))

    tasks = [Task(planned, seed, lambda outcome, seed=seed: _run(seed, outcome)) for seed in seeds]  # type: ignore[misc]
    play_each(play, tasks, Run, jobs, found)
    return over(tuple(act.title for act in planned), [runs[seed] for seed in sorted(runs)], failed)


def _run(seed: int, outcome: RehearsalOutcome) -> Run:
    played = outcome.played
    return Run(
        seed=seed,
        verdict=outcome.verdict,
        answer=outcome.answer,
        interrupted=played.interrupted,
        played_s=played.played_s,
    )


def over(events: tuple[str, ...], runs: Sequence[Run], failed: Sequence[str] = ()) -> Ranges:
    verdicts = {name: sum(run.verdict == name for run in runs) for name in _WORST_FIRST}
    verdict = next((name for name in _WORST_FIRST if verdicts[name]), CANNOT_TELL)
    if failed and verdict == KEPT:
        verdict = CANNOT_TELL
    first = next((run for run in runs if run.verdict == verdict), None)
    words = first.answer if first is not None else f"CANNOT TELL: {failed[0] if failed else 'nothing was played'}"
    where = f" (seed {first.seed}, and {verdicts[verdict] - 1} of {len(runs) - 1} others)" if first and runs[1:] else ""
    return Ranges(
        events=events,
        seeds=len(runs),
        verdict=verdict,
        answer=f"{words}{where}",
        verdicts={name: count for name, count in verdicts.items() if count},
        workloads=tuple(_workloads(runs)),
        runs=tuple(runs),
        failed=tuple(failed),
    )


def _workloads(runs: Sequence[Run]) -> list[WorkloadRange]:
    """Who was short in any draw; a draw in which one was not counts as 0 s, and with what it had."""
    seen = {one.workload: one for run in runs for one in run.interrupted}
    found = []
    for name, example in seen.items():
        ones = [next((one for one in run.interrupted if one.workload == name), None) for run in runs]
        away = [0.0 if one is None else one.away_s for one in ones]
        lowest = [example.before if one is None else one.worst for one in ones]
        found.append(
            WorkloadRange(
                workload=name,
                wanted=example.wanted,
                short_s=Spread(worst=max(away), median=median_low(away), best=min(away)),
                lowest=Spread(worst=min(lowest), median=median_low(lowest), best=max(lowest)),
                not_over=sum(one is not None and one.until_s is None for one in ones),
            )
        )
    return sorted(found, key=lambda one: (-one.short_s.worst, one.workload))


def render(ranged: Ranges, room: int | None = None) -> list[str]:
    counts = ", ".join(f"{count} {name}" for name, count in ranged.verdicts.items())
    lines = [ranged.answer, ""]
    lines += [f"{'rehearsed' if at == 0 else '':<10}  {title}" for at, title in enumerate(ranged.events)]
    lines += [
        f"seeds       {ranged.seeds}: {counts or 'none'}",
        *(f"failed      {words}" for words in ranged.failed),
        "",
    ]
    if not ranged.workloads:
        return [*lines, "INTERRUPTED  none, in any of them"]
    lines.append(
        f"INTERRUPTED  {some(len(ranged.workloads), 'workload')}; worst / median / best of {ranged.seeds} seeds"
    )
    rows = [("WORKLOAD", "WANTED", "SHORT FOR", "LOWEST", "SHORT AT THE END")]
    for one in ranged.workloads:
        short = " / ".join(clock(s) for s in (one.short_s.worst, one.short_s.median, one.short_s.best))
        lowest = " / ".join(f"{n:g}" for n in (one.lowest.worst, one.lowest.median, one.lowest.best))
        rows.append((one.workload, str(one.wanted), short, lowest, f"{one.not_over} of {ranged.seeds}"))
    return [*lines, *columns(rows, room)]
