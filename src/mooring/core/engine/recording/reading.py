"""Reading what `core.engine.recording` wrote: turns and writes in their order, and the checkpoint at the beginning.

Every form that was ever written is read here: format 1 has whole pods only, and no checkpoints; where format 2 names a
pod, the last row that was written of it is meant, and since format 3 the row in the world at the beginning of the turn.
So a turn is to be read once the one before has been put into the engine. Format 4 has many turns in a record, and pods
in columns; format 5 also the versions of updates that change nothing, which format 4 does not mention. In format 6 a
column is one value where all have the same.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Annotated, Any, Final, TypeVar

import msgspec

from mooring.core.engine.events import Event, Features, LeaseChanged, PolicyChanged, QueueSettingsChanged, Tick
from mooring.core.engine.recording.brief import BRIEF, WHOLE, Moved, numbers_in, unpacked
from mooring.core.engine.recording.checkpoint import Checkpoint
from mooring.core.engine.recording.records import CLASSES, BadRecordError, PodRow, Record, Tag, Turn, Written
from mooring.core.model.cluster import NO_LABELS, Owner, Pod, PodShape
from mooring.core.model.events import (
    EvictionAsked,
    Gone,
    LeadersSeen,
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
from mooring.core.model.limits import is_dense_msgpack
from mooring.core.model.marks import Moment
from mooring.core.model.reasons import Reason

_PLAIN: Final = (
    Gone, PdSeen, PdLost, RegionsSeen, MachinesSeen, MachinesLost, LeaseChanged, Tick, Features, QueueSettingsChanged,
    PolicyChanged, EvictionAsked, LeadersSeen,
)  # fmt: skip
#: How the records begin that belong to turns; those that a checkpoint is made of are read ahead of them.
_DEFERRED: Final = tuple(
    msgspec.msgpack.encode([tag, *[None] * more])[: 2 + len(tag)]
    for tag, more in (
        (Tag.TURN, 4), (Tag.WRITTEN, 2), (Tag.PART, 2), (Tag.PODS, 1), (Tag.PODS, 2), (Tag.TURNS, 3), (Tag.TURNS, 4)
    )
)  # fmt: skip
_TURNS: Final = _DEFERRED[-2:]
_UID: Final = PodRow.__struct_fields__.index("uid")
_BRIEF, _WHOLE = map(msgspec.msgpack.encode, (BRIEF, WHOLE))
T = TypeVar("T")
Moves = Iterator[tuple[str, str, Moved | None]]
#: The row of a pod, by uid.
Known = Callable[[str], Pod | None]
#: The class of the writes to an index, by its name.
WriteClasses = Mapping[str, type[msgspec.Struct]]
#: How many of something there are.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**32)]
_moment: Final = msgspec.msgpack.Decoder(Moment)
_count: Final = msgspec.msgpack.Decoder(Count)
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

    def __init__(self, known: Known | None, writes: WriteClasses | None) -> None:
        self._known, self._writes = known, writes
        self._parts: dict[Kind, list[Object]] = {}
        self._shapes: dict[int, PodShape] = {}
        self._owners: dict[int, Owner] = {}
        #: Uids of pods that are told in brief.
        self._uids: dict[int, str] = {}
        #: The last row of each pod; since format 3, of those in this turn.
        self._pods: dict[str, Pod] = {}
        self._kept: dict[Kind, list[Object]] = {}
        self._memory: list[bytes] = []

    def take(self, record: bytes) -> Iterator[Record | Checkpoint]:
        if is_dense_msgpack(record):
            raise BadRecordError("it holds more values than any record of its length")
        tag, *rest = _raw.decode(record)
        match _text.decode(tag):
            case Tag.PART:
                kind = _kind.decode(rest[0])
                self._parts.setdefault(kind, []).extend(map(_objects[kind].decode, _raw.decode(rest[1])))
            case Tag.PODS:
                self._parts.setdefault(Kind.POD, []).extend(self._pods_in(rest))
            case Tag.KEPT:
                kind = _kind.decode(rest[0])
                self._kept.setdefault(kind, []).extend(map(_objects[kind].decode, _raw.decode(rest[1])))
            case Tag.KEPT_PODS:
                pods = self._pods_in(rest)
                self._kept.setdefault(Kind.POD, []).extend(pods)
                for pod in pods:
                    self._pods.setdefault(pod.uid, pod)
            case Tag.MEMORY:
                self._memory.append(msgspec.msgpack.decode(rest[0], type=bytes))
            case Tag.END:
                made = Checkpoint(_moment.decode(rest[0]), self._kept, self._memory)
                self._kept, self._memory = {}, []
                yield made
            case Tag.SHARED:
                for number, name, value in map(_raw.decode, _raw.decode(rest[0])):
                    if _text.decode(name) == Owner.__name__:
                        self._owners[msgspec.msgpack.decode(number, type=int)] = _owner.decode(value)
                    else:
                        self._shapes[msgspec.msgpack.decode(number, type=int)] = _shape.decode(value)
            case Tag.WRITTEN:
                yield self._written(_text.decode(rest[0]), msgspec.msgpack.decode(rest[1], type=bytes))
            case Tag.TURN:
                yield self._turn(rest)
            case Tag.TURNS:
                whole, moves = iter(self._pods_in(rest[:2])), self._moves(*msgspec.msgpack.decode(rest[2]))
                unchanged = iter(_versions_in(rest[3]) if len(rest) > 3 else ())
                for turn in _raw.decode(rest[0]):
                    yield self._turn(_raw.decode(turn), whole, moves, unchanged)
            case other:
                raise BadRecordError(f"{other!r} is not a kind of record")

    def _moves(self, names: Any, versions: Any, flags: Any, *columns: Any) -> Moves:
        """Uid, version and what moved of each pod that is told in brief."""
        first, fresh, numbers = names
        self._uids.update(enumerate(unpacked(fresh), msgspec.convert(first, int)))
        uids = [self._uids[number] for number in numbers_in(bytes(numbers.data))]
        flags = b"\1" * len(uids) if flags is None else flags.data
        each = [column if isinstance(column, list) else [column] * sum(flags) for column in columns]
        moved = iter(msgspec.convert(list(zip(*each, strict=True)), list[Moved]))
        told = zip(uids, msgspec.convert(versions, list[str]), flags, strict=True)
        return iter([(uid, version, _next(moved) if has_moved else None) for uid, version, has_moved in told])

    def _turn(
        self,
        rest: list[msgspec.Raw],
        whole: Iterator[Pod] = iter(()),
        moves: "Moves" = iter(()),
        unchanged: Iterator[int] = iter(()),
    ) -> Turn:
        now, decisions, events, instructions, *more = rest
        told = msgspec.msgpack.decode(events, type=list[msgspec.Raw] | Count)
        taken = repeat(_BRIEF, told) if isinstance(told, int) else told
        if self._known is not None:
            self._pods = {}
        return Turn(
            _moment.decode(now),
            _count.decode(decisions),
            tuple(self._next_event(event, whole, moves) for event in taken),
            _instructions.decode(instructions),
            tuple(_next(unchanged) for _ in range(_count.decode(more[0]))) if more else (),
        )

    def _written(self, index: str, write: bytes) -> Written:
        if self._writes is None:
            return Written(index, write)
        if index not in self._writes:
            raise BadRecordError(f"there is no index {index} to write to")
        return Written(index, msgspec.msgpack.decode(write, type=self._writes[index]))

    def _next_event(self, event: bytes | msgspec.Raw, whole: Iterator[Pod], moves: "Moves") -> Event:
        match bytes(event):
            case said if said == _BRIEF:
                return self._seen(self._moved(*_next(moves)))
            case said if said == _WHOLE:
                return self._seen(_next(whole))
            case _:
                return self._event(_raw.decode(event))

    def _event(self, fields: list[msgspec.Raw]) -> Event:
        name = _text.decode(fields[0])
        match name:
            case "Pod":
                return self._seen(self._pod(_row.decode(fields[1])))
            case "m" | "v":  # before format 4: it moved, or a version that shows nothing new
                uid, version, *moved = map(msgspec.msgpack.decode, fields[1:])
                return self._seen(self._moved(uid, version, msgspec.convert(moved, Moved) if moved else None))
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
                inside = msgspec.msgpack.decode(fields[2], type=list[msgspec.Raw] | Count | None)
                if isinstance(inside, list):
                    return Listed(kind, tuple(map(_objects[kind].decode, inside)))
                parts = self._parts.get(kind, [])
                if inside is not None and inside > len(parts):
                    raise BadRecordError(f"a list names {inside} objects, and there are {len(parts)}")
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

    def _moved(self, uid: str, version: str, moved: Moved | None) -> Pod:
        old = self._base(uid)
        if moved is None:
            # One that went and comes late: the world takes nothing of it, whatever it is.
            old = old or Pod("", "", uid, version, PodShape())
            return msgspec.structs.replace(old, resource_version=version)
        if old is None:
            raise BadRecordError(f"there is no pod {uid}")
        shown = msgspec.structs.asdict(moved)
        return msgspec.structs.replace(
            old, **shown | {"node": old.node if moved.node is None else moved.node, "resource_version": version}
        )

    def _base(self, uid: str) -> Pod | None:
        found = self._pods.get(uid)
        return self._known(uid) if found is None and self._known is not None else found

    def _seen(self, pod: Pod) -> Seen:
        self._pods[pod.uid] = pod
        return Seen(Kind.POD, pod)

    def _pods_in(self, rows: list[msgspec.Raw]) -> list[Pod]:
        """Before format 4 a list of rows, since then something else and their columns."""
        if len(rows) == 1:
            return list(map(self._pod, _rows.decode(rows[0])))
        columns = msgspec.msgpack.decode(rows[1], type=list[Any] | None)
        if columns is None:
            return []
        columns[_UID] = unpacked(columns[_UID])
        return list(map(self._pod, msgspec.convert(list(zip(*columns, strict=True)), list[PodRow])))

    def _pod(self, row: PodRow) -> Pod:
        fields = msgspec.structs.asdict(row)
        fields["shape"] = self._shapes[row.shape]
        fields["owner"] = None if row.owner is None else self._owners[row.owner]
        fields["annotations"] = row.annotations or NO_LABELS
        return Pod(**fields)


def read(records: Iterable[bytes], known: Known | None = None, writes: WriteClasses | None = None) -> Iterator[Record]:
    """Turns and writes, in their order. `known`: of the world that they are put into; None: written in an older format.
    `BadRecordError`: one is not what this version can read."""
    return _rest(_RecordReader(known, writes), enumerate(records, 1))


def turn_times(records: Iterable[bytes]) -> Iterator[float]:
    """When the turns were. `BadRecordError` as above."""
    for number, record in enumerate(records, 1):
        with naming(number):
            if record.startswith(_TURNS):
                for turn in _raw.decode(_raw.decode(record)[1]):
                    yield _moment.decode(_raw.decode(turn)[0])
            elif record.startswith(_DEFERRED[0]):
                yield _moment.decode(_raw.decode(record)[1])


def read_from_checkpoint(
    records: Iterable[bytes], known: Known | None = None, writes: WriteClasses | None = None
) -> tuple[Checkpoint, Iterator[Record]] | None:
    """The checkpoint that these records begin with, and what was recorded after it was captured. None: it is not
    whole."""
    reader, after, numbered = _RecordReader(known, writes), [], enumerate(records, 1)
    for number, record in numbered:
        if record.startswith(_DEFERRED):
            after.append((number, record))
        elif (found := next(_take(reader, number, record), None)) and isinstance(found, Checkpoint):
            return found, _rest(reader, chain(after, numbered))
    return None


def _rest(reader: "_RecordReader", numbered: Iterable[tuple[int, bytes]]) -> Iterator[Record]:
    for number, record in numbered:
        for found in _take(reader, number, record):
            if not isinstance(found, Checkpoint):
                yield found


def _take(reader: "_RecordReader", number: int, record: bytes) -> Iterator[Record | Checkpoint]:
    with naming(number):
        yield from reader.take(record)


@contextmanager
def naming(number: int) -> Iterator[None]:
    """Whatever is raised while a record is read says that it is not one of ours: there is no list of what may be."""
    try:
        yield
    except Exception as error:
        is_said = isinstance(error, ValueError | msgspec.MsgspecError)
        words = str(error) if is_said else f"{type(error).__name__}: {error}"
        raise BadRecordError(f"record {number}: {words}", number) from error


def _next(rest: Iterator[T]) -> T:
    for one in rest:
        return one
    raise BadRecordError("it has fewer pods than it names")


def _versions_in(raw: msgspec.Raw) -> list[int]:
    data = bytes(msgspec.msgpack.decode(raw, type=msgspec.msgpack.Ext).data)
    if len(data) % 8:
        raise BadRecordError("a version is cut off")
    return numbers_in(data, 8)


def _read_outcome(fields: dict[str, msgspec.Raw]) -> Outcome:
    known = {name: decoder.decode(fields[name]) for name, decoder in _outcome.items() if name in fields}
    kind = known.get("kind")
    if kind is not None and bytes(fields["object"]) != _NIL:
        known["object"] = _objects[kind].decode(fields["object"])
    return Outcome(**known)
