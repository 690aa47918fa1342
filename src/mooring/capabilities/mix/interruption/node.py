"""The two minutes: what is done about one node that is about to go.

    notice ──► cordon (all doomed nodes first) ──► leaders off its TiKV pods, one move per pod ──► it goes, empty
       │
       └── taken back: our cordon is lifted, moves not begun are withdrawn, detached pods are attached again

Only pods of workloads that are switched on are moved. Those of a Deployment leave once their replacement is Ready; a
StatefulSet has no surge, so its pods go a few at a time and never below quorum before the last call. A TiKV or PD pod
is not ours to delete: the wish is written on it, and handoff takes its leaders off first.
"""

from collections.abc import Iterator
from typing import Final

from mooring.capabilities.drain.component import is_handed_over
from mooring.capabilities.drain.cordon import cordon, lift_cordon
from mooring.capabilities.drain.detach import (
    DETACH,
    EVICT,
    attach,
    can_detach,
    drop_mark,
    is_detached,
    mark_on,
    put_mark,
)
from mooring.capabilities.drain.readiness import is_ready, subject_of
from mooring.capabilities.mix.interruption.notices import SOURCE, Notice, mark_of, notice_of, silent_until, unread
from mooring.capabilities.mix.labels import Managed, wish_of
from mooring.capabilities.mix.pace import NoticePolicy, OnNotice
from mooring.capabilities.mix.policy import SOURCES, MixPolicy
from mooring.capabilities.mix.rebalance.health import health_of
from mooring.capabilities.mix.rebalance.move import KIND, last_call, operator
from mooring.core.model.cluster import Node, Pod, Workload
from mooring.core.model.decision import Evaluation, Verdict, Withdrawal
from mooring.core.model.instructions import DeletePod, EmitEvent, Instruction, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import Mark
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import DEFAULT_LIMITS, Queue
from mooring.core.world.read import WorldRead

#: After its deadline a pod that nobody reports on any more is taken off the books.
_GONE_AFTER_S: Final = 30.0


class Interruption:
    """One look at one node."""

    def __init__(
        self,
        policy: MixPolicy,
        world: WorldRead,
        queue: Queue,
        now: float,
        *,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        self.policy = policy
        self.left_out = left_out
        self.notice: NoticePolicy = policy.notice
        self.world = world
        self.queue = queue
        self.now = now

    def evaluate(self, name: str, open_doomed: frozenset[str]) -> Evaluation:
        target = f"node/{name}"
        node = self.world.node(name)
        if node is None:
            return Evaluation(
                limits={target: DEFAULT_LIMITS["node"]}, withdrawals=tuple(self._withdrawn(name, "it is gone"))
            )
        notice = notice_of(node, self.notice, self.world, self.now)
        if notice is None:
            return self._at_rest(node, target)
        if self.notice.action is not OnNotice.ACT:
            words = f"{name} goes: {notice.signal}; nothing is done, mix.notice.action is {self.notice.action}"
            return Evaluation(verdict=Verdict(State.WAITING, Reason.NOTICE, words))
        return self._empty(node, notice, target, open_doomed)

    # ── It goes ───────────────────────────────────────────────────────────────────────────────────────────────

    def _empty(self, node: Node, notice: Notice, target: str, open_doomed: frozenset[str]) -> Evaluation:
        instructions: list[Instruction] = []
        mark = mark_of(node)
        if not notice.lost and (mark is None or not node.unschedulable or mark.deadline != notice.deadline):
            instructions.append(self._cordon(node, notice, mark))
        since = mark.since if mark is not None else self.now
        left = max(0.0, notice.deadline - self.now)
        words = f"{node.name} goes in {left:.0f} s ({notice.signal}); its pods are moved"
        verdict = Verdict(State.MOVING, Reason.NOTICE, words)
        others = open_doomed - {node.name}
        if not notice.lost and (mark is None or (others and self.now < since + self.notice.cordons_within_s)):
            waiting_on = Verdict(
                State.WAITING, Reason.NOTICE, f"{node.name} goes: cordons first, also of other doomed nodes"
            )
            return Evaluation(
                instructions=tuple(instructions), limits={target: None}, verdict=waiting_on, again_at=self.now + 1.0
            )
        proposals: list[Operator] = []
        withdrawals: list[Withdrawal] = []
        wakes: list[float] = [self.now + 5.0]
        for pod, workload in self._by_risk(node):
            if is_handed_over(pod, self.world):
                wish = self._wish(pod, notice)
                if wish is not None:
                    instructions.append(wish)
                continue
            if workload is None:
                instructions += self._leftover(pod, notice)
                continue
            wanted = self._move(pod, workload, notice)
            if wanted is None:
                continue
            wakes += self._turning_points(pod, workload, notice)
            standing = self.queue.holder(subject_of(pod))
            if standing is not None and self.queue.is_running(standing.id):
                continue
            if standing is not None and (standing.source != SOURCE or standing.cost != wanted.cost):
                withdrawals.append(Withdrawal(standing.id, Reason.DEADLINE, wanted.detail))
            proposals.append(wanted)
        ahead = [at for at in wakes if at > self.now]
        return Evaluation(
            proposals=tuple(proposals),
            withdrawals=tuple(withdrawals),
            instructions=tuple(instructions),
            limits={target: None},
            verdict=verdict,
            again_at=min(ahead),
        )

    def _cordon(self, node: Node, notice: Notice, before: Mark | None) -> Patch:
        mark = Mark(
            operator="",
            source=SOURCE,
            reason=Reason.NOTICE.value,
            step="Cordon",
            since=before.since if before is not None else self.now,
            detail=notice.signal,
            node=node.name,
            deadline=notice.deadline,
        )
        return cordon(node, mark, f"{node.name} goes: {notice.signal}")

    def _by_risk(self, node: Node) -> list[tuple[Pod, Workload | None]]:
        """Pods that can be moved; whoever has the fewest Ready siblings elsewhere first."""
        found: list[tuple[int, str, str, Pod, Workload | None]] = []
        for pod in self.world.pods_on(node.name):
            if pod.is_mirror or pod.terminal:
                continue
            workload = self.world.workload_of(pod)
            if workload is None:
                if is_detached(pod) or (pod.terminating and mark_on(pod) is not None):
                    found.append((0, pod.namespace, pod.name, pod, None))
                continue
            if is_handed_over(pod, self.world):
                found.append((0, pod.namespace, pod.name, pod, workload))
            elif isinstance(wish_of(workload, self.policy.deployment_target, self.left_out), Managed):
                siblings = self.world.pods_of(workload)
                safe = sum(p.ready and p.active and self._stays(p.node) for p in siblings)
                found.append((safe, pod.namespace, pod.name, pod, workload))
        return [(pod, workload) for *_, pod, workload in sorted(found, key=lambda one: one[:3])]

    def _stays(self, name: str) -> bool:
        """Before the first pod moves every doomed node has its cordon, and with it our mark."""
        node = self.world.node(name)
        return node is not None and mark_of(node) is None

    def _move(self, pod: Pod, workload: Workload, notice: Notice) -> Operator | None:
        mark = mark_on(pod)
        if not pod.active or (mark is not None and mark.source not in SOURCES):
            return None
        stateful = workload.kind == Kind.STATEFUL_SET
        if stateful and notice.lost:
            return None  # it may still run there: two of one name is worse than one too few
        call = last_call(notice.deadline, pod, self.notice)
        assert call is not None
        short = self.now >= self._short_at(pod, workload, notice)
        words = f"{notice.signal} on {pod.node}"
        ready = is_ready(pod, workload, self.now)
        # Until the last call a pod that serves loses nothing by going on while its replacement starts.
        if can_detach(pod, workload) and ready and not notice.lost and self.now < call:
            return operator(
                pod,
                workload,
                source=SOURCE,
                way=DETACH,
                reason=Reason.NOTICE,
                detail=words,
                deadline=notice.deadline,
                takes_room=False,
            )
        return operator(
            pod,
            workload,
            source=SOURCE,
            way=EVICT,
            reason=Reason.DEADLINE if short else Reason.NOTICE,
            detail=f"{words}; no time left to wait for its workload" if short else words,
            deadline=notice.deadline,
            takes_room=not short,
        )

    def _short_at(self, pod: Pod, workload: Workload, notice: Notice) -> float:
        """From here on it is lost anyway: its workload's room no longer keeps it."""
        at = last_call(notice.deadline, pod, self.notice)
        assert at is not None
        return at if workload.kind == Kind.STATEFUL_SET else at - self.notice.start_s

    def _turning_points(self, pod: Pod, workload: Workload, notice: Notice) -> Iterator[float]:
        yield self._short_at(pod, workload, notice)

    def _wish(self, pod: Pod, notice: Notice) -> Instruction | None:
        """Ask handoff for a TiKV or PD pod. Its leaders leave as far as time allows; it is never deleted with them."""
        mark = mark_on(pod)
        if pod.terminating or notice.lost or (mark is not None and mark.deadline is not None):
            return None
        if mark is not None and mark.source != SOURCE:
            return None
        wish = Mark(
            operator="",
            source=SOURCE,
            reason=Reason.NOTICE.value,
            step="request",
            since=self.now,
            detail=f"{notice.signal} on {pod.node}",
            pod_uid=pod.uid,
            node=pod.node,
            deadline=notice.deadline,
        )
        return put_mark(pod, wish, "asks for its leaders to be taken off")

    def _leftover(self, pod: Pod, notice: Notice) -> Iterator[Instruction]:
        """A detached pod that no operator of ours knows any more, or that a dead node will never report on."""
        held = self.queue.holder(subject_of(pod)) is not None
        if is_detached(pod) and not held and not pod.terminating:
            why = "a detached pod that nobody waits for any more"
            yield DeletePod(key=pod.key, uid=pod.uid, evict=False, why=why)
            yield EmitEvent(kind=Kind.POD, key=pod.key, uid=pod.uid, reason=Reason.SWEPT, message=why)
        elif pod.terminating and is_detached(pod) and self.now > notice.deadline + _GONE_AFTER_S:
            yield DeletePod(key=pod.key, uid=pod.uid, evict=False, grace_s=0, why="its node is gone")

    # ── It stays ──────────────────────────────────────────────────────────────────────────────────────────────

    def _at_rest(self, node: Node, target: str) -> Evaluation:
        mark = mark_of(node)
        again = silent_until(node, self.notice)
        if mark is None:
            again = again if again is not None and again > self.now else None
            return self._unread(node, again)
        if node.ready != "True":
            return Evaluation(again_at=self.now + 5.0)  # no signal and not Ready: neither going nor saved yet
        instructions: list[Instruction] = [lift_cordon(node, SOURCE, "the notice was taken back")]
        for pod in sorted(self.world.pods_on(node.name), key=lambda p: (p.namespace, p.name)):
            left = mark_on(pod)
            if left is None or left.source != SOURCE or pod.terminating:
                continue
            if self.queue.holder(subject_of(pod)) is not None:
                continue  # its operator sees that the notice is gone
            if is_detached(pod):
                instructions.append(attach(pod, left, "the notice was taken back"))
            else:
                instructions.append(drop_mark(pod, "the notice was taken back"))
        words = f"{node.name} stays: the notice was taken back"
        instructions.append(
            EmitEvent(kind=Kind.NODE, key=node.key, uid=node.uid, reason=Reason.WITHDRAWN, message=words, warning=False)
        )
        return Evaluation(
            withdrawals=tuple(self._withdrawn(node.name, "the notice was taken back")),
            instructions=tuple(instructions),
            limits={target: DEFAULT_LIMITS["node"]},
        )

    def _unread(self, node: Node, again: float | None) -> Evaluation:
        """Nothing says that it goes; unless somebody tried to say so, and would wait in vain."""
        problem = unread(node, self.notice)
        if not problem:
            return Evaluation(again_at=again)
        words = f"{node.name} is not emptied: {problem}"
        told = EmitEvent(
            kind=Kind.NODE, key=node.key, uid=node.uid, reason=Reason.MISCONFIGURED, message=words, warning=True
        )
        verdict = Verdict(State.BLOCKED, Reason.MISCONFIGURED, words, "correct the annotation")
        return Evaluation(verdict=verdict, instructions=(told,), again_at=again)

    def _withdrawn(self, name: str, why: str) -> Iterator[Withdrawal]:
        for pod in self.world.pods_on(name):
            standing = self.queue.holder(subject_of(pod))
            if standing is None or standing.kind != KIND or standing.source != SOURCE:
                continue
            if not self.queue.is_running(standing.id):
                yield Withdrawal(standing.id, Reason.WITHDRAWN, f"{name}: {why}")


def quorum_room(workload: Workload) -> int:
    """How many of a StatefulSet on doomed nodes may go at once and leave a quorum; one when there is none to keep."""
    return max(1, -(-workload.replicas // 2) - 1)


def safe_replicas(workload: Workload, world: WorldRead, doomed: frozenset[str], now: float) -> int:
    """Ready ones on nodes that stay."""
    health = health_of(workload, world, now)
    return sum(is_ready(p, workload, now) and p.node not in doomed for p in health.pods)
