"""The interface between the engine and a capability. Home, mix, handoff, fleet and balance implement it.

Everything is asked per key, and the answers are values: a capability never acts, never waits and never sees a clock.
Keys are strings the capability chooses ("tikv/tidb/demo-tikv-0"); two capabilities never share one, since the engine
prefixes them with the capability's name.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from mooring.core.model.decision import Deferred, Evaluation, Line, NextStep, OperatorRecord, ReadBack
from mooring.core.model.events import Trigger
from mooring.core.queue import QueueRead
from mooring.core.world.index import Index
from mooring.core.world.read import WorldRead


class Capability(Protocol):
    #: Its feature gate: `home`, `mix`, `handoff`, `fleet`, `balance`.
    name: str
    #: The sources its operators carry; the capability that owns the source takes its steps.
    sources: frozenset[str]
    #: The classes of its notes and of what its indexes keep: nothing else is made from a recording. Structs that these
    #: name in their fields, and the payloads of operators, need no mention.
    remembered: tuple[type, ...]

    def affected_keys(self, trigger: Trigger, world: WorldRead) -> Iterable[str | Deferred]:
        """The keys to evaluate again after this, now or a little later. Cheap: called for every event."""
        ...

    def keys(self, world: WorldRead) -> Iterable[str]:
        """Every key there is: on becoming leader, and when the feature is switched on."""
        ...

    def indexes(self) -> Sequence[Index]:
        """Indexes that the world keeps for this capability."""
        ...

    def evaluate(self, key: str, world: WorldRead, queue: QueueRead, notes: Any, now: float) -> Evaluation:
        """What should change about this key, and why. Reads its arguments and changes nothing, so it may be called at
        any time.

        `notes` is what the last accepted evaluation of this key answered as `notes`; None at first.
        """
        ...

    def next_step(self, running: OperatorRecord, world: WorldRead, queue: QueueRead, now: float) -> NextStep: ...

    def recover(self, world: WorldRead, queue: QueueRead, now: float) -> Iterable[ReadBack]:
        """What the marks say has begun: one function for each mark."""
        ...

    def recovery_needs(self, world: WorldRead) -> Iterable[str]:
        """What must still be seen before `recover` is reliable (e.g. a PD behind a mark), in words. Empty: ready."""
        ...


@runtime_checkable
class Explains(Protocol):
    """What a capability may have besides: words of its own for `why`.

    `subject` is "pod/<ns>/<name>", "node/<name>", "store/<ns>/<cluster>/<id>", "cluster/<ns>/<name>",
    "workload/<ns>/<kind>/<name>", "machine/<serial>" or "operator/<id>". Answer with lines about it that no
    other part can give: labels `asked`, `now`, `why there`, `gives up`, `to change` (a verb, then the command) have
    their
    place; several `now` are joined. Called for one subject at a time, on or off, leading or not.
    """

    def explain(self, subject: str, world: WorldRead, queue: QueueRead, now: float) -> Iterable[Line]: ...
