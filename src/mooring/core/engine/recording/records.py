"""What entered the engine, and what came out, as bytes: a record for some turns, and one per write to an index from
outside.

The engine is pure, but how much it decides in a turn depends on a clock; so a turn is kept with the number of decisions
it made. Records are msgpack. An event is its class's name and its fields; the class of a Kubernetes object follows from
its kind. A large list goes ahead of its turn in parts, so that no single record takes long to make. Most events are
pods: they go in columns, and what pods share (shape, owner) goes once and is named by a number from then on; of a pod
that the world knew before the turn, only what moves goes, and its uid once; of an update that changes nothing, its
version. The world into which it is replayed knows the same row.

A checkpoint goes in parts, too, between the turns that follow it.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

import msgspec

from mooring.core.engine.events import Event
from mooring.core.engine.recording.brief import BRIEF, WHOLE, Batch, Names, packed
from mooring.core.engine.recording.checkpoint import Captured
from mooring.core.model.cluster import (
    Claim,
    ConfigMap,
    Node,
    Owner,
    Pdb,
    Pod,
    PodEviction,
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
PART: Final = 25
#: Shapes and owners that are held to be named by number.
SHARED: Final = 50_000


CLASSES: Final[Mapping[Kind, type]] = {
    Kind.POD: Pod,
    Kind.NODE: Node,
    Kind.DEPLOYMENT: Workload,
    Kind.STATEFUL_SET: Workload,
    Kind.ROLLOUT: Workload,
    Kind.CLONE_SET: Workload,
    Kind.REPLICA_SET: ReplicaSet,
    Kind.PDB: Pdb,
    Kind.PV: Volume,
    Kind.PVC: Claim,
    Kind.CONFIG_MAP: ConfigMap,
    Kind.TIDB_CLUSTER: TidbCluster,
    Kind.TIDB_V2: TidbCluster,
    Kind.EVICTION: PodEviction,
}


class Tag(StrEnum):
    #: Before format 4: one turn, with whole rows in it.
    TURN = "turn"
    TURNS = "turns"
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
    #: Versions of updates of pods that came in and changed nothing in the world. Replayed, they would change nothing
    #: either.
    unchanged: tuple[int, ...] = ()


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
    #: Bytes, where the classes of writes were not given to the reader.
    write: Any


Record = Turn | Written


class BadRecordError(ValueError):
    """What cannot be read, in words, and the number of the record in its part, from 1 on; 0: not known yet."""

    def __init__(self, words: str, number: int = 0) -> None:
        super().__init__(words)
        self.number = number


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
        self._last = self._before = 0
        #: By identity, and held so that the identity stays theirs. No tuples: there may be many, to be walked by the
        #: garbage collector.
        self._numbers: dict[int, int] = {}
        self._held: list[object] = []
        self._fresh: list[tuple[int, str, object]] = []
        self._names = Names()

    def begin(self) -> None:
        """A new part: nothing that was written before is referred to."""
        self._before = self._last
        self._names.begin()

    def turns(self, batch: Batch) -> Iterator[bytes]:
        """The records of some turns; one, unless a long list came in or pods of a new shape or owner."""
        turns = []
        for now, decisions, taken, instructions, unchanged in batch.turns:
            said: list[object] = []
            for event in taken if isinstance(taken, list) else ():
                if isinstance(event, Listed) and len(event.objects) > PART:
                    rest = iter(event.objects)
                    while part := list(islice(rest, PART)):
                        yield from self._part(Tag.PART, Tag.PODS, event.kind, part)
                said.append(event if event is BRIEF or event is WHOLE else _event(event))
            out = [(type(one).__name__, one) for one in instructions]
            turns.append((now, decisions, said or taken, out, unchanged))
        whole = self._columns(batch.whole) if batch.whole else None
        yield from self._shared()
        yield _encoder.encode((Tag.TURNS, turns, whole, batch.brief(self._names), batch.unchanged()))

    def checkpoint(self, captured: Captured) -> Iterator[bytes]:
        """The parts of a checkpoint. Records of turns may come in between, from the same writer."""
        for kind, objects in captured.rows.items():
            rest: Iterator[Any] = iter(objects)
            while part := list(islice(rest, PART)):
                yield from self._part(Tag.KEPT, Tag.KEPT_PODS, kind, part)
        for memory in captured.memory.records():
            yield _encoder.encode((Tag.MEMORY, memory))
        yield _encoder.encode((Tag.END, captured.now))

    def _part(self, tag: Tag, of_pods: Tag, kind: Kind, part: list[Any]) -> Iterator[bytes]:
        if kind is not Kind.POD:
            yield _encoder.encode((tag, kind, part))
            return
        columns = self._columns(part)
        yield from self._shared()
        yield _encoder.encode((of_pods, kind, columns))

    def _columns(self, pods: Sequence[Pod]) -> list[Any]:
        """Of the rows of these pods, in the order of the fields of `PodRow`."""
        return [
            [pod.namespace for pod in pods],
            [pod.name for pod in pods],
            packed([pod.uid for pod in pods]),
            [pod.resource_version for pod in pods],
            [self._number(pod.shape) for pod in pods],
            [None if pod.owner is None else self._number(pod.owner) for pod in pods],
            [pod.generate_name for pod in pods],
            [pod.node for pod in pods],
            [pod.phase for pod in pods],
            [pod.ready for pod in pods],
            [pod.ready_since for pod in pods],
            [pod.created_at for pod in pods],
            [pod.deletion_at for pod in pods],
            [pod.schedulable for pod in pods],
            [pod.claims for pod in pods],
            [dict(pod.annotations) if pod.annotations else None for pod in pods],
            [pod.is_mirror for pod in pods],
            [pod.nominated_node for pod in pods],
        ]

    def _number(self, value: PodShape | Owner) -> int:
        known = self._numbers.get(id(value), 0)
        if known > self._before:
            return known
        if not known:
            if len(self._held) >= SHARED:
                self._numbers, self._held = {}, []  # those that are used still get a new number
            self._held.append(value)
        self._last += 1
        self._numbers[id(value)] = self._last
        self._fresh.append((self._last, type(value).__name__, value))
        return self._last

    def _shared(self) -> Iterator[bytes]:
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            yield _encoder.encode((Tag.SHARED, fresh))


def _event(event: Event) -> tuple[object, ...]:
    match event:
        case Seen():
            return "Seen", event.kind, event.object
        case Listed():
            # A long one was written ahead, in parts.
            return "Listed", event.kind, event.objects if len(event.objects) <= PART else len(event.objects)
        case Outcome():
            return "Outcome", msgspec.structs.asdict(event)
        case _:
            return type(event).__name__, event


def written_record(index: str, write: msgspec.Struct) -> bytes:
    return _encoder.encode((Tag.WRITTEN, index, _encoder.encode(write)))


def plain_of(instruction: Instruction) -> tuple[str, dict[str, Any]]:
    """An instruction as a recording gives it back."""
    value: dict[str, Any] = msgspec.msgpack.decode(_encoder.encode(instruction))
    return type(instruction).__name__, value
