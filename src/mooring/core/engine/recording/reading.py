"""Reading what `core.engine.recording` wrote: turns and writes in their order, and the checkpoint at the beginning.

Every form that was ever written is read here: format 1 has whole pods only, and no checkpoints; where format 2 names a
pod, the last row that was written of it is meant, and since format 3 the row in the world at the beginning of the turn.
So a turn is to be read once the one before has been put into the engine.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

import msgspec

from mooring.core.engine.events import Event, Features, LeaseChanged, PolicyChanged, QueueSettingsChanged, Tick
from mooring.core.engine.recording import brief
from mooring.core.engine.recording.checkpoint import Checkpoint
from mooring.core.engine.recording.records import CLASSES, BadRecordError, PodRow, Record, Tag, Turn, Written
from mooring.core.model.cluster import NO_LABELS, Owner, Pod, PodShape
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
from mooring.core.model.instructions import Outcome
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason

_PLAIN: Final = (
    Gone, PdSeen, PdLost, RegionsSeen, MachinesSeen, MachinesLost, LeaseChanged, Tick, Features, QueueSettingsChanged,
    PolicyChanged,
)  # fmt: skip
#: How the records begin that belong to turns; those that a checkpoint is made of are read ahead of them.
_DEFERRED: Final = tuple(
    msgspec.msgpack.encode([tag, *[None] * more])[: 2 + len(tag)]
    for tag, more in ((Tag.TURN, 4), (Tag.WRITTEN, 2), (Tag.PART, 2), (Tag.PODS, 1))
)
#: The row of a pod, by uid.
Known = Callable[[str], Pod | None]
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


class _RecordReader:
    """What was read ahead of the turns that use it."""

    def __init__(self, known: Known | None) -> None:
        self._known = known
        self._parts: dict[Kind, list[Object]] = {}
        self._shapes: dict[int, PodShape] = {}
        self._owners: dict[int, Owner] = {}
        #: The last row of each pod; since format 3, of those in this turn.
        self._pods: dict[str, Pod] = {}
        self._kept: dict[Kind, list[Object]] = {}
        self._memory: list[bytes] = []

    def take(self, record: bytes) -> Record | Checkpoint | None:
        tag, *rest = _raw.decode(record)
        match _text.decode(tag):
            case Tag.PART:
                kind = _kind.decode(rest[0])
                self._parts.setdefault(kind, []).extend(map(_objects[kind].decode, _raw.decode(rest[1])))
            case Tag.PODS:
                self._parts.setdefault(Kind.POD, []).extend(map(self._pod, _rows.decode(rest[0])))
            case Tag.KEPT:
                kind = _kind.decode(rest[0])
                self._kept.setdefault(kind, []).extend(map(_objects[kind].decode, _raw.decode(rest[1])))
            case Tag.KEPT_PODS:
                pods = [self._pod(row) for row in _rows.decode(rest[0])]
                self._kept.setdefault(Kind.POD, []).extend(pods)
                for pod in pods:
                    self._pods.setdefault(pod.uid, pod)
            case Tag.MEMORY:
                self._memory.append(msgspec.msgpack.decode(rest[0], type=bytes))
            case Tag.END:
                made = Checkpoint(msgspec.msgpack.decode(rest[0], type=float), self._kept, self._memory)
                self._kept, self._memory = {}, []
                return made
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
                raise BadRecordError(f"{other!r} is not a kind of record")
        return None

    def _turn(self, rest: list[msgspec.Raw]) -> Turn:
        now, decisions, events, instructions = rest
        if self._known is not None:
            self._pods = {}
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
                return self._seen(self._pod(_row.decode(fields[1])))
            case brief.MOVED:
                return self._seen(self._moved(*(msgspec.msgpack.decode(one) for one in fields[1:])))
            case brief.SAME:
                uid, version = map(_text.decode, fields[1:])
                # One that went and comes late: the world takes nothing of it, whatever it is.
                old = self._base(uid) or Pod("", "", uid, version, PodShape())
                return self._seen(msgspec.structs.replace(old, resource_version=version))
            case "Gone":
                gone: Gone = _events[name].decode(fields[1])
                if gone.kind is Kind.POD:
                    self._pods.pop(gone.uid, None)
                return gone
            case "Seen":
                kind = _kind.decode(fields[1])
                return Seen(kind, _objects[kind].decode(fields[2]))
            case "Listed":
                kind = _kind.decode(fields[1])
                inside = msgspec.msgpack.decode(fields[2], type=list[msgspec.Raw] | int | None)
                if isinstance(inside, list):
                    return Listed(kind, tuple(map(_objects[kind].decode, inside)))
                parts = self._parts.get(kind, [])
                listed = Listed(kind, tuple(parts[:inside]))
                del parts[:inside]
                if kind is Kind.POD:
                    self._pods = {pod.uid: pod for pod in listed.objects if isinstance(pod, Pod)}
                return listed
            case "Outcome":
                return _read_outcome(_fields.decode(fields[1]))
            case _:
                event: Event = _events[name].decode(fields[1])
                return event

    def _moved(self, uid: str, version: str, node: str | None, phase: str, *rest: Any) -> Pod:
        old = self._base(uid)
        if old is None:
            raise BadRecordError(f"there is no pod {uid}")
        ready, ready_since, deletion_at, schedulable = rest
        return msgspec.structs.replace(
            old,
            resource_version=version,
            node=old.node if node is None else node,
            phase=phase,
            ready=ready,
            ready_since=ready_since,
            deletion_at=deletion_at,
            schedulable=schedulable,
        )

    def _base(self, uid: str) -> Pod | None:
        found = self._pods.get(uid)
        return self._known(uid) if found is None and self._known is not None else found

    def _seen(self, pod: Pod) -> Seen:
        self._pods[pod.uid] = pod
        return Seen(Kind.POD, pod)

    def _pod(self, row: PodRow) -> Pod:
        fields = msgspec.structs.asdict(row)
        fields["shape"] = self._shapes[row.shape]
        fields["owner"] = None if row.owner is None else self._owners[row.owner]
        fields["annotations"] = row.annotations or NO_LABELS
        return Pod(**fields)


def read(records: Iterable[bytes], known: Known | None = None) -> Iterator[Record]:
    """Turns and writes, in their order. `known`: of the world that they are put into; None: written in an older format.
    `BadRecordError`: one is not what this version can read."""
    reader = _RecordReader(known)
    for number, record in enumerate(records, 1):
        found = _take(reader, number, record)
        if found is not None and not isinstance(found, Checkpoint):
            yield found


def turn_times(records: Iterable[bytes]) -> Iterator[float]:
    return (msgspec.msgpack.decode(_raw.decode(one)[1], type=float) for one in records if one.startswith(_DEFERRED[0]))


def read_from_checkpoint(
    records: Iterable[bytes], known: Known | None = None
) -> tuple[Checkpoint, Iterator[Record]] | None:
    """The checkpoint that these records begin with, and what was recorded after it was captured. None: it is not
    whole."""
    reader, after, numbered = _RecordReader(known), [], enumerate(records, 1)
    for number, record in numbered:
        if record.startswith(_DEFERRED):
            after.append((number, record))
        elif isinstance(found := _take(reader, number, record), Checkpoint):
            return found, _rest(reader, chain(after, numbered))
    return None


def _rest(reader: "_RecordReader", numbered: Iterable[tuple[int, bytes]]) -> Iterator[Record]:
    for number, record in numbered:
        found = _take(reader, number, record)
        if found is not None and not isinstance(found, Checkpoint):
            yield found


def _take(reader: "_RecordReader", number: int, record: bytes) -> Record | Checkpoint | None:
    try:
        return reader.take(record)
    except (msgspec.DecodeError, LookupError, ValueError, TypeError, RecursionError) as error:
        raise BadRecordError(f"record {number}: {error}") from None


def _read_outcome(fields: dict[str, msgspec.Raw]) -> Outcome:
    known = {name: decoder.decode(fields[name]) for name, decoder in _outcome.items() if name in fields}
    kind = known.get("kind")
    if kind is not None and bytes(fields["object"]) != _NIL:
        known["object"] = _objects[kind].decode(fields["object"])
    return Outcome(**known)
