"""What may be asked of a simulation, read from words; and what is said of one that failed."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from mooring.capabilities.registry import names
from mooring.core.model.exits import Exit, UserError
from mooring.sim.whole.plan import FAULTS, Plan
from mooring.sim.whole.seeds import SeedOptions
from mooring.sim.whole.shrink import shrink
from mooring.sim.whole.simulation import Result

#: Lines of the timeline that are shown before a failure.
SHOWN: Final = 60


def options(faults: str, features: str, hours: float, until: float | None, only: str) -> SeedOptions:
    groups = tuple(FAULTS) if faults == "all" else () if faults == "none" else _known(faults, tuple(FAULTS), "--faults")
    if not 0 < hours <= 100:
        raise UserError(f"--hours {hours:g}: more than 0 and at most 100 virtual hours, e.g. 0.5")
    if only and not re.fullmatch(r"\d{1,6}(,\d{1,6})*", only):
        raise UserError(f"--only {only}: numbers of actions, e.g. 3,17")
    return SeedOptions(
        hours=hours,
        faults=groups,
        features=_known(features, names(), "--features") if features else None,
        until_s=until,
        only=tuple(int(n) for n in only.split(",")) if only else None,
    )


def _known(given: str, known: tuple[str, ...], flag: str) -> tuple[str, ...]:
    asked = tuple(filter(None, (name.strip() for name in given.split(","))))
    unknown = [name for name in asked if name not in known]
    if unknown or not asked:
        raise UserError(f"{flag} {given}: known are {', '.join(known)}")
    return tuple(name for name in known if name in asked)


def seed_range(text: str) -> range:
    found = re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise UserError(f"--seeds {text}: write A..B, e.g. 1..1000")
    return range(int(found[1]), int(found[2]) + 1)


def read_plan(file: str) -> Plan:
    try:
        return msgspec.json.decode(Path(file).read_bytes(), type=Plan)
    except OSError as error:
        raise UserError(f"--plan {file}: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise UserError(f"--plan {file}: not a plan as --save writes it: {error}") from None


def shrunk(plan: Plan, options: SeedOptions, say: Callable[[str], None]) -> tuple[Plan, SeedOptions, Result]:
    try:
        smaller, kept, result = shrink(plan, say)
    except ValueError as error:
        raise UserError(f"{error}: there is nothing to shrink", Exit.DONE) from None
    numbers = tuple(options.only[i] for i in kept) if options.only is not None else kept
    return smaller, msgspec.structs.replace(options, only=numbers), result


def story(result: Result, command: str) -> Iterator[str]:
    lines = result.timeline
    if len(lines) > SHOWN:
        yield f"… {len(lines) - SHOWN} lines before"
    yield from lines[-SHOWN:]
    if result.failure is not None:
        yield f"broken: {result.failure.invariant}, at {result.failure.at:g} s: {result.failure.detail}"
    yield f"replay: {command}"
