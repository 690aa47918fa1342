"""What `why` answers: a value. The command and the page print the same text from it, `-o json` prints it as it is."""

from collections.abc import Iterable
from typing import Final

import msgspec

from mooring.core.engine.history import HistoryEntry
from mooring.core.model.decision import Line
from mooring.core.model.reasons import Reason, State
from mooring.core.queue.why import Why

LONGEST_ANSWER: Final = 110

#: Where a label stands. What has no place of its own comes before `to change`.
ORDER: Final = {
    label: place
    for place, label in enumerate(
        (
            "off",
            "asked",
            "queued",
            "target",
            "would fit",
            "ahead",
            "running",
            "gives up",
            "now",
            "why there",
            "mark",
            "dry run",
            "also",
            "features",
            "",
            "look ahead",
            "to change",
        )
    )
}


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    state: State
    reason: Reason
    #: Line 1, at most 110 characters: subject, state word, the blocker's name, what ends it.
    answer: str
    lines: tuple[Line, ...] = ()
    operators: tuple[str, ...] = ()
    #: The first target that keeps a waiting operator out, summed up.
    waiting_on: Why | None = None
    history: tuple[HistoryEntry, ...] = ()
    as_of: float = 0.0
    leading: bool = False
    #: Who decides, as far as this replica knows.
    leader: str = ""
    #: How old the newest event from the API server is; None: unknown.
    data_age_s: float | None = None
    #: How old the look at the PD behind this subject is; None: no PD is involved, or it was never seen.
    pd_age_s: float | None = None


def in_order(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Lines by the place of their label, those of one label in the order given; several `now` become one."""
    kept: list[Line] = []
    now = [line.text for line in lines if line.label == "now"]
    if now:
        kept.append(Line("now", " · ".join(dict.fromkeys(now))))
    seen: set[tuple[str, str]] = set()
    for line in lines:
        if line.label != "now" and (line.label, line.text) not in seen:
            seen.add((line.label, line.text))
            kept.append(line)
    last = ORDER["to change"] - 1
    kept.sort(key=lambda line: ORDER.get(line.label, last))
    return tuple(kept)
