"""`why`, asked of a running replica: one answer for the command and the page, with the age of what it stands on."""

from typing import Final

from mooring.engine.why import Explanation, explain, render, unknown
from mooring.engine.why.phrases import clock
from mooring.engine.why.text import SHOWN
from mooring.run.replica import Replica


def answer(replica: Replica, subject: str) -> Explanation | None:
    """None: nothing is known of it (`unknown` says what is)."""
    heard = max((i.stats.heard_at for i in replica.informers.informers), default=0.0)
    return explain(
        replica.engine,
        subject,
        now=replica.shell.now(),
        leader=replica.elector.holder or "",
        data_age_s=max(0.0, replica.clock.monotonic() - heard) if heard else None,
    )


__all__: Final = ["SHOWN", "answer", "clock", "render", "unknown"]
