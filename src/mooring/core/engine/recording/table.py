"""The classes whose values a recording may hold, each under a short name. A recording is untrusted input: it names no
class by where it is defined, and nothing but what is in this table is ever made from one.

The roots are listed: what the engine keeps, here, and what a capability keeps, in its `remembered`. Structs and
enumerations that the fields of a listed one name belong to it.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, Final, get_args, get_type_hints

import msgspec

from mooring.core.engine.concerns import OperatorIndex, Statements
from mooring.core.engine.events import PolicyChanged
from mooring.core.engine.history import HistoryEntry
from mooring.core.engine.leader_term import LeaderTerm
from mooring.core.engine.lifecycle import Stage
from mooring.core.engine.schedule import CapBacklog, InFlightWrites, RefreshSchedule, Repeats, Repetitions, WorkList
from mooring.core.model.capacity import CapacityRules
from mooring.core.model.decision import Fact, OperatorRecord, Verdict
from mooring.core.model.events import Object
from mooring.core.model.instructions import Instruction
from mooring.core.model.machine import Machine
from mooring.core.model.placement import Placement
from mooring.core.model.tidb import Region
from mooring.core.queue.config import Settings
from mooring.core.queue.facts import FactBook
from mooring.core.queue.lane import Lane
from mooring.core.queue.lanes import Lanes, LaneTable
from mooring.core.queue.queue import Queue
from mooring.core.queue.records import Records
from mooring.core.world.read import PdLook

_OURS: Final = ("mooring.core.", "mooring.capabilities.")
_ENGINE: Final[tuple[type, ...]] = (
    OperatorIndex, Statements, HistoryEntry, LeaderTerm, Stage, CapBacklog, InFlightWrites, RefreshSchedule,
    Repeats, Repetitions, WorkList, CapacityRules, Fact, OperatorRecord, Verdict, Machine, Settings, FactBook,
    Lane, Lanes, LaneTable, Queue, Records, PdLook, PolicyChanged, Region, Placement,
    *get_args(Object), *get_args(Instruction),
)  # fmt: skip


class Table:
    def __init__(self, roots: Iterable[type] = ()) -> None:
        self._classes: dict[str, type] = {}
        for root in (*_ENGINE, *roots):
            self._add(root)
        self._names = {of: name for name, of in self._classes.items()}

    def _add(self, of: Any) -> None:
        for inner in get_args(of):
            self._add(inner)
        if not isinstance(of, type) or not of.__module__.startswith(_OURS) or self._classes.get(of.__name__) is of:
            return
        if of.__name__ in self._classes:
            raise TypeError(f"{of} and {self._classes[of.__name__]} have one name in recordings")
        self._classes[of.__name__] = of
        for inner in (*get_type_hints(of).values(), *of.__subclasses__()) if issubclass(of, msgspec.Struct) else ():
            self._add(inner)

    def name_of(self, of: type) -> str:
        """`KeyError`: values of this class cannot be kept."""
        return self._names[of]

    def class_of(self, name: str) -> type | None:
        """Until format 6 the path to its module came before the name; of that, nothing is looked at."""
        return self._classes.get(name.rpartition(":")[2])


@cache
def table_of(roots: tuple[type, ...]) -> Table:
    return Table(roots)


#: What every engine keeps, whatever its capabilities.
ENGINE_TABLE: Final = Table()
