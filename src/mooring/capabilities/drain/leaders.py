"""Can the leaders of a TiKV pod go anywhere? Where no other store may lead what it leads, no eviction ever ends."""

from typing import Final

from mooring.capabilities.drain.component import component_of, led_set
from mooring.capabilities.drain.led import refused
from mooring.capabilities.drain.readiness import subject_of
from mooring.core.model.cluster import Pod
from mooring.core.model.decision import Verdict
from mooring.core.model.marks import HANDOFF, read_marks
from mooring.core.model.placement import Placement
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdView, Store, TidbCluster
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead

#: When leaders do not move.
LOOK_AT_LEADERS: Final = (
    "pd-ctl region check down-peer, pending-peer or miss-peer; pd-ctl config show (leader-schedule-limit)"
)


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
    return nowhere or _standing_still(f"store/{member.cluster}/{store.id}", queue)


def _taken_off_the_others(tc: TidbCluster, view: PdView, store: Store) -> Verdict | None:
    """A person keeps leaders off the other stores. What Mooring or tidb-operator does there ends by itself."""
    if others_take_leaders(view, store.id) or tc.operator_evict_leader or tc.tikv_phase == "Upgrade":
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
