"""The home capability: one key per roster. It writes down where members are and holds the seats of those that leave.

The answer to a scheduler is not given here but in `verbs`, on every replica; this is what only the leader does.
"""

from collections.abc import Iterable

from mooring.capabilities.home.explain import words
from mooring.capabilities.home.members import (
    ALLOWED,
    COMPONENT,
    HOLD_SEAT,
    INSTANCE,
    LABEL,
    SET,
    TIDB,
    YES_OR_NO,
    Roster,
    members_of,
    roster_by_key,
)
from mooring.capabilities.home.memory import Place, read_places, recorded
from mooring.capabilities.home.policy import HomePolicy
from mooring.capabilities.home.reserve import resume_seats, seat_subject, steer_seat, want_seat
from mooring.capabilities.home.tracking import Record, patch_of, record
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.decision import Course, Line, Look, Resumed, Running, Verdict
from mooring.core.model.events import Change, Happening, OperatorEnded
from mooring.core.model.instructions import Instruction, Patch, Tell
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import TidbCluster
from mooring.core.queue import Queue
from mooring.core.world.read import WorldRead

#: A record that did not stick (a CRD with a status subresource ignores it) is not written again before this.
AGAIN_S = 60.0
#: So many times before it is told.
TRIES = 2
#: Two members whose seats are on one node take turns.
TURN_S = 5.0


class Home:
    name = "home"
    sources = frozenset({"home"})

    def __init__(self, policy: HomePolicy | None = None) -> None:
        self.policy = policy or HomePolicy()
        #: Roster → the last record asked for, when last, and since when. Soft: keeps a write that does not stick from
        #: spinning, and tells of it.
        self._asked: dict[str, tuple[Record, float, float]] = {}
        #: Member → uid of the pod whose seat somebody took away by hand. Soft: forgotten with the process.
        self._refused: dict[Key, str] = {}

    def touched(self, happening: Happening, world: WorldRead) -> Iterable[str]:
        match happening:
            case Change(kind=Kind.POD, old=old, new=new):
                pod = new if new is not None else old
                assert isinstance(pod, Pod)
                yield from self._rosters_of(pod, world)
            case Change(kind=Kind.TIDB_CLUSTER, key=key):
                yield f"{TIDB}/{key}"
            case Change(kind=Kind.STATEFUL_SET, key=key, old=old, new=new):
                for one in (old, new):
                    if isinstance(one, Workload) and LABEL in one.labels:
                        yield f"{SET}/{key}"
                    if isinstance(one, Workload) and one.labels.get(COMPONENT) == "tidb" and INSTANCE in one.labels:
                        yield f"{TIDB}/{key.namespace}/{one.labels[INSTANCE]}"
            case OperatorEnded(operator=operator):
                yield operator.args["roster"]

    def _rosters_of(self, pod: Pod, world: WorldRead) -> Iterable[str]:
        labels = pod.labels
        if labels.get(COMPONENT) == "tidb" and INSTANCE in labels:
            yield f"{TIDB}/{pod.namespace}/{labels[INSTANCE]}"
        owner = pod.owner
        if owner is not None and owner.kind == "StatefulSet":
            sts = world.workload(Kind.STATEFUL_SET, Key(pod.namespace, owner.name))
            if sts is not None and LABEL in sts.labels:
                yield f"{SET}/{sts.key}"

    def keys(self, world: WorldRead) -> Iterable[str]:
        found = [f"{TIDB}/{tc.key}" for tc in world.tidb_clusters()]
        found += [f"{SET}/{w.key}" for w in world.workloads() if w.kind == "StatefulSet" and LABEL in w.labels]
        return sorted(found)

    def look(self, key: str, world: WorldRead, queue: Queue, now: float) -> Look:
        roster = roster_by_key(key, world, self.policy)
        if roster is None:
            self._asked.pop(key, None)
            return Look(verdict=_misread(key, world))
        pods = members_of(roster, world)
        instructions: list[Instruction] = list(_tell_moves(roster, pods))
        verdict = _misread_keeper(roster)
        if verdict is not None:
            instructions.append(_warn(roster.kind, roster.keeper, verdict))
        again = []
        patch, later = self._write(roster, pods, now)
        if patch is not None:
            instructions.append(patch)
        if later is not None:
            again.append(later)
        verdict = verdict or self._unwritten(roster, now)
        proposals: list[Operator] = []
        for name, pod in pods.items() if roster.holds_seats else ():
            wanted = want_seat(roster, name, pod, world, self.policy, now)
            if isinstance(wanted, Verdict):
                verdict = verdict or wanted
                instructions.append(_warn(Kind.POD, pod, wanted))
            elif wanted is not None and queue.holder(seat_subject(pod.key)) is None and self._free(pod):
                if queue.holder(wanted.claims[1]) is None:
                    proposals.append(wanted)
                else:
                    again.append(now + TURN_S)
        return Look(
            proposals=tuple(proposals),
            instructions=tuple(instructions),
            again_at=min(again, default=None),
            verdict=verdict,
        )

    def _write(self, roster: Roster, pods: dict[str, Pod], now: float) -> tuple[Patch | None, float | None]:
        found = record(roster, pods, self.policy, now)
        patch = patch_of(roster, found)
        if patch is None:
            self._asked.pop(roster.key, None)
            return None, found.again_at
        record_, at, since = self._asked.get(roster.key, (None, now, now))
        if record_ == found and now < at + AGAIN_S:
            return None, at + AGAIN_S
        self._asked[roster.key] = (found, now, since if record_ == found else now)
        return patch, found.again_at

    def _unwritten(self, roster: Roster, now: float) -> Verdict | None:
        """The same record, asked for again and again, and never there."""
        _, at, since = self._asked.get(roster.key, (None, now, now))
        if at - since < TRIES * AGAIN_S:
            return None
        return Verdict(
            State.HELD,
            Reason.MISCONFIGURED,
            f"where the members of {roster.keeper.key} are has not been written down for {at - since:.0f} s",
            "mooring doctor; may it patch the object, and is there room in it?",
        )

    def steer(self, running: Running, world: WorldRead, queue: Queue, now: float) -> Course:
        course = steer_seat(running, world, self.policy, now)
        if course.end is not None and course.end.reason is Reason.WITHDRAWN:
            namespace, _, name = running.operator.args["pod"].partition("/")
            pod = world.pod(Key(namespace, name))
            if pod is not None:
                self._refused[pod.key] = pod.uid
        return course

    def _free(self, pod: Pod) -> bool:
        """Not one whose seat was taken away: what a person removed is not put back for the same pod."""
        if self._refused.get(pod.key, pod.uid) != pod.uid:
            del self._refused[pod.key]
        return pod.key not in self._refused

    def resume(self, world: WorldRead, now: float) -> Iterable[Resumed]:
        return resume_seats(world, now)

    def waits_for(self, world: WorldRead) -> Iterable[str]:
        return ()

    def words(self, subject: str, world: WorldRead, queue: Queue, now: float) -> Iterable[Line]:
        return words(subject, world, self.policy)


def _misread(key: str, world: WorldRead) -> Verdict | None:
    """A StatefulSet whose label says neither yes nor no has no home, and is told so."""
    kind, _, rest = key.partition("/")
    namespace, _, name = rest.partition("/")
    sts = world.workload(Kind.STATEFUL_SET, Key(namespace, name)) if kind == SET else None
    said = sts.labels.get(LABEL) if sts is not None else None
    if said is None or said in ALLOWED:
        return None
    return Verdict(State.HELD, Reason.MISCONFIGURED, f"{LABEL}={said!r} is not known", f"one of {', '.join(ALLOWED)}")


def _misread_keeper(roster: Roster) -> Verdict | None:
    """A label that says neither yes nor no acts as if it were not there, and is told."""
    said = {LABEL: ALLOWED if roster.is_tidb else None, HOLD_SEAT: YES_OR_NO}
    for label, allowed in said.items():
        value = roster.keeper.labels.get(label)
        if value is not None and allowed is not None and value not in allowed:
            detail = f"label {label}={value!r} is not known, and acts as if it were not there"
            return Verdict(State.HELD, Reason.MISCONFIGURED, detail, f"one of {', '.join(allowed)}")
    return None


def _tell_moves(roster: Roster, pods: dict[str, Pod]) -> Iterable[Instruction]:
    """A member that landed elsewhere, told once, on the pod."""
    places = read_places(roster.keeper.annotations)
    for name, pod in pods.items():
        before, left = recorded(roster, name, places), places.get(name, Place()).left
        before = before or left
        if pod.node and not pod.terminating and before and before != pod.node:
            how = "was moved off" if left == before else "could not go back to"
            yield Tell(
                kind=Kind.POD,
                key=pod.key,
                uid=pod.uid,
                reason=Reason.HOME_ABSENT,
                message=f"{name} {how} {before}; {pod.node} is its home from now on",
            )


def _warn(kind: Kind, obj: Pod | TidbCluster | Workload, verdict: Verdict) -> Instruction:
    return Tell(
        kind=kind,
        key=obj.key,
        uid=obj.uid,
        reason=Reason.MISCONFIGURED,
        message=f"{verdict.detail}; {verdict.remedy}",
        warning=True,
    )
