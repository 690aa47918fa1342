"""What a judge finds: a promise that did not hold, whose, from when to when, and how bad it was."""

from typing import Final

import msgspec

from mooring.core.model.times import clock

#: The promise that a workload has a Ready replica at any time.
ONE_REPLICA: Final = "one replica"


class Finding(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=False,
    # As the outcome of a rehearsal names them.
    rename={"promise": "rule", "since": "from_s", "until": "until_s"},
):
    #: "M5 one by one, only while healthy", "quorum", "budget".
    promise: str
    #: "PodDisruptionBudget shop/web", "StatefulSet tidb/demo-pd", "TiKV tidb/demo", "pod shop/web-1".
    subject: str
    #: What must be, and the least there was; both 0 where it is an act and no figure.
    least: int = 0
    worst: int = 0
    #: Seconds since it began; `until` None: not over by the end.
    since: float
    until: float | None
    #: In all, over several spans.
    seconds: float = 0.0
    #: What there was when the event began.
    before: int = 0
    #: What was seen.
    detail: str = ""

    @property
    def words(self) -> str:
        if self.detail:
            return f"{self.promise}: {self.detail}"
        span = f"for {clock(self.seconds)}" if self.until is not None else f"since {clock(self.since)}, to the end"
        if self.promise == ONE_REPLICA:
            return f"{self.subject} had no Ready replica {span}"
        return f"{self.subject}: {self.promise}, {self.worst} instead of at least {self.least}, {span}"


def at_once(promise: str, subject: str, at: float, detail: str) -> Finding:
    """Of something that was done at one moment."""
    return Finding(promise=promise, subject=subject, since=at, until=at, detail=detail)
