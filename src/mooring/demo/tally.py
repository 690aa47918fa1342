"""The day in figures: how much moved, how full the fullest store was, and who waited longest."""

from mooring.core.engine.engine import Engine
from mooring.core.engine.history import HistoryEntry
from mooring.core.queue.targets import is_store


class DemoTally:
    """Listens to an engine's history."""

    def __init__(self) -> None:
        self.moves = 0
        self.peak = 0
        self.peak_limit = 20
        self.longest_wait_s = 0.0
        self.longest_wait_of = ""
        self._queued: dict[str, float] = {}
        self._engine: Engine | None = None

    def follow(self, engine: Engine) -> None:
        if engine is not self._engine:
            self._engine = engine
            engine.history.listeners.append(self._hear)

    def _hear(self, entry: HistoryEntry) -> None:
        match entry.verb:
            case "queued":
                self._queued[entry.id] = entry.at
            case "promoted":
                self._promoted(entry)
            case "finished":
                self.moves += 1
            case "canceled" | "failed" | "timeout":
                self._queued.pop(entry.id, None)

    def _promoted(self, entry: HistoryEntry) -> None:
        waited = entry.at - self._queued.pop(entry.id, entry.at)
        if waited > self.longest_wait_s:
            self.longest_wait_s, self.longest_wait_of = waited, f"op {entry.id}, {entry.source}"
        running = self._engine.running.get(entry.id) if self._engine is not None else None
        if running is None or self._engine is None:
            return
        queue = self._engine.queue
        for target in running.operator.cost:
            charged = sum(amount for _, amount in queue.holders(target)) if is_store(target) else 0
            if charged > self.peak:  # facts may take a store above its limit; what is promoted never does
                self.peak, self.peak_limit = charged, queue.limit(target) or 0

    def line(self) -> str:
        """In one line: 46 moves · peak 20 of 20 on a store, never above · longest wait 2:10 (op 31, handoff)."""
        parts = [f"{self.moves} moves"]
        if self.peak:
            above = "never above" if self.peak <= self.peak_limit else "ABOVE ITS LIMIT"
            parts.append(f"peak {self.peak} of {self.peak_limit} on a store, {above}")
        if self.longest_wait_of:
            whole = int(self.longest_wait_s)
            parts.append(f"longest wait {whole // 60}:{whole % 60:02d} ({self.longest_wait_of})")
        return " · ".join(parts)
