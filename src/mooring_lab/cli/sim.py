"""`mooring sim`: all of Mooring on simulated clusters, with load, interference and faults (docs/developing.md)."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import App, Parameter

from mooring.cli.output import Format, Jobs, Output, Whole, note, print_data, print_lines
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from mooring_lab.simulate.seeds import SeedOptions
    from mooring_lab.simulate.simulation import Result

app = App(name="sim")


@app.default
def sim(
    *,
    seed: Annotated[
        Whole | None, Parameter(help="One seed; its timeline is printed when it fails, or with --until.")
    ] = None,
    seeds: Annotated[str, Parameter(help="A..B, both included. Neither given: 1..20.")] = "",
    faults: Annotated[
        str, Parameter(help="all, none, or names: watch, writes, server, pd, registry, node, clock, leader, webhook.")
    ] = "all",
    features: Annotated[
        str, Parameter(help="Features that are on, e.g. mix,handoff; left out: as each seed draws them.")
    ] = "",
    hours: Annotated[
        float, Parameter(help="Virtual hours of load; the time to settle afterwards is not counted.")
    ] = 0.5,
    jobs: Annotated[Jobs, Parameter(help="Processes; 0: one per core.")] = 0,
    dask: Annotated[str, Parameter(help="With --seeds: tcp://HOST:PORT of a Dask scheduler that runs them.")] = "",
    until: Annotated[
        float | None, Parameter(help="With --seed: stop at this virtual second and print the timeline.")
    ] = None,
    only: Annotated[
        str, Parameter(help="With --seed: only these actions of its plan, by number, e.g. 3,17 (a shrunken failure).")
    ] = "",
    shrink: Annotated[
        bool, Parameter(negative="", help="With --seed or --plan: leave out actions one by one while it still fails.")
    ] = False,
    plan: Annotated[str, Parameter(help="Replay a plan from a file, as --save writes it.")] = "",
    save: Annotated[
        str, Parameter(help="Write the plan of --seed (after --shrink: the smaller one) to this file.")
    ] = "",
    output: Output = Format.TABLE,
) -> int:
    """Run simulated clusters and check what Mooring promises, at every write and at the end, when nothing may be
    pending.

    Each seed is one run: a random cluster, load, people who interfere, and faults. The same seed gives the same run. A
    failure prints the promise that was broken, when, and the command that replays it. Exit code 0: all kept, 1: a seed
    broke one.

    Example: mooring sim --seeds 1..1000 --jobs 4

    Example: mooring sim --seed 17 --shrink

    Example: mooring sim --seeds 1..100000 --dask tcp://127.0.0.1:8786
    """
    from mooring_lab.simulate import asked
    from mooring_lab.simulate.seeds import quiet_logs

    quiet_logs()
    options = asked.options(faults, features, hours, until, only)
    if seed is not None and seeds:
        raise UserError("give --seed or --seeds, not both")
    if dask and (jobs or plan or seed is not None):
        raise UserError("--dask goes with --seeds, and not with --jobs")
    if plan or seed is not None:
        return _one(seed, plan, options, shrink=shrink, save=save, output=output)
    if only or shrink or save or until is not None:
        raise UserError("--only, --until, --shrink and --save go with --seed N")
    numbers = asked.seed_range(seeds or "1..20")
    return _many(numbers, options, jobs or os.cpu_count() or 1, dask, output)


def _one(seed: int | None, file: str, options: "SeedOptions", *, shrink: bool, save: str, output: Format) -> int:
    from mooring_lab.simulate.asked import read_plan, shrunk, story
    from mooring_lab.simulate.seeds import plan_of, replay_command, report
    from mooring_lab.simulate.simulation import simulate

    plan = read_plan(file) if file else plan_of(seed or 0, options)
    if shrink:
        plan, options, result = shrunk(plan, options, note)
    else:
        result = simulate(plan, until_s=options.until_s)
    if save:
        Path(save).write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n")
    command = f"mooring sim --plan {file}" if file and not shrink else replay_command(plan.seed, options)
    if output.data:
        print_data(output, report([result], options))
    elif result.failure is None and options.until_s is None:
        print(f"seed {plan.seed}: all promises kept over {result.lasted_s:.0f} virtual seconds ({result.digest})")
    else:
        print_lines(story(result, command))
    return Exit.DONE if result.failure is None else Exit.CHECK_FAILED


def _many(numbers: range, options: "SeedOptions", jobs: int, dask: str, output: Format) -> int:
    from mooring_lab.simulate.remote import run_on_dask
    from mooring_lab.simulate.seeds import SeedsLostError, replay_command, report, run_many

    lost: list[SeedsLostError] = []

    def told() -> "Iterator[Result]":
        there = run_on_dask(numbers, options, dask) if dask else run_many(numbers, options, min(jobs, len(numbers)))
        try:
            for result in there:
                if result.failure is not None:
                    failure = result.failure
                    note(f"seed {result.seed}: {failure.promise} broken at {failure.since:g} s: {failure.detail}")
                    note(f"  replay: {replay_command(result.seed, options)}")
                yield result
        except SeedsLostError as error:
            lost.append(error)  # what was played is reported all the same

    found = report(sorted(told(), key=lambda one: one.seed), options)
    if output.data:
        print_data(output, found)
    else:
        if found.never:
            print(f"never happened: {', '.join(found.never)}")
        print(f"{found.seeds} seeds, {len(found.failed)} failed, {len(found.coverage)} situations covered")
    if lost:
        raise lost[0]
    return Exit.CHECK_FAILED if found.failed else Exit.DONE
