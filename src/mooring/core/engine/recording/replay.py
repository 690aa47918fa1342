"""A recording put through an engine once more: the same instructions come out, or the first that differs is named."""

from typing import Any

import msgspec

from mooring.core.engine.engine import Engine
from mooring.core.engine.recording.checkpoint import Writable
from mooring.core.engine.recording.records import Record, Turn, Written, plain_of


class Difference(msgspec.Struct, frozen=True):
    """The first instruction that is not as recorded. None on a side: it has no instruction there."""

    turn: int
    at: float
    place: int
    recorded: tuple[str, dict[str, Any]] | None
    computed: tuple[str, dict[str, Any]] | None


class Replay:
    """Puts records through an engine that is as the recorded one was at its start."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.turns = 0
        self.instructions = 0

    def put(self, record: Record) -> Difference | None:
        """One record further; None: what came out is what was recorded."""
        if isinstance(record, Written):
            self._write(record)
            return None
        self.turns += 1
        self.instructions += len(record.instructions)
        return self._compare(record, [plain_of(one) for one in self._decide(record)])

    def _decide(self, turn: Turn) -> list[Any]:
        engine = self.engine
        until = engine.decisions + turn.decisions
        out = engine.handle_all(turn.events, turn.now, lambda: engine.decisions >= until)
        engine.history.take_fresh()
        return out

    def _write(self, written: Written) -> None:
        for of, index in self.engine.world.indexes.by_class.items():
            if of.__name__ == written.index and isinstance(index, Writable):
                index.redo(written.write, self.engine.world)

    def _compare(self, turn: Turn, computed: list[tuple[str, dict[str, Any]]]) -> Difference | None:
        for place in range(max(len(computed), len(turn.instructions))):
            was = turn.instructions[place] if place < len(turn.instructions) else None
            is_ = computed[place] if place < len(computed) else None
            if was is None or is_ is None or not _same(was, is_):
                return Difference(self.turns, turn.now, place + 1, was, is_)
        return None


def _same(recorded: tuple[str, dict[str, Any]], computed: tuple[str, dict[str, Any]]) -> bool:
    """Fields that the recording's version did not have yet are not compared."""
    return recorded[0] == computed[0] and all(
        name in computed[1] and computed[1][name] == value for name, value in recorded[1].items()
    )
