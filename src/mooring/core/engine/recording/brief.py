"""What a recording says of the events of a turn: of a pod that the world knew before, only what moves in its life.

It is put together while the events are taken in: both rows are at hand then, and looking at them again later would cost
more than all the rest of recording an event. It becomes bytes later, a whole turn in one go.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mooring.core.engine.events import Event
from mooring.core.model.events import Listed, Seen
from mooring.core.model.instructions import Outcome
from mooring.core.model.kinds import Kind

#: How the two begin in a recording.
MOVED: Final = "m"
SAME: Final = "v"


class Moved(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=MOVED):
    uid: str
    resource_version: str
    #: None: where it was.
    node: str | None
    phase: str
    ready: bool
    ready_since: float | None
    deletion_at: float | None
    schedulable: bool


class Same(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=SAME):
    """A version that shows nothing new."""

    uid: str
    resource_version: str


#: Else the event is told as a whole.
Brief = Moved | Same
BRIEF: Final = frozenset({Moved, Same})


class Told:
    """The events of a turn, as they are to be told."""

    __slots__ = ("_briefly", "events")

    def __init__(self, *, briefly: bool) -> None:
        """`briefly`: not while a list of pods is being taken in, and others wait behind it."""
        self._briefly = briefly
        self.events: list[Event | Brief] = []

    def add(self, event: Event, changes: Sequence[Any]) -> None:
        """`changes`: what it did to the world."""
        if type(event) is Seen:
            if self._briefly and event.kind is Kind.POD:
                self.events.append(brief(event.object, changes) or event)
                return
        elif isinstance(event, Listed | Outcome):
            self._briefly = False  # what came in with it is not what the world knew before the turn
        self.events.append(event)


def brief(pod: Any, changes: Sequence[Any]) -> Brief | None:
    """None: it is to be told as a whole."""
    if not changes:
        return Same(pod.uid, pod.resource_version)
    old = changes[-1].old
    if (
        old is None
        or old.shape is not pod.shape
        or old.owner is not pod.owner
        or old.annotations != pod.annotations
        or old.claims != pod.claims
        or old.nominated_node != pod.nominated_node
        or old.is_mirror is not pod.is_mirror
        or old.created_at != pod.created_at
        or old.generate_name != pod.generate_name
    ):
        return None
    node = None if old.node == pod.node else pod.node
    version, since = pod.resource_version, pod.ready_since
    return Moved(pod.uid, version, node, pod.phase, pod.ready, since, pod.deletion_at, pod.schedulable)
