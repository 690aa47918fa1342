"""The home capability: one key per set of members. It writes down where they are and reserves the nodes of those that
leave.

The answer to a scheduler is not given here but in `verbs`, on every replica; this is what only the leader does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final

import msgspec

from mooring.capabilities.drain.leaders import component_of
from mooring.capabilities.home.members import (
    ALLOWED,
    LABEL,
    RESERVE_NODE,
    SET,
    TIDB,
    YES_OR_NO,
    MemberSet,
    member_set_by_key,
    members_of,
)
from mooring.capabilities.home.memory import LastBindings, Place, Record, patch_of, read_places, record, recorded
from mooring.capabilities.home.policy import HomePolicy
from mooring.capabilities.home.report import explain
from mooring.capabilities.home.reserve import (
    next_reservation_step,
    propose_reservation,
    reservation_limits,
    reservation_of,
    reservation_subject,
    resumed_reservation,
    room_left,
)
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.decision import Evaluation, Line, NextStep, OperatorRecord, ReadBack, Verdict
from mooring.core.model.events import Change, OperatorChanged, Trigger
from mooring.core.model.instructions import EmitEvent, HarmlessWrite, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import RESERVED_TAINT
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import TidbCluster
from mooring.core.queue import QueueRead
from mooring.core.world.index import Index
from mooring.core.world.members import tidb_member_set
from mooring.core.world.read import WorldRead

#: A record that had no effect (a CRD with a status subresource ignores it) is not written again before this.
RETRY_WRITE_S = 60.0
#: So many times before it is told.
TRIES = 2
#: Two members whose reservations are on one node take turns.
TURN_S = 5.0


NO_LIMITS: Final[Mapping[str, int | None]] = MappingProxyType({})


class AskedRecord(msgspec.Struct, frozen=True):
    """The last record that was asked for, when last, and since when: a write that has no effect must not be repeated in
    a loop."""

    record: Record
    at: float
    since: float


class HomeNotes(msgspec.Struct, frozen=True):
    """Soft memory of one set of members."""

    asked: AskedRecord | None = None
    #: (member, uid) of pods that have had a reservation: what a person removed is not put back for the same pod.
    reserved: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Home:
    name = "home"
    sources = frozenset({"home"})
    remembered = (HomeNotes,)

    policy: HomePolicy = field(default_factory=HomePolicy)

    def affected_keys(self, trigger: Trigger, world: WorldRead) -> Iterable[str]:
        match trigger:
            case Change(kind=Kind.POD, old=old, new=new):
                pod = new if new is not None else old
                assert isinstance(pod, Pod)
                yield from self._keys_of(pod, world)
            case Change(kind=Kind.TIDB_CLUSTER | Kind.TIDB_V2, key=key):
                yield f"{TIDB}/{key}"
            case Change(kind=Kind.STATEFUL_SET, key=key, old=old, new=new):
                for one in (old, new):
                    if isinstance(one, Workload) and LABEL in one.labels:
                        yield f"{SET}/{key}"
                    member = tidb_member_set(one) if isinstance(one, Workload) else None
                    if member is not None and member[1] == TIDB:
                        yield f"{TIDB}/{member[0]}"
            case OperatorChanged(operator=operator):
                yield reservation_of(operator).members

    def _keys_of(self, pod: Pod, world: WorldRead) -> Iterable[str]:
        member = component_of(pod, world)
        if member is not None and member.name == TIDB:
            yield f"{TIDB}/{member.cluster}"
        owner = pod.owner
        if owner is not None and owner.kind == "StatefulSet":
            sts = world.workload(Kind.STATEFUL_SET, Key(pod.namespace, owner.name))
            if sts is not None and LABEL in sts.labels:
                yield f"{SET}/{sts.key}"

    def keys(self, world: WorldRead) -> Iterable[str]:
        found = [f"{TIDB}/{tc.key}" for tc in world.tidb_clusters()]
        found += [f"{SET}/{w.key}" for w in world.workloads() if w.kind == "StatefulSet" and LABEL in w.labels]
        return sorted(found)

    def indexes(self) -> tuple[Index, ...]:
        return (LastBindings(),)

    def evaluate(self, key: str, world: WorldRead, queue: QueueRead, notes: object, now: float) -> Evaluation:
        member_set = member_set_by_key(key, world, self.policy)
        if member_set is None:
            return Evaluation(verdict=_misread(key, world))
        before = notes if isinstance(notes, HomeNotes) else HomeNotes()
        pods = members_of(member_set, world)
        instructions: list[HarmlessWrite] = list(_tell_moves(member_set, pods))
        verdict = _misread_keeper(member_set)
        if verdict is not None:
            instructions.append(_warn(member_set.kind, member_set.keeper, verdict))
        again = []
        patch, later, asked = self._write(member_set, pods, before.asked, now)
        if patch is not None:
            instructions.append(patch)
        if later is not None:
            again.append(later)
        verdict = verdict or _unwritten(member_set, asked)
        proposals: list[Operator] = []
        reserved: set[tuple[str, str]] = set()
        room = room_left(member_set.keeper.namespace, queue, self.policy)
        for name, pod in pods.items() if member_set.reserves_nodes else ():
            wanted = propose_reservation(member_set, name, pod, world, self.policy, now)
            if isinstance(wanted, Verdict):
                verdict = verdict or wanted
                instructions.append(_warn(Kind.POD, pod, wanted))
                continue
            if wanted is None:
                continue
            if (name, pod.uid) in before.reserved or queue.holder(reservation_subject(pod.key)) is not None:
                reserved.add((name, pod.uid))
            elif queue.holder(wanted.claims[1]) is None and len(proposals) < room:
                proposals.append(wanted)
                reserved.add((name, pod.uid))
            else:
                again.append(now + TURN_S)
        return Evaluation(
            proposals=tuple(proposals),
            instructions=tuple(instructions),
            again_at=min(again, default=None),
            verdict=verdict,
            limits=reservation_limits(member_set.keeper.namespace, world, self.policy) if proposals else NO_LIMITS,
            notes=HomeNotes(asked, frozenset(reserved)),
        )

    def _write(
        self, member_set: MemberSet, pods: dict[str, Pod], asked: AskedRecord | None, now: float
    ) -> tuple[Patch | None, float | None, AskedRecord | None]:
        found = record(member_set, pods, self.policy, now)
        patch = patch_of(member_set, found)
        if patch is None:
            return None, found.again_at, None
        if asked is None or asked.record != found:
            return patch, found.again_at, AskedRecord(found, now, now)
        if now < asked.at + RETRY_WRITE_S:
            return None, asked.at + RETRY_WRITE_S, asked
        return patch, found.again_at, AskedRecord(found, now, asked.since)

    def next_step(self, running: OperatorRecord, world: WorldRead, queue: QueueRead, now: float) -> NextStep:
        return next_reservation_step(running, world, self.policy, now)

    def recover(self, world: WorldRead, queue: QueueRead, now: float) -> Iterable[ReadBack]:
        """One walk over the nodes, on becoming leader only."""
        marked = (node for node in world.nodes() if RESERVED_TAINT in node.annotations)
        return [partial(resumed_reservation, node, now) for node in sorted(marked, key=lambda node: node.name)]

    def recovery_needs(self, world: WorldRead) -> Iterable[str]:
        return ()

    def explain(self, subject: str, world: WorldRead, queue: QueueRead, now: float) -> Iterable[Line]:
        return explain(subject, world, self.policy)


def _unwritten(member_set: MemberSet, asked: AskedRecord | None) -> Verdict | None:
    """The same record, asked for again and again, and never there."""
    if asked is None or asked.at - asked.since < TRIES * RETRY_WRITE_S:
        return None
    since_s = asked.at - asked.since
    return Verdict(
        State.BLOCKED,
        Reason.MISCONFIGURED,
        f"where the members of {member_set.keeper.key} are has not been written down for {since_s:.0f} s",
        "may it patch the object, and is there room in it? mooring doctor",
    )


def _misread(key: str, world: WorldRead) -> Verdict | None:
    """A StatefulSet whose label has an unknown value has no home; an Event says so."""
    kind, _, rest = key.partition("/")
    namespace, _, name = rest.partition("/")
    sts = world.workload(Kind.STATEFUL_SET, Key(namespace, name)) if kind == SET else None
    said = sts.labels.get(LABEL) if sts is not None else None
    if said is None or said in ALLOWED:
        return None
    return Verdict(
        State.BLOCKED, Reason.MISCONFIGURED, f"{LABEL}={said!r} is not known", f"one of {', '.join(ALLOWED)}"
    )


def _misread_keeper(member_set: MemberSet) -> Verdict | None:
    """A label with an unknown value acts as if it were not there; an Event says so."""
    said = {LABEL: ALLOWED if member_set.is_tidb else None, RESERVE_NODE: YES_OR_NO}
    for label, allowed in said.items():
        value = member_set.keeper.labels.get(label)
        if value is not None and allowed is not None and value not in allowed:
            detail = f"label {label}={value!r} is not known, and acts as if it were not there"
            return Verdict(State.BLOCKED, Reason.MISCONFIGURED, detail, f"one of {', '.join(allowed)}")
    return None


def _tell_moves(member_set: MemberSet, pods: dict[str, Pod]) -> Iterable[HarmlessWrite]:
    """A member that was scheduled elsewhere: one Event on the pod."""
    places = read_places(member_set.keeper.annotations)
    for name, pod in pods.items():
        before, left = recorded(member_set, name, places), places.get(name, Place()).left
        before = before or left
        if pod.node and not pod.terminating and before and before != pod.node:
            how = "was moved off" if left == before else "could not go back to"
            yield EmitEvent(
                kind=Kind.POD,
                key=pod.key,
                uid=pod.uid,
                reason=Reason.HOME_ABSENT,
                message=f"{name} {how} {before}; {pod.node} is its home from now on",
            )


def _warn(kind: Kind, obj: Pod | TidbCluster | Workload, verdict: Verdict) -> HarmlessWrite:
    return EmitEvent(
        kind=kind,
        key=obj.key,
        uid=obj.uid,
        reason=Reason.MISCONFIGURED,
        message=f"{verdict.detail}; {verdict.remedy}",
        warning=True,
    )
