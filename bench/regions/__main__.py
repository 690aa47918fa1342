"""`python -m bench.regions compare|calibrate`: ways of letting regions move, side by side; what steps should cost."""

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mooring.cli.output import Format, Output, note, print_json, print_lines, print_table
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from bench.regions.compare import Row, Variation
    from bench.regions.model import Model

app = App(
    name="bench.regions", help="The queue by cost beside the four limits by kind that it replaces, on a model of TiKV."
)


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

    A simulation: the schedulers and the queue are the real ones, TiKV is a few figures (`calibrate`
    prints them). The same seed gives the same result.

    Example: python -m bench.regions compare --scenario store-loss --stores 30

    Example: python -m bench.regions compare --vary -o json

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
    from bench.regions.compare import LADDER, QUICK, bars
    from bench.regions.scenarios import SCENARIOS
    from bench.regions.text import comparison, settings_alone

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
    from bench.regions.compare import compare as play

    rows = []
    for row in play(scenarios, stores, seed):
        note(f"played {row.scenario} with {row.stores} stores under {row.figures.scheme}")
        rows.append(row)
    return rows


def _vary(seed: int) -> "list[Variation]":
    from bench.regions.compare import vary

    rows = []
    for row in vary(seed):
        note(f"played {row.scenario} with {row.setting} {row.value}")
        rows.append(row)
    return rows


@app.command
def calibrate(
    *,
    bound: float = 3.0,
    limit: int = 20,
    seed: int = 1,
    loads: Path | None = None,
    answer: bool = False,
    output: Output = Format.TABLE,
) -> None:
    """Say which step costs keep the slowest store's latency within a bound, and what of that was measured.

    Example: python -m bench.regions calibrate --bound 2.5

    Example: python -m bench.regions measure --pd http://127.0.0.1:2379 --status 1=http://127.0.0.1:20180 … > loads.json

    Example: python -m bench.regions calibrate --loads loads.json

    Example: python -m bench.regions calibrate --bound 2.5 -o json

    Parameters
    ----------
    bound
        Times the latency of an idle store, e.g. 3.0. What customers alone cause is part of it.
    limit
        MaxScheduleCost.
    seed
        How busy each store is, and how large its regions are, is drawn from it.
    loads
        What was measured, as `measure` prints it or written by hand (JSON or YAML); what it leaves out is assumed.
    answer
        Instead: a table of costs by loads, those of the file among them. A minute of CPU for each row.
    output
        A table for people, or JSON whose `OperatorStepCost` can go into the settings as it is.
    """
    from bench.regions.calibrate import calibrate as run
    from bench.regions.calibrate import table
    from bench.regions.loads import model_of
    from bench.regions.model import Model
    from bench.regions.text import answers, calibration_lines
    from mooring.clients.wire.document import decode

    if not 1.0 < bound < inf or limit < 1:
        raise UserError("--bound must be more than 1 (an idle store), --limit at least 1")
    model = Model()
    if loads is not None:
        try:
            model = model_of(decode(loads.read_bytes()))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{loads}: {error}") from error
    if answer:
        rows = [(name, run(bound, limit=limit, seed=seed, model=one)) for name, one in _ladder(model)]
        print_table(*answers(rows))
        return
    result = run(bound, limit=limit, seed=seed, model=model)
    assumptions = list(model.assumptions())
    if output is Format.JSON:
        print_json({"seed": seed, "assumptions": assumptions, "OperatorStepCost": result.answer, "result": result})
        return
    print_table(("STEP", "ROLE", "DESIGN", "CAREFUL", "ANSWER"), table(result))
    print()
    print_lines(calibration_lines(result, bound, limit, assumptions))


def _ladder(model: "Model") -> "Iterator[tuple[str, Model]]":
    """Copies that load a store less and more than is assumed; a file's own loads first."""
    import msgspec

    from bench.regions.model import Load, Model

    if model.measured:
        yield "measured", model
    for sender, receiver in ((0.02, 0.04), (0.06, 0.10), (0.06, 0.20), (0.12, 0.20), (0.15, 0.30)):
        copy = Load(sender=sender, receiver=receiver)
        yield f"copy {sender:.0%} → {receiver:.0%}", msgspec.structs.replace(Model(), copy=copy)


@app.command
def measure(
    *,
    pd: str,
    status: Annotated[list[str], Parameter(name="--status", negative="")],
    regions: int = 5,
    quiet_s: float = 10.0,
) -> None:
    """Move regions of a running cluster one at a time, each back again, and print the loads that its stores show.

    It moves a peer and a leader of each region through PD's operators API: for a test cluster, or a quiet hour.

    Parameters
    ----------
    pd
        URL of PD.
    status
        ID=URL of every store's status address (port 20180), which serves /metrics. Once for each store.
    regions
        How many regions are moved.
    quiet_s
        So long the stores are watched at rest first.
    """
    import asyncio

    import aiohttp

    from bench.regions.loads import LoadsError, StoreMeter
    from bench.regions.loads import measure as run
    from mooring.clients.pd import PdClient
    from mooring.clients.ports import PortError
    from mooring.process.clock import WallClock

    pairs = [one.partition("=") for one in status]
    if any(not number.isdecimal() or not url.startswith("http") for number, _, url in pairs):
        raise UserError("--status: ID=URL, e.g. 1=http://10.0.0.1:20180")

    async def measured() -> object:
        client = PdClient((pd,), clock=WallClock())
        try:
            async with aiohttp.ClientSession() as session:
                meter = StoreMeter(session, {int(number): url for number, _, url in pairs})
                return await run(client, meter, regions=regions, quiet_s=quiet_s, note=note)
        finally:
            await client.close()

    try:
        print_json(asyncio.run(measured()))
    except (LoadsError, PortError, aiohttp.ClientError) as error:
        raise UserError(str(error), Exit.UNREACHABLE) from error


if __name__ == "__main__":
    app()
