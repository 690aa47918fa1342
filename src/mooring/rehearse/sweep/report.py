"""A sweep for people: the weakest point first, each with what would fix it. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from mooring.core.model.times import clock
from mooring.rehearse.events.failures import SCOPES, Failure
from mooring.rehearse.losses import some
from mooring.rehearse.outcome import not_played_words
from mooring.rehearse.sweep.sweep import Sweep, Weakness

SHOWN: Final = 15
_NAMES: Final = {"pool": "spot pool", "member": "TiKV member"}


def first_line(sweep: Sweep) -> str:
    """The answer."""
    return f"{_answer(sweep)}{not_played_words(sweep.standing_still)}"


def _answer(sweep: Sweep) -> str:
    cut = f", {sweep.planned - sweep.played} not played" if sweep.played < sweep.planned else ""
    if sweep.broken:
        count = f"{len(sweep.broken)} of {some(sweep.played, 'event')} would break a promise{cut}"
        return f"BROKEN: {count}; weakest: {sweep.weakest[0].words}, by {sweep.weakest[0].events[0]}"
    if sweep.cannot_tell or sweep.failed:
        one = sweep.cannot_tell[0].cannot_tell[0] if sweep.cannot_tell else ": ".join(sweep.failed[0])
        unknown = len(sweep.cannot_tell) + len(sweep.failed)
        return f"CANNOT TELL for {unknown} of {some(sweep.played + len(sweep.failed), 'event')}{cut}: {one}"
    if not sweep.played:
        return "CANNOT TELL: nothing was played"
    return f"KEPT: no single failure of {sweep.played} breaks a promise{cut}"


def render(sweep: Sweep, todo: Sequence[Failure], *, everything: bool = False) -> list[str]:
    return [
        first_line(sweep),
        "",
        *_head(sweep, todo),
        *_weakest(sweep, everything=everything),
        *_unknown(sweep, everything=everything),
        "",
        last_line(sweep),
    ]


def last_line(sweep: Sweep) -> str:
    words = (
        f"{sweep.played} played: {sweep.kept} kept, {len(sweep.broken)} broken, {len(sweep.cannot_tell)} cannot tell"
    )
    return f"{words}, {len(sweep.failed)} failed" if sweep.failed else words


def _head(sweep: Sweep, todo: Sequence[Failure]) -> Iterator[str]:
    counts = Counter[str]()
    for one in todo:
        counts[one.scope] += 1 + len(one.alike)
    swept = ", ".join(f"{some(counts[s], _NAMES.get(s, s))}" for s in SCOPES if counts[s])
    yield f"swept       {swept or 'nothing'}"
    alike = sum(len(one.alike) for one in todo)
    if alike:
        yield f"            {sum(counts.values())} failures, {len(todo)} events: {alike} are like one that is played"
    yield f"on          {sweep.source}, as of {sweep.taken_at}"
    yield from (f"note        {words}" for words in sweep.remarks)


def _weakest(sweep: Sweep, *, everything: bool) -> Iterator[str]:
    if not sweep.weakest:
        return
    yield from ("", f"WEAKEST  {len(sweep.weakest)}")
    shown = sweep.weakest if everything else sweep.weakest[:SHOWN]
    for at, one in enumerate(shown, 1):
        yield f"  {at}. {one.object}: {one.promise}, {how_long(one)}"
        yield f"     broken by {_listed(one.events, everything=everything)}"
        yield f"     worst: {one.words}"
        if one.fix:
            yield f"     would fix it: {one.fix}"
    if len(shown) < len(sweep.weakest):
        yield f"  {len(shown)} of {len(sweep.weakest)}, --all"


def how_long(one: Weakness) -> str:
    if one.to_the_end:
        return "to the end"
    return "once" if one.seconds is None else f"for {clock(one.seconds)}"


def _listed(events: Sequence[str], *, everything: bool) -> str:
    shown = events if everything else events[:3]
    more = f" and {len(events) - len(shown)} more" if len(shown) < len(events) else ""
    return ", ".join(shown) + more


def _unknown(sweep: Sweep, *, everything: bool) -> Iterator[str]:
    rows = [(one.event, words) for one in sweep.cannot_tell for words in one.cannot_tell]
    rows += [(event, f"could not be played: {why}") for event, why in sweep.failed]
    if not rows:
        return
    yield from ("", f"CANNOT TELL  {len(sweep.cannot_tell) + len(sweep.failed)}")
    shown = rows if everything else rows[:SHOWN]
    yield from (f"  {event}: {words}" for event, words in shown)
    if len(shown) < len(rows):
        yield f"  {len(shown)} of {len(rows)}, --all"
