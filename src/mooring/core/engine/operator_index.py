"""Which running operators are asked again when something has happened: those that name it.

An index from the names that operators carry to the operators, so that an event costs one or two lookups however many
operators run. Answers come in the order of promotion.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from mooring.core.model.events import Change, PdLost, PdSeen, RegionsSeen, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator

#: Those that wait for the machine registry: it names no object.
_REGISTRY = "registry"
_NOBODY: Final[dict[str, None]] = {}


class OperatorIndex:
    def __init__(self) -> None:
        #: Name → operators that carry it, by promotion.
        self._by_name: dict[str, dict[str, None]] = {}
        self._names: dict[str, tuple[str, ...]] = {}

    def add(self, operator: Operator) -> None:
        names = tuple(dict.fromkeys(_names_of(operator)))
        self._names[operator.id] = names
        for name in names:
            self._by_name.setdefault(name, {})[operator.id] = None

    def drop(self, operator_id: str) -> None:
        for name in self._names.pop(operator_id, ()):
            carriers = self._by_name[name]
            del carriers[operator_id]
            if not carriers:
                del self._by_name[name]

    def of(self, trigger: Trigger) -> Iterable[str]:
        """Ids of the running operators that this concerns: their own cluster's PD, or an object they name."""
        if not self._names:
            return ()
        match trigger:
            case PdSeen(cluster=cluster) | PdLost(cluster=cluster):
                names: tuple[str, ...] = (f"cluster/{cluster}",)
            case RegionsSeen():
                return ()  # the one that asked for it gets the outcome
            case Change(kind=Kind.POD, key=key):
                names = (f"pod/{key}",)
            case Change(kind=Kind.NODE, key=key):
                names = (f"node/{key}",)
            case Change(kind=kind, key=key):
                names = (f"cluster/{key}", f"workload/{kind}/{key}")
            case _:
                names = (_REGISTRY,)
        found: dict[str, None] = {}
        for name in names:
            found.update(self._by_name.get(name, _NOBODY))
        return found


def _names_of(operator: Operator) -> Iterator[str]:
    for kind in ("pod", "node", "cluster", "workload"):
        if kind in operator.args:
            yield f"{kind}/{operator.args[kind]}"
    if operator.subject.startswith(("pod/", "node/")):
        yield operator.subject
    if operator.subject.startswith(("machine/", "control-plane")) or "serial" in operator.args:
        yield _REGISTRY
