"""The history of each object: what happened to it, in order, and what caused it. `why` reads it.

Bounded twice: the newest entries of each object, and the most recently touched objects. It is soft state; after a
restart it begins with what the marks say.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from mooring.core.model import subjects
from mooring.core.model.decision import NextStep, OperatorRecord
from mooring.core.model.events import (
    Change,
    EvictionAsked,
    LeadersSeen,
    OperatorChanged,
    PdLost,
    PdSeen,
    RegionsSeen,
    Trigger,
)
from mooring.core.model.operator import Operator


class HistoryEntry(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    at: float
    #: Id of the event, operator or instruction that this entry is about.
    id: str
    #: What caused it: another id.
    cause: str = ""
    #: A short fixed verb: "asked", "queued", "promoted", "wrote", "waiting", "ended", …
    verb: str
    source: str = ""
    reason: str = ""
    text: str = ""
    subjects: tuple[str, ...] = ()


class History:
    def __init__(self, *, entries_per_object: int = 40, objects: int = 4000, timeline: int = 2000) -> None:
        self._entries_per_object = entries_per_object
        self._objects = objects
        self._of: OrderedDict[str, tuple[HistoryEntry, ...]] = OrderedDict()
        #: The newest entries of all objects, oldest first.
        self.timeline: deque[HistoryEntry] = deque(maxlen=timeline)
        #: What the shell has not logged yet.
        self._fresh: list[HistoryEntry] = []
        #: How many entries there have been in all.
        self.count = 0
        #: Called with each entry as it is told.
        self.listeners: list[Callable[[HistoryEntry], None]] = []

    def tell(self, entry: HistoryEntry) -> None:
        self.count += 1
        self.timeline.append(entry)
        self._fresh.append(entry)
        for listen in self.listeners:
            listen(entry)
        for subject in entry.subjects:
            self._of[subject] = (*self._of.get(subject, ())[1 - self._entries_per_object :], entry)
            self._of.move_to_end(subject)
            if len(self._of) > self._objects:
                self._of.popitem(last=False)

    def of(self, subject: str) -> Iterator[HistoryEntry]:
        return iter(self._of.get(subject, ()))

    def kept(self) -> dict[str, object]:
        """What a checkpoint keeps."""
        return {"_of": self._of, "timeline": self.timeline, "count": self.count}

    def restore(self, kept: Mapping[str, Any]) -> None:
        vars(self).update(kept)

    def take_fresh(self) -> Iterable[HistoryEntry]:
        """Entries since the last call: for logs, metrics and the page."""
        fresh, self._fresh = self._fresh, []
        return fresh


def follow(running: OperatorRecord, answer: NextStep, now: float) -> Iterator[tuple[str, str, str]]:
    """Bring an operator to where its course says it is; yields what there is to tell: verb, reason, words."""
    steps = running.operator.steps
    if answer.step != running.step or answer.figure != running.figure:
        running.moved_at, running.figure = now, answer.figure
    if answer.step != running.step:
        running.step, running.step_since = answer.step, now
        kind = steps[answer.step].kind if answer.step < len(steps) else "end"
        yield "step", "", f"{answer.step + 1}/{len(steps)} {kind}"
    before, running.waiting_on = running.waiting_on, answer.waiting_on
    running.progress = answer.progress
    if answer.waiting_on is not None and (before is None or before.reason != answer.waiting_on.reason):
        yield "waiting", answer.waiting_on.reason, answer.waiting_on.detail


def cause_of(trigger: Trigger) -> str:
    """The id of what happened, as those that it sets in motion carry it."""
    match trigger:
        case Change(kind=kind, key=key):
            return f"{kind}/{key}"
        case PdSeen(cluster=cluster) | PdLost(cluster=cluster):
            return f"pd/{cluster}"
        case LeadersSeen(workload=workload):
            return f"leaders/{workload}"
        case RegionsSeen(cluster=cluster):
            return f"regions/{cluster}"
        case EvictionAsked(key=key):
            return f"eviction/{key}"
        case OperatorChanged(operator=operator):
            return subjects.operator(operator.id)
        case _:
            return "machines"


def subjects_of(operator: Operator) -> tuple[str, ...]:
    """Every object whose history this is: the operator, its claims, and the pod and node it names."""
    named = [name for name in operator.payload.names() if name.startswith(("pod/", "node/"))]
    return tuple(dict.fromkeys((subjects.operator(operator.id), operator.subject, *operator.claims, *named)))


def entry_of(at: float, verb: str, id_: str, operator: Operator | None, reason: str, text: str) -> HistoryEntry:
    entry = HistoryEntry(at=at, id=id_, verb=verb, reason=reason, text=text)
    if operator is None:
        return entry
    return msgspec.structs.replace(entry, cause=operator.cause, source=operator.source, subjects=subjects_of(operator))
