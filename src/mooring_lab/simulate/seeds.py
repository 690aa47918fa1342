"""Many seeds, on as many cores as asked for, and how each failure is told and replayed."""

import logging
import multiprocessing
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import msgspec
import structlog

from mooring.core.model.exits import Exit, UserError
from mooring_lab.simulate.plan import FAULTS, Plan, draw_plan, never
from mooring_lab.simulate.simulation import Result, simulate


class SeedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same for all seeds of a run."""

    hours: float = 0.5
    faults: tuple[str, ...] = tuple(FAULTS)
    #: None: as each seed draws them.
    features: tuple[str, ...] | None = None
    until_s: float | None = None
    #: Of the plan's actions only these, by number; None: all.
    only: tuple[int, ...] | None = None


class Report(msgspec.Struct, frozen=True):
    """The contract's JSON."""

    seeds: int
    failed: list[dict[str, str | int | float]]
    coverage: dict[str, int]
    #: Names of the coverage that never fired.
    never: list[str]


def plan_of(seed: int, options: SeedOptions) -> Plan:
    plan = draw_plan(seed, hours=options.hours, faults=options.faults, features=options.features)
    if options.only is None:
        return plan
    return msgspec.structs.replace(plan, actions=tuple(plan.actions[i] for i in options.only if i < len(plan.actions)))


def run_seed(seed: int, options: SeedOptions) -> Result:
    return simulate(plan_of(seed, options), until_s=options.until_s)


class SeedsLostError(UserError):
    """A process that played seeds was killed, most often by the kernel for the memory it took: these were not
    played."""

    def __init__(self, seeds: Sequence[int]) -> None:
        words = f"a process that played seeds was killed; not played: {spans(seeds)} (out of memory? fewer --jobs)"
        super().__init__(words, Exit.UNREACHABLE)
        self.seeds = seeds


def run_many(seeds: Iterable[int], options: SeedOptions, jobs: int = 1) -> Iterator[Result]:
    """In the order of the seeds, whichever ends first. The timeline comes only with a failure. `SeedsLostError` at the
    end, when a process was killed."""
    if jobs <= 1:
        yield from (brief((seed, options)) for seed in seeds)
        return
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_in_worker)
    lost: list[int] = []
    try:
        for seed, coming in [(seed, pool.submit(brief, (seed, options))) for seed in seeds]:
            try:
                result = coming.result()
            except BrokenProcessPool:
                lost.append(seed)
            else:
                yield result
    finally:
        pool.shutdown(cancel_futures=True)
    if lost:
        raise SeedsLostError(lost)


def _in_worker() -> None:
    """Ctrl-C is for the process that asked; it ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    quiet_logs(for_good=True)


def spans(numbers: Sequence[int]) -> str:
    """Sorted numbers for people: 3, 7..9."""
    starts = [n for n, before in zip(numbers, [None, *numbers], strict=False) if before is None or n != before + 1]
    ends = [n for n, after in zip(numbers, [*numbers[1:], None], strict=True) if after is None or after != n + 1]
    return ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in zip(starts, ends, strict=True))


def quiet_logs(*, for_good: bool = False) -> None:
    """What Mooring logs in a simulation is on the timeline. `for_good`: this process does nothing else, so each logger
    is made once."""
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet, cache_logger_on_first_use=for_good)


def brief(work: tuple[int, SeedOptions]) -> Result:
    """One seed, with its timeline only when it failed."""
    result = run_seed(*work)
    return result if result.failure is not None else msgspec.structs.replace(result, timeline=())


def replay_command(seed: int, options: SeedOptions, until_s: float | None = None) -> str:
    """What to type to see it again."""
    parts = [f"mooring sim --seed {seed}"]
    if options.hours != SeedOptions().hours:
        parts.append(f"--hours {options.hours:g}")
    if options.faults != tuple(FAULTS):
        parts.append(f"--faults {','.join(options.faults) or 'none'}")
    if options.features is not None:
        parts.append(f"--features {','.join(options.features)}")
    if options.only is not None:
        parts.append(f"--only {','.join(map(str, options.only))}")
    if until_s is not None:
        parts.append(f"--until {until_s:g}")
    return " ".join(parts)


def report(results: Iterable[Result], options: SeedOptions) -> Report:
    coverage: Counter[str] = Counter()
    failed: list[dict[str, str | int | float]] = []
    count = 0
    for result in results:
        count += 1
        coverage.update(result.coverage)
        if result.failure is not None:
            found, replay = result.failure, replay_command(result.seed, options)
            told: dict[str, str | int | float] = {
                "invariant": found.promise,
                "at": found.since,
                "detail": found.detail,
                "replay": replay,
            }
            failed.append({"seed": result.seed, **told})
    return Report(count, failed, dict(sorted(coverage.items())), never(coverage))
