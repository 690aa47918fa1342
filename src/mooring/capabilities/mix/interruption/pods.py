"""What is done about the pods of one node that has a notice.

Only pods of workloads that are switched on are moved, unless `everybody: evict` says otherwise. Those of a Deployment
leave once their replacement is Ready. A StatefulSet has no surge, so its pods go a few at a time: with a deadline never
below quorum before the last call; without one a pod at a time, as its budget allows and only where there is room
elsewhere. A TiKV or PD pod is not ours to delete: a request is written on it, and handoff takes its leaders off first.
"""

from functools import cache
from typing import TYPE_CHECKING, Final

from mooring.capabilities.drain.cordon import came_past
from mooring.capabilities.drain.leaders import is_handed_over, kept_leaders
from mooring.capabilities.drain.readiness import is_ready, subject_of
from mooring.capabilities.drain.request import DETACH, EVICT, ask, ask_sooner, can_detach, is_detached, request_of
from mooring.capabilities.mix.interruption.notices import SOURCE, InterruptedNodes, Notice, mark_of
from mooring.capabilities.mix.labels import Managed
from mooring.capabilities.mix.moves import move, notice_on, without_workload
from mooring.capabilities.mix.policy import SOURCES, UnmanagedPods
from mooring.capabilities.mix.rebalance.diagnosis import Diagnosis
from mooring.capabilities.mix.rebalance.health import Healths
from mooring.capabilities.mix.rebalance.room import Room
from mooring.capabilities.mix.slots import class_of
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Node, Pod, Workload
from mooring.core.model.decision import Verdict, Withdrawal
from mooring.core.model.instructions import HarmlessWrite
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead

if TYPE_CHECKING:
    from mooring.capabilities.mix.capability import Mix

#: After its deadline a pod that is no longer reported on is no longer counted.
_GONE_AFTER_S: Final = 30.0
_SOON_S: Final = 5.0
#: Whether the last move of a workload helped is told by its own key, a moment later.
_JUDGED_S: Final = 2.0
_HANDOFF_OFF: Final = "mooring run --features handoff=true,mix=true"


class Emptying:
    """Filled by `of`: what to propose, withdraw and write, and what keeps which pod."""

    def __init__(self, mix: "Mix", world: WorldRead, queue: QueueRead, now: float, notice: Notice) -> None:
        self.mix = mix
        self.policy = mix.policy.interruption
        self.world = world
        self.queue = queue
        self.now = now
        self.notice = notice
        self.time = notice_on(notice.node, notice.deadline, now, self.policy, world)
        self._seen: dict[str, Diagnosis] = {}
        self._stays = cache(self._has_no_mark)
        self.proposals: list[Operator] = []
        self.withdrawals: list[Withdrawal] = []
        self.instructions: list[HarmlessWrite] = []
        #: Why pods stay for now.
        self.kept: list[Verdict] = []
        #: Pods whose move stands already.
        self.moving = 0
        self.wakes = [now + (_SOON_S if notice.deadline is not None else mix.policy.rebalance.look_again_s)]

    def of(self, node: Node) -> "Emptying":
        mark = mark_of(node)
        for pod, workload in self._by_risk(node):
            if self._only_prepares(pod, workload):
                continue
            stays = came_past(pod, mark.since) if mark is not None and pod.active and not is_detached(pod) else None
            if stays is not None and not self._is_last_call(pod):
                self._keep(pod, stays)
            elif is_handed_over(pod, self.world):
                self._hand_over(pod)
            elif workload is None:
                self._unowned(pod)
            else:
                self._move(pod, workload)
        self.moving += len(self.proposals)
        return self

    def _only_prepares(self, pod: Pod, workload: Workload | None) -> bool:
        """On a recommendation a pod goes only once its replacement serves, and only if it was there before: those that
        came since had nowhere else to go, and would come back."""
        since = self.notice.prepares_since
        if since is None or workload is None:
            return False
        standing = self.queue.holder(subject_of(pod))
        if standing is not None and standing.source != SOURCE:
            return True
        surges = can_detach(pod, workload) and is_ready(pod, workload, self.now) and not is_handed_over(pod, self.world)
        return not surges or pod.created_at >= since

    def _by_risk(self, node: Node) -> list[tuple[Pod, Workload | None]]:
        """Pods that can be moved; the one with the fewest Ready siblings elsewhere first."""
        found: list[tuple[int, str, str, Pod, Workload | None]] = []
        for pod in self.world.pods_on(node.name):
            if pod.is_mirror or pod.terminal:
                continue
            workload, handed = self.world.workload_of(pod), is_handed_over(pod, self.world)
            if workload is None and not handed:
                if is_detached(pod) or (pod.terminating and request_of(pod) is not None) or self._is_evicted(pod):
                    found.append((0, pod.namespace, pod.name, pod, None))
                continue
            if handed or workload is None:
                found.append((0, pod.namespace, pod.name, pod, workload))
            elif self._is_managed(workload) or self._takes_everybody():
                found.append((self._safe(workload), pod.namespace, pod.name, pod, workload))
        return [(pod, workload) for *_, pod, workload in sorted(found, key=lambda one: one[:3])]

    def _safe(self, workload: Workload) -> int:
        """Ready pods on nodes that stay."""
        marked, known, stays = self.world.index(InterruptedNodes).marked, self.world.node_classes(), self._stays
        pods = self.world.index(Healths).of(workload, self.world, self.now).pods
        return sum([p.ready and ((p.node not in marked and p.node in known) or stays(p.node)) for p in pods])

    def _is_managed(self, workload: Workload) -> bool:
        return isinstance(self.mix.policy.management_of(workload, self.mix.left_out), Managed)

    def _takes_everybody(self) -> bool:
        urgent = self.notice.deadline is not None and not self.notice.lost
        return urgent and self.policy.everybody is UnmanagedPods.EVICT

    def _is_evicted(self, pod: Pod) -> bool:
        """A pod of another controller (a Job, a lone ReplicaSet, an operator's). Never a DaemonSet's."""
        owned = pod.owner is not None and pod.owner.kind not in {Kind.DAEMON_SET, Kind.NODE}
        return owned and pod.active and self._takes_everybody()

    def _has_no_mark(self, name: str) -> bool:
        """Before the first pod moves every interrupted node has its cordon, and with it our mark."""
        node = self.world.node(name)
        return node is not None and mark_of(node) is None

    def _is_last_call(self, pod: Pod) -> bool:
        """The last call for pods that came past the cordon: one eviction, with its grace. Later ones are left alone."""
        call = self.time.last_call(pod)
        return call is not None and pod.created_at < call <= self.now

    def _keep(self, pod: Pod, stays: Verdict) -> None:
        call = self.time.last_call(pod)
        self.wakes += [call] if call is not None else []
        self.kept.append(stays)
        standing = self.queue.holder(subject_of(pod))
        if standing is not None and standing.source == SOURCE and not self.queue.is_running(standing.id):
            self.withdrawals.append(Withdrawal(standing.id, Reason.WITHDRAWN, stays.detail))

    # ── One pod ───────────────────────────────────────────────────────────────────────────────────────────────

    def _move(self, pod: Pod, workload: Workload) -> None:
        mark = request_of(pod)
        if not pod.active or (mark is not None and mark.source not in SOURCES):
            return
        if workload.kind == Kind.STATEFUL_SET and self.notice.lost:
            return  # it may still run there: two of one name is worse than one too few
        standing = self.queue.holder(subject_of(pod))
        if standing is not None and self.queue.is_running(standing.id):
            self.moving += 1
            return
        wanted = self._urgent_move(pod, workload) if self.notice.deadline is not None else self._calm(pod, workload)
        if wanted is None:
            if standing is not None and standing.source == SOURCE:
                self.withdrawals.append(Withdrawal(standing.id, Reason.WITHDRAWN, self.kept[-1].detail))
            return
        if standing is not None and (standing.source != SOURCE or standing.cost != wanted.cost):
            self.withdrawals.append(Withdrawal(standing.id, Reason.DEADLINE, wanted.detail))
        self.proposals.append(wanted)

    def _urgent_move(self, pod: Pod, workload: Workload) -> Operator:
        """From the last call on it is lost anyway: its workload's room and its budget no longer keep it."""
        call = self.time.last_call(pod)
        assert call is not None
        short_at = call if workload.kind == Kind.STATEFUL_SET else call - self.policy.start_s
        self.wakes.append(short_at)
        words = f"{self.notice.signal} on {pod.node}"
        surges = self._is_managed(workload) and can_detach(pod, workload)
        # Until the last call a pod that serves loses nothing by going on while its replacement starts.
        until = self.time.serves_until(pod)
        assert until is not None
        if surges and is_ready(pod, workload, self.now) and not self.notice.lost and self.now < until:
            return self._operator(pod, workload, DETACH, Reason.NOTICE, words, takes_room=False)
        if self.now >= short_at:
            words = f"{words}; no time left to wait for its workload"
            return self._operator(pod, workload, EVICT, Reason.DEADLINE, words, takes_room=False)
        return self._operator(pod, workload, EVICT, Reason.NOTICE, words, takes_room=True)

    def _calm(self, pod: Pod, workload: Workload) -> Operator | None:
        """The machine is not taken away at a known moment: the pod goes like every other move, or says what keeps
        it."""
        seen = self._seen.get(workload.uid)
        if seen is None:
            seen = self._seen[workload.uid] = Diagnosis(self.mix, workload, self.world, self.queue, self.now)
        if seen.note.begun and not seen.moves:
            self.wakes.append(self.now + _JUDGED_S)
            self.kept.append(Verdict(State.WAITING, Reason.SETTLING, f"{pod.name} stays until the last move has ended"))
            return None
        paused = seen.paused()
        if paused is not None and paused.verdict is not None:
            self.wakes += [paused.again_at] if paused.again_at is not None else []
            self.kept.append(paused.verdict)
            return None
        if not self._has_room(pod):
            return None
        words = f"{self.notice.signal} on {pod.node}"
        if can_detach(pod, workload) and is_ready(pod, workload, self.now):
            return self._operator(pod, workload, DETACH, Reason.NOTICE, words, takes_room=False)
        return self._operator(pod, workload, EVICT, Reason.NOTICE, words, takes_room=True)

    def _has_room(self, pod: Pod) -> bool:
        room, given = Room(self.mix.policy, self.world), class_of(pod, self.world)
        classes = (NodeClass.ON_DEMAND,) if given is NodeClass.ON_DEMAND else (NodeClass.SPOT, NodeClass.ON_DEMAND)
        if any(room.fits(pod, one) for one in classes):
            return True
        lacks = "; ".join(f"no {one} node has room ({room.lack(pod, one).words})" for one in classes)
        self.kept.append(Verdict(State.WAITING, Reason.NO_ROOM, f"{pod.name} stays: {lacks}"))
        return False

    def _operator(
        self, pod: Pod, workload: Workload, way: str, reason: Reason, words: str, *, takes_room: bool
    ) -> Operator:
        deadline = self.notice.deadline
        return move(
            pod,
            workload,
            source=SOURCE,
            way=way,
            reason=reason,
            detail=words,
            deadline=deadline,
            takes_room=takes_room,
        )

    def _hand_over(self, pod: Pod) -> None:
        """Ask handoff for a TiKV or PD pod. Its leaders leave as far as time allows; it is never deleted with them."""
        mark = request_of(pod)
        if pod.terminating or self.notice.lost:
            return
        if mark is not None and mark.source != SOURCE:
            sooner = ask_sooner(pod, mark, self.notice.deadline, f"its node is interrupted: {self.notice.signal}")
            self.instructions += [sooner] if sooner is not None else []
            return
        if not self.world.is_on("handoff"):
            words = f"{pod.name} is a member of TiKV or PD: handoff moves it, and handoff is off"
            self.kept.append(Verdict(State.BLOCKED, Reason.FEATURE_OFF, words, _HANDOFF_OFF))
            return
        kept = kept_leaders(pod, self.world, self.queue)
        if kept is not None:
            self.kept.append(kept)
        else:
            self.moving += 1
        if mark is not None and (mark.deadline is not None or self.notice.deadline is None):
            return
        words, why = f"{self.notice.signal} on {pod.node}", "asks for its leaders to be taken off"
        until = self.notice.deadline
        self.instructions.append(ask(pod, SOURCE, Reason.NOTICE.value, words, self.now, why=why, deadline=until))

    def _unowned(self, pod: Pod) -> None:
        """A detached pod that no operator of ours knows any more, or that a dead node will never report on; or a pod of
        another controller (`everybody: evict`)."""
        standing = self.queue.holder(subject_of(pod))
        if standing is not None and self.queue.is_running(standing.id):
            self.moving += 1
            return
        deadline, evicted = self.notice.deadline, self._is_evicted(pod)
        over = deadline is not None and not self.notice.lost and self.now > deadline + _GONE_AFTER_S
        if not evicted and not (is_detached(pod) and (over or not pod.terminating)):
            return
        call = self.time.last_call(pod)
        words, reason = f"{self.notice.signal} on {pod.node}", Reason.NOTICE if evicted else Reason.SWEPT
        room = evicted and call is not None and self.now < call
        self.wakes += [call] if call is not None else []
        if standing is not None and room != any(t.startswith("workload/") for t in standing.cost):
            self.withdrawals.append(Withdrawal(standing.id, Reason.DEADLINE, words))
        way = EVICT if evicted else DETACH
        self.proposals.append(
            without_workload(pod, source=SOURCE, reason=reason, detail=words, way=way, deadline=deadline, room=room)
        )


def quorum_room(workload: Workload) -> int:
    """How many of a StatefulSet on interrupted nodes may go at once and leave a quorum; one when there is none."""
    return max(1, -(-workload.replicas // 2) - 1)
