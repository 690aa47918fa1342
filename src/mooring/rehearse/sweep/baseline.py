"""What got worse since another sweep: for a pipeline that must fail only on what is new. Pure.

A promise is worse when no event broke it before, when more events do, when it now lasts to the end, or when it lasts
more than a tenth longer. Line 1 of a pull request is what is new; what was broken before is only counted.
"""

from pathlib import Path
from typing import Final

import msgspec

from mooring.core.model.exits import UserError
from mooring.rehearse.losses import some
from mooring.rehearse.sweep.report import how_long, last_line
from mooring.rehearse.sweep.sweep import FORMAT, Sweep, Weakness

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
        lines += ["| object | promise | how long | broken by | would fix it |", "|---|---|---|---|---|"]
        for one in news.worse:
            more = f" and {len(one.events) - 1} more" if len(one.events) > 1 else ""
            cells = (one.object, one.promise, how_long(one), f"`{one.events[0]}`{more}", one.fix)
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
