"""What is done about one node that is about to be interrupted or is to be emptied.

notice ──► cordon (all interrupted nodes first) ──► leaders off its TiKV pods, one move per pod ──► it goes, empty
   │
   ├── only recommended: a soft taint, and replacements where there is room; nothing is taken down for it
   └── taken back: our cordon is lifted, moves not begun are withdrawn, detached pods are attached again
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mooring.capabilities.drain.cordon import cordon, lift_cordon
from mooring.capabilities.drain.readiness import subject_of
from mooring.capabilities.drain.replace_pod import replacing
from mooring.capabilities.drain.request import request_of, withdraw
from mooring.capabilities.mix.interruption.notices import (
    SOFT_TAINT,
    SOURCE,
    InterruptedNodes,
    Notice,
    has_soft_taint,
    mark_of,
    notice_of,
    silence_of,
    unread,
)
from mooring.capabilities.mix.interruption.pods import Emptying
from mooring.capabilities.mix.policy import InterruptionPolicy, OnNotice
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Node
from mooring.core.model.decision import Evaluation, Verdict, Withdrawal
from mooring.core.model.instructions import EditTaints, EmitEvent, HarmlessWrite, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import Mark
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead

if TYPE_CHECKING:
    from mooring.capabilities.mix.capability import Mix

#: How often a silent node that is not given up looks at the others again.
_LOOK_AROUND_S: Final = 5.0


class Interruption:
    """One look at one node."""

    def __init__(self, mix: "Mix", world: WorldRead, queue: QueueRead, now: float) -> None:
        self.mix = mix
        self.policy: InterruptionPolicy = mix.policy.interruption
        self.world = world
        self.queue = queue
        self.now = now

    def evaluate(self, name: str) -> Evaluation:
        node = self.world.node(name)
        if node is None:
            return Evaluation(withdrawals=tuple(self._withdrawn(name, "it is gone")))
        notice = notice_of(node, self.policy, self.world, self.now)
        if notice is None:
            return self._at_rest(node)
        if self.policy.action is not OnNotice.ACT:
            off = f"nothing is done, mix.interruption.action is {self.policy.action}"
            words = f"{name} is interrupted: {notice.signal}; {off}"
            return Evaluation(verdict=Verdict(State.WAITING, Reason.NOTICE, words))
        if notice.prepares_since is not None:
            return self._prepare(node, notice)
        return self._empty(node, notice)

    def _prepare(self, node: Node, notice: Notice) -> Evaluation:
        """It may go: other nodes first for new pods, and replacements for those that were there, as housekeeping."""
        instructions = list(self._uncordoned(node))
        if not has_soft_taint(node):
            why = f"{node.name} is likely to be interrupted: {notice.signal}"
            instructions.append(EditTaints(node=node.name, uid=node.uid, add=(SOFT_TAINT,), why=why))
        done = Emptying(self.mix, self.world, self.queue, self.now, notice).of(node)
        words = f"{node.name} may be interrupted ({notice.signal}); pods are replaced elsewhere where there is room"
        kept = next(iter(done.kept), None)
        return Evaluation(
            proposals=tuple(done.proposals),
            withdrawals=tuple(done.withdrawals),
            instructions=(*instructions, *done.instructions),
            limits={f"node/{node.name}": None},
            verdict=kept if kept and not done.moving else Verdict(State.WAITING, Reason.NOTICE, words),
            again_at=min(at for at in done.wakes if at > self.now),
        )

    def _uncordoned(self, node: Node) -> Iterator[HarmlessWrite]:
        """What a notice did that was taken back."""
        if mark_of(node) is not None and node.ready == "True":
            yield lift_cordon(node, SOURCE, "the notice was taken back")

    # ── It goes ───────────────────────────────────────────────────────────────────────────────────────────────

    def _empty(self, node: Node, notice: Notice) -> Evaluation:
        instructions: list[HarmlessWrite] = []
        mark = mark_of(node)
        if not notice.lost and (mark is None or not node.unschedulable or mark.deadline != notice.deadline):
            instructions.append(self._cordon(node, notice, mark))
        since = mark.since if mark is not None else self.now
        others = self.world.index(InterruptedNodes).open - {node.name}
        if not notice.lost and (mark is None or (others and self.now < since + self.policy.cordons_within_s)):
            words = f"{node.name} is interrupted: cordons first, of other interrupted nodes too"
            verdict = Verdict(State.WAITING, Reason.NOTICE, words)
            return Evaluation(
                instructions=tuple(instructions),
                limits={f"node/{node.name}": None},
                verdict=verdict,
                again_at=self.now + 1.0,
            )
        done = Emptying(self.mix, self.world, self.queue, self.now, notice).of(node)
        return Evaluation(
            proposals=tuple(done.proposals),
            withdrawals=tuple(done.withdrawals),
            instructions=(*instructions, *done.instructions),
            limits={f"node/{node.name}": None},
            verdict=self._verdict(node, notice, done),
            again_at=min(at for at in done.wakes if at > self.now),
        )

    def _verdict(self, node: Node, notice: Notice, done: Emptying) -> Verdict:
        if done.kept and not done.moving:
            first = done.kept[0]
            return Verdict(first.state, first.reason, f"{first.detail}; {notice.signal}", first.remedy)
        if notice.deadline is None:
            words = f"{node.name} is being emptied ({notice.signal}), as budgets and workloads allow"
        else:
            left = max(0.0, notice.deadline - self.now)
            words = f"{node.name} is interrupted in {left:.0f} s ({notice.signal}); its pods are moved"
        return Verdict(State.MOVING, Reason.NOTICE, words)

    def _cordon(self, node: Node, notice: Notice, before: Mark | None) -> Patch:
        mark = Mark(
            operator="",
            source=SOURCE,
            reason=Reason.NOTICE.value,
            step="Cordon",
            # A pod that came while the cordon was lifted is not one that came past it.
            since=before.since if before is not None and node.unschedulable else self.now,
            detail=notice.signal,
            node=node.name,
            deadline=notice.deadline,
        )
        return cordon(node, mark, f"{node.name} is interrupted: {notice.signal}")

    # ── It stays ──────────────────────────────────────────────────────────────────────────────────────────────

    def _at_rest(self, node: Node) -> Evaluation:
        mark = mark_of(node)
        silence = silence_of(node, self.policy, self.world, self.now)
        if silence is not None and silence.held and self.world.node_class(node.name) is NodeClass.SPOT:
            return Evaluation(
                withdrawals=tuple(self._withdrawn(node.name, "it may come back")),
                verdict=Verdict(State.WAITING, Reason.NODE_NOT_READY, silence.held),
                again_at=min(silence.lost_at, self.now + _LOOK_AROUND_S),
            )
        again = None if silence is None else silence.lost_at
        taken_back = list(self._taken_back(node))
        if mark is None and not taken_back and not has_soft_taint(node):
            again = again if again is not None and again > self.now else None
            return self._unread(node, again)
        if node.ready != "True":
            return Evaluation(again_at=self.now + 5.0)  # no signal and not Ready: it may still go
        instructions = [*self._uncordoned(node), *taken_back]
        if has_soft_taint(node):
            why = "the notice was taken back"
            instructions.append(EditTaints(node=node.name, uid=node.uid, remove=(SOFT_TAINT,), why=why))
        words = f"{node.name} stays: the notice was taken back"
        instructions.append(
            EmitEvent(kind=Kind.NODE, key=node.key, uid=node.uid, reason=Reason.WITHDRAWN, message=words, warning=False)
        )
        return Evaluation(
            withdrawals=tuple(self._withdrawn(node.name, "the notice was taken back")),
            instructions=tuple(instructions),
        )

    def _taken_back(self, node: Node) -> Iterator[HarmlessWrite]:
        """What the notice asked of its pods. The node may be another one of the same name."""
        for pod in sorted(self.world.pods_on(node.name), key=lambda p: (p.namespace, p.name)):
            left = request_of(pod)
            if left is None or left.source != SOURCE or pod.terminating:
                continue
            if self.queue.holder(subject_of(pod)) is not None:
                continue  # its operator sees that the notice is gone
            yield withdraw(pod, "the notice was taken back")

    def _unread(self, node: Node, again: float | None) -> Evaluation:
        """No readable notice. One that cannot be read is reported, since its author expects the node to be emptied."""
        problem = unread(node, self.policy)
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
            if standing is None or replacing(standing) is None or standing.source != SOURCE:
                continue
            if not self.queue.is_running(standing.id):
                yield Withdrawal(standing.id, Reason.WITHDRAWN, f"{name}: {why}")
