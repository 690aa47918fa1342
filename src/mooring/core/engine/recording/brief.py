"""What a recording says of the pods in its turns: of one that the world knew before, only what moves in its life.

It is noted at the end of a turn, when both rows are at hand: looking for them again would cost more than all the rest.
Many turns become bytes in one go, in columns: that costs a third of making and compressing them one by one.
"""

from collections.abc import Sequence
from itertools import islice, repeat
from typing import Any, Final, cast

import msgspec

from mooring.core.engine.events import Event
from mooring.core.model.cluster import Pod
from mooring.core.model.events import Listed, Seen
from mooring.core.model.instructions import Instruction, Outcome
from mooring.core.model.kinds import Kind

#: In place of an event: the next pod of those that are told in brief, of those that are told as a whole.
BRIEF: Final = None
WHOLE: Final = 0
#: Kinds of bytes that are no records: uids of 16 bytes each, and a byte for each pod.
UIDS, FLAGS = 1, 2


class Moved(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Of a pod that shows something new. `node` None: where it was."""

    node: str | None
    phase: str
    ready: bool
    ready_since: float | None
    deletion_at: float | None
    schedulable: bool


class Batch:
    """Some turns, one after the other."""

    __slots__ = ("_flags", "_moved", "_nodes", "_pods", "count", "turns", "whole")

    def __init__(self) -> None:
        #: When, how many decisions, what came in (a number: so many pods in brief), and what came out.
        self.turns: list[tuple[float, int, int | list[Any], Sequence[Instruction]]] = []
        #: Events in them, and turns.
        self.count = 0
        #: Pods that are told as a whole, and in brief; of these, whether they moved, and those that did.
        self.whole: list[Pod] = []
        self._pods: list[Pod] = []
        self._flags = bytearray()
        self._moved: list[Pod] = []
        self._nodes: list[str | None] = []

    def add(
        self,
        now: float,
        decisions: int,
        events: Sequence[Event],
        instructions: Sequence[Instruction],
        changes: Sequence[Sequence[Any]] | None = None,
    ) -> None:
        """`changes`: what each event did to the world. None: it is told as a whole, since a list of pods is being
        taken in, and others wait behind it."""
        before = len(self._pods)
        if changes is not None:
            for event, changed in zip(events, changes, strict=True):
                if type(event) is not Seen or event.kind is not Kind.POD or not self._brief(event.object, changed):
                    break
        brief = len(self._pods) - before
        taken: int | list[Any] = brief if brief == len(events) else self._taken(brief, events, changes)
        self.count += 1 + len(events)
        self.turns.append((now, decisions, taken, instructions))

    def _taken(self, brief: int, events: Sequence[Event], changes: Sequence[Sequence[Any]] | None) -> list[Any]:
        """Events, and what stands for pods; the first ones are told in `brief` already."""
        taken: list[Any] = [BRIEF] * brief
        briefly = changes is not None
        for event, changed in islice(zip(events, changes or repeat(()), strict=False), brief, None):
            if type(event) is not Seen or event.kind is not Kind.POD:
                # What comes in with these is not what the world knew before the turn.
                briefly = briefly and not isinstance(event, Listed | Outcome)
                taken.append(event)
            elif briefly and self._brief(event.object, changed):
                taken.append(BRIEF)
            else:
                self.whole.append(cast("Pod", event.object))
                taken.append(WHOLE)
        return taken

    def _brief(self, pod: Any, changed: Sequence[Any]) -> bool:
        """Told in brief, if that can be done."""
        if changed:
            old = changed[-1].old
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
                return False
            self._flags.append(1)
            self._moved.append(pod)
            self._nodes.append(None if old.node == pod.node else pod.node)
        else:
            self._flags.append(0)
        self._pods.append(pod)
        return True

    def brief(self) -> tuple[object, ...]:
        """Uids, versions and flags of those told in brief; the columns of those that moved."""
        pods, moved = self._pods, self._moved
        return (
            packed([pod.uid for pod in pods]),
            [pod.resource_version for pod in pods],
            msgspec.msgpack.Ext(FLAGS, bytes(self._flags)),
            self._nodes,
            [pod.phase for pod in moved],
            [pod.ready for pod in moved],
            [pod.ready_since for pod in moved],
            [pod.deletion_at for pod in moved],
            [pod.schedulable for pod in moved],
        )


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
