"""`mooring balance`: compare ways of letting regions move, calibrate step costs, and give a cluster back to PD."""

from math import inf
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mooring.cli.balance_release import release
from mooring.cli.output import Format, Output, note, print_json, print_lines, print_table
from mooring.core.model.exits import UserError

if TYPE_CHECKING:
    from mooring.sim.regions.compare import Row, Variation

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
    from mooring.sim.regions.compare import LADDER, QUICK, bars
    from mooring.sim.regions.scenarios import SCENARIOS
    from mooring.sim.regions.text import comparison, settings_alone

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
        print_table(*comparison(rows))
        print()
        print("\n".join(bars(rows)))
    if rows and variations:
        print()
    if variations:
        print_table(*settings_alone(variations))


def _compare(scenarios: list[str], stores: list[int], seed: int) -> "list[Row]":
    from mooring.sim.regions.compare import compare as play

    rows = []
    for row in play(scenarios, stores, seed):
        note(f"played {row.scenario} with {row.stores} stores under {row.figures.scheme}")
        rows.append(row)
    return rows


def _vary(seed: int) -> "list[Variation]":
    from mooring.sim.regions.compare import vary

    rows = []
    for row in vary(seed):
        note(f"played {row.scenario} with {row.setting} {row.value}")
        rows.append(row)
    return rows


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
    from mooring.sim.regions.text import calibration_lines

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
    print_lines(calibration_lines(result, bound, limit, assumptions))
