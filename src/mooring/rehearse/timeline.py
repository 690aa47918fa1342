"""The timeline of a rehearsal: what happened to the cluster, what Mooring did about it and why, in the queue's own
words."""

from collections.abc import Callable
from typing import Final

from mooring.core.engine.engine import Engine
from mooring.core.engine.history import HistoryEntry
from mooring.rehearse.outcome import OutcomeRow

ENDS: Final = ("finished", "failed", "canceled", "timeout")


class PlayTimeline:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.rows: list[OutcomeRow] = []
        #: Source → how → count, of operators that ended.
        self.ended: dict[str, dict[str, int]] = {}

    def say(self, who: str, words: str, verb: str = "", about: str = "") -> None:
        self.rows.append(OutcomeRow(at_s=round(self._now_s(), 1), who=who, verb=verb, about=about, text=words))

    def follow(self, engine: Engine) -> None:
        engine.history.listeners.append(self._hear)

    def unfollow(self, engine: Engine) -> None:
        engine.history.listeners.remove(self._hear)

    def _hear(self, entry: HistoryEntry) -> None:
        if entry.verb in ENDS:
            of = self.ended.setdefault(entry.source, {})
            of[str(entry.verb)] = of.get(str(entry.verb), 0) + 1
        self.rows.append(
            OutcomeRow(
                at_s=round(self._now_s(), 1),
                who=entry.source or "mooring",
                verb=str(entry.verb),
                op=entry.id,
                about=entry.subjects[1] if len(entry.subjects) > 1 else "",
                reason=str(entry.reason),
                text=entry.text,
            )
        )
