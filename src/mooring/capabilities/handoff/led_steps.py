"""What is next for the `restart-led-member` operator.

    asked ──► marked ──► leadership moved ──► seen elsewhere twice, in one life of the system ──► evicted
                │                                └── it came back: moved again, ever more seldom
                └── request withdrawn: released, mark cleared, ended

    evicted ──► new pod Ready ──► healthy and in sync, by the system's own word ──► mark cleared, ended

Before each act the others are counted: as many have to be well as the system needs without this one. A leader that
comes back (a person's switchover, a priority of the system's own) is a fact, not a fight: it is asked ever more seldom,
ten minutes apart in the end, and from the third time on it is told as `blocked`.
"""

from typing import Final

import msgspec

from mooring.capabilities.drain.nodes import RESTART
from mooring.capabilities.drain.readiness import blocked_by_budget, is_ready
from mooring.capabilities.drain.room import stuck_volume
from mooring.capabilities.handoff.led import (
    AWAIT,
    DELETE,
    MOVE,
    away,
    clear_marks,
    marks_of,
    put_mark,
    request_for,
    set_of,
)
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.decision import End, LeadersRefresh, NextStep, OperatorRecord, Verdict
from mooring.core.model.instructions import DeletePod, MoveLeaders, ReleaseLeaders
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LeaderMember, LeaderView, driver_of
from mooring.core.model.reasons import Reason, State
from mooring.core.world.leaders import LeaderLook, look_at
from mooring.core.world.members import members_of, ordinals
from mooring.core.world.read import WorldRead

LOOK_S: Final = 2.0
#: Between two tries to move what one member leads, doubling up to the second; and how often before a person is told.
RETRY_S, LONGEST_RETRY_S, TRIES = 10.0, 600.0, 3


def next_led_step(running: OperatorRecord, world: WorldRead, policy: HandoffPolicy, now: float) -> NextStep:
    payload, key = running.operator.payload, set_of(running.operator)
    namespace, _, name = payload.pod.partition("/")
    workload, pod = world.workload(Kind.STATEFUL_SET, key), world.pod(Key(namespace, name))
    if workload is None:
        return NextStep(step=running.step, end=End(Reason.SUBJECT_GONE, f"StatefulSet {key} is gone"))
    if pod is None or pod.uid != payload.uid or pod.terminating:
        return _await(running, workload, name, pod, world, now)
    marked = name in (marks_of(workload) or {})
    request = request_for(pod) if driver_of(workload) else None
    if running.off or request is None:
        return _give_up(running, workload, pod, marked=marked)
    look = look_at(workload, world)
    view = look.view
    if look.lost or view is None:
        return _wait(running.step, key, Reason.LEADERS_UNREACHABLE, look.lost or "it has not been asked yet", now)
    if look.at <= max(running.promoted_at, running.acted_at):
        return NextStep(step=running.step, refreshes=(LeadersRefresh(key, now),))
    member = view.member(name)
    if member is None:
        words = f"{driver_of(workload)} knows no member {name}: it is not deleted"
        return _wait(MOVE, key, Reason.UNKNOWN, words, now, State.BLOCKED)
    stuck = stuck_volume(pod, world)
    if stuck is not None:
        why = End(Reason.LOCAL_VOLUME, f"not deleted: {stuck.detail}")
        return _give_up(running, workload, pod, marked=marked, why=why)
    kept = _kept(running, workload, member, view, look, world, now)
    if kept is not None:
        return kept
    if not marked:
        return NextStep(step=MOVE, instructions=(put_mark(running.operator, workload, pod, now),))
    if member.leaders:
        return _move(running, workload, pod, view, world, now)
    unproven = _proof(running, key, member, look, policy, now)
    if unproven is not None:
        return unproven
    if not member.may_go:
        words = f"{driver_of(workload)} says that {name} should not stop now: {member.detail or 'it does not say why'}"
        return _wait(DELETE, key, Reason.SETTLING, words, now)
    budget = blocked_by_budget(pod, world)
    if budget is not None:
        return NextStep(step=DELETE, waiting_on=budget, again_at=now + LOOK_S)
    refreshes = (LeadersRefresh(key, now + LOOK_S),)
    if request.prepares:
        ready = Verdict(State.WAITING, Reason.PREPARED, f"{name} leads nothing, and its eviction may take it")
        notes = {**running.notes, "prepared_at": running.notes.get("prepared_at", now)}
        return NextStep(step=DELETE, waiting_on=ready, notes=notes, refreshes=refreshes, again_at=now + LOOK_S)
    evict = DeletePod(key=pod.key, uid=pod.uid, why=f"{name} was asked to leave, and leads nothing")
    return NextStep(step=DELETE, instructions=(evict,), refreshes=refreshes)


def _kept(
    running: OperatorRecord,
    workload: Workload,
    member: LeaderMember,
    view: LeaderView,
    look: LeaderLook,
    world: WorldRead,
    now: float,
) -> NextStep | None:
    """Why nobody of this system goes just now, whatever it leads; None: this one may."""
    key, name = workload.key, member.pod
    if view.busy:
        return _wait(MOVE, key, Reason.SETTLING, view.busy, now)
    others = view.others(name)
    if len(others) < view.needs:
        unwell = [m for m in view.members if m.pod != name and not m.is_well]
        ill = next((f"; {m.pod}: {m.detail or 'not well'}" for m in unwell), "")
        words = f"without {name} {len(others)} of {len(view.members)} members are well, of {view.needs} needed{ill}"
        state = State.BLOCKED if len(view.members) - 1 < view.needs else State.WAITING
        more = f"kubectl -n {key.namespace} scale sts {key.name} --replicas={max(3, workload.replicas + 1)}"
        return _wait(MOVE, key, Reason.QUORUM, words, now, state, more if state is State.BLOCKED else "")
    # What is away already the queue lets begin, and without a leader all seem to be: only one can win the marks.
    begun = min(((mark.since, pod) for pod, mark in (marks_of(workload) or {}).items()), default=(0.0, name))[1]
    if begun != name:
        return _wait(MOVE, key, Reason.FACT, f"{begun} is handed over first", now)
    missing = away(workload, members_of(workload, world), look, now)
    fact = next((one for one in missing if one.subject != running.operator.subject), None)
    return None if fact is None else _wait(MOVE, key, Reason.FACT, fact.detail, now)


def _move(
    running: OperatorRecord, workload: Workload, pod: Pod, view: LeaderView, world: WorldRead, now: float
) -> NextStep:
    """To the first other member that is well, Ready, and on a node that stays; else to one that is well."""
    pods = members_of(workload, world)
    heirs = [m for m in view.others(pod.name) if m.may_lead]
    staying = [m for m in heirs if _stays(pods.get(m.pod), world)]
    if not heirs:
        words = f"no other member can lead instead of {pod.name}"
        remedy = f"make one of the others able to lead: kubectl -n {workload.namespace} get pods -o wide"
        return _wait(MOVE, workload.key, Reason.LEADERS_LEFT, words, now, State.BLOCKED, remedy)
    left = view.member(pod.name)
    leaders = left.leaders if left is not None else 0
    tries, at = int(running.notes.get("tries", 0)), running.notes.get("next_try", 0.0)
    if 0 < leaders < running.notes.get("left", 0.0):
        at = now + RETRY_S  # it gets on: many leaders take their time
    notes = {"tries": float(tries), "next_try": at, "left": float(leaders)}
    if now < at:
        times = f"{tries} time{'' if tries == 1 else 's'}"
        words = f"{pod.name} leads {leaders}, and was asked {times} to give that up"
        state = State.BLOCKED if tries >= TRIES else State.WAITING
        back = f"or take the request back: kubectl -n {pod.namespace} annotate pod {pod.name} {RESTART}-"
        remedy = f"look for what keeps its leadership there (a priority, a person); it is asked again, {back}"
        waits = _wait(MOVE, workload.key, Reason.LEADERS_LEFT, words, now, state, remedy)
        return msgspec.structs.replace(waits, notes=notes, figure=float(leaders))
    heir = (staying or heirs)[0].pod
    notes |= {"tries": tries + 1.0, "next_try": now + min(LONGEST_RETRY_S, RETRY_S * 2 ** min(tries, 10))}
    move = MoveLeaders(workload=workload.key, member=pod.name, to=heir, why=f"moves what {pod.name} leads to {heir}")
    return NextStep(step=MOVE, instructions=(move,), notes=notes, refreshes=(LeadersRefresh(workload.key, now + 1.0),))


def _stays(pod: Pod | None, world: WorldRead) -> bool:
    node = world.node(pod.node) if pod is not None else None
    asked = pod is not None and request_for(pod) is not None
    return pod is not None and pod.ready and not asked and (node is None or not node.unschedulable)


def _proof(
    running: OperatorRecord, key: Key, member: LeaderMember, look: LeaderLook, policy: HandoffPolicy, now: float
) -> NextStep | None:
    """Seen to lead nothing twice, `prove-s` apart, with no election in between; None: proven."""
    assert look.view is not None
    life = float(_fingerprint(look.view.life))
    since = running.notes.get("since")
    notes = dict(running.notes)
    if since is None or notes.get("life") != life:
        notes |= {"since": look.at, "life": life}
        since = look.at
    if look.at - since < max(policy.prove_s, LOOK_S) or look.at < now - LOOK_S * 2:
        words = f"{member.pod} leads nothing; looked at again to be sure"
        at = max(now, since + max(policy.prove_s, LOOK_S))
        return NextStep(step=DELETE, progress=words, notes=notes, refreshes=(LeadersRefresh(key, at),), again_at=at + 1)
    return None


def _fingerprint(text: str) -> int:
    """Of a life, as a number that a note can keep."""
    found = 0
    for byte in text.encode():
        found = (found * 257 + byte) % (1 << 48)
    return found


def _await(
    running: OperatorRecord, workload: Workload, name: str, pod: Pod | None, world: WorldRead, now: float
) -> NextStep:
    key = workload.key
    back = pod is not None and pod.uid != running.operator.payload.uid and not pod.terminating
    gone = name not in {f"{workload.name}-{i}" for i in ordinals(workload)}
    look, driver = look_at(workload, world), driver_of(workload)
    member = look.view.member(name) if look.view is not None and not look.lost else None
    why = End(Reason.SUBJECT_GONE, f"{name} was scaled in")
    if not gone:
        if pod is None or not back or not is_ready(pod, workload, now):
            return _wait(AWAIT, key, Reason.POD_NOT_READY, f"{name} is not back yet", now)
        if driver:
            if look.lost or look.view is None:
                return _wait(AWAIT, key, Reason.LEADERS_UNREACHABLE, look.lost or "it has not been asked yet", now)
            if look.at <= max(running.step_since, pod.ready_since or 0.0) or running.step != AWAIT:
                return NextStep(step=AWAIT, refreshes=(LeadersRefresh(key, now + 1.0),), again_at=now + LOOK_S)
            if member is None or not member.is_well:
                said = member.detail if member is not None else f"{driver} does not know it yet"
                return _wait(AWAIT, key, Reason.FACT, f"{name} is Ready, and not in sync: {said}", now)
        why = End(Reason.DONE, f"{name} is in sync on {pod.node}")
    if name in (marks_of(workload) or {}):
        return NextStep(step=AWAIT, instructions=(clear_marks(workload, {name}, f"{name} is back"),))
    return NextStep(step=AWAIT, end=why)


def _give_up(
    running: OperatorRecord, workload: Workload, pod: Pod, *, marked: bool, why: End | None = None
) -> NextStep:
    """It may stay, and lead again."""
    if marked:
        clear = clear_marks(workload, {pod.name}, f"{pod.name} may stay")
        if not running.notes.get("released") and driver_of(workload):
            release = ReleaseLeaders(workload=workload.key, member=pod.name, why=f"{pod.name} may lead again")
            return NextStep(step=running.step, instructions=(release,), notes={**running.notes, "released": 1.0})
        return NextStep(step=running.step, instructions=(clear,))
    if why is None and running.off:
        why = End(Reason.FEATURE_OFF, "handoff was switched off")
    return NextStep(step=running.step, end=why or End(Reason.WITHDRAWN, "the request was withdrawn"))


def _wait(
    step: int, key: Key, reason: Reason, detail: str, now: float, state: State = State.WAITING, remedy: str = ""
) -> NextStep:
    said, refreshes = Verdict(state, reason, detail, remedy), (LeadersRefresh(key, now + LOOK_S),)
    return NextStep(step=step, waiting_on=said, refreshes=refreshes, again_at=now + LOOK_S)
