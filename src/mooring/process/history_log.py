"""Writes new entries of the engine's history as log lines and metrics."""

import structlog

from mooring.core.engine.history import History
from mooring.process.metrics import Metrics
from mooring.process.operator_times import Lifetimes

log = structlog.get_logger()


class HistoryLog:
    def __init__(self, history: History, metrics: Metrics) -> None:
        self._history = history
        self._metrics = metrics
        self._lifetimes = Lifetimes(metrics)

    def write(self) -> None:
        """Every entry once."""
        for entry in self._history.take_fresh():
            self._lifetimes.take(entry)
            self._metrics.count("mooring_history_entries_total", {"verb": entry.verb})
            if entry.verb in {"finished", "failed", "canceled", "timeout"}:
                labels = {"source": entry.source, "how": entry.verb, "reason": entry.reason or "done"}
                self._metrics.count("mooring_operators_total", labels)
            log.info(
                "history",
                verb=entry.verb,
                id=entry.id,
                cause=entry.cause,
                source=entry.source,
                reason=entry.reason,
                text=entry.text,
                about=entry.subjects[1] if len(entry.subjects) > 1 else "",
            )
