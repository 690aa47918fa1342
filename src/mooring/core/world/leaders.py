"""What systems with leaders said when they were last asked: an index of the world, for handoff, gate and page."""

from typing import Final

import msgspec

from mooring.core.model.cluster import Key, Workload
from mooring.core.model.events import Change, LeadersSeen, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LeaderView
from mooring.core.world.read import WorldRead


class LeaderLook(msgspec.Struct, frozen=True, gc=False):
    """The last answer of a system, and whether it was lost since."""

    view: LeaderView | None = None
    #: When that look began; 0: never.
    at: float = 0.0
    #: Why it cannot be read now; "": it can.
    lost: str = ""


NEVER: Final = LeaderLook()


class LeaderViews:
    observes: frozenset[object] = frozenset({LeadersSeen, Kind.STATEFUL_SET})

    def __init__(self) -> None:
        self._looks: dict[Key, LeaderLook] = {}

    def advance(self) -> bool:
        return False

    def adopt(self, other: "LeaderViews") -> None:
        pass

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        match trigger:
            case LeadersSeen(workload=workload, view=None, lost=lost):
                self._looks[workload] = msgspec.structs.replace(self.of(workload), lost=lost or "it does not answer")
            case LeadersSeen(workload=workload, view=view, at=at):
                self._looks[workload] = LeaderLook(view, at)
            case Change(new=None, key=key):
                self._looks.pop(key, None)
            case _:
                pass

    def of(self, workload: Key) -> LeaderLook:
        return self._looks.get(workload, NEVER)

    def kept(self) -> list[tuple[Key, LeaderLook]]:
        return list(self._looks.items())

    def restore(self, kept: list[tuple[Key, LeaderLook]]) -> None:
        self._looks.update(kept)


def look_at(workload: Workload, world: WorldRead) -> LeaderLook:
    return world.index(LeaderViews).of(workload.key)
