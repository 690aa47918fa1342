"""Writes new entries of the engine's history as log lines and metrics."""

from typing import Final

import structlog

from mooring.core.engine.history import History, HistoryEntry
from mooring.process.metrics import Metrics

log = structlog.get_logger()

ENDS: Final = frozenset({"finished", "failed", "canceled", "timeout"})


class Lifetimes:
    """How long operators wait and run: from queued to promoted, from promoted to ended."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        #: Operator → when its present stretch began. Dropped when we no longer lead: its end is not seen then.
        self._since: dict[str, float] = {}
        self._running: set[str] = set()

    def take(self, entry: HistoryEntry) -> None:
        match entry.verb:
            case "queued":
                self._since[entry.id] = entry.at
            case "promoted":
                self._observe("mooring_operator_wait_seconds", entry)
                self._since[entry.id] = entry.at
                self._running.add(entry.id)
            case verb if verb in ENDS:
                # One that ends without having run was only ever waiting.
                if entry.id in self._running:
                    self._observe("mooring_operator_run_seconds", entry)
                self._running.discard(entry.id)
                self._since.pop(entry.id, None)
            case "follows":
                self._since.clear()
                self._running.clear()

    def _observe(self, name: str, entry: HistoryEntry) -> None:
        since = self._since.get(entry.id)
        if since is not None:
            self._metrics.observe(name, {"source": entry.source}, max(0.0, entry.at - since))


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
            if entry.verb in ENDS:
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
