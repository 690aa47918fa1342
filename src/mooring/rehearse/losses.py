"""How far a figure fell, and for how long: the arithmetic of an interruption. Pure; times are seconds since the event.

A `Meter` is told each new value of one figure (replicas that serve, regions with a leader) and remembers every span in
which it was below its line. A figure that was below its line before the event began is compared with what it was then:
what was missing already is not counted against the event.
"""

from collections.abc import Sequence

import msgspec

from mooring.core.model.times import clock
from mooring.process.terminal.wrap import block


class Span(msgspec.Struct, frozen=True):
    """From when to when, and how low. `until_s` None: still, when the rehearsal ended."""

    from_s: float
    until_s: float | None
    worst: int


class Meter:
    def __init__(self, least: int, value: int) -> None:
        #: The line: below it is too low. Never above what there was at the beginning.
        self.least = min(least, value)
        #: What was asked for, whatever there was.
        self.asked = least
        self.before = value
        self.value = value
        self.worst = value
        self.spans: list[Span] = []
        self._since: float | None = None
        self._low = value

    def step(self, at: float, value: int) -> str:
        """The new value; answers "fell" or "back" when it crossed the line, else ""."""
        self.value = value
        self.worst = min(self.worst, value)
        if value < self.least:
            if self._since is None:
                self._since, self._low = at, value
                return "fell"
            self._low = min(self._low, value)
        elif self._since is not None:
            if at > self._since:
                self.spans.append(Span(self._since, at, self._low))
            self._since = None
            return "back"
        return ""

    @property
    def is_below(self) -> bool:
        return self._since is not None

    def close(self, at: float) -> tuple[Span, ...]:
        """Every span until now; one that has not ended has no end."""
        if self._since is None:
            return tuple(self.spans)
        return (*self.spans, Span(self._since, None, self._low))

    def seconds(self, at: float) -> float:
        """How long it was below, in all, until now."""
        return sum((at if span.until_s is None else span.until_s) - span.from_s for span in self.close(at))


class Breach(msgspec.Struct, frozen=True, kw_only=True):
    """A promise that did not hold for a while. `until_s` None: not by the end."""

    #: "budget", "quorum", "on-demand floor", "one replica", "leader", "voters".
    rule: str
    #: "PodDisruptionBudget shop/web", "StatefulSet tidb/demo-pd", "TiKV tidb/demo".
    subject: str
    least: int
    worst: int
    from_s: float
    until_s: float | None
    #: In all, over several spans.
    seconds: float
    #: What there was when the event began.
    before: int = 0

    @property
    def words(self) -> str:
        span = f"for {clock(self.seconds)}" if self.until_s is not None else f"since {clock(self.from_s)}, to the end"
        return f"{self.subject}: {self.rule}, {self.worst} where {self.least} must be, {span}"


def breach(rule: str, subject: str, meter: Meter, at: float) -> Breach | None:
    spans = meter.close(at)
    if not spans:
        return None
    return Breach(
        rule=rule,
        subject=subject,
        least=meter.least,
        worst=min(span.worst for span in spans),
        from_s=round(spans[0].from_s, 1),
        until_s=None if spans[-1].until_s is None else round(spans[-1].until_s, 1),
        seconds=round(meter.seconds(at), 1),
        before=meter.before,
    )


def some(count: int, what: str) -> str:
    """1 pod, 2 pods."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def majority(count: int) -> int:
    return count // 2 + 1


def columns(rows: Sequence[tuple[str, ...]], room: int | None = None) -> list[str]:
    """A table, indented by two; where it has no room in so many columns, each row as a block of lines."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    if room is not None and 2 * len(widths) + sum(widths) > room:
        return [f"  {line}".rstrip() for row in rows[1:] for line in (*block(rows[0], row, room - 2), "")][:-1]
    return ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
