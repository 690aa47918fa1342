"""The handoff capability: one key per TidbCluster, two operators per hand-over; one key per other system with leaders.

What takes leaders off a store (`evict-leaders`) and what deletes the pod (`restart-tikv`) are two operators, since the
second needs room that the first does not: `tikv/…` 1 while the member is away. The second is proposed when the first
has proven the store empty. Two pods annotated in the same second wait for each other on `evicting/…`, visibly.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from mooring.capabilities.drain.leaders import LeaderLook, LeaderViews, component_of, led_set
from mooring.capabilities.handoff.explain import explain
from mooring.capabilities.handoff.leaders import operators as led
from mooring.capabilities.handoff.leaders.evaluation import evaluate_led
from mooring.capabilities.handoff.leaders.steps import next_led_step
from mooring.capabilities.handoff.mark import marks_of
from mooring.capabilities.handoff.members import operators as members
from mooring.capabilities.handoff.members.evaluation import MemberEvaluation
from mooring.capabilities.handoff.members.steps import next_member_step
from mooring.capabilities.handoff.operators import RESTART_TIKV, read_back
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.tikv.evaluation import TikvEvaluation
from mooring.capabilities.handoff.tikv.eviction import next_eviction_step
from mooring.capabilities.handoff.tikv.restart import next_restart_step
from mooring.capabilities.handoff.yielding import HandoffNotes, Yielding
from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.decision import Evaluation, Line, NextStep, OperatorRecord, PdRefresh, ReadBack
from mooring.core.model.events import Change, LeadersSeen, OperatorChanged, PdLost, PdSeen, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LEADERS
from mooring.core.model.marks import GAVE_UP, HANDOFF
from mooring.core.queue import QueueRead
from mooring.core.world.index import Index
from mooring.core.world.members import tidb_member_set
from mooring.core.world.read import WorldRead


@dataclass(frozen=True)
class Handoff:
    name = "handoff"
    sources = frozenset({"handoff"})
    remembered = (HandoffNotes, LeaderLook)

    policy: HandoffPolicy = field(default_factory=HandoffPolicy)

    def affected_keys(self, trigger: Trigger, world: WorldRead) -> Iterable[str]:
        match trigger:
            case Change(kind=Kind.TIDB_CLUSTER, key=key):
                yield str(key)
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
        return [*(str(tc.key) for tc in world.tidb_clusters()), *(led.key_of(w.key) for w in systems)]

    def indexes(self) -> tuple[Index, ...]:
        return (LeaderViews(),)

    def evaluate(self, key: str, world: WorldRead, queue: QueueRead, notes: object, now: float) -> Evaluation:
        namespace, _, name = key.partition("/")
        if "/" in name:
            return evaluate_led(Key(*name.split("/")), world, self.policy, queue, now)
        cluster = Key(namespace, name)
        tc = world.tidb_cluster(cluster)
        if tc is None:
            return Evaluation()
        yielding = Yielding(tc, self.policy, notes, now)
        tikv = TikvEvaluation(tc, world, self.policy, queue, now, yielding)
        others = MemberEvaluation(tc, world, self.policy, queue, now, yielding)
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
            instructions=(*tikv.instructions, *others.instructions),
            refreshes=(PdRefresh(cluster, look_at, tuple(tikv.leaving)),),
            verdict=verdicts[0] if verdicts else None,
            verdicts=verdicts,
            again_at=yielding.again_at,
            notes=yielding.notes,
        )

    def next_step(self, running: OperatorRecord, world: WorldRead, queue: QueueRead, now: float) -> NextStep:
        if running.operator.kind == RESTART_TIKV:
            return next_restart_step(running, world, self.policy, now)
        if running.operator.kind == led.KIND:
            return next_led_step(running, world, self.policy, now)
        if running.operator.kind in members.KINDS:
            return next_member_step(running, world, self.policy, now)
        restarts = queue.holder(f"pod/{running.operator.payload.pod}")
        restarting = restarts is not None and restarts.kind == RESTART_TIKV and queue.is_running(restarts.id)
        return next_eviction_step(running, world, self.policy, now, restarting=restarting)

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
                    yield partial(read_back, tc.key, name, mark, node)
            yield from members.resumed_members(tc, world)
        yield from led.resumed_members(world)


def _is_led(workload: Workload) -> bool:
    """It names a driver, or a hand-over of its has begun."""
    return LEADERS in workload.annotations or HANDOFF in workload.annotations
