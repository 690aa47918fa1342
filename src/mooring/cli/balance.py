"""`mooring balance`: compare ways of letting regions move, calibrate step costs, and give a cluster back to PD."""

from math import inf
from typing import Annotated, Any

from cyclopts import App, Parameter

from mooring.cli.balance_release import release
from mooring.cli.output import Format, Output, note, print_json, print_table
from mooring.core.model.exits import UserError

app = App(name="balance", help="Balance regions and leaders of TiKV stores through the queue.")
app.command(release)


@app.command
def compare(
    *,
    scenario: Annotated[list[str] | None, Parameter(name="--scenario", negative="")] = None,
    stores: Annotated[list[int] | None, Parameter(name="--stores", negative="")] = None,
    vary: bool = False,
    full: bool = False,
    seed: int = 1,
    output: Output = Format.TABLE,
) -> None:
    """Play one cluster under the old limits and under the queue, and compare.

    A simulation: the schedulers and the queue are the real ones, TiKV is a few figures (`mooring balance calibrate`
    prints them). The same seed gives the same result.

    Example: mooring balance compare --scenario store-loss --stores 30

    Example: mooring balance compare --vary -o json

    Parameters
    ----------
    scenario
        scale-out, scale-in, store-loss, hot-store or mixed; all of them when left out. May be repeated.
    stores
        How many stores; 5 and 15 when left out. May be repeated.
    vary
        Instead: each optional setting of the queue alone, on ten stores.
    full
        Everything: the whole ladder from 3 to 1,000 stores, then each optional setting alone. Four minutes of CPU.
    seed
        The seed of all random numbers.
    output
        A table and a plot for people, or JSON for scripts.
    """
    from mooring.sim.regions.compare import LADDER, QUICK
    from mooring.sim.regions.scenarios import SCENARIOS

    unknown = sorted(set(scenario or ()) - set(SCENARIOS))
    if unknown:
        raise UserError(f"--scenario {unknown[0]}: one of {', '.join(SCENARIOS)}")
    if any(count < 3 for count in stores or ()):
        raise UserError("--stores: three at least, for three replicas of a region")
    rows = [] if vary else _compare(scenario or list(SCENARIOS), stores or list(LADDER if full else QUICK), seed)
    variations = _vary(seed) if vary or full else []
    if output is Format.JSON:
        more = {"variations": variations} if full and not vary else {}
        print_json({"seed": seed, "rows": variations if vary else rows, **more})
        return
    if rows:
        _print_comparison(rows)
    if rows and variations:
        print()
    if variations:
        _print_variations(variations)


def _compare(scenarios: list[str], stores: list[int], seed: int) -> list[Any]:
    from mooring.sim.regions.compare import compare as play

    rows = []
    for row in play(scenarios, stores, seed):
        note(f"played {row.scenario} with {row.stores} stores under {row.figures.scheme}")
        rows.append(row)
    return rows


def _vary(seed: int) -> list[Any]:
    from mooring.sim.regions.compare import vary

    rows = []
    for row in vary(seed):
        note(f"played {row.scenario} with {row.setting} {row.value}")
        rows.append(row)
    return rows


def _print_comparison(rows: list[Any]) -> None:
    from mooring.sim.regions.compare import bars

    figures = [(r.scenario, str(r.stores), *_figures(r.figures)) for r in rows]
    print_table(("SCENARIO", "STORES", *_FIGURES), figures)
    print()
    for line in bars(rows):
        print(line)


def _print_variations(rows: list[Any]) -> None:
    figures = [(r.scenario, r.setting, r.value, *_figures(r.figures)) for r in rows]
    print_table(("SCENARIO", "SETTING", "VALUE", *_FIGURES), figures)


_FIGURES = ("SCHEME", "BALANCED", "REPAIRED", "MOVES", "PEAK", "P99", "ABOVE", "OVERRUN", "UNDONE", "JAIN", "LATENCY")


def _figures(f: Any) -> tuple[str, ...]:
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


@app.command
def calibrate(*, bound: float = 3.0, limit: int = 20, seed: int = 1, output: Output = Format.TABLE) -> None:
    """Say which step costs keep the slowest store's latency within a bound, under assumptions that are printed.

    Example: mooring balance calibrate --bound 2.5

    Example: mooring balance calibrate --bound 2.5 -o json

    Parameters
    ----------
    bound
        Times the latency of an idle store, e.g. 3.0. What customers alone cause is part of it.
    limit
        MaxScheduleCost.
    seed
        How busy each store is, and how large its regions are, is drawn from it.
    output
        A table for people, or JSON whose `OperatorStepCost` can go into the settings as it is.
    """
    from mooring.sim.regions.calibrate import calibrate as run
    from mooring.sim.regions.calibrate import table
    from mooring.sim.regions.model import Model

    if not 1.0 < bound < inf or limit < 1:
        raise UserError("--bound must be more than 1 (an idle store), --limit at least 1")
    model = Model()
    result = run(bound, limit=limit, seed=seed, model=model)
    assumptions = list(model.assumptions())
    if output is Format.JSON:
        print_json({"seed": seed, "assumptions": assumptions, "OperatorStepCost": result.answer, "result": result})
        return
    print_table(("STEP", "ROLE", "DESIGN", "CAREFUL", "ANSWER"), table(result))
    print()
    print(f"bound: the slowest store at most {bound:g} times an idle store's latency, MaxScheduleCost {limit}")
    print(f"the design's costs: slowest store ×{result.design.peak_latency:.2f} → {_holds(result.design.fits)}")
    if result.trial is None:
        print("no costs keep it: customers alone come close; raise --bound, or move less at a time")
    else:
        print(
            f"the answer: slowest store ×{result.trial.peak_latency:.2f}, "
            f"balanced after {result.trial.balanced_s:.0f} s instead of {result.design.balanced_s:.0f} s"
        )
    most = "none that lets a move pass" if result.design_limit is None else str(result.design_limit)
    print(f"with the design's costs, the largest MaxScheduleCost that keeps it: {most}")
    print("assumed:")
    for line in assumptions:
        print(f"  - {line}")


def _holds(fits: bool) -> str:
    return "within the bound" if fits else "beyond the bound"
