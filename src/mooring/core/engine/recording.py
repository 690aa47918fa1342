"""What entered the engine, and what came out, as bytes: a record per turn, and one per write to an index from outside.

The engine is pure, but how much it decides in a turn depends on a clock; so a turn is kept with the number of decisions
it made. Records are msgpack. An event is its class's name and its fields; the class of a Kubernetes object follows from
its kind. A large list goes ahead of its turn in parts, so that no single record takes long to make. Most events are
pods: one goes as a row, and what pods share (shape, owner) goes once and is named by a number from then on.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

import msgspec

from mooring.core.engine.events import Event, Features, LeaseChanged, PolicyChanged, QueueSettingsChanged, Tick
from mooring.core.model.cluster import (
    NO_LABELS,
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
from mooring.core.model.events import (
    Gone,
    Listed,
    MachinesLost,
    MachinesSeen,
    Object,
    PdLost,
    PdSeen,
    RegionsSeen,
    Seen,
)
from mooring.core.model.instructions import Instruction, Outcome
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason
from mooring.core.model.tidb import TidbCluster

#: Objects of a list per record.
PART: Final = 200
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
_PLAIN: Final = (
    Gone, PdSeen, PdLost, RegionsSeen, MachinesSeen, MachinesLost, LeaseChanged, Tick, Features, QueueSettingsChanged,
    PolicyChanged,
)  # fmt: skip


class Tag(StrEnum):
    TURN = "turn"
    PART = "part"
    PODS = "pods"
    SHARED = "shared"
    WRITTEN = "written"


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
    """A write to an index of the world, between two turns, by somebody who is not the engine."""

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
        #: By identity, and held so that the identity stays theirs.
        self._numbers: dict[int, tuple[int, object]] = {}
        self._last = 0
        self._fresh: list[tuple[int, str, object]] = []

    def turn(
        self, now: float, decisions: int, events: Sequence[Event], instructions: Iterable[Instruction]
    ) -> Iterator[bytes]:
        """The records of a turn; one, unless a long list came in or pods of a new shape or owner."""
        for event in events:
            if isinstance(event, Listed) and len(event.objects) > PART:
                rest = iter(event.objects)
                while part := list(islice(rest, PART)):
                    yield from self._part(event.kind, part)
        taken_in = [self._event(event) for event in events]
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

    def _event(self, event: Event) -> tuple[object, ...]:
        if isinstance(event, Seen) and isinstance(event.object, Pod):  # most are
            return "Pod", self._row(event.object)
        match event:
            case Seen():
                return "Seen", event.kind, event.object
            case Listed():
                # A long one was written ahead, in parts.
                return "Listed", event.kind, event.objects if len(event.objects) <= PART else None
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


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────────

_NIL: Final = msgspec.msgpack.encode(None)
_raw: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_text: Final = msgspec.msgpack.Decoder(str)
_row: Final = msgspec.msgpack.Decoder(PodRow)
_rows: Final = msgspec.msgpack.Decoder(list[PodRow])
_shape: Final = msgspec.msgpack.Decoder(PodShape)
_owner: Final = msgspec.msgpack.Decoder(Owner)
_kind: Final = msgspec.msgpack.Decoder(Kind)
_fields: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_instructions: Final = msgspec.msgpack.Decoder(tuple[tuple[str, dict[str, Any]], ...])
_objects: Final[Mapping[Kind, Any]] = {kind: msgspec.msgpack.Decoder(of) for kind, of in CLASSES.items()}
_events: Final[Mapping[str, Any]] = {of.__name__: msgspec.msgpack.Decoder(of) for of in _PLAIN}
#: The fields of an outcome that are plain values; its object's class follows from its kind.
_outcome: Final[Mapping[str, Any]] = {
    "instruction": msgspec.msgpack.Decoder(str),
    "reason": msgspec.msgpack.Decoder(Reason | None),
    "detail": msgspec.msgpack.Decoder(str),
    "kind": msgspec.msgpack.Decoder(Kind | None),
    "gone": msgspec.msgpack.Decoder(Gone | None),
    "retry_after_s": msgspec.msgpack.Decoder(float),
    "looked": msgspec.msgpack.Decoder(bool),
}


class _Reader:
    """What was read ahead of the turns that use it."""

    def __init__(self) -> None:
        self._parts: dict[Kind, list[Object]] = {}
        self._shapes: dict[int, PodShape] = {}
        self._owners: dict[int, Owner] = {}

    def take(self, record: bytes) -> Record | None:
        tag, *rest = _raw.decode(record)
        match _text.decode(tag):
            case Tag.PART:
                kind = _kind.decode(rest[0])
                self._parts.setdefault(kind, []).extend(map(_objects[kind].decode, _raw.decode(rest[1])))
            case Tag.PODS:
                self._parts.setdefault(Kind.POD, []).extend(map(self._pod, _rows.decode(rest[0])))
            case Tag.SHARED:
                for number, name, value in map(_raw.decode, _raw.decode(rest[0])):
                    if _text.decode(name) == Owner.__name__:
                        self._owners[msgspec.msgpack.decode(number, type=int)] = _owner.decode(value)
                    else:
                        self._shapes[msgspec.msgpack.decode(number, type=int)] = _shape.decode(value)
            case Tag.WRITTEN:
                return Written(_text.decode(rest[0]), msgspec.msgpack.decode(rest[1], type=bytes))
            case Tag.TURN:
                return self._turn(rest)
            case other:
                raise BadRecordError(f"{other!r} is no kind of record")
        return None

    def _turn(self, rest: list[msgspec.Raw]) -> Turn:
        now, decisions, events, instructions = rest
        return Turn(
            msgspec.msgpack.decode(now, type=float),
            msgspec.msgpack.decode(decisions, type=int),
            tuple(self._event(_raw.decode(event)) for event in _raw.decode(events)),
            _instructions.decode(instructions),
        )

    def _event(self, fields: list[msgspec.Raw]) -> Event:
        name = _text.decode(fields[0])
        match name:
            case "Pod":
                return Seen(Kind.POD, self._pod(_row.decode(fields[1])))
            case "Seen":
                kind = _kind.decode(fields[1])
                return Seen(kind, _objects[kind].decode(fields[2]))
            case "Listed":
                kind = _kind.decode(fields[1])
                inside = msgspec.msgpack.decode(fields[2], type=list[msgspec.Raw] | None)
                objects = self._parts.pop(kind, []) if inside is None else map(_objects[kind].decode, inside)
                return Listed(kind, tuple(objects))
            case "Outcome":
                return _read_outcome(_fields.decode(fields[1]))
            case _:
                event: Event = _events[name].decode(fields[1])
                return event

    def _pod(self, row: PodRow) -> Pod:
        fields = msgspec.structs.asdict(row)
        fields["shape"] = self._shapes[row.shape]
        fields["owner"] = None if row.owner is None else self._owners[row.owner]
        fields["annotations"] = row.annotations or NO_LABELS
        return Pod(**fields)


def read(records: Iterable[bytes]) -> Iterator[Record]:
    """Turns and writes, in their order. `BadRecordError`: one is not what this version can read."""
    reader = _Reader()
    for number, record in enumerate(records, 1):
        try:
            found = reader.take(record)
        except (msgspec.DecodeError, LookupError, ValueError, TypeError, RecursionError) as error:
            raise BadRecordError(f"record {number}: {error}") from None
        if found is not None:
            yield found


def _read_outcome(fields: dict[str, msgspec.Raw]) -> Outcome:
    known = {name: decoder.decode(fields[name]) for name, decoder in _outcome.items() if name in fields}
    kind = known.get("kind")
    if kind is not None and bytes(fields["object"]) != _NIL:
        known["object"] = _objects[kind].decode(fields["object"])
    return Outcome(**known)
