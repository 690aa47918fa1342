"""What entered the engine, and what came out, as bytes: a record per turn, and one per write to an index from outside.

The engine is pure, but how much it decides in a turn depends on a clock; so a turn is kept with the number of decisions
it made. Records are msgpack. An event is its class's name and its fields; the class of a Kubernetes object follows from
its kind. A large list goes ahead of its turn in parts, so that no single record takes long to make.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

import msgspec

from mooring.core.engine.events import Event, Features, LeaseChanged, QueueSettingsChanged, Tick
from mooring.core.model.cluster import Claim, ConfigMap, Node, Pdb, Pod, ReplicaSet, Volume, Workload
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
    Gone, PdSeen, PdLost, RegionsSeen, MachinesSeen, MachinesLost, LeaseChanged, Tick, Features, QueueSettingsChanged
)  # fmt: skip


class Tag(StrEnum):
    TURN = "turn"
    PART = "part"
    WRITTEN = "written"


class Turn(msgspec.Struct, frozen=True):
    """One call of `Engine.handle_all`, and what it answered, each instruction as plain values with its class's name."""

    now: float
    #: Evaluations and steps made.
    decisions: int
    events: tuple[Event, ...]
    instructions: tuple[tuple[str, dict[str, Any]], ...]


class Written(msgspec.Struct, frozen=True):
    """A write to an index of the world, between two turns, by somebody who is not the engine."""

    index: str
    write: bytes


Record = Turn | Written


class BadRecord(ValueError):  # noqa: N818
    """What cannot be read, in words."""


# ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _plain(value: object) -> object:
    if isinstance(value, MappingProxyType):
        return value.copy()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be recorded")


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_plain)


def turn_records(
    now: float, decisions: int, events: Sequence[Event], instructions: Iterable[Instruction]
) -> Iterator[bytes]:
    """The records of a turn, in order; one, unless a long list came in."""
    for event in events:
        if isinstance(event, Listed) and len(event.objects) > PART:
            rest = iter(event.objects)
            while part := list(islice(rest, PART)):
                yield _encoder.encode((Tag.PART, event.kind, part))
    taken_in = [_event(event) for event in events]
    came_out = [(type(one).__name__, one) for one in instructions]
    yield _encoder.encode((Tag.TURN, now, decisions, taken_in, came_out))


def written_record(index: str, write: msgspec.Struct) -> bytes:
    return _encoder.encode((Tag.WRITTEN, index, _encoder.encode(write)))


def _event(event: Event) -> tuple[object, ...]:
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


def plain_of(instruction: Instruction) -> tuple[str, dict[str, Any]]:
    """An instruction as a recording gives it back."""
    value: dict[str, Any] = msgspec.msgpack.decode(_encoder.encode(instruction))
    return type(instruction).__name__, value


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────────

_NIL: Final = msgspec.msgpack.encode(None)
_raw: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_text: Final = msgspec.msgpack.Decoder(str)
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


def read(records: Iterable[bytes]) -> Iterator[Record]:
    """Turns and writes, in their order. `BadRecord`: one is not what this version can read."""
    parts: dict[Kind, list[Object]] = {}
    for number, record in enumerate(records, 1):
        try:
            tag, *rest = _raw.decode(record)
            match _text.decode(tag):
                case Tag.PART:
                    kind = _kind.decode(rest[0])
                    parts.setdefault(kind, []).extend(map(_objects[kind].decode, _raw.decode(rest[1])))
                case Tag.WRITTEN:
                    yield Written(_text.decode(rest[0]), msgspec.msgpack.decode(rest[1], type=bytes))
                case Tag.TURN:
                    yield _turn(rest, parts)
                case other:
                    raise BadRecord(f"{other!r} is no kind of record")
        except (msgspec.DecodeError, KeyError, IndexError, ValueError, RecursionError) as error:
            raise BadRecord(f"record {number}: {error}") from None


def _turn(rest: list[msgspec.Raw], parts: dict[Kind, list[Object]]) -> Turn:
    now, decisions, events, instructions = rest
    return Turn(
        msgspec.msgpack.decode(now, type=float),
        msgspec.msgpack.decode(decisions, type=int),
        tuple(_read_event(_raw.decode(event), parts) for event in _raw.decode(events)),
        _instructions.decode(instructions),
    )


def _read_event(fields: list[msgspec.Raw], parts: dict[Kind, list[Object]]) -> Event:
    name = _text.decode(fields[0])
    match name:
        case "Seen":
            kind = _kind.decode(fields[1])
            return Seen(kind, _objects[kind].decode(fields[2]))
        case "Listed":
            kind = _kind.decode(fields[1])
            inside = msgspec.msgpack.decode(fields[2], type=list[msgspec.Raw] | None)
            objects = parts.pop(kind, []) if inside is None else map(_objects[kind].decode, inside)
            return Listed(kind, tuple(objects))
        case "Outcome":
            return _read_outcome(_fields.decode(fields[1]))
        case _:
            event: Event = _events[name].decode(fields[1])
            return event


def _read_outcome(fields: dict[str, msgspec.Raw]) -> Outcome:
    known = {name: decoder.decode(fields[name]) for name, decoder in _outcome.items() if name in fields}
    kind = known.get("kind")
    if kind is not None and bytes(fields["object"]) != _NIL:
        known["object"] = _objects[kind].decode(fields["object"])
    return Outcome(**known)
