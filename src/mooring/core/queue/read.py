"""What capabilities may ask of the queue: they are typed against this Protocol and cannot change anything.

Only the engine submits, advances, ends and configures: a capability answers with proposals and withdrawals, so that
nothing it does passes beside the costs.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from mooring.core.model.decision import Fact, OperatorRecord
from mooring.core.model.operator import Operator
from mooring.core.queue.config import Settings
from mooring.core.queue.why import Why


class QueueRead(Protocol):
    @property
    def settings(self) -> Settings: ...

    @property
    def now(self) -> float:
        """As the last tick said."""
        ...

    def __contains__(self, op_id: object) -> bool: ...

    def get(self, op_id: str) -> Operator | None: ...

    def is_running(self, op_id: str) -> bool: ...

    def phase(self, op_id: str) -> int | None: ...

    def holder(self, claim: str) -> Operator | None:
        """The operator, waiting or running, that claims a region or an object."""
        ...

    def record_of(self, claim: str) -> OperatorRecord | None:
        """All there is about the operator that claims it."""
        ...

    def operators(self) -> Iterator[Operator]:
        """All of them, waiting and running."""
        ...

    def running_records(self) -> Iterable[OperatorRecord]:
        """Those that run, by promotion."""
        ...

    @property
    def running(self) -> tuple[str, ...]:
        """Ids, by promotion."""
        ...

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids in queue order, parked ones at their place."""
        ...

    def waiting_of(self, source: str, quota: str = "") -> int:
        """How many of a source count against its cap."""
        ...

    def used(self, target: str) -> int: ...

    def limit(self, target: str) -> int | None: ...

    def facts(self, target: str) -> tuple[Fact, ...]: ...

    def holders(self, target: str) -> Sequence[tuple[str, int]]:
        """Running operators on a target and what each is charged there, by promotion."""
        ...

    def why(self, op_id: str) -> Why | None:
        """What a waiting operator waits for; None for one that does not wait."""
        ...
