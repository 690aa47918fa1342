"""How long operators wait and run, read off the history: from queued to promoted, from promoted to ended."""

from typing import Final

from mooring.core.engine.history import HistoryEntry
from mooring.process.metrics import Metrics

ENDS: Final = frozenset({"finished", "failed", "canceled", "timeout"})


class Lifetimes:
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
