"""Pods with leaders: which component a pod is, what its system said of its leaders, and whether they can go anywhere.

Where no other store may lead what a TiKV pod leads, no eviction ever ends.
"""

from typing import Final

import msgspec

from mooring.capabilities.drain.readiness import subject_of
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.decision import Verdict
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import DRIVERS, LEADERS, driver_of
from mooring.core.model.marks import HANDOFF, read_marks
from mooring.core.model.placement import Placement
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdView, Store, TidbCluster, v2_component
from mooring.core.queue import QueueRead
from mooring.core.world.leaders import look_at
from mooring.core.world.members import tidb_member
from mooring.core.world.read import WorldRead


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


# ── Components ──────────────────────────────────────────────────────────────────────────────────────────────────────
#
# Which component of which TidbCluster a pod is, by its owner (`core.world.members`), and who may take it away.

#: What handoff takes away: no other capability deletes these.
HANDED_OVER: Final = frozenset({"tikv", "pd"})
#: With tidb-operator v2 no workload keeps the members of TiDB either.
V2_HANDED_OVER: Final = HANDED_OVER | {"tidb"}
#: On a pod of TiKV: restart it although regions lose their quorum while it is away; of PD: although it is the only one.
ALLOW_QUORUM_LOSS: Final = "mooring.dev/allow-quorum-loss"


class Component(msgspec.Struct, frozen=True, gc=False):
    cluster: Key
    #: `tikv`, `pd`, `tidb`, …
    name: str


def component_of(pod: Pod, world: WorldRead) -> Component | None:
    """None: no member of any TidbCluster."""
    member = tidb_member(pod, world)
    return None if member is None else Component(*member)


def is_handed_over(pod: Pod, world: WorldRead) -> bool:
    """A member of TiKV, of PD or of a system with leaders: handoff takes its leaders off and deletes it, no other
    capability does."""
    found = component_of(pod, world)
    if v2_component(pod.owner) is not None:
        return found is not None and found.name in V2_HANDED_OVER
    return found.name in HANDED_OVER if found is not None else led_set(pod, world) is not None


def led_set(pod: Pod, world: WorldRead) -> Workload | None:
    """The StatefulSet whose members have leaders, as its annotation says (L1); None: this is no such member."""
    if pod.owner is None or pod.owner.kind != Kind.STATEFUL_SET:
        return None
    workload = world.workload_of(pod)
    return workload if workload is not None and driver_of(workload) else None


#: When leaders do not move.
LOOK_AT_LEADERS: Final = (
    "pd-ctl region check down-peer, pending-peer or miss-peer; pd-ctl config show (leader-schedule-limit)"
)


def may_be_lost(view: PdView, pod: Pod) -> bool:
    """PD has no other member, and a person accepts to be without it until this one is back."""
    return len(view.members) == 1 and pod.annotations.get(ALLOW_QUORUM_LOSS) == "true"


def others_up(view: PdView, store_id: int) -> bool:
    """Is there another store that could lead?"""
    return any(s.state == "Up" and s.leads and s.id != store_id for s in view.stores)


def others_take_leaders(view: PdView, store_id: int) -> bool:
    """Is there another store whose leaders are not being evicted, too? PD moves nothing when all stores are evicted."""
    evicting = view.evicting or ()
    return any(s.state == "Up" and s.leads and s.id != store_id and s.id not in evicting for s in view.stores)


def stranded(view: PdView, store: Store, name: str) -> Verdict | None:
    """No other store will ever take these leaders, as things are; None: one may, or there are none."""
    if not others_up(view, store.id):
        detail = f"{name} has the only store that is Up: its leaders have nowhere to go"
        return Verdict(State.BLOCKED, Reason.ONE_STORE, detail)
    if store.leader_count and view.placement is not None and _keeps_one_replica(view.placement):
        detail = f"PD keeps one replica of each region: the leaders of {name} have nowhere to go"
        return Verdict(State.BLOCKED, Reason.ONE_STORE, detail, "pd-ctl config set max-replicas 3")
    return None


def _keeps_one_replica(placement: Placement) -> bool:
    """However its rules overlap, no region has a second voter that could lead."""
    return sum(rule.count for rule in placement.rules if rule.role != "learner" and not rule.is_witness) == 1


def quorum_at_risk(view: PdView, store_id: int, pod: Pod) -> Verdict | None:
    """Why the pod may not go although its store has no leaders: with it regions would lose their quorum. None: none
    would, or a person allows it. One that PD has not counted yet is waited for."""
    if pod.annotations.get(ALLOW_QUORUM_LOSS) == "true":
        return None
    count = view.at_risk.get(store_id)
    if count is None:
        detail = f"PD has not said yet how many regions need the store of {pod.name} for their quorum"
        return Verdict(State.WAITING, Reason.PD_UNSURE, detail)
    if not count:
        return None
    regions = "1 region" if count == 1 else f"{count} regions"
    detail = f"{regions} on store {store_id} would lose their quorum without {pod.name}"
    look = "pd-ctl region check miss-peer, down-peer or pending-peer, and wait until PD has restored the replicas"
    force = f"to restart it all the same: kubectl -n {pod.namespace} annotate pod {pod.name} {ALLOW_QUORUM_LOSS}=true"
    return Verdict(State.BLOCKED, Reason.QUORUM, detail, f"{look}; {force}")


def kept_leaders(pod: Pod, world: WorldRead, queue: QueueRead | None) -> Verdict | None:
    """Why a pod with leaders cannot leave until a person acts: its leaders have nowhere to go, or stand still."""
    workload = led_set(pod, world)
    if workload is not None:
        return refused(workload, pod) or _standing_still(subject_of(pod), queue)
    member = component_of(pod, world)
    if member is None or member.name != "tikv" or world.pd_lost(member.cluster):
        return None
    view, tc = world.pd(member.cluster), world.tidb_cluster(member.cluster)
    store = view.store_of(tc, pod.name) if view is not None and tc is not None else None
    if view is None or tc is None or store is None:
        return None
    nowhere = stranded(view, store, pod.name) or _taken_off_the_others(tc, view, store)
    if tc.v2 and nowhere is None:
        # No operator stands for what may not begin, and so none can say it.
        risk = quorum_at_risk(view, store.id, pod)
        nowhere = risk if risk is not None and risk.state is State.BLOCKED else None
    return nowhere or _standing_still(f"store/{member.cluster}/{store.id}", queue)


def _taken_off_the_others(tc: TidbCluster, view: PdView, store: Store) -> Verdict | None:
    """A person keeps leaders off the other stores. What Mooring or tidb-operator does there ends by itself."""
    if others_take_leaders(view, store.id) or tc.operator_evict_leader or tc.tikv_phase == "Upgrade" or tc.updating:
        return None
    marks = (read_marks(tc.annotations.get(HANDOFF, "")) or {}).values()
    ours = {m.store_id for m in marks if m.evicts}
    theirs = sorted(set(view.evicting or ()) - ours - {store.id})
    if not theirs:
        return None
    detail = f"the leaders of {store.pod_name} have nowhere to go: leaders are being taken off every other store"
    return Verdict(
        State.BLOCKED, Reason.ONE_STORE, detail, f"pd-ctl scheduler remove evict-leader-scheduler-{theirs[0]}"
    )


def _standing_still(subject: str, queue: QueueRead | None) -> Verdict | None:
    record = queue.record_of(subject) if queue is not None else None
    says = record.waiting_on if record is not None else None
    return says if says is not None and says.state is State.BLOCKED else None
