"""All that an engine knows and remembers at the end of a turn: with it and what comes after, the same is decided.

`capture` is quick: rows are put aside only if they change before they are read, values are shared, and the rest is
copied in short steps. It becomes bytes part by part, later (`core.engine.recording`). `restore` puts it into an engine
that has seen nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from mooring.core.engine.engine import Engine
from mooring.core.engine.recording.memory import MemorySnapshot
from mooring.core.engine.recording.remembering import read
from mooring.core.engine.recording.table import Table, table_of
from mooring.core.model.events import Object
from mooring.core.model.kinds import Kind
from mooring.core.world import kept as world_kept
from mooring.core.world.read import WorldRead


@runtime_checkable
class Writable(Protocol):
    """An index that is also written from outside the engine, and that can repeat a recorded write."""

    write_class: type[msgspec.Struct]

    def redo(self, write: Any, world: WorldRead) -> None: ...


class Captured(msgspec.Struct, frozen=True):
    now: float
    rows: Mapping[Kind, Iterable[Object]]
    memory: MemorySnapshot


class Checkpoint(msgspec.Struct, frozen=True):
    """The same, read from a recording."""

    now: float
    rows: Mapping[Kind, Iterable[Object]]
    memory: Sequence[bytes]


def capture(engine: Engine) -> Captured:
    """As of now. The engine takes no turn until the last of `memory.steps` is done. `NotNowError`: after the next turn,
    perhaps."""
    return Captured(engine.now, world_kept.rows_of(engine.world), _snapshot(engine))


def restore(engine: Engine, checkpoint: Checkpoint) -> None:
    """`BadMemory`: it is of another version."""
    roots = read(checkpoint.memory, engine.anchors(), _snapshot(engine).shapes(), _table(engine))
    engine.restore_policies(roots["engine"])
    world_kept.restore(engine.world, checkpoint.rows, roots["world"])
    engine.restore(roots["engine"])


def _snapshot(engine: Engine) -> MemorySnapshot:
    # A change of the world's own state while nothing is taken in: none. So both are of one moment.
    kept, indexes = world_kept.kept_of(engine.world), engine.world.indexes.by_class.values()
    written = [kept["indexes"][type(index).__name__] for index in indexes if isinstance(index, Writable)]
    return MemorySnapshot({"engine": engine.kept(), "world": kept}, engine.anchors(), written, _table(engine))


def _table(engine: Engine) -> Table:
    return table_of(tuple(of for one in engine.capabilities.values() for of in getattr(one, "remembered", ())))
