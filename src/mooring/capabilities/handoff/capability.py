"""The handoff capability: one key per TidbCluster, two operators per hand-over; one key per other system with leaders.

What takes leaders off a store (`evict-leaders`) and what deletes the pod (`restart-tikv`) are two operators, since the
second needs room that the first does not: `tikv/…` 1 while the member is away. The second is proposed when the first
has proven the store empty. Two pods annotated in the same second wait for each other on `evicting/…`, visibly.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from mooring.capabilities.drain.leaders import component_of, led_set
from mooring.capabilities.handoff import led, outlived
from mooring.capabilities.handoff import member_operators as members
from mooring.capabilities.handoff.eviction import next_eviction_step
from mooring.capabilities.handoff.facts import evicting_target, pd_name, store_target, tikv_target
from mooring.capabilities.handoff.led import evaluate_led, request_for
from mooring.capabilities.handoff.led_steps import next_led_step
from mooring.capabilities.handoff.member_operators import MemberEvaluation
from mooring.capabilities.handoff.member_steps import next_member_step
from mooring.capabilities.handoff.operators import EVICT_LEADERS, RESTART_TIKV, marks_of, read_back, tikv_payload
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.requests import DELETE_POD, RESTART, HandoffNotes, TidbOperatorGrace, request_of
from mooring.capabilities.handoff.restart import next_restart_step
from mooring.capabilities.handoff.tikv_evaluation import WITHOUT_FLUSH, TikvEvaluation
from mooring.core.model.cluster import ConfigMap, Key, Pod, Workload
from mooring.core.model.decision import Evaluation, Line, NextStep, OperatorRecord, PdRefresh, ReadBack
from mooring.core.model.events import Change, LeadersSeen, OperatorChanged, PdLost, PdSeen, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LEADERS, driver_of
from mooring.core.model.marks import GAVE_UP, HANDOFF, LEAVING
from mooring.core.model.tidb import Store, TidbCluster
from mooring.core.queue import QueueRead
from mooring.core.world.index import Index
from mooring.core.world.leaders import LeaderLook, LeaderViews, look_at
from mooring.core.world.members import sharing_pd, shown_target, tidb_member_set
from mooring.core.world.read import WorldRead

# ── Explain ─────────────────────────────────────────────────────────────────────────────────────────────────────────
#
# What `why` says about TiKV pods, their stores and their cluster, and what to type to change it.


def explain(subject: str, world: WorldRead, queue: QueueRead, policy: HandoffPolicy, now: float) -> Iterator[Line]:
    kind, _, rest = subject.partition("/")
    parts = rest.split("/")
    if kind == "operator":
        operator = queue.get(rest)
        if operator is not None and operator.source == "handoff":
            namespace, _, name = operator.payload.pod.partition("/")
            lines = _of_pod(Key(namespace, name), world, queue, policy)
            yield from (line for line in lines if line.label != "why there")
    elif kind == "pod" and len(parts) == 2:
        yield from _of_pod(Key(parts[0], parts[1]), world, queue, policy)
    elif kind == "store" and len(parts) == 3 and parts[2].isdecimal() and len(parts[2]) < 20:
        yield from _of_store(Key(parts[0], parts[1]), int(parts[2]), world)
    elif kind == "cluster" and len(parts) == 2:
        tc = world.tidb_cluster(Key(parts[0], parts[1]))
        if tc is not None:
            yield from _of_cluster(tc, world, queue, now)


def _of_pod(key: Key, world: WorldRead, queue: QueueRead, policy: HandoffPolicy) -> Iterator[Line]:
    pod = world.pod(key)
    system = led_set(pod, world) if pod is not None else None
    if pod is not None and system is not None:
        yield from _of_system(pod, system, world)
        return
    member = component_of(pod, world) if pod is not None else None
    tc = world.tidb_cluster(member.cluster) if member is not None else None
    if pod is None or member is None or tc is None or member.name != "tikv":
        return
    view = world.pd(tc.key)
    store = view.store_of(tc, pod.name) if view is not None else None
    if store is not None:
        yield Line("now", _store_now(store))
        yield from _gives_up(queue, tc, store, policy)
    bound = ", ".join(sorted(v.name for v in world.volumes_of(pod) if v.required_terms is not None))
    if bound:
        yield Line("why there", f"its volume keeps it there: {bound}")
    yield Line("why there", "kube-scheduler chose it; home keeps TiDB members where they were, not TiKV")
    yield from _to_change(tc, pod)


def _of_system(pod: Pod, system: Workload, world: WorldRead) -> Iterator[Line]:
    look, driver = look_at(system, world), driver_of(system)
    if look.lost:
        yield Line("now", f"{driver} of {system.key} cannot be read: {look.lost}")
    elif look.view is not None:
        well = sum(m.is_well for m in look.view.members)
        words = f"{driver}: {look.view.leader} leads · {well} of {len(look.view.members)} members are well"
        yield Line("now", f"{words} · {look.view.busy}" if look.view.busy else words)
    request = request_for(pod)
    if request is None:
        yield Line("to change", f"restart     mooring restart pod/{pod.name} -n {pod.namespace}")
    else:
        yield Line("asked", request.detail)


def _store_now(store: Store) -> str:
    return f"store {store.id} {store.state} · {store.leader_count} leaders"


def _gives_up(queue: QueueRead, tc: TidbCluster, store: Store, policy: HandoffPolicy) -> Iterator[Line]:
    live = queue.holder(store_target(tc.key, store.id))
    if (
        live is not None
        and live.kind == EVICT_LEADERS
        and queue.is_running(live.id)
        and tikv_payload(live).value == DELETE_POD
    ):
        hours = policy.timeout_s / 3600
        yield Line("gives up", f"after {hours:g} h with leaders left (handoff.timeout-s); nothing is deleted then")
        if WITHOUT_FLUSH not in tc.annotations:
            yield Line("now", "a log backup is not flushed before the pod is deleted")


def _to_change(tc: TidbCluster, pod: Pod) -> Iterator[Line]:
    request = request_of(pod)
    if request is None:
        yield Line("to change", f'restart     kubectl -n {pod.namespace} annotate pod {pod.name} {RESTART}=""')
        return
    mark = (marks_of(tc) or {}).get(pod.name)
    given_up = mark is not None and mark.step == GAVE_UP and mark.pod_uid == pod.uid
    if request.key == LEAVING:
        yield Line("asked", request.detail)
        return
    yield Line("asked", f"{'restart' if request.value == DELETE_POD else 'leaders off'} by {request.detail}")
    verb = "withdraw  " if given_up else "give up   "
    yield Line("to change", f"{verb}  kubectl -n {pod.namespace} annotate pod {pod.name} {request.key}-")
    if given_up:
        yield Line("to change", f'try again   kubectl -n {pod.namespace} annotate pod {pod.name} {request.key}=""')


def _of_store(cluster: Key, store_id: int, world: WorldRead) -> Iterator[Line]:
    view = world.pd(cluster)
    store = next((s for s in view.stores if s.id == store_id), None) if view is not None else None
    if view is None or store is None:
        return
    evicting = " · PD keeps leaders off it" if view.evicting and store_id in view.evicting else ""
    yield Line("now", f"{_store_now(store)} · {store.region_count} regions · pod {store.pod_name}{evicting}")


def _of_cluster(tc: TidbCluster, world: WorldRead, queue: QueueRead, now: float) -> Iterator[Line]:
    lost, seen_at = world.pd_lost(tc.key), world.pd_observed_at(tc.key)
    view = world.pd(tc.key)
    if lost:
        yield Line("now", f"PD does not answer: {lost.detail}")
    elif view is None or seen_at is None:
        yield Line("now", "PD has not been looked at yet")
    else:
        up = sum(s.state == "Up" for s in view.stores)
        leaders = sum(s.leader_count for s in view.stores)
        yield Line("now", f"{up} of {len(view.stores)} stores Up · {leaders} leaders, {view.region_count} regions")
    pd = pd_name(tc.key, view)
    others = [str(one.key) for one in sharing_pd(world, tc.key) if one.key != tc.key]
    if others:
        yield Line("now", f"its PD ({pd}) is shared with {', '.join(others)}: one member of them all at a time")
    for target, what in (
        (evicting_target(pd), "stores losing their leaders"),
        (tikv_target(pd), "members away"),
    ):
        limit = queue.limit(target)
        yield Line(
            "target",
            f"{shown_target(target, world)}  {queue.used(target)}/{limit if limit is not None else '∞'} {what}",
        )
    for name, mark in sorted((marks_of(tc) or {}).items()):
        since = max(0, int(now - mark.since))
        yield Line(
            "mark", f"{name}: {mark.step} by op {mark.operator}, {since // 60}:{since % 60:02d} ago ({mark.detail})"
        )


@dataclass(frozen=True)
class Handoff:
    name = "handoff"
    sources = frozenset({"handoff"})
    remembered = (HandoffNotes, LeaderLook)

    policy: HandoffPolicy = field(default_factory=HandoffPolicy)
    namespace: str = "mooring-system"

    @property
    def memory(self) -> Key:
        return Key(self.namespace, outlived.NAME)

    def affected_keys(self, trigger: Trigger, world: WorldRead) -> Iterable[str]:
        match trigger:
            case Change(kind=Kind.TIDB_CLUSTER | Kind.TIDB_V2, key=key):
                yield str(key)
            case Change(kind=Kind.CONFIG_MAP, key=key, old=old, new=new) if key == self.memory:
                yield from outlived.clusters_of(*(one for one in (old, new) if isinstance(one, ConfigMap)))
            case Change(kind=Kind.POD, old=old, new=new):
                pod = new if new is not None else old
                assert isinstance(pod, Pod)
                member = component_of(pod, world)
                if member is not None and member.name in {"tikv", *members.COMPONENTS}:
                    yield str(member.cluster)
                elif member is None and (system := led_set(pod, world)) is not None:
                    yield led.key_of(system.key)
            case LeadersSeen(workload=workload):
                yield led.key_of(workload)
            case Change(kind=Kind.STATEFUL_SET, old=old, new=new):
                part = new if new is not None else old
                assert isinstance(part, Workload)
                owner = tidb_member_set(part)
                if owner is not None:
                    yield str(owner[0])
                elif any(isinstance(w, Workload) and _is_led(w) for w in (old, new)):
                    yield led.key_of(part.key)
            case PdSeen(cluster=cluster) | PdLost(cluster=cluster):
                yield str(cluster)
            case Change(kind=Kind.NODE, key=key):
                # Cordoned or not: whether a member with a volume there could come back.
                bound = (component_of(p, world) for p in world.pods_on(key.name) if p.claims)
                yield from (str(m.cluster) for m in bound if m is not None and m.name == "tikv")
            case OperatorChanged(operator=operator):
                yield led.key_of(led.set_of(operator)) if operator.kind == led.KIND else operator.payload.cluster

    def keys(self, world: WorldRead) -> Iterable[str]:
        sets = (w for w in world.workloads() if w.annotations and w.kind == Kind.STATEFUL_SET)
        systems = filter(_is_led, sets)
        noted = outlived.clusters_of(world.config_map(self.memory))
        clusters = sorted(noted | {str(tc.key) for tc in world.tidb_clusters()})
        return [*clusters, *(led.key_of(w.key) for w in systems)]

    def indexes(self) -> tuple[Index, ...]:
        return (LeaderViews(),)

    def evaluate(self, key: str, world: WorldRead, queue: QueueRead, notes: object, now: float) -> Evaluation:
        namespace, _, name = key.partition("/")
        if "/" in name:
            return evaluate_led(Key(*name.split("/")), world, self.policy, queue, now)
        cluster = Key(namespace, name)
        tc = world.tidb_cluster(cluster)
        if tc is None:
            return outlived.of_gone(cluster, world, queue, self.policy, self.memory, now)
        grace = TidbOperatorGrace(tc, self.policy, notes, now)
        noted = tuple(outlived.notes_of(world.config_map(self.memory)))
        tikv = TikvEvaluation(tc, world, self.policy, queue, now, grace, noted)
        others = MemberEvaluation(tc, world, self.policy, queue, now, grace)
        verdicts = (*tikv.verdicts, *others.verdicts)
        every = self.policy.recheck_s if tikv.busy or others.busy else self.policy.idle_s
        seen_at, lost = world.pd_observed_at(cluster), world.pd_lost(cluster)
        # Never looked at: now. Lost: again in a while. Seen: when that look is old.
        look_at = now if seen_at is None and not lost else (now if lost or seen_at is None else seen_at) + every
        view = world.pd(cluster)
        if view is not None and not lost and any(store not in view.at_risk for store in tikv.leaving):
            look_at = now
        return Evaluation(
            proposals=(*tikv.proposals, *others.proposals),
            withdrawals=(*tikv.withdrawals, *others.withdrawals),
            facts=(*tikv.facts, *others.facts),
            instructions=(
                *tikv.instructions,
                *others.instructions,
                *outlived.of_cluster(tc, world, queue, self.memory, now),
            ),
            refreshes=(PdRefresh(cluster, look_at, tuple(tikv.leaving)),),
            verdict=verdicts[0] if verdicts else None,
            verdicts=verdicts,
            again_at=grace.again_at,
            notes=grace.notes,
        )

    def next_step(self, running: OperatorRecord, world: WorldRead, queue: QueueRead, now: float) -> NextStep:
        if running.operator.kind == RESTART_TIKV:
            return self._noted(next_restart_step(running, world, self.policy, now), running, world, now)
        if running.operator.kind == led.KIND:
            return next_led_step(running, world, self.policy, now)
        if running.operator.kind in members.KINDS:
            return next_member_step(running, world, self.policy, now)
        restarts = queue.holder(f"pod/{running.operator.payload.pod}")
        restarting = restarts is not None and restarts.kind == RESTART_TIKV and queue.is_running(restarts.id)
        step = next_eviction_step(running, world, self.policy, now, restarting=restarting)
        return self._noted(step, running, world, now)

    def _noted(self, step: NextStep, running: OperatorRecord, world: WorldRead, now: float) -> NextStep:
        return outlived.noted_first(step, running, world, self.memory, now)

    def explain(self, subject: str, world: WorldRead, queue: QueueRead, now: float) -> Iterable[Line]:
        """What `why` has to say of a TiKV pod, a store or a TidbCluster that no other capability knows."""
        return explain(subject, world, queue, self.policy, now)

    # ── After a crash ─────────────────────────────────────────────────────────────────────────────────────────

    def recovery_needs(self, world: WorldRead) -> Iterable[str]:
        for tc in world.tidb_clusters():
            if marks_of(tc) and world.pd(tc.key) is None and not world.pd_lost(tc.key):
                yield f"a look at the PD of {tc.key}"

    def recover(self, world: WorldRead, queue: QueueRead, now: float) -> Iterable[ReadBack]:
        for tc in world.tidb_clusters():
            for name, mark in sorted((marks_of(tc) or {}).items()):
                if mark.step != GAVE_UP:
                    # A pod that is gone leaves no node, whatever node a mark names.
                    pod = world.pod(Key(tc.namespace, name))
                    node = pod.node if pod is not None and pod.uid == mark.pod_uid else ""
                    yield partial(read_back, tc.key, name, mark, node, v2=tc.v2)
            yield from members.resumed_members(tc, world)
        yield from led.resumed_members(world)


def _is_led(workload: Workload) -> bool:
    """It names a driver, or a hand-over of its has begun."""
    return LEADERS in workload.annotations or HANDOFF in workload.annotations
