"""The handoff capability: one key per TidbCluster, two operators per hand-over.

What takes leaders off a store (`evict-leaders`) and what deletes the pod (`restart-tikv`) are two operators, since the
second needs room that the first does not: `tikv/…` 1 while the member is away. The second is proposed when the first
has proven the store empty. Two pods annotated in the same second wait for each other on `evicting/…`, visibly.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from mooring.capabilities.drain.volumes import Stuck, stuck_volume
from mooring.capabilities.handoff import eviction, members, restart
from mooring.capabilities.handoff.eviction import TOLD, drop_wishes, next_eviction_step
from mooring.capabilities.handoff.explain import explain
from mooring.capabilities.handoff.facts import foreign_evictions, members_away, pod_subject, store_target
from mooring.capabilities.handoff.mark import clear_mark, marks_of
from mooring.capabilities.handoff.members import MemberLook
from mooring.capabilities.handoff.operators import eviction_for, eviction_operator, read_back, restart_for
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.proof import doubt
from mooring.capabilities.handoff.requests import (
    ALLOWED,
    DELETE_POD,
    EVICT_LEADER,
    EVICT_LEADER_FOR_RESIZE,
    Wish,
    wish_of,
)
from mooring.capabilities.handoff.restart import next_restart_step, rolling
from mooring.capabilities.handoff.situation import GAVE_UP, others_take_leaders, others_up
from mooring.core.model.cluster import Key, Pod
from mooring.core.model.decision import Evaluation, Line, NextStep, PdRefresh, Recovered, Running, Verdict, Withdrawal
from mooring.core.model.events import Change, OperatorEnded, PdLost, PdSeen, Trigger
from mooring.core.model.instructions import EmitEvent, Instruction, RemoveEvictLeader
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import Mark
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdView, TidbCluster
from mooring.core.queue import Queue
from mooring.core.world.index import Index
from mooring.core.world.read import WorldRead

INSTANCE: Final = "app.kubernetes.io/instance"
COMPONENT: Final = "app.kubernetes.io/component"

#: A scheduler that appears on a store this soon after we ended our own there is a late write of ours: of a leader that
#: stalled between the fence and the wire. PD knows no precondition that could have stopped it.
LATE_S: Final = 300.0


class Handoff:
    name = "handoff"
    sources = frozenset({"handoff"})

    def __init__(self, policy: HandoffPolicy | None = None) -> None:
        self.policy = policy or HandoffPolicy()
        #: Store → when we ended an eviction there, and when one was taken back there last. Soft: it only tells a late
        #: write of ours from a person's.
        self._ended: dict[str, tuple[float, float]] = {}

    # ── Which keys ────────────────────────────────────────────────────────────────────────────────────────────

    def affected_keys(self, trigger: Trigger, world: WorldRead) -> Iterable[str]:
        match trigger:
            case Change(kind=Kind.TIDB_CLUSTER, key=key):
                yield str(key)
            case Change(kind=Kind.POD, old=old, new=new):
                pod = new if new is not None else old
                assert isinstance(pod, Pod)
                if pod.labels.get(COMPONENT) in {"tikv", *members.COMPONENTS} and INSTANCE in pod.labels:
                    yield f"{pod.namespace}/{pod.labels[INSTANCE]}"
            case PdSeen(cluster=cluster) | PdLost(cluster=cluster):
                yield str(cluster)
            case Change(kind=Kind.NODE, key=key):
                # Cordoned or not: whether a member with a volume there could come back.
                bound = (p for p in world.pods_on(key.name) if p.claims and p.labels.get(COMPONENT) == "tikv")
                yield from (f"{p.namespace}/{p.labels[INSTANCE]}" for p in bound if INSTANCE in p.labels)
            case OperatorEnded(operator=operator):
                yield operator.args["cluster"]

    def keys(self, world: WorldRead) -> Iterable[str]:
        return [str(tc.key) for tc in world.tidb_clusters()]

    # ── Is there something to do? ─────────────────────────────────────────────────────────────────────────────

    def indexes(self) -> tuple[Index, ...]:
        return ()

    def evaluate(self, key: str, world: WorldRead, queue: Queue, notes: object, now: float) -> Evaluation:
        namespace, _, name = key.partition("/")
        cluster = Key(namespace, name)
        tc = world.tidb_cluster(cluster)
        if tc is None:
            return Evaluation()
        seen, seen_at, lost = world.pd(cluster), world.pd_observed_at(cluster), world.pd_lost(cluster)
        view = None if lost else seen
        pods = {p.name: p for p in world.tidb_pods(cluster, "tikv")}
        marks = marks_of(tc) or {}
        ours = {m.store_id for m in marks.values() if m.step != GAVE_UP and m.before.get("evicting") != "true"}
        facts = [*members_away(tc, pods, view, now, self.policy.heartbeat_s), *foreign_evictions(cluster, view, ours)]
        proposals: list[Operator] = []
        instructions: list[Instruction] = []
        verdicts: list[Verdict] = []
        wishes = self._wishes(pods, now)
        instructions.extend(self._expired(cluster, pods, seen, queue, now))
        for pod, wish in wishes:
            instructions.extend(_warn_unknown(pod, wish))
            stuck = stuck_volume(pod, world) if wish.value == DELETE_POD else None
            answer = self._want(tc, pod, wish, marks, view, lost, queue, now, stuck)
            if isinstance(answer, Verdict):
                verdicts.append(msgspec.structs.replace(answer, subject=pod_subject(pod.key)))
                if answer.reason in TOLD:
                    instructions.append(_tell(pod, answer))
            elif answer is not None:
                proposals.append(answer)
        proposals.extend(_orphans(tc, marks, wishes, queue))
        instructions.extend(self._late(tc, view, seen_at, ours, queue, now))
        forgotten = _forgotten(tc, marks, wishes)
        if forgotten is not None:
            instructions.append(forgotten)
        others = MemberLook(tc, world, self.policy, queue, now)
        proposals += others.proposals
        instructions += others.instructions
        verdicts += others.verdicts
        busy = bool(wishes) or bool(marks) or others.busy
        every = self.policy.recheck_s if busy else self.policy.idle_s
        # Never looked at: now. Lost: again in a while. Seen: when that look is old.
        look_at = now if seen_at is None and not lost else (now if lost or seen_at is None else seen_at) + every
        return Evaluation(
            proposals=tuple(proposals),
            withdrawals=(*self._withdrawn(cluster, pods, seen, queue, now), *others.withdrawals),
            facts=(*facts, *others.facts),
            instructions=tuple(instructions),
            refreshes=(PdRefresh(cluster, look_at),),
            verdict=verdicts[0] if verdicts else None,
            verdicts=tuple(verdicts),
        )

    def _wishes(self, pods: Mapping[str, Pod], now: float) -> list[tuple[Pod, Wish]]:
        found = []
        for name in sorted(pods):
            pod = pods[name]
            if pod.terminating:
                continue
            wish = wish_of(pod, leave_to_tidb_operator=self.policy.leave_to_tidb_operator)
            if wish is not None and not wish.expired(now):
                found.append((pod, wish))
        return found

    def _expired(
        self, cluster: Key, pods: Mapping[str, Pod], view: PdView | None, queue: Queue, now: float
    ) -> Iterator[Instruction]:
        """Wishes whose time passed before anything began; what runs takes its own annotations off when it ends."""
        for name in sorted(pods):
            wish = wish_of(pods[name], leave_to_tidb_operator=self.policy.leave_to_tidb_operator)
            if wish is None or not wish.expired(now) or pods[name].terminating:
                continue
            store = view.store_of(name, cluster.namespace) if view is not None else None
            claims = [pod_subject(pods[name].key), *([store_target(cluster, store.id)] if store is not None else [])]
            if not any(queue.holder(claim) is not None for claim in claims):
                yield drop_wishes(pods[name], self.policy)

    def _want(
        self,
        tc: TidbCluster,
        pod: Pod,
        wish: Wish,
        marks: Mapping[str, Mark],
        view: PdView | None,
        lost: str,
        queue: Queue,
        now: float,
        stuck: Stuck | None,
    ) -> Operator | Verdict | None:
        """The operator this wish needs next, or the sentence that says why not yet."""
        cluster = tc.key
        if _theirs(tc, pod, view, marks):
            return Verdict(State.WAITING, Reason.FACT, f"tidb-operator is evicting leaders from {pod.name} itself")
        mark = marks.get(pod.name)
        if mark is not None and _remembers(mark, pod, wish):
            reason = Reason.MISCONFIGURED if mark.reason == Reason.MISCONFIGURED else Reason.TIMEOUT
            return Verdict(
                State.BLOCKED, reason, f"{pod.name} was given up: {mark.detail}", "remove the annotation to ask again"
            )
        if stuck is not None and wish.may_wait:
            return Verdict(State.BLOCKED, Reason.LOCAL_VOLUME, stuck.detail, stuck.remedy)
        if view is None:
            return Verdict(State.WAITING, Reason.PD_UNREACHABLE, lost or "PD has not been looked at yet")
        store = view.store_of(pod.name, pod.namespace)
        if store is None:
            known = ", ".join(s.address for s in view.stores[:3]) or "none"
            detail = f"PD knows no store of {pod.name} (a store's address begins with its pod's name; it has {known})"
            return Verdict(State.WAITING, Reason.STORE_UNKNOWN, detail)
        live = queue.holder(store_target(cluster, store.id))
        if live is not None:
            if wish.value != DELETE_POD or not _proven(queue, live) or self._doubted(view, store.id, now):
                return None
            if rolling(tc):
                return Verdict(State.WAITING, Reason.SETTLING, f"{pod.name} is empty; {rolling(tc)}")
            if stuck is not None:
                return Verdict(
                    State.BLOCKED, Reason.LOCAL_VOLUME, f"{pod.name} is empty, and {stuck.detail}", stuck.remedy
                )
            return restart_for(cluster, pod, wish, store)
        if not others_up(view, store.id):
            return Verdict(
                State.BLOCKED,
                Reason.ONE_STORE,
                f"{pod.name} has the only store that is Up: its leaders have nowhere to go",
            )
        if not others_take_leaders(view, store.id):
            return Verdict(
                State.BLOCKED,
                Reason.ONE_STORE,
                f"every other store that is Up is being evicted: the leaders of {pod.name} have nowhere to go",
                "let leaders return to one of them",
            )
        if rolling(tc) and wish.value == DELETE_POD and wish.may_wait:
            return Verdict(State.WAITING, Reason.SETTLING, rolling(tc))
        if store.state != "Up":
            return Verdict(State.WAITING, Reason.STORE_NOT_UP, f"store {store.id} of {pod.name} is {store.state}")
        return eviction_for(cluster, pod, wish, store.id)

    def _doubted(self, view: PdView, store_id: int, now: float) -> bool:
        """Proven once, but not as PD shows it now: its restart would only be turned back."""
        return (
            doubt(view, store_id, now, heartbeat_s=self.policy.heartbeat_s, young_s=self.policy.young_pd_s) is not None
        )

    def _late(
        self,
        tc: TidbCluster,
        view: PdView | None,
        seen_at: float | None,
        ours: Collection[int],
        queue: Queue,
        now: float,
    ) -> Iterator[Instruction]:
        if view is None or seen_at is None:
            return
        for store_id in view.evicting or ():
            target = store_target(tc.key, store_id)
            ended, judged = self._ended.get(target, (0.0, 0.0))
            if not ended or store_id in ours or queue.holder(target) is not None:
                continue
            if judged < seen_at and now - ended < LATE_S:
                # Judged again on the next look at PD, not on this one; and not for ever: who insists is a person.
                self._ended[target] = (ended, now)
                detail = f"an eviction of ours on store {store_id} arrived after its end; taken back"
                yield RemoveEvictLeader(cluster=tc.key, store_id=store_id, why=detail)
                yield EmitEvent(kind=Kind.TIDB_CLUSTER, key=tc.key, uid=tc.uid, reason=Reason.SWEPT, message=detail)

    def _withdrawn(
        self, cluster: Key, pods: Mapping[str, Pod], view: PdView | None, queue: Queue, now: float
    ) -> Iterator[Withdrawal]:
        """Operators that still wait although nobody wants them any more."""
        claims = [store_target(cluster, s.id) for s in view.stores] if view is not None else []
        claims += [pod_subject(Key(cluster.namespace, s.pod_name)) for s in view.stores] if view is not None else []
        for operator in filter(None, map(queue.holder, claims)):
            if operator.source not in self.sources or queue.is_running(operator.id) or operator.kind in members.KINDS:
                continue
            if operator.reason == Reason.SWEPT:
                continue
            pod = pods.get(operator.args["pod"].partition("/")[2])
            if pod is None or pod.uid != operator.args["uid"]:
                yield Withdrawal(operator.id, Reason.SUBJECT_GONE, "the pod that was asked about is gone")
                continue
            wish = wish_of(pod, leave_to_tidb_operator=self.policy.leave_to_tidb_operator)
            if wish is None or wish.expired(now):
                yield Withdrawal(operator.id, Reason.WITHDRAWN, "the annotation was removed or has expired")
            elif wish.value != operator.args["value"]:
                yield Withdrawal(operator.id, Reason.WITHDRAWN, f"the wish changed to {wish.value}")
            elif wish.deadline is not None and (operator.deadline is None or wish.deadline < operator.deadline):
                yield Withdrawal(operator.id, Reason.REPLACED, "its node is to go: asked again, with that deadline")

    # ── What is next? ─────────────────────────────────────────────────────────────────────────────────────────

    def next_step(self, running: Running, world: WorldRead, queue: Queue, now: float) -> NextStep:
        if running.operator.kind == restart.KIND:
            return next_restart_step(running, world, self.policy, now)
        if running.operator.kind in members.KINDS:
            return members.next_member_step(running, world, self.policy, now)
        restarts = queue.holder(f"pod/{running.operator.args['pod']}")
        restarting = restarts is not None and restarts.kind == restart.KIND and queue.is_running(restarts.id)
        course = next_eviction_step(running, world, self.policy, now, restarting=restarting)
        if any(isinstance(one, RemoveEvictLeader) for one in course.instructions):
            self._ended = {s: at for s, at in self._ended.items() if now - at[0] < LATE_S}
            self._ended[running.operator.subject] = (now, now)
        return course

    def explain(self, subject: str, world: WorldRead, queue: Queue, now: float) -> Iterable[Line]:
        """What `why` has to say of a TiKV pod, a store or a TidbCluster that nobody else knows."""
        return explain(subject, world, queue, self.policy, now)

    # ── After a crash ─────────────────────────────────────────────────────────────────────────────────────────

    def recovery_needs(self, world: WorldRead) -> Iterable[str]:
        for tc in world.tidb_clusters():
            if marks_of(tc) and world.pd(tc.key) is None and not world.pd_lost(tc.key):
                yield f"a look at the PD of {tc.key}"

    def recover(self, world: WorldRead, now: float) -> Iterable[Recovered]:
        for tc in world.tidb_clusters():
            for name, mark in sorted((marks_of(tc) or {}).items()):
                if mark.step == GAVE_UP:
                    continue
                yield from read_back(tc.key, name, mark)
            yield from members.resumed_members(tc, world)


def _theirs(tc: TidbCluster, pod: Pod, view: PdView | None, marks: Mapping[str, Mark]) -> bool:
    """tidb-operator evicts it. An entry of it that nobody asks for, and that PD knows nothing of, was left behind."""
    if pod.name not in tc.operator_evict_leader:
        return False
    if view is None or EVICT_LEADER in pod.annotations or EVICT_LEADER_FOR_RESIZE in pod.annotations:
        return True
    store, mark = view.store_of(pod.name, pod.namespace), marks.get(pod.name)
    ours = mark is not None and mark.step != GAVE_UP and mark.before.get("evicting") != "true"
    return store is None or view.evicting is None or (store.id in view.evicting and not ours)


def _proven(queue: Queue, live: Operator) -> bool:
    """Held empty: its phase has fallen to what it keeps until the end."""
    return live.kind == eviction.KIND and queue.is_running(live.id) and (queue.phase(live.id) or 0) >= 1


def _orphans(
    tc: TidbCluster, marks: Mapping[str, Mark], wishes: Iterable[tuple[Pod, Wish]], queue: Queue
) -> Iterator[Operator]:
    """Marks that nothing runs for, on pods nobody asks anything of (a restored manifest, say): swept by ending them."""
    asked = {pod.name for pod, _ in wishes}
    for name, mark in sorted(marks.items()):
        if mark.step == GAVE_UP or name in asked or queue.holder(store_target(tc.key, mark.store_id)) is not None:
            continue
        detail = f"the mark of {name} has nobody behind it"
        yield eviction_operator(
            tc.key, name, mark.pod_uid, mark.store_id, mark.value, "mark", detail, reason=Reason.SWEPT
        )


def _forgotten(
    tc: TidbCluster,
    marks: Mapping[str, Mark],
    wishes: Iterable[tuple[Pod, Wish]],
) -> Instruction | None:
    """A memory of something given up is dropped once its pod or its wish is another."""
    remembered = {pod.name for pod, wish in wishes if pod.name in marks and _remembers(marks[pod.name], pod, wish)}
    for name in sorted(marks):
        if marks[name].step == GAVE_UP and name not in remembered:
            return clear_mark(tc, marks, name, "the wish that was given up is gone")
    return None


def _remembers(mark: Mark, pod: Pod, wish: Wish) -> bool:
    """This very wish was given up. A node that is to be emptied asks for more than a person did."""
    return mark.step == GAVE_UP and mark.pod_uid == pod.uid and mark.value == wish.value and wish.may_wait


def _warn_unknown(pod: Pod, wish: Wish) -> Iterator[Instruction]:
    if wish.unknown:
        yield EmitEvent(
            kind=Kind.POD,
            key=pod.key,
            uid=pod.uid,
            reason=Reason.INVALID,
            message=f"{wish.key}={wish.unknown!r} acts as none; allowed: {', '.join(ALLOWED)}",
            warning=True,
        )


def _tell(pod: Pod, verdict: Verdict) -> Instruction:
    """What a person must do is told where a person looks: as an Event on the pod."""
    text = f"{verdict.detail}; {verdict.remedy}" if verdict.remedy else verdict.detail
    return EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=verdict.reason, message=text, warning=True)
