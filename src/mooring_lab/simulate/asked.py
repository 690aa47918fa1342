"""What may be asked of a simulation, read from words; and what is said of one that failed."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from mooring.capabilities.registry import names
from mooring.core.model.exits import Exit, UserError
from mooring_lab.simulate.plan import FAULTS, Plan
from mooring_lab.simulate.seeds import SeedOptions
from mooring_lab.simulate.simulation import Result, simulate

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The fewest actions that still break the same promise: halves first, then one by one.


def shrink(plan: Plan, tell: Callable[[str], None] = lambda _: None) -> tuple[Plan, tuple[int, ...], Result]:
    """The smaller plan, the numbers of the actions that it keeps, and how it fails. `plan` must fail."""
    result = simulate(plan)
    if result.failure is None:
        raise ValueError(f"seed {plan.seed} does not fail")
    invariant = result.failure.promise
    # What happens after the failure has no part in it.
    kept = [i for i, action in enumerate(plan.actions) if action.at_s <= result.failure.since]
    size = max(1, len(kept) // 2)
    while True:
        smaller = _without_one_part(plan, kept, size, invariant)
        if smaller is not None:
            kept, result = smaller
            tell(f"{len(kept)} actions still break it")
        elif size == 1:
            return _of(plan, kept), tuple(kept), result
        else:
            size = max(1, size // 2)


def _without_one_part(plan: Plan, kept: list[int], size: int, invariant: str) -> tuple[list[int], Result] | None:
    for start in range(0, len(kept), size):
        rest = kept[:start] + kept[start + size :]
        result = simulate(_of(plan, rest))
        if result.failure is not None and result.failure.promise == invariant:
            return rest, result
    return None


def _of(plan: Plan, kept: list[int]) -> Plan:
    return msgspec.structs.replace(plan, actions=tuple(plan.actions[i] for i in kept))


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
        yield f"broken: {result.failure.promise}, at {result.failure.since:g} s: {result.failure.detail}"
    yield f"replay: {command}"
