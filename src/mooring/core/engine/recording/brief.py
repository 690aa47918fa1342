"""What a recording says of the pods in its turns: of one that the world knew before, only what moves in its life.

Of an update of a pod that changes nothing in the world only the version goes: it is late, or all that is new in it is
that version, from which nothing is decided. That is about half of what comes in, and to name its pod would cost more
than all the rest of it.
It is noted as soon as the world has taken a pod in, when both rows are at hand: looking for them again, even at the end
of the turn, would cost more than all the rest.
Many turns become bytes in one go, in columns: that costs a third of making and compressing them one by one.
"""

import sys
from array import array
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mooring.core.engine.events import Event
from mooring.core.engine.intake import LARGE, Note
from mooring.core.model.events import Listed, Seen
from mooring.core.model.instructions import Instruction, Outcome
from mooring.core.model.kinds import Kind

#: In place of an event: the next pod of those that are told in brief, of those that are told as a whole.
BRIEF: Final = None
WHOLE: Final = 0
#: Kinds of bytes that are no records: uids of 16 bytes each, a byte for each pod, a number of four bytes for each, and
#: versions of eight bytes each.
UIDS, FLAGS, NUMBERS, VERSIONS = 1, 2, 3, 4
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
    """Some turns, one after the other. Of pods in brief it holds values and not rows, taken as soon as the world has
    taken the pod in: later each look at a row is a wait for memory."""

    __slots__ = ("_before", "_briefly", "_lists", "_taken", "_told", "_unchanged", "count", "turns", "whole")

    def __init__(self) -> None:
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
        #: Of the turn that is being noted: how much was in `_told`, `whole` and `_unchanged` before it, and what came
        #: in; None: pods in brief.
        self._before = (0, 0, 0)
        self._taken: list[Any] | None = None
        self._briefly, self._lists = True, False

    def begin(self) -> Note:
        """A turn. What was noted of one that did not come to its end is forgotten."""
        if self._taken is not None or self._before != (len(self._told), len(self.whole), len(self._unchanged)):
            self._forget()
        return self.note

    def note(self, event: Event, changed: Sequence[Any]) -> None:
        """What has come in, and what it did to the world."""
        if type(event) is not Seen or event.kind is not Kind.POD:
            self._note_other(event, changed)
            return
        pod: Any = event.object
        if not changed and not self._lists:
            try:
                self._unchanged.append(int(pod.resource_version))
            except (ValueError, OverflowError):  # not as Kubernetes spells it
                self._note_other(event, changed)
            return
        old = changed[-1].old if self._briefly else None
        if (
            old is None
            or old.shape is not pod.shape
            or old.owner is not pod.owner
            or (old.annotations is not pod.annotations and old.annotations != pod.annotations)
            or old.claims != pod.claims
            or old.nominated_node != pod.nominated_node
            or old.is_mirror is not pod.is_mirror
            or old.created_at != pod.created_at
            or old.generate_name != pod.generate_name
        ):
            self._note_other(event, changed)
            return
        self._told += (
            pod.uid,
            pod.resource_version,
            None if old.node == pod.node else pod.node,
            pod.phase,
            pod.ready,
            pod.ready_since,
            pod.deletion_at,
            pod.schedulable,
        )
        if self._taken is not None:
            self._taken.append(BRIEF)

    def _note_other(self, event: Event, changed: Sequence[Any]) -> None:
        if self._taken is None:
            self._taken = [BRIEF] * self._briefly_told()
        # What comes in with these is not what the world knew before the turn; with a long list, it waits behind it.
        self._briefly = self._briefly and not isinstance(event, Listed | Outcome)
        self._lists = self._lists or (isinstance(event, Listed) and len(event.objects) > LARGE)
        if isinstance(event, Outcome) and event.kind is Kind.POD and not changed and not self._lists:
            event = msgspec.structs.replace(event, object=None)  # late: by a version that may have been left out
        self._take(event, self._taken)

    def add(
        self,
        now: float,
        decisions: int,
        events: Sequence[Event],
        instructions: Sequence[Instruction],
        noted: bool = False,
    ) -> None:
        """A turn has ended. Not `noted`: its pods are told as a whole."""
        taken: int | list[Any] = self._briefly_told()
        if not noted:
            taken = []
            for event in events:
                self._take(event, taken)
        elif self._taken is not None:
            taken = self._taken
        self.count += 1 + len(events)
        self.turns.append((now, decisions, taken, instructions, len(self._unchanged) - self._before[2]))
        self._before, self._taken = (len(self._told), len(self.whole), len(self._unchanged)), None
        self._briefly, self._lists = True, False

    def _briefly_told(self) -> int:
        """Pods of this turn so far."""
        return (len(self._told) - self._before[0]) // _WIDTH

    def _take(self, event: Event, taken: list[Any]) -> None:
        """As a whole."""
        if type(event) is Seen and event.kind is Kind.POD:
            self.whole.append(event.object)
            taken.append(WHOLE)
        else:
            taken.append(event)

    def _forget(self) -> None:
        told, whole, unchanged = self._before
        del self._told[told:]
        del self.whole[whole:]
        del self._unchanged[unchanged:]
        self._taken, self._briefly, self._lists = None, True, False

    def brief(self, names: "Names") -> tuple[object, ...]:
        """Names, versions and flags of those told in brief; the columns of what moved."""
        uids, versions, *columns = (self._told[at::_WIDTH] for at in range(_WIDTH))
        moved = msgspec.msgpack.Ext(FLAGS, b"\1" * len(uids))
        return (names.of(uids), versions, moved, *columns)

    def unchanged(self) -> object:
        """Versions of the updates that changed nothing."""
        return msgspec.msgpack.Ext(VERSIONS, _bytes_of(self._unchanged))


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
