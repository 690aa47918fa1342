"""What a recording says of the pods in its turns: of one that the world knew before, only what moves in its life.

What no client can change goes with the whole row alone: when the pod was created, its claims, whether it is a mirror.
Of an update of a pod that changes nothing in the world only the version goes: it is late, or all that is new in it is
that version, from which nothing is decided. That is about half of what comes in, and to name its pod would cost more
than all the rest of it.
It is taken from both rows at the end of the turn, while they are at hand: to look for them again would cost more than
all the rest.
Many turns become bytes in one go, in columns: that costs a third of making and compressing them one by one.
"""

import sys
from array import array
from collections.abc import Sequence
from math import inf
from typing import Any, Final

import msgspec

from mooring.core.engine.events import Event
from mooring.core.engine.intake import LARGE, Changes
from mooring.core.model.events import Listed, Seen
from mooring.core.model.instructions import Instruction, Outcome
from mooring.core.model.kinds import Kind

#: In place of an event: the next pod of those that are told in brief, of those that are told as a whole.
BRIEF: Final = None
WHOLE: Final = 0
#: Kinds of bytes that are no records: uids of 16 bytes each, a number of four bytes for each pod, and versions of eight
#: bytes each. 2 was a byte for each pod, before format 6.
UIDS, NUMBERS, VERSIONS = 1, 3, 4
#: Of an enumeration it would be looked up with every event.
_POD: Final = Kind.POD
#: Uids that are held to be named by number, and how many are let go in one go, at least, once they are not.
NAMED: Final = 500_000
LET_GO: Final = 500


class Moved(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Of a pod that shows something new. `node` None: where it was."""

    node: str | None
    phase: str
    ready: bool
    ready_since: float | None
    deletion_at: float | None
    schedulable: bool


#: What is told of a pod: uid, version, and what a `Moved` has.
_WIDTH: Final = 2 + len(Moved.__struct_fields__)


class Batch:
    """Some turns, one after the other. Of pods in brief it holds values and not rows, taken at the end of their turn:
    later each look at a row is a wait for memory."""

    __slots__ = ("_told", "_unchanged", "count", "turns", "until", "whole")

    def __init__(self, until: float = inf) -> None:
        #: When no turn may join any more.
        self.until = until
        #: When, how many decisions, what came in (a number: so many pods in brief), what came out, and how many updates
        #: changed nothing.
        self.turns: list[tuple[float, int, int | list[Any], Sequence[Instruction], int]] = []
        #: Events in them, and turns.
        self.count = 0
        #: Pods that are told as a whole.
        self.whole: list[Any] = []
        #: Of pods in brief, `_WIDTH` values of each, one after the other: no object is kept for a pod, and there is no
        #: list per column, each of which would be memory to be waited for with every pod.
        self._told: list[Any] = []
        #: Versions of the updates that changed nothing. As numbers: no object stays for any of them.
        self._unchanged = array("Q")

    def add(
        self,
        now: float,
        decisions: int,
        events: Sequence[Event],
        instructions: Sequence[Instruction],
        changes: Changes | None = None,
    ) -> None:
        """A turn has ended; `changes`: what each event did to the world. None: its pods are told as a whole."""
        told, unchanged = self._told, self._unchanged
        told_before, unchanged_before = len(told), len(unchanged)
        #: None: all of them pods in brief.
        taken = [self._take(event) for event in events] if changes is None else None
        briefly, lists = True, False
        for event, changed in zip(events, changes or (), strict=False):
            if type(event) is Seen and event.kind is _POD:
                pod: Any = event.object
                if changed:
                    change: Any = changed[-1]
                    old = change.old if briefly else None
                    if (
                        old is not None
                        and old.shape is pod.shape
                        and old.owner is pod.owner
                        and (old.annotations is pod.annotations or old.annotations == pod.annotations)
                        and old.nominated_node == pod.nominated_node
                        and old.generate_name == pod.generate_name
                    ):
                        told += (
                            pod.uid,
                            pod.resource_version,
                            None if old.node == pod.node else pod.node,
                            pod.phase,
                            pod.ready,
                            pod.ready_since,
                            pod.deletion_at,
                            pod.schedulable,
                        )
                        if taken is not None:
                            taken.append(BRIEF)
                        continue
                elif not lists:
                    try:
                        unchanged.append(int(pod.resource_version))
                    except (ValueError, OverflowError):  # not as Kubernetes spells it
                        pass
                    else:
                        continue
            if taken is None:
                taken = [BRIEF] * ((len(told) - told_before) // _WIDTH)
            # What comes in with these is not what the world knew before the turn; with a long list, it waits behind it.
            briefly = briefly and not isinstance(event, Listed | Outcome)
            lists = lists or (isinstance(event, Listed) and len(event.objects) > LARGE)
            if isinstance(event, Outcome) and event.kind is Kind.POD and not changed and not lists:
                event = msgspec.structs.replace(event, object=None)  # late: by a version that may have been left out
            taken.append(self._take(event))
        self.count += 1 + len(events)
        came_in = (len(told) - told_before) // _WIDTH if taken is None else taken
        self.turns.append((now, decisions, came_in, instructions, len(unchanged) - unchanged_before))

    def _take(self, event: Event) -> Any:
        """As a whole; what stands for it."""
        if type(event) is Seen and event.kind is Kind.POD:
            self.whole.append(event.object)
            return WHOLE
        return event

    def brief(self, names: "Names") -> tuple[object, ...]:
        """Names and versions of those told in brief; the columns of what moved."""
        uids, versions, *columns = (self._told[at::_WIDTH] for at in range(_WIDTH))
        return (names.of(uids), versions, None, *map(_once, columns))

    def unchanged(self) -> object:
        """Versions of the updates that changed nothing."""
        return msgspec.msgpack.Ext(VERSIONS, _bytes_of(self._unchanged))


def _once(column: list[Any]) -> Any:
    """The value, where all have the same one: most pods run, and stay where they are."""
    return column[0] if column and column.count(column[0]) == len(column) else column


class Names:
    """A pod's uid goes once, with a number; from then on the number stands for it: a uid is all random digits, most of
    what there would be to compress and to keep. By the identity of the uid, which the world hands on from row to row,
    so that not even the uid is looked at; one that comes as another object gets another number."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._held: list[str] = []
        self._next = 0
        #: What is not referred to any more.
        self._old: list[tuple[dict[int, int], list[str]]] = []

    def begin(self) -> None:
        """Nothing that was named before is referred to."""
        self._old.append((self._numbers, self._held))
        self._numbers, self._held = {}, []

    def _let_go(self, count: int) -> None:
        """A little of it: 150,000 names at once take longer than a turn may."""
        numbers, held = self._old[-1]
        del held[-count:]
        for _ in range(min(count, len(numbers))):
            numbers.popitem()
        if not numbers:
            self._old.pop()

    def of(self, uids: Sequence[str]) -> tuple[int, object, object]:
        """The number of the first new one, the new ones, and the numbers of all."""
        if len(self._held) >= NAMED:
            self.begin()
        if self._old:
            self._let_go(max(LET_GO, 2 * len(uids)))  # faster than others come
        first, held, known = self._next, len(self._held), self._numbers
        numbers: list[Any] = [*map(known.get, map(id, uids))]
        if None in numbers:
            for uid in uids:
                if known.setdefault(id(uid), self._next) == self._next:
                    self._held.append(uid)
                    self._next += 1
            numbers = [known[id(uid)] for uid in uids]
        return first, packed(self._held[held:]), msgspec.msgpack.Ext(NUMBERS, _bytes_of(array("I", numbers)))


def packed(uids: Sequence[str]) -> object:
    """In 16 bytes each, if all are spelled as Kubernetes spells them: digits of random numbers are most of what is to
    be compressed."""
    text, dashes = "".join(uids), "-" * len(uids)
    digits = text.replace("-", "")
    try:
        found = bytes.fromhex(digits)
    except ValueError:
        return uids
    is_usual = (
        {*map(len, uids)} == {36}
        and text[8::36] == text[13::36] == text[18::36] == text[23::36] == dashes
        and digits == found.hex()
    )
    return msgspec.msgpack.Ext(UIDS, found) if is_usual else uids


def unpacked(uids: Any) -> list[str]:
    if not isinstance(uids, msgspec.msgpack.Ext):
        return msgspec.convert(uids, list[str])
    data = bytes(uids.data)
    found = (data[at : at + 16].hex() for at in range(0, len(data), 16))
    return [f"{uid[:8]}-{uid[8:12]}-{uid[12:16]}-{uid[16:20]}-{uid[20:]}" for uid in found]


def _bytes_of(numbers: "array[int]") -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def numbers_in(data: bytes, size: int = 4) -> list[int]:
    return [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]
