"""A sweep for people: the weakest point first, each with what would fix it. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from mooring.capabilities.mix.worth import saving
from mooring.core.model.exits import UserError
from mooring.core.model.times import clock
from mooring_lab.judge.lines import some
from mooring_lab.rehearse.events.failures import SCOPES, Failure
from mooring_lab.rehearse.outcome import not_played_words
from mooring_lab.rehearse.sweep.sweep import FORMAT, Sweep, Weakness

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# What got worse since another sweep: for a pipeline that must fail only on what is new. Pure.


#: So much longer is worse; less is what another draw would give.
LONGER: Final = 1.1


class BadBaselineError(UserError, ValueError):
    """What is wrong with the file, and what would be right."""


class News(msgspec.Struct, frozen=True, kw_only=True):
    worse: tuple[Weakness, ...]
    #: Events that could be told before and cannot now.
    unknown: tuple[str, ...]
    fixed: tuple[str, ...]

    @property
    def is_worse(self) -> bool:
        return bool(self.worse or self.unknown)


def read(path: Path) -> Sweep:
    how = f"make one with: mooring rehearse sweep --from S.json -o json > {path}"
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Sweep)
    except OSError as error:
        raise BadBaselineError(f"--baseline {path}: {error.strerror or error}; {how}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadBaselineError(f"--baseline {path}: not a sweep: {error}; {how}") from None
    if found.format != FORMAT:
        raise BadBaselineError(f"--baseline {path}: not a sweep: its format is {found.format!r}; {how}")
    return found


def compare(now: Sweep, before: Sweep) -> News:
    known = {(one.object, one.promise): one for one in before.weakest}
    worse = [one for one in now.weakest if _is_worse(one, known.get((one.object, one.promise)))]
    unknown_before = {one.event for one in before.cannot_tell} | {event for event, _ in before.failed}
    unknown_now = [one.event for one in now.cannot_tell] + [event for event, _ in now.failed]
    left = {(one.object, one.promise) for one in now.weakest}
    return News(
        worse=tuple(worse),
        unknown=tuple(event for event in unknown_now if event not in unknown_before),
        fixed=tuple(f"{name}: {promise}" for name, promise in known if (name, promise) not in left),
    )


def _is_worse(now: Weakness, before: Weakness | None) -> bool:
    if before is None or len(now.events) > len(before.events):
        return True
    if now.to_the_end or before.to_the_end:
        return not before.to_the_end
    return (now.seconds or 0.0) > LONGER * (before.seconds or 0.0)


def markdown(now: Sweep, news: News) -> list[str]:
    """A short report for a pull request."""
    lines = [f"### Rehearsal: {'worse' if news.is_worse else 'nothing got worse'}", ""]
    if news.worse:
        lines += ["| object | promise | how long | broken by | what to do |", "|---|---|---|---|---|"]
        for one in news.worse:
            more = f" and {len(one.events) - 1} more" if len(one.events) > 1 else ""
            cells = (one.object, one.promise, how_long(one), f"`{one.events[0]}`{more}", what_to_do(one))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    lines += [f"- can no longer be judged: `{event}`" for event in news.unknown]
    lines += [f"- fixed: {words}" for words in news.fixed]
    before = len(now.weakest) - len(news.worse)
    lines.append(f"- {last_line(now)}; {some(before, 'broken promise')} as before")
    return lines


def news_words(news: News) -> list[str]:
    if not news.is_worse:
        return ["mooring: nothing got worse"]
    return [f"mooring: worse: {one.words}, by {one.events[0]}" for one in news.worse] + [
        f"mooring: can no longer be judged: {event}" for event in news.unknown
    ]


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
    yield from _mix(sweep, counts["pool"])
    yield from (f"note        {words}" for words in sweep.remarks)


def _mix(sweep: Sweep, pools: int) -> Iterator[str]:
    """What mix saves, beside what it risks for that."""
    if sweep.mix is None or not sweep.mix.on_spot:
        return
    share = f"{100 * sweep.mix.on_spot // sweep.mix.replicas} % of {some(sweep.mix.replicas, 'replica')}"
    yield f"mix         {'; '.join([f'{share} that mix places on spot', *saving(sweep.mix.saved, sweep.mix.currency)])}"
    risked = [one for one in sweep.broken if one.scope == "pool"]
    events = some(pools, "event")
    if not pools:
        yield "  risks     not played: --events pool"
    elif not risked:
        yield f"  risks     nothing: no promise breaks without a spot pool ({events})"
    else:
        worst = min((b for one in risked for b in one.breaches), key=lambda b: (not b.to_the_end, -(b.seconds or 0.0)))
        yield f"  risks     a promise breaks without a spot pool ({len(risked)} of {events}); worst: {worst.words}"


def _weakest(sweep: Sweep, *, everything: bool) -> Iterator[str]:
    if not sweep.weakest:
        return
    yield from ("", f"WEAKEST  {len(sweep.weakest)}")
    shown = sweep.weakest if everything else sweep.weakest[:SHOWN]
    for at, one in enumerate(shown, 1):
        yield f"  {at}. {one.object}: {one.promise}, {how_long(one)}"
        yield f"     broken by {_listed(one.events, everything=everything)}"
        yield f"     worst: {one.words}"
        if words := what_to_do(one):
            yield f"     {words}"
    if len(shown) < len(sweep.weakest):
        yield f"  {len(shown)} of {len(sweep.weakest)}, --all"


def what_to_do(one: Weakness) -> str:
    if one.fix:
        return f"would fix it: {one.fix}"
    if one.helps:
        return f"would help: {one.helps}"
    return f"tried, and does not help: {'; '.join(one.tried)}" if one.tried else ""


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
