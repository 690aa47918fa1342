"""What an evaluation of one TidbCluster finds about its TiKV pods: operators to propose, reasons not to."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from mooring.capabilities.drain.leaders import others_take_leaders, quorum_at_risk, stranded
from mooring.capabilities.drain.room import StuckVolume, stuck_volume
from mooring.capabilities.handoff import member_operators as members
from mooring.capabilities.handoff.eviction_exits import drop_requests
from mooring.capabilities.handoff.facts import (
    first_of,
    foreign_evictions,
    held_lock,
    lock_id,
    members_away,
    pd_name,
    pod_subject,
    store_target,
)
from mooring.capabilities.handoff.operators import (
    EVICT_LEADERS,
    clear_mark,
    eviction_for,
    eviction_operator,
    marked_restart,
    marks_of,
    names_of_no_member,
    restart_for,
    tikv_payload,
)
from mooring.capabilities.handoff.outlived import Note
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.proof import disproof
from mooring.capabilities.handoff.requests import (
    ALLOWED,
    DELETE_POD,
    EVICT_LEADER,
    EVICT_LEADER_FOR_RESIZE,
    RESTART,
    Request,
    TidbOperatorGrace,
    request_of,
    unattended,
)
from mooring.capabilities.handoff.restart import another_pd, rolling
from mooring.capabilities.handoff.situation import other_evictions
from mooring.core.model.cluster import Key, Pod
from mooring.core.model.decision import PD_NOT_SEEN, Fact, Verdict, Withdrawal
from mooring.core.model.instructions import EmitEvent, HarmlessWrite
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import GAVE_UP, LOG_BACKUP_CHECKPOINT, PD_ENDPOINTS, Mark
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import PdView, Store, TidbCluster
from mooring.core.model.times import moment, rfc3339
from mooring.core.queue import QueueRead
from mooring.core.world.members import sharing_pd
from mooring.core.world.read import WorldRead

# ── Log backup ──────────────────────────────────────────────────────────────────────────────────────────────────────
#
# Log backup (PITR): a restart of TiKV that waits until the backup has caught up (E13).
#
# tidb-operator flushes a log backup before a TiKV pod goes; nobody but TiKV can do that, and Mooring does not ask it.
# Where `log-backup-lag-s` is set, a restart that a person asked for waits until the checkpoint is that young. BR keeps
# the checkpoint in etcd, behind PD, where Mooring does not look: whoever can read it writes it on the TidbCluster, as a
# time or as the TSO that `br log status` prints. Nodes that must be emptied are not kept waiting.

#: On a TidbCluster: a lagging log backup is accepted.
WITHOUT_FLUSH: Final = "tidb.pingcap.com/tikv-restart-without-flush-log-backup"
#: A TSO is milliseconds, and so many bits that count within one.
TSO_BITS: Final = 18


def checkpoint_of(text: str) -> float | None:
    """RFC 3339, or a TSO; None: neither."""
    if text.isascii() and text.isdecimal() and len(text) < 20:
        return (int(text) >> TSO_BITS) / 1000
    return moment(text)


def log_backup_behind(tc: TidbCluster, policy: HandoffPolicy, now: float) -> Verdict | None:
    """Why a restart may not begin yet; None: nobody asked for that, or the checkpoint is young enough. One that lies in
    the future says nothing about now."""
    if not policy.log_backup_lag_s or WITHOUT_FLUSH in tc.annotations:
        return None
    text = tc.annotations.get(LOG_BACKUP_CHECKPOINT, "")
    at = checkpoint_of(text)
    if at is not None and now - at + policy.log_backup_lag_s >= 0 and now - at < policy.log_backup_lag_s:
        return None
    known = f"is of {rfc3339(at)}" if at is not None and at < now else "is not known"
    detail = f"the checkpoint of the log backup {known}, and must be younger than {policy.log_backup_lag_s:g} s"
    said = f"kubectl -n {tc.namespace} annotate {tc.resource} {tc.name} --overwrite {LOG_BACKUP_CHECKPOINT}=CHECKPOINT"
    return Verdict(State.BLOCKED, Reason.LOG_BACKUP, detail, f"br log status --json, then: {said}")


SOURCE = "handoff"


class TikvEvaluation:
    """What an evaluation of one TidbCluster finds about its TiKV pods."""

    def __init__(
        self,
        tc: TidbCluster,
        world: WorldRead,
        policy: HandoffPolicy,
        queue: QueueRead,
        now: float,
        grace: TidbOperatorGrace,
        noted: Sequence[tuple[Key, Note]] = (),
    ) -> None:
        """`noted`: what is begun in PDs that outlive their clusters."""
        self._grace, self._noted = grace, noted
        self._tc, self._policy, self._queue, self._now = tc, policy, queue, now
        self._lost, self._seen = world.pd_lost(tc.key), world.pd(tc.key)
        self._pods = {p.name: p for p in world.tidb_pods(tc.key, "tikv")}
        self._marks = marks_of(tc) or {}
        self.proposals: list[Operator] = []
        self.instructions: list[HarmlessWrite] = []
        self.verdicts: list[Verdict] = []
        #: Stores about to go away: their regions are counted with the next look.
        self.leaving: list[int] = []
        self._sharing = sharing_pd(world, tc.key)
        self.facts: list[Fact] = [
            *members_away(tc, self._pods, self._view, now, policy.heartbeat_s, self._sharing),
            *self._facts_of_pd(),
        ]
        self.withdrawals: list[Withdrawal] = list(self._withdrawn())
        asked = list(self._asked())
        requests = [(pod, request) for pod, request in asked if not request.expired(now)]
        self.instructions.extend(self._expired(asked))
        for pod, request in requests:
            self._consider(pod, request, stuck_volume(pod, world) if request.value == DELETE_POD else None)
        self.proposals.extend(self._orphans(requests))
        self.instructions.extend(self._forgotten(requests))
        self.busy = bool(requests) or bool(self._marks)

    def _facts_of_pd(self) -> Iterator[Fact]:
        """What others do to this PD; of the clusters that share it the first tells."""
        tc, policy = self._tc, self._policy
        if tc.key != first_of(tc, self._sharing):
            return
        marks = [(Key(one.namespace, n), m) for one in self._sharing for n, m in (marks_of(one) or {}).items()]
        pd = str(self._view.cluster_id or "") if self._view is not None else ""
        noted = [(pod, note) for pod, note in self._noted if note.pd == pd]
        evicts = {m.store_id for _, m in marks if m.evicts} | {n.store_id for _, n in noted if n.evicts}
        locks = {lock_id(pod, m.pod_uid) for pod, m in marks} | {lock_id(pod, n.pod_uid) for pod, n in noted}
        yield from foreign_evictions(tc.key, self._view, evicts, self._now, policy.young_pd_s)
        yield from held_lock(tc.key, self._view, locks)

    @property
    def _view(self) -> PdView | None:
        return None if self._lost else self._seen

    def _request_of(self, pod: Pod) -> Request | None:
        return request_of(pod, leave_to_tidb_operator=self._policy.leaves_all)

    def _asked(self) -> Iterator[tuple[Pod, Request]]:
        for name in sorted(self._pods):
            pod = self._pods[name]
            request = None if pod.terminating or self._tc.deletion_at is not None else self._request_of(pod)
            if request is not None:
                yield pod, request

    def _expired(self, asked: list[tuple[Pod, Request]]) -> Iterator[HarmlessWrite]:
        """Requests whose time passed before anything began; what runs takes its own annotations off when it ends."""
        cluster = self._tc.key
        for pod, request in asked:
            if not request.expired(self._now):
                continue
            store = self._seen.store_of(self._tc, pod.name) if self._seen is not None else None
            claims = [pod_subject(pod.key), *([store_target(cluster, store.id)] if store is not None else [])]
            if not any(self._queue.holder(claim) is not None for claim in claims):
                yield drop_requests(pod, self._policy)

    def _consider(self, pod: Pod, request: Request, stuck: StuckVolume | None) -> None:
        if request.unknown:
            text = f"{request.key}={request.unknown!r} acts as none; allowed: {', '.join(ALLOWED)}"
            self.instructions.append(
                EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=Reason.INVALID, message=text, warning=True)
            )
        answer = self._not_yet(pod, request, stuck) or self._next(pod, request, stuck)
        if isinstance(answer, Verdict):
            self.verdicts.append(msgspec.structs.replace(answer, subject=pod_subject(pod.key)))
            mark = self._marks.get(pod.name)
            if answer.state is State.BLOCKED and (mark is None or mark.step != GAVE_UP):
                self.instructions.append(_tell(pod, answer))
        elif answer is not None:
            self.proposals.append(answer)

    def _not_yet(self, pod: Pod, request: Request, stuck: StuckVolume | None) -> Verdict | None:
        """Why nothing can be done about this request, whatever PD says."""
        if self._tc.v2 and request.value != DELETE_POD:
            detail = (
                f"tidb-operator v2 ends every eviction that it did not begin, so no leaders can be kept off {pod.name}"
            )
            restart = f"kubectl -n {pod.namespace} annotate pod {pod.name} {RESTART}="
            return Verdict(State.BLOCKED, Reason.INVALID, detail, f"to restart it: {restart}")
        if self._tc.unattended:
            return Verdict(State.BLOCKED, Reason.MISCONFIGURED, *unattended(self._tc))
        mark = self._marks.get(pod.name)
        if _tidb_operator_evicts(self._tc, pod, self._view, self._marks):
            return Verdict(State.WAITING, Reason.FACT, f"tidb-operator is evicting leaders from {pod.name} itself")
        if mark is not None and _was_given_up(mark, pod, request):
            reason = Reason.MISCONFIGURED if mark.reason == Reason.MISCONFIGURED else Reason.TIMEOUT
            detail = f"{pod.name} was given up: {mark.detail}"
            return Verdict(State.BLOCKED, reason, detail, "remove the annotation to ask again")
        if stuck is not None and request.may_wait:
            return Verdict(State.BLOCKED, Reason.LOCAL_VOLUME, stuck.detail, stuck.remedy)
        if mark is None or mark.step == GAVE_UP:
            yields = self._grace.verdict(pod, request)
            if yields is not None:
                return yields
        if self._view is None:
            return self._lost or PD_NOT_SEEN
        return None

    def _next(self, pod: Pod, request: Request, stuck: StuckVolume | None) -> Operator | Verdict | None:
        """The operator this request needs next, or the sentence that says why not yet."""
        view, cluster = self._view, self._tc.key
        assert view is not None
        if another_pd(self._tc, view):
            remedy = f"check {PD_ENDPOINTS} and --pd"
            return Verdict(State.BLOCKED, Reason.MISCONFIGURED, another_pd(self._tc, view), remedy)
        claimants = view.claimants(self._tc, pod.name)
        store = claimants[0] if len(claimants) == 1 else None
        if claimants and store is None:
            return _which_store(pod, claimants)
        if store is None:
            known = ", ".join(s.address for s in view.stores[:3]) or "none"
            detail = f"PD knows no store of {pod.name} (a store's address begins with its pod's name; it has {known})"
            return Verdict(State.WAITING, Reason.STORE_UNKNOWN, detail)
        live = self._queue.holder(store_target(cluster, store.id))
        if live is not None:
            return self._after_eviction(live, pod, request, stuck, store)
        nowhere = stranded(view, store, pod.name)
        if nowhere is not None:
            return nowhere
        if not others_take_leaders(view, store.id):
            others = other_evictions(self._tc, view, store.id, self._sharing)
            off = ", ".join(one.words for one in others)
            detail = f"the leaders of {pod.name} have nowhere to go: leaders are being taken off {off}"
            return Verdict(State.BLOCKED, Reason.ONE_STORE, detail, others[0].remedy)
        if request.value == DELETE_POD:
            self.leaving.append(store.id)
            risk = quorum_at_risk(view, store.id, pod)
            if risk is not None and (request.may_wait or self._tc.v2):
                return risk
        if self._tc.v2 and stuck is not None:
            return Verdict(State.BLOCKED, Reason.LOCAL_VOLUME, stuck.detail, stuck.remedy)
        behind = log_backup_behind(self._tc, self._policy, self._now) if request.value == DELETE_POD else None
        if behind is not None and request.may_wait:
            return behind
        if rolling(self._tc) and request.value == DELETE_POD and (request.may_wait or self._tc.v2):
            return Verdict(State.WAITING, Reason.SETTLING, rolling(self._tc))
        if store.state != "Up":
            return Verdict(State.WAITING, Reason.STORE_NOT_UP, f"store {store.id} of {pod.name} is {store.state}")
        if self._tc.v2:
            return restart_for(cluster, pod, request, store, pd_name(cluster, view), v2=True)
        return eviction_for(cluster, pod, request, store.id, pd_name(cluster, view))

    def _after_eviction(
        self, live: Operator, pod: Pod, request: Request, stuck: StuckVolume | None, store: Store
    ) -> Operator | Verdict | None:
        """The restart, once the store is proven empty, as PD shows it now; else it would only be turned back."""
        view = self._view
        assert view is not None
        if request.value != DELETE_POD or not _proven(self._queue, live):
            return None
        if tikv_payload(live).value != request.value:
            return None  # begun for another request: it ends, and takes its scheduler with it
        if disproof(view, store.id, self._now, self._policy) is not None:
            return None
        self.leaving.append(store.id)
        risk = quorum_at_risk(view, store.id, pod)
        if risk is not None:
            return msgspec.structs.replace(risk, detail=f"{pod.name} is empty; {risk.detail}")
        behind = log_backup_behind(self._tc, self._policy, self._now) if request.may_wait else None
        if behind is not None:
            return msgspec.structs.replace(behind, detail=f"{pod.name} is empty; {behind.detail}")
        if rolling(self._tc):
            return Verdict(State.WAITING, Reason.SETTLING, f"{pod.name} is empty; {rolling(self._tc)}")
        if stuck is not None:
            detail = f"{pod.name} is empty, and {stuck.detail}"
            return Verdict(State.BLOCKED, Reason.LOCAL_VOLUME, detail, stuck.remedy)
        return restart_for(self._tc.key, pod, request, store, pd_name(self._tc.key, view))

    def _withdrawn(self) -> Iterator[Withdrawal]:
        """Operators that still wait although their request is gone."""
        if next(self._queue.operators(), None) is None:
            return
        cluster, stores = self._tc.key, self._seen.stores if self._seen is not None else ()
        claims = [store_target(cluster, s.id) for s in stores]
        claims += [pod_subject(Key(cluster.namespace, s.pod_name)) for s in stores]
        for operator in {o.id: o for o in filter(None, map(self._queue.holder, claims))}.values():
            if operator.source != SOURCE or self._queue.is_running(operator.id) or operator.kind in members.KINDS:
                continue
            if operator.reason == Reason.SWEPT:
                continue
            payload = tikv_payload(operator)
            if payload.cluster != str(cluster):
                continue  # of another cluster on this PD, which looks after it
            pod = self._pods.get(payload.pod.partition("/")[2])
            if pod is None or pod.uid != payload.uid:
                yield Withdrawal(operator.id, Reason.SUBJECT_GONE, "the pod that was asked about is gone")
                continue
            request = self._request_of(pod)
            if request is None or request.expired(self._now):
                yield Withdrawal(operator.id, Reason.WITHDRAWN, "the annotation was removed or has expired")
            elif request.value != payload.value:
                yield Withdrawal(operator.id, Reason.WITHDRAWN, f"the request changed to {request.value}")
            elif request.is_sooner_than(operator.deadline):
                yield Withdrawal(
                    operator.id, Reason.REPLACED, "its node is interrupted: asked again, with that deadline"
                )

    def _orphans(self, requests: list[tuple[Pod, Request]]) -> Iterator[Operator]:
        """Marks that nothing runs for, on pods without a request (a restored manifest): swept by ending them."""
        asked, cluster = {pod.name for pod, _ in requests}, self._tc.key
        for name, mark in sorted(self._marks.items()):
            if mark.step == GAVE_UP or name in asked or self._queue.holder(store_target(cluster, mark.store_id)):
                continue
            detail = f"the mark of {name} belongs to no running operator"
            if self._tc.v2:
                node = self._pods[name].node if name in self._pods else ""
                yield marked_restart(cluster, name, mark, node, reason=Reason.SWEPT, v2=True)
                continue
            yield eviction_operator(
                cluster,
                name,
                mark.pod_uid,
                mark.store_id,
                mark.value,
                detail,
                pd_name(cluster, self._seen),
                reason=Reason.SWEPT,
            )

    def _forgotten(self, requests: list[tuple[Pod, Request]]) -> Iterator[HarmlessWrite]:
        """A record of something given up is dropped once its pod or its request is another; what is about no member of
        this cluster is dropped at once."""
        marks = self._marks
        for name in names_of_no_member(self._tc, marks)[:1]:
            yield clear_mark(self._tc, marks, name, "it is about no member of this cluster")
            return
        kept = {pod.name for pod, asked in requests if pod.name in marks and _was_given_up(marks[pod.name], pod, asked)}
        for name in sorted(marks):
            if marks[name].step == GAVE_UP and name not in kept:
                yield clear_mark(self._tc, marks, name, "the request that was given up is gone")
                return


def _which_store(pod: Pod, claimants: tuple[Store, ...]) -> Verdict:
    """Several stores may be this pod's: a hand-over could take the leaders off another cluster's."""
    named = ", ".join(f"store {s.id} at {s.address}" for s in claimants[:3])
    detail = f"it cannot be told which store is that of {pod.name}: {named}"
    remedy = (
        f"compare spec.clusterDomain and status.tikv.stores of the TidbCluster in {pod.namespace} with pd-ctl store"
    )
    return Verdict(State.BLOCKED, Reason.STORE_UNKNOWN, detail, remedy)


def _tidb_operator_evicts(tc: TidbCluster, pod: Pod, view: PdView | None, marks: Mapping[str, Mark]) -> bool:
    """tidb-operator evicts it. An entry of it without a request, and that PD does not have, was left behind."""
    if pod.name not in tc.operator_evict_leader:
        return False
    if view is None or EVICT_LEADER in pod.annotations or EVICT_LEADER_FOR_RESIZE in pod.annotations:
        return True
    store, mark = view.store_of(tc, pod.name), marks.get(pod.name)
    ours = mark is not None and mark.evicts
    return store is None or view.evicting is None or (store.id in view.evicting and not ours)


def _proven(queue: QueueRead, live: Operator) -> bool:
    """Held empty: its phase has fallen to what it keeps until the end."""
    return live.kind == EVICT_LEADERS and queue.is_running(live.id) and (queue.phase(live.id) or 0) >= 1


def _was_given_up(mark: Mark, pod: Pod, request: Request) -> bool:
    """This very request was given up. A node that is to be emptied asks for more than a person did."""
    return mark.step == GAVE_UP and mark.pod_uid == pod.uid and mark.value == request.value and request.may_wait


def _tell(pod: Pod, verdict: Verdict) -> HarmlessWrite:
    """What a person must do is reported as an Event on the pod."""
    text = f"{verdict.detail}; {verdict.remedy}" if verdict.remedy else verdict.detail
    return EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=verdict.reason, message=text, warning=True)
