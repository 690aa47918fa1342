"""Taking leaders off a store and keeping them off: the state machine of the `evict-leaders` operator.

    recorded ──► evicting ──► proven empty ──► (restart deletes the pod) ──► new pod Ready, store Up ──► ended
       │            │              │                                                                      ▲
       │            ▼              ▼                                                                      │
       └── annotation removed · expired · timeout · store id changed · scaled in · one store · stuck ─────┘
                            each way out: scheduler removed from PD, then mark and status entry cleared

`next_eviction_step` is a pure function of what is observed. Each call finds its place in the diagram, so a crash at
any point resumes: the mark says what was begun, PD says what is on, the pod says whether it is back.

    mark absent ............................ write it (compare-and-swap), with what PD evicted before us
    mark there, scheduler absent ........... add it
    scheduler there, leaders left .......... look again
    proven empty ........................... hold; `restart` follows when the request is to delete the pod
    pod is another one, Ready, store Up .... end
"""

from collections.abc import Mapping, MutableMapping
from typing import Final

import msgspec

from mooring.capabilities.drain.leaders import LOOK_AT_LEADERS, quorum_at_risk
from mooring.capabilities.handoff.eviction_exits import asks_again, leave, reason_to_end
from mooring.capabilities.handoff.facts import evicting_target
from mooring.capabilities.handoff.operators import EVICT, HOLD, marks_of, put_mark, tikv_payload
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.proof import absent_at, disproof, prove, recheck_reason
from mooring.capabilities.handoff.requests import DELETE_POD
from mooring.capabilities.handoff.situation import (
    Situation,
    awaited,
    is_back,
    marked_at,
    observe,
    other_evictions,
    pd_wait,
    release_lock,
)
from mooring.core.model.decision import PD_NOT_SEEN, PD_NOT_SURE, NextStep, OperatorRecord, PdRefresh, Verdict
from mooring.core.model.instructions import AddEvictLeader, EmitEvent, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import GAVE_UP, Mark
from mooring.core.model.operator import StepKind
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdView
from mooring.core.model.times import rfc3339
from mooring.core.world.read import PdLook, WorldRead

# ── Progress ────────────────────────────────────────────────────────────────────────────────────────────────────────
#
# How far an eviction has come: leaders gone, their pace, and how long the rest will take.
#
# The pace is that of the whole way, which PD's limits keep even. It says nothing about leaders that do not move at all,
# so once none has left for a while no estimate is given, and how long that has been is a figure of its own.

#: So long without one leader less and the pace so far promises nothing.
STILL_S: Final = 60.0
#: So long on a node that has to be emptied, and a person must look.
KEPT_S: Final = 600.0


class Pace(msgspec.Struct, frozen=True, gc=False):
    left: int
    gone: int
    rate_per_s: float | None = None
    estimate_s: float | None = None
    #: Since when no leader has left, where that is long; else None.
    still_s: float | None = None

    @property
    def words(self) -> str:
        text = f"{self.gone} of {self.gone + self.left} leaders gone"
        if self.rate_per_s is None or self.estimate_s is None:
            return text
        return f"{text}, {self.rate_per_s:.1f}/s, about {span(self.estimate_s)} more"

    @property
    def stuck(self) -> str:
        """None has left for long: said as what it is; "" while they go."""
        if self.still_s is None:
            return ""
        return (
            f"{self.left} leaders left, and none has gone for {span(self.still_s)}: "
            "their regions may have no other healthy replica"
        )


def note_leaders(notes: MutableMapping[str, float], leaders: int, seen_at: float) -> None:
    """Remember one look at the store. More leaders than ever: it begins again."""
    if "first_leaders" not in notes or leaders > notes["first_leaders"]:
        notes["first_leaders"], notes["first_at"] = float(leaders), seen_at
        notes["fewest"], notes["fewest_at"] = float(leaders), seen_at
    if leaders < notes["fewest"]:
        notes["fewest"], notes["fewest_at"] = float(leaders), seen_at
    notes["leaders"], notes["last_at"] = float(leaders), seen_at


def pace_of(notes: Mapping[str, float]) -> Pace | None:
    """None: no look has shown a leader yet."""
    if "first_leaders" not in notes:
        return None
    left, gone = int(notes["leaders"]), int(notes["first_leaders"] - notes["leaders"])
    elapsed, still = notes["last_at"] - notes["first_at"], notes["last_at"] - notes["fewest_at"]
    if still >= STILL_S:
        return Pace(left, gone, still_s=still)
    if gone <= 0 or elapsed <= 0:
        return Pace(left, gone)
    rate = gone / elapsed
    return Pace(left, gone, rate, left / rate)


def span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


#: A look this old still shows which evictions were there before ours; without requests PD is read once a minute.
FRESH_S = 2.0
#: In a mark: another client put the scheduler there, and removes it.
THEIRS: Final = {"evicting": "true"}


def next_eviction_step(
    running: OperatorRecord, world: WorldRead, policy: HandoffPolicy, now: float, *, restarting: bool = False
) -> NextStep:
    here = observe(running, world, policy, now, restarting=restarting)
    return msgspec.structs.replace(_next(here, world), notes=here.notes)


def _next(here: Situation, world: WorldRead) -> NextStep:
    if here.marks is None:
        return unreadable(here)
    if here.mark is not None and not here.never_added:
        here.notes["not_ours" if here.not_ours else "ours"] = 1.0
    if here.holds_lock and not here.restarting and not _expects_pod(here):
        return release_lock(here, here.running.step)
    end = reason_to_end(here)
    if end is not None:
        return leave(here, end)
    if _expects_pod(here):
        return _await_pod(here, world)
    if here.lost or here.look is None or here.view is None:
        return pd_wait(here, here.lost or PD_NOT_SEEN)
    if here.view.evicting is None:
        return pd_wait(here, PD_NOT_SURE)
    if here.mark is None:
        if here.seen_at < here.running.promoted_at - FRESH_S:
            # Read now which evictions are there before ours: the last look may be older than a person's pd-ctl command.
            return NextStep(step=EVICT, refreshes=(PdRefresh(here.cluster, here.now),))
        return _record(here, here.look)
    sooner = _sooner(here)
    if sooner is not None:
        return sooner
    if here.store_id not in here.view.evicting:
        if here.seen_at <= here.running.acted_at:
            return NextStep(step=EVICT, refreshes=(PdRefresh(here.cluster, here.now),))
        return _add(here, here.look, EVICT, f"takes the leaders off store {here.store_id}")
    if here.never_added and not here.not_ours:
        swap = _owned(here, THEIRS, "another client added its evict-leader scheduler first")
        return NextStep(step=EVICT, instructions=(swap,))
    return _watch_leaders(here, here.look)


# ── On the way ────────────────────────────────────────────────────────────────────────────────────────────────────


def _record(here: Situation, look: PdLook) -> NextStep:
    """Write down what is about to begin, and what PD evicted before us."""
    assert here.tc is not None
    operator = here.running.operator
    if here.pod is None or here.request is None:
        # Its restart has been released, and the mark was taken away together with the request: that one ends first.
        return pd_wait(here, Verdict(State.WAITING, Reason.WITHDRAWN, "the mark and the request are gone"))
    others = [
        name
        for tc in here.sharing or (here.tc,)
        for name, mark in (marks_of(tc) or {}).items()
        if (tc.key, name) != (here.cluster, here.name) and _holds_eviction(mark)
    ]
    if others and operator.phases[0].get(evicting_target(tikv_payload(operator).pd)):
        # Written by another replica while two acted as leader: its mark is on the object that both must swap.
        return pd_wait(
            here, Verdict(State.WAITING, Reason.BEHIND, f"{', '.join(sorted(others))} is marked as handing over")
        )
    there = here.store_id in (look.view.evicting or ())
    again_at = None if there else absent_at(look, here.policy)
    if again_at is not None:
        return NextStep(step=EVICT, refreshes=(PdRefresh(here.cluster, again_at),))
    mark = Mark(
        operator=operator.id,
        source=operator.source,
        reason=operator.reason,
        detail=operator.detail,
        step=StepKind.EVICT_LEADERS,
        since=here.now,
        pod_uid=here.pod.uid,
        pod_create_time=rfc3339(here.pod.created_at),
        store_id=here.store_id,
        node=here.pod.node,
        value=here.request.value,
        deadline=operator.deadline,
        before=THEIRS if there and "added" not in here.notes else {},
        pd=look.view.life,
        pd_id=str(look.view.cluster_id or ""),
    )
    here.notes[marked_at(mark.since)] = 1.0
    then = (
        "then the pod is deleted" if here.request.value == DELETE_POD else "and stay off while the annotation is there"
    )
    begins = EmitEvent(
        kind=Kind.POD,
        key=here.pod.key,
        uid=here.pod.uid,
        reason=operator.reason,
        message=f"leaders leave store {here.store_id} ({operator.detail}), {then}",
    )
    return NextStep(
        step=EVICT,
        instructions=(
            put_mark(here.tc, here.marks or {}, here.name, mark, "marks the hand-over"),
            begins,
        ),
    )


def _sooner(here: Situation) -> NextStep | None:
    """A notice has reached a pod that was asked away already: the earlier deadline counts, and the mark says so."""
    assert here.tc is not None
    assert here.mark is not None
    if here.request is None or not here.request.is_sooner_than(here.mark.deadline):
        return None
    mark = msgspec.structs.replace(here.mark, deadline=here.request.deadline, reason=Reason.DEADLINE)
    write = put_mark(
        here.tc, here.marks or {}, here.name, mark, "its node is interrupted: the mark takes that deadline"
    )
    return NextStep(step=here.running.step, instructions=(write,))


def _add(here: Situation, look: PdLook, step: int, why: str) -> NextStep:
    """PD does not evict that store (any more). Where a scheduler of another client is gone, the one added now is
    Mooring's to remove, and the mark says so first."""
    phase = 1 if step == HOLD else None
    again_at = absent_at(look, here.policy)
    if again_at is not None:
        return NextStep(step=step, phase=phase, refreshes=(PdRefresh(here.cluster, again_at),))
    if here.not_ours:
        swap = _owned(here, {}, "the scheduler that was there before is gone")
        return NextStep(step=step, phase=phase, instructions=(swap,))
    here.notes["added"] = 1.0
    here.notes.pop("removed_at", None)  # that was the one before: this one is to be removed again
    add = AddEvictLeader(cluster=here.cluster, store_id=here.store_id, why=why)
    return NextStep(step=step, phase=phase, instructions=(add,), refreshes=(PdRefresh(here.cluster, here.now + 1.0),))


def _owned(here: Situation, before: Mapping[str, str], why: str) -> Patch:
    """The mark, saying whose the scheduler is."""
    assert here.tc is not None
    assert here.mark is not None
    mark = msgspec.structs.replace(here.mark, before=before)
    return put_mark(here.tc, here.marks or {}, here.name, mark, why)


def _watch_leaders(here: Situation, look: PdLook) -> NextStep:
    assert here.mark is not None
    notes, view = here.notes, look.view
    doubted = disproof(view, here.store_id, here.now, here.policy)
    if doubted is not None:
        notes.pop("zero_at", None)
        if doubted.leaders is None:
            return pd_wait(here, Verdict(State.WAITING, doubted.reason, doubted.detail))
        note_leaders(notes, doubted.leaders, here.seen_at)
        pace = pace_of(notes)
        notes.pop("estimate_s", None)
        if pace is not None and pace.estimate_s is not None:
            notes["estimate_s"] = pace.estimate_s
        return NextStep(
            step=EVICT,
            progress=pace.words if pace is not None else "",
            figure=float(doubted.leaders),
            waiting_on=_stuck(here, view, pace) if pace and pace.still_s is not None else None,
            refreshes=(PdRefresh(here.cluster, here.now + here.policy.recheck_s),),
        )
    if here.running.step == HOLD:
        return _hold(here)
    proven_at = prove(notes, look, here.mark.pd, here.now, here.policy)
    if proven_at is not None:
        return NextStep(
            step=EVICT,
            progress=f"0 leaders left; {recheck_reason(here.notes, proven_at, here.policy)}",
            refreshes=(PdRefresh(here.cluster, proven_at),),
        )
    return _hold(here)


def _stuck(here: Situation, view: PdView, pace: Pace) -> Verdict:
    """Leaders do not move. Where leaders are taken off other stores, too, their regions may have nowhere to go."""
    assert here.tc is not None
    # A person who asked gives up when the time is over; who has to empty a node must be told.
    must_leave = here.request is not None and not here.request.may_wait
    state = State.BLOCKED if must_leave and (pace.still_s or 0.0) >= KEPT_S else State.WAITING
    also = ", ".join(one.words for one in other_evictions(here.tc, view, here.store_id, here.sharing))
    detail = f"{pace.stuck}; leaders are taken off {also}, too" if also else pace.stuck
    return Verdict(state, Reason.LEADERS_LEFT, detail, LOOK_AT_LEADERS)


def _hold(here: Situation) -> NextStep:
    waits_for_restart = here.request is not None and here.request.value == DELETE_POD
    if here.stuck is not None and waits_for_restart and not here.restarting:
        return _hold_for_volume(here)
    every = here.policy.recheck_s if waits_for_restart else here.policy.idle_s
    return NextStep(
        step=HOLD,
        phase=1,
        progress="empty, leaders kept off",
        refreshes=(PdRefresh(here.cluster, here.now + every),),
        waiting_on=_kept_by_regions(here) if waits_for_restart and not here.restarting else None,
    )


def _kept_by_regions(here: Situation) -> Verdict | None:
    """Regions need this store for their quorum, and a person has to act: who empties its node must hear of it."""
    if here.view is None or here.pod is None:
        return None
    risk = quorum_at_risk(here.view, here.store_id, here.pod)
    return risk if risk is not None and risk.state is State.BLOCKED else None


def _hold_for_volume(here: Situation) -> NextStep:
    """Empty, and its pod could start on no node, which may last for days: `evicting` is released, after a mark."""
    assert here.tc is not None
    assert here.mark is not None
    assert here.stuck is not None
    given_back = here.mark.step == StepKind.HOLD_EMPTY
    mark = msgspec.structs.replace(here.mark, step=StepKind.HOLD_EMPTY)
    write = put_mark(here.tc, here.marks or {}, here.name, mark, "empty, waits for its volume")
    return NextStep(
        step=HOLD,
        phase=len(here.running.operator.phases) - 1 if given_back else 1,
        instructions=() if given_back else (write,),
        progress="empty, leaders kept off; waits for its volume",
        refreshes=(PdRefresh(here.cluster, here.now + here.policy.recheck_s),),
        waiting_on=Verdict(State.BLOCKED, Reason.LOCAL_VOLUME, here.stuck.detail, here.stuck.remedy),
    )


def _await_pod(here: Situation, world: WorldRead) -> NextStep:
    """Leaders stay away until the new pod is Ready and its store is Up."""
    pod = here.pod
    if here.look is not None and _ended_by_others(here):
        return _add(here, here.look, HOLD, f"keeps the leaders off store {here.store_id}")
    if pod is not None and not pod.node and pod.uid != here.asked_uid and asks_again(here):
        here.notes["born_asking"] = 1.0  # a pod is not annotated by hand before it has a node
    waiting_on = None if is_back(here) else awaited(here, world)
    return NextStep(
        step=HOLD,
        phase=1,
        progress=waiting_on.detail if waiting_on is not None else "back",
        refreshes=(PdRefresh(here.cluster, here.now + min(5.0, here.policy.recheck_s)),),
        waiting_on=waiting_on,
    )


# ── Small questions ───────────────────────────────────────────────────────────────────────────────────────────────


def _expects_pod(here: Situation) -> bool:
    """The pod that was asked about is gone, by us or by others: its successor decides."""
    return here.begun or here.pod is None or here.pod.uid != here.asked_uid


def _ended_by_others(here: Situation) -> bool:
    """Another client ended our eviction while the pod is away (tidb-operator does, after an upgrade)."""
    view, mark = here.view, here.mark
    if view is None or here.lost or view.evicting is None or mark is None or not here.begun:
        return False
    if here.store_id in view.evicting:
        return False
    return here.seen_at > here.running.acted_at and any(s.id == here.store_id for s in view.stores)


def _holds_eviction(mark: Mark) -> bool:
    return mark.step not in {GAVE_UP, StepKind.HOLD_EMPTY} and mark.value == DELETE_POD


def unreadable(here: Situation) -> NextStep:
    resource = here.tc.resource if here.tc is not None else "tc"
    detail = "annotation mooring.dev/handoff cannot be read; left alone"
    remedy = f"kubectl -n {here.cluster.namespace} annotate {resource} {here.cluster.name} mooring.dev/handoff-"
    waiting_on = Verdict(State.BLOCKED, Reason.MISCONFIGURED, detail, remedy)
    return NextStep(step=here.running.step, waiting_on=waiting_on, again_at=here.now + here.policy.recheck_s)
