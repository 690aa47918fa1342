"""What is observed of one TiKV member, gathered once per question: its pod, mark, request, and what PD reports about
it."""

from collections.abc import Sequence

import msgspec

from mooring.capabilities.drain.room import StuckVolume, stuck_volume
from mooring.capabilities.handoff.facts import lock_id
from mooring.capabilities.handoff.operators import DELETING, marks_of, tikv_payload
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.requests import DELETE_POD, Request, request_of
from mooring.core.model.cluster import Key, Pod
from mooring.core.model.decision import NextStep, OperatorRecord, PdRefresh, Verdict
from mooring.core.model.instructions import ReleasePdLock
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import GAVE_UP, Mark
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdView, Store, TidbCluster
from mooring.core.world.members import other_on, sharing_pd
from mooring.core.world.read import PdLook, WorldRead

#: An operator of these was read from a mark: it had begun.
FROM_MARKS = frozenset({Reason.RESUMED, Reason.SWEPT})


class Situation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is observed of one member, gathered once per call, and the operator that asks."""

    running: OperatorRecord
    policy: HandoffPolicy
    #: What the operator remembers: a copy, answered as `NextStep.notes`.
    notes: dict[str, float]
    cluster: Key
    name: str
    store_id: int
    asked_uid: str
    tc: TidbCluster | None
    marks: dict[str, Mark] | None
    pod: Pod | None
    request: Request | None
    look: PdLook | None
    lost: Verdict | None
    #: Its restart has been released and not ended: the restart decides about the pod now.
    restarting: bool
    #: Its volumes let the pod start on no node. Computed only while it is to be deleted.
    stuck: StuckVolume | None
    #: Since when a successor is seen to be Ready, by our own clock: the API server's may be another. None: it is not.
    ready_at: float | None
    #: Its controller will create it again: it is in the spec, or its StatefulSet still counts it.
    wanted: bool
    now: float
    #: The TidbClusters that use this one's PD, with itself.
    sharing: tuple[TidbCluster, ...] = ()
    #: Where this one is gone: another that uses its PD, and shows it.
    other: Key | None = None

    @property
    def lock_id(self) -> str:
        return lock_id(Key(self.cluster.namespace, self.name), self.asked_uid)

    @property
    def holds_lock(self) -> bool:
        """PD's maintenance lock is held for the restart of this very pod, by the last look."""
        view = self.view
        return view is not None and not self.lost and view.lock is not None and view.lock.id == self.lock_id

    @property
    def view(self) -> PdView | None:
        return self.look.view if self.look is not None else None

    @property
    def seen_at(self) -> float:
        return self.look.at if self.look is not None else 0.0

    @property
    def mark(self) -> Mark | None:
        """What is under way by the mark. The memory of something given up is not."""
        found = self.marks.get(self.name) if self.marks else None
        return found if found is not None and found.step != GAVE_UP else None

    @property
    def not_ours(self) -> bool:
        """The scheduler was there before ours, and has not been removed since."""
        return self.mark is not None and self.mark.before.get("evicting") == "true"

    @property
    def never_added(self) -> bool:
        """This operator wrote the mark, and added no scheduler since: one that PD lists is another client's. The mark
        is known by its moment: a replica that led before may have given its operator the same number."""
        if self.mark is None or "added" in self.notes:
            return False
        return marked_at(self.mark.since) in self.notes

    @property
    def begun(self) -> bool:
        """The pod is leaving or has left, and the mark says that it was us."""
        if self.mark is None or self.mark.step != DELETING:
            return False
        return self.pod is None or self.pod.uid != self.asked_uid or self.pod.terminating

    @property
    def store(self) -> Store | None:
        """The store that this pod is, as PD has it now; it may be another one than was asked about."""
        return self.view.store_of(self.tc, self.name) if self.view is not None and self.tc is not None else None


def marked_at(since: float) -> str:
    """The note of an operator that it wrote a mark at that moment, whether or not the write was answered."""
    return f"marked {since}"


def observe(
    running: OperatorRecord, world: WorldRead, policy: HandoffPolicy, now: float, *, restarting: bool = False
) -> Situation:
    payload = tikv_payload(running.operator)
    namespace, _, name = payload.pod.partition("/")
    cluster = Key(namespace, payload.cluster.partition("/")[2])
    tc = world.tidb_cluster(cluster)
    other = other_on(world, payload.pd) if tc is None else None
    pod = world.pod(Key(namespace, name))
    request = request_of(pod, leave_to_tidb_operator=policy.leaves_all) if pod is not None else None
    notes = dict(running.notes)
    _note_ready(notes, pod if pod is not None and pod.uid != payload.uid else None, now)
    deletes = pod is not None and request is not None and request.value == DELETE_POD and not pod.terminating
    return Situation(
        running=running,
        policy=policy,
        notes=notes,
        cluster=cluster,
        name=name,
        store_id=payload.store_id,
        asked_uid=payload.uid,
        tc=tc,
        marks=marks_of(tc) if tc is not None else {},
        pod=pod,
        request=request,
        look=world.pd_look(other or cluster),
        lost=world.pd_lost(other or cluster),
        restarting=restarting,
        stuck=stuck_volume(pod, world) if deletes and pod is not None else None,
        ready_at=notes.get("ready_at"),
        wanted=_wanted(name, tc, world),
        now=now,
        sharing=sharing_pd(world, cluster),
        other=other,
    )


def _wanted(name: str, tc: TidbCluster | None, world: WorldRead) -> bool:
    # The name may come from a mark, which is untrusted input.
    if tc is None or not tc.may_have(name, "tikv"):
        return False
    if tc.v2:
        return is_short(tc, "tikv", len(world.tidb_pods(tc.key, "tikv")))
    ordinal, ordinals = name.removeprefix(f"{tc.name}-tikv-"), tc.ordinals("tikv")
    if ordinals is None or int(ordinal) in ordinals:
        return True
    # More than the spec says: tidb-operator's failover, or a scale-in that has not come to this one yet.
    sts = world.workload(Kind.STATEFUL_SET, Key(tc.namespace, f"{tc.name}-tikv"))
    return sts is not None and sts.ordinals_start <= int(ordinal) < sts.ordinals_start + sts.replicas


def is_short(tc: TidbCluster, component: str, pods: int) -> bool:
    """Whether tidb-operator v2 has one more member to create; where it does not say how many, it has."""
    wanted = tc.wanted(component)
    return wanted is None or pods < wanted


def _note_ready(notes: dict[str, float], successor: Pod | None, now: float) -> None:
    """A replica that saw it become Ready knows when. One that finds it so (a new leader) takes the API server's moment,
    or it would begin to wait again; but none that is yet to come."""
    if successor is None or not successor.ready or successor.terminating:
        notes["away"] = 1.0
        notes.pop("ready_at", None)
    elif "ready_at" not in notes:
        said = None if "away" in notes else successor.ready_since
        notes["ready_at"] = now if said is None else min(now, said)


def is_back(here: Situation) -> bool:
    pod = here.pod
    if pod is None or here.ready_at is None or here.now - here.ready_at < here.policy.min_ready_s:
        return False
    if here.view is None or here.lost or here.seen_at < here.ready_at:
        return False
    store = here.store
    if store is None or store.state != "Up":
        return False
    # A store that has not reported since the new pod began is still the old pod's: Up only until PD notices missing
    # heartbeats.
    return store.last_heartbeat_at is None or store.last_heartbeat_at >= pod.created_at


def awaited(here: Situation, world: WorldRead) -> Verdict:
    """What a member that left still has to do, and what a person could look at or do."""
    pod, name = here.pod, here.name
    look = f"kubectl -n {here.cluster.namespace} describe pod {name}"
    if pod is None:
        detail, remedy = f"{name} is not back yet", ""
    elif pod.uid == here.asked_uid:
        detail, remedy = f"{name} is terminating", ""
        if here.tc is not None and here.tc.v2 and here.store is not None and here.store.leader_count:
            detail = f"{detail}: tidb-operator takes its leaders off, {here.store.leader_count} left"
        node = world.node(pod.node)
        if pod.node and (node is None or node.ready != "True"):
            detail = f"{detail}, and {pod.node} is not there to end it"
            remedy = f"once that machine is surely off: kubectl -n {pod.namespace} delete pod {name} --force"
    elif not pod.node:
        detail, remedy = f"the new {name} has no node yet", look
    elif not pod.ready:
        detail, remedy = f"the new {name} is not Ready yet", look
    else:
        detail, remedy = f"the store of {name} is not Up yet", ""
    return Verdict(State.WAITING, Reason.POD_NOT_READY, detail, remedy)


class Eviction(msgspec.Struct, frozen=True, gc=False):
    """Whose eviction keeps leaders off a store, in words, and what ends it ("" for one of ours)."""

    store: Store
    words: str
    remedy: str


def other_evictions(tc: TidbCluster, view: PdView, store_id: int, sharing: Sequence[TidbCluster]) -> list[Eviction]:
    """Evictions of the other stores, those not by Mooring first: a person must end them."""
    found = []
    ours = {mark.store_id for one in sharing or (tc,) for mark in (marks_of(one) or {}).values() if mark.evicts}
    for store in sorted(view.stores, key=lambda s: s.id):
        if store.id == store_id or store.id not in (view.evicting or ()) or store.state == "Tombstone":
            continue
        name = f"store {store.id} ({store.pod_name})"
        if store.pod_name in tc.operator_evict_leader or tc.tikv_phase == "Upgrade" or tc.updating:
            found.append((0, Eviction(store, f"{name} by tidb-operator", "wait for tidb-operator")))
        elif store.id in ours:
            found.append((1, Eviction(store, f"{name} by Mooring", "")))
        else:
            remedy = f"pd-ctl scheduler remove evict-leader-scheduler-{store.id}"
            found.append((0, Eviction(store, f"{name}, not by Mooring", remedy)))
    return [eviction for _, eviction in sorted(found, key=lambda one: one[0])]


def release_lock(here: Situation, step: int) -> NextStep:
    """The restart is over: PD's maintenance lock goes before anything else ends, or nobody would release it."""
    if here.seen_at <= here.running.acted_at:
        return NextStep(step=step, refreshes=(PdRefresh(here.cluster, here.now),))
    release = ReleasePdLock(cluster=here.cluster, lock_id=here.lock_id, why=f"the restart of {here.name} is over")
    return NextStep(step=step, instructions=(release,), refreshes=(PdRefresh(here.cluster, here.now + 1.0),))


def pd_wait(here: Situation, on: Verdict) -> NextStep:
    """Nothing to do but to look at PD again."""
    return NextStep(
        step=here.running.step,
        waiting_on=on,
        refreshes=(PdRefresh(here.other or here.cluster, here.now + here.policy.recheck_s),),
    )
