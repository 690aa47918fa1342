"""What keys state about targets, and which objects running operators name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from mooring.core.model import subjects
from mooring.core.model.decision import Fact
from mooring.core.model.events import Change, EvictionAsked, LeadersSeen, PdLost, PdSeen, RegionsSeen, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator
from mooring.core.queue import Queue
from mooring.core.queue.events import Event


class Statements:
    """What keys state about targets: facts that take room, and limits that follow an object.

    Each evaluation of a key replaces what the key stated before, so a statement ends when its cause does; nothing has
    to remember to end it. Several keys may state a fact about the same object on the same target: the largest counts.
    Of several limits of one target the one stated last counts; without any, the settings do.
    """

    def __init__(self) -> None:
        self._facts: dict[str, tuple[Fact, ...]] = {}
        self._limits: dict[str, Mapping[str, int | None]] = {}
        #: (target, subject) → key → fact
        self._stated: dict[tuple[str, str], dict[str, Fact]] = {}
        #: target → key → limit
        self._limited: dict[str, dict[str, int | None]] = {}

    def kept(self) -> dict[str, object]:
        """What a checkpoint keeps. Most targets have one limit: those follow from `_limits`."""
        several = {target: stated for target, stated in self._limited.items() if len(stated) > 1}
        return {**vars(self), "_limited": several}

    def restore(self, kept: Mapping[str, Any]) -> None:
        one = {target: {key: limit} for key, limits in kept["_limits"].items() for target, limit in limits.items()}
        vars(self).update(kept, _limited={**one, **kept["_limited"]})

    def keys_of(self, capability: str) -> Sequence[str]:
        return [key for key in {**self._facts, **self._limits} if key.startswith(f"{capability}:")]

    def replace(self, key: str, facts: Iterable[Fact], limits: Mapping[str, int | None], queue: Queue) -> list[Event]:
        return [*self._replace_facts(key, tuple(facts), queue), *self._replace_limits(key, limits, queue)]

    def _replace_facts(self, key: str, new: tuple[Fact, ...], queue: Queue) -> list[Event]:
        old = self._facts.get(key, ())
        if new == old:
            return []
        if new:
            self._facts[key] = new
        else:
            del self._facts[key]
        places = dict.fromkeys((f.target, f.subject) for f in (*old, *new))
        for place in places:
            self._stated.setdefault(place, {}).pop(key, None)
        for fact in new:
            self._stated[(fact.target, fact.subject)][key] = fact
        events: list[Event] = []
        # What is new is charged before what is over is released: between the two, nothing may pass.
        for target, subject in sorted(places, key=lambda place: not self._stated[place]):
            stated = self._stated[(target, subject)]
            if stated:
                worst = max(stated.values(), key=lambda f: f.amount)
                events.extend(queue.set_fact(target, subject, worst.amount, worst.detail))
            else:
                del self._stated[(target, subject)]
                events.extend(queue.clear_fact(target, subject))
        return events

    def _replace_limits(self, key: str, new: Mapping[str, int | None], queue: Queue) -> list[Event]:
        old = self._limits.get(key, {})
        if new == old:
            return []
        if new:
            self._limits[key] = dict(new)
        else:
            del self._limits[key]
        events: list[Event] = []
        for target in {**old, **new}:
            stated = self._limited.setdefault(target, {})
            stated.pop(key, None)
            if target in new:
                stated[key] = new[target]
            if stated:
                events.extend(queue.set_limit(target, next(reversed(stated.values()))))
            else:
                del self._limited[target]
                events.extend(queue.reset_limit(target))
        return events


#: Those that wait for the machine registry: it names no object.
_REGISTRY = "registry"
_NOBODY: Final[dict[str, None]] = {}


class OperatorIndex:
    """Which running operators are asked again when something has happened: those that name it.

    An index from the names that operators carry to the operators, so that an event costs one or two lookups however
    many operators run. Answers come in the order of promotion.
    """

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
                names: tuple[str, ...] = (subjects.cluster(cluster),)
            case LeadersSeen(workload=workload):
                names = (f"workload/{Kind.STATEFUL_SET}/{workload}",)
            case RegionsSeen():
                return ()  # the one that asked for it gets the outcome
            case Change(kind=Kind.POD, key=key) | EvictionAsked(key=key):
                names = (subjects.pod(key),)
            case Change(kind=Kind.NODE, key=key):
                names = (subjects.node(str(key)),)
            case Change(kind=kind, key=key):
                names = (subjects.cluster(key), f"workload/{kind}/{key}")
            case _:
                names = (_REGISTRY,)
        found: dict[str, None] = {}
        for name in names:
            found.update(self._by_name.get(name, _NOBODY))
        return found


def _names_of(operator: Operator) -> Iterator[str]:
    yield from operator.payload.names()
    if operator.subject.startswith(("pod/", "node/")):
        yield operator.subject
    if operator.payload.serial or operator.subject.startswith(("machine/", "control-plane")):
        yield _REGISTRY
