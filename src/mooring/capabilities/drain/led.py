"""What systems with leaders said when they were last asked: an index of the world, read by handoff and by the gate."""

from typing import Final

import msgspec

from mooring.capabilities.drain.readiness import subject_of
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.decision import Verdict
from mooring.core.model.events import Change, LeadersSeen, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import DRIVERS, LEADERS, LeaderView, driver_of
from mooring.core.model.reasons import Reason, State
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


def refused(workload: Workload, pod: Pod) -> Verdict | None:
    """Why nothing of this system is restarted, whatever is asked, until a person acts."""
    driver, sts = driver_of(workload), f"kubectl -n {workload.namespace}"
    if driver not in DRIVERS:
        shown = "".join(c for c in driver[:40] if c.isprintable())
        words = f"{LEADERS}={shown!r} of {workload.name} names no driver; nothing of it is restarted"
        fix = f"{sts} annotate sts {workload.name} --overwrite {LEADERS}={'|'.join(DRIVERS)}"
        return Verdict(State.BLOCKED, Reason.MISCONFIGURED, words, fix, subject_of(pod))
    if workload.replicas < 2:
        words = f"{pod.name} is the only member: its leadership has nowhere to go"
        return Verdict(
            State.BLOCKED, Reason.QUORUM, words, f"{sts} scale sts {workload.name} --replicas=3", subject_of(pod)
        )
    return None


def kept(pod: Pod, workload: Workload, world: WorldRead) -> Verdict | None:
    """What would be lost if it went now, by what its system says; None: nothing, or it does not say."""
    look = look_at(workload, world)
    member = look.view.member(pod.name) if look.view is not None and not look.lost else None
    if look.view is None or member is None:
        return None
    if member.leaders:
        return Verdict(State.BLOCKED, Reason.LEADERS_LEFT, f"{pod.name} leads {workload.name}")
    others = len(look.view.others(pod.name))
    if others < look.view.needs:
        words = f"without {pod.name} {others} members of {workload.name} are well, of {look.view.needs} needed"
        return Verdict(State.BLOCKED, Reason.QUORUM, words)
    return None
