"""What entered the engine, and what came out, as bytes: a record per turn, and one per write to an index from outside.

The engine is pure, but how much it decides in a turn depends on a clock; so a turn is kept with the number of decisions
it made. Records are msgpack. An event is its class's name and its fields; the class of a Kubernetes object follows from
its kind. A large list goes ahead of its turn in parts, so that no single record takes long to make. Most events are
pods: one goes as a row, and what pods share (shape, owner) goes once and is named by a number from then on; of a pod
that the world knew before the turn, only what moves goes. The world into which it is replayed knows the same row.

A checkpoint goes in parts, too, between the turns that follow it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

import msgspec

from mooring.core.engine.events import Event
from mooring.core.engine.recording.brief import BRIEF, Brief, Moved, Same
from mooring.core.engine.recording.checkpoint import Captured
from mooring.core.model.cluster import (
    Claim,
    ConfigMap,
    Node,
    Owner,
    Pdb,
    Pod,
    PodShape,
    ReplicaSet,
    Volume,
    Workload,
)
from mooring.core.model.events import Listed, Seen
from mooring.core.model.instructions import Instruction, Outcome
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import TidbCluster

#: Objects of a list per record.
PART: Final = 100
#: Shapes and owners that are held to be named by number.
SHARED: Final = 50_000


CLASSES: Final[Mapping[Kind, type]] = {
    Kind.POD: Pod,
    Kind.NODE: Node,
    Kind.DEPLOYMENT: Workload,
    Kind.STATEFUL_SET: Workload,
    Kind.REPLICA_SET: ReplicaSet,
    Kind.PDB: Pdb,
    Kind.PV: Volume,
    Kind.PVC: Claim,
    Kind.CONFIG_MAP: ConfigMap,
    Kind.TIDB_CLUSTER: TidbCluster,
}


class Tag(StrEnum):
    TURN = "turn"
    PART = "part"
    PODS = "pods"
    SHARED = "shared"
    WRITTEN = "written"
    #: Of a checkpoint: objects of a kind, pods, a part of the engine's memory, and its end.
    KEPT = "kept"
    KEPT_PODS = "kept-pods"
    MEMORY = "memory"
    END = "end"


class Turn(msgspec.Struct, frozen=True):
    """One call of `Engine.handle_all`, and what it answered, each instruction as plain values with its class's name."""

    now: float
    #: Evaluations and steps made.
    decisions: int
    events: tuple[Event, ...]
    instructions: tuple[tuple[str, dict[str, Any]], ...]


class PodRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A pod, with numbers for what it shares with others. A new field comes at the end, with a default."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    shape: int
    owner: int | None
    generate_name: str
    node: str
    phase: str
    ready: bool
    ready_since: float | None
    created_at: float
    deletion_at: float | None
    schedulable: bool
    claims: tuple[str, ...]
    #: None: none.
    annotations: dict[str, str] | None
    is_mirror: bool
    nominated_node: str


class Written(msgspec.Struct, frozen=True):
    """A write to an index of the world, between two turns, from outside the engine."""

    index: str
    write: bytes


Record = Turn | Written


class BadRecordError(ValueError):
    """What cannot be read, in words."""


# ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _plain(value: object) -> object:
    if isinstance(value, MappingProxyType):
        return value.copy()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be recorded")


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_plain)


class Writer:
    """Makes the records of one recording, in order."""

    def __init__(self) -> None:
        self._last = 0
        self.begin()

    def begin(self) -> None:
        """A new part: nothing that was written before is referred to."""
        #: By identity, and held so that the identity stays theirs.
        self._numbers: dict[int, tuple[int, object]] = {}
        self._fresh: list[tuple[int, str, object]] = []

    def turn(
        self, now: float, decisions: int, events: Sequence[Event | Brief], instructions: Iterable[Instruction]
    ) -> Iterator[bytes]:
        """The records of a turn; one, unless a long list came in or pods of a new shape or owner."""
        taken_in: Sequence[object] = events
        if not BRIEF.issuperset(map(type, events)):
            for event in events:
                if isinstance(event, Listed) and len(event.objects) > PART:
                    rest = iter(event.objects)
                    while part := list(islice(rest, PART)):
                        yield from self._part(event.kind, part)
            taken_in = [event if isinstance(event, Moved | Same) else self._event(event) for event in events]
            yield from self._shared()
        came_out = [(type(one).__name__, one) for one in instructions]
        yield _encoder.encode((Tag.TURN, now, decisions, taken_in, came_out))

    def _part(self, kind: Kind, part: list[Any]) -> Iterator[bytes]:
        if kind is not Kind.POD:
            yield _encoder.encode((Tag.PART, kind, part))
            return
        rows = [self._row(pod) for pod in part]
        yield from self._shared()
        yield _encoder.encode((Tag.PODS, rows))

    def checkpoint(self, captured: Captured) -> Iterator[bytes]:
        """The parts of a checkpoint. Records of turns may come in between, from the same writer."""
        for kind, objects in captured.rows.items():
            rest: Iterator[Any] = iter(objects)
            while part := list(islice(rest, PART)):
                if kind is not Kind.POD:
                    yield _encoder.encode((Tag.KEPT, kind, part))
                    continue
                rows = [self._row(pod) for pod in part]
                yield from self._shared()
                yield _encoder.encode((Tag.KEPT_PODS, rows))
        for memory in captured.memory.records():
            yield _encoder.encode((Tag.MEMORY, memory))
        yield _encoder.encode((Tag.END, captured.now))

    def _event(self, event: Event) -> tuple[object, ...]:
        match event:
            case Seen(object=Pod() as pod):
                return "Pod", self._row(pod)
            case Seen():
                return "Seen", event.kind, event.object
            case Listed():
                # A long one was written ahead, in parts.
                return "Listed", event.kind, event.objects if len(event.objects) <= PART else len(event.objects)
            case Outcome():
                return "Outcome", msgspec.structs.asdict(event)
            case _:
                return type(event).__name__, event

    def _row(self, pod: Pod) -> PodRow:
        return PodRow(
            pod.namespace,
            pod.name,
            pod.uid,
            pod.resource_version,
            self._number(pod.shape),
            None if pod.owner is None else self._number(pod.owner),
            pod.generate_name,
            pod.node,
            pod.phase,
            pod.ready,
            pod.ready_since,
            pod.created_at,
            pod.deletion_at,
            pod.schedulable,
            pod.claims,
            dict(pod.annotations) if pod.annotations else None,
            pod.is_mirror,
            pod.nominated_node,
        )

    def _number(self, value: PodShape | Owner) -> int:
        known = self._numbers.get(id(value))
        if known is not None:
            return known[0]
        if len(self._numbers) >= SHARED:
            self._numbers.clear()  # those that are used still get a new number
        self._last += 1
        self._numbers[id(value)] = (self._last, value)
        self._fresh.append((self._last, type(value).__name__, value))
        return self._last

    def _shared(self) -> Iterator[bytes]:
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            yield _encoder.encode((Tag.SHARED, fresh))


def written_record(index: str, write: msgspec.Struct) -> bytes:
    return _encoder.encode((Tag.WRITTEN, index, _encoder.encode(write)))


def plain_of(instruction: Instruction) -> tuple[str, dict[str, Any]]:
    """An instruction as a recording gives it back."""
    value: dict[str, Any] = msgspec.msgpack.decode(_encoder.encode(instruction))
    return type(instruction).__name__, value
