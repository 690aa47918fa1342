"""What is wrong with one workload, who should go, and why not yet.

switched off?      pods with our affinity are recreated one by one (`on-disable`), adopted ones lose our labels
not understood?    left alone, and its owner is told
a pod stuck?       on-demand is full: it may try again without the requirement (`on-shortage`)
being changed?     wait: a rollout recreates all pods anyway
paused?            the last attempt failed: wait
off its target?    propose to move exactly the difference, those with room first
fallen back?       return to spot, late and slowly
"""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from mooring.capabilities.drain.leaders import is_handed_over
from mooring.capabilities.drain.readiness import blocked_by_budget, is_ready, subject_of, target_of
from mooring.capabilities.drain.replace_pod import replacing
from mooring.capabilities.drain.request import can_detach, request_of
from mooring.capabilities.drain.room import NodeRoom, is_pinned
from mooring.capabilities.mix import memory as remembering
from mooring.capabilities.mix.admission.book import SlotBook
from mooring.capabilities.mix.interruption.notices import InterruptedNodes
from mooring.capabilities.mix.labels import CUSTOM, MODE, RESERVATION, Managed, Misconfigured
from mooring.capabilities.mix.memory import Note
from mooring.capabilities.mix.policy import MixPolicy, OnDisable, OnShortage, RebalancePolicy
from mooring.capabilities.mix.rebalance.detached import DetachedPods
from mooring.capabilities.mix.rebalance.health import Health, Healths
from mooring.capabilities.mix.rebalance.misplaced import (
    CHANGE_RULES,
    Candidate,
    MovePlan,
    carries_ours,
    immovable,
    is_repaired,
    plan,
    starved,
    stuck,
)
from mooring.capabilities.mix.rebalance.room import Room
from mooring.capabilities.mix.schemes import Schemes
from mooring.capabilities.mix.worth import Worth, worth_of
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Pod, Workload
from mooring.core.model.decision import Verdict
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.model.spelling import counted
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead

if TYPE_CHECKING:
    from mooring.capabilities.mix.capability import Mix

SOURCE = "mix"
#: After an admission gap the pods are still new.
_REPAIR_SETTLE_S = 2.0
_CLASSES = (NodeClass.ON_DEMAND, NodeClass.SPOT)


class WorkloadNotes(msgspec.Struct, frozen=True, gc=False):
    """Soft memory of one workload, from one evaluation to the next."""

    #: The pods whose moves were proposed. The queue says which of them stand; asking it about every pod costs more.
    moves: tuple[str, ...] = ()
    #: Since when spot has had room for pods that fell back to on-demand.
    spot_room_since: float | None = None
    worth: Worth | None = None


NO_NOTES = WorkloadNotes()


class Case(msgspec.Struct, frozen=True, gc=False):
    """Who should go, and what it would fix; or why none goes just now."""

    candidates: tuple[Candidate, ...] = ()
    #: Pods that stand wrong for this reason. At most so many go.
    off_by: int = 0
    verdict: Verdict | None = None
    again_at: float | None = None
    #: Nothing can be said just now: what waits keeps waiting.
    undecided: bool = False


NOTHING_WRONG = Case()


class Diagnosis:
    """One look at one workload. Made for one question and thrown away."""

    def __init__(
        self,
        mix: "Mix",
        workload: Workload,
        world: WorldRead,
        queue: QueueRead,
        now: float,
        notes: WorkloadNotes = NO_NOTES,
    ) -> None:
        self.mix = mix
        self.workload = workload
        self.world = world
        self.queue = queue
        self.now = now
        self.health: Health = world.index(Healths).of(workload, world, now)
        self.management = mix.policy.management_of(workload, mix.left_out)
        self.note: Note = remembering.read(world.config_map(mix.memory_key), workload.uid)
        self.room = Room(mix.policy, world)
        self._fits: dict[tuple[int, NodeClass], bool] = {}
        #: As it is to be remembered, once `case` has been asked.
        self.spot_room_since = notes.spot_room_since
        self.detached: tuple[Pod, ...] = world.index(DetachedPods).of(workload)
        #: All moves of this workload; those of them that are our own; pods that handoff is asked to move.
        self.moves = self._moves(notes.moves)
        self.standing = [one for one in self.moves if one.source == SOURCE]
        self.asking = [one for one in self.standing if one.reason is Reason.UNMET_FLOOR]
        self.requested = self._requested() if self.health.marked else []

    @property
    def policy(self) -> MixPolicy:
        return self.mix.policy

    @property
    def pace(self) -> RebalancePolicy:
        return self.mix.policy.rebalance

    @property
    def worth(self) -> Worth | None:
        """None: not managed."""
        if not isinstance(self.management, Managed):
            return None
        return worth_of(self.health, self.management.target, self.policy.prices, self.world)

    def _moves(self, proposed: tuple[str, ...]) -> list[Operator]:
        """Moves of this workload, waiting or running, until the last of its replacements is Ready. Those that were read
        back from their marks, and those of its nodes, were never proposed here; their pods carry the marks."""
        if not proposed and not self.health.marked and not self.detached:
            return []
        subjects = dict.fromkeys([*proposed, *map(subject_of, (*self.health.marked, *self.detached))])
        found = [self.queue.holder(subject) for subject in subjects]
        return [
            one
            for one in found
            if one is not None and (how := replacing(one)) is not None and how.workload_uid == self.workload.uid
        ]

    def _requested(self) -> list[Pod]:
        marks = [(pod, request_of(pod)) for pod in self.health.marked]
        return [pod for pod, mark in marks if mark is not None and mark.source == SOURCE and not mark.operator]

    # ── What is wrong ─────────────────────────────────────────────────────────────────────────────────────────

    def case(self) -> Case:
        """The first thing that is wrong, the most harmful first."""
        if isinstance(self.management, Misconfigured):
            return NOTHING_WRONG
        if not isinstance(self.management, Managed):
            return self._disabled()
        health, name = self.health, self.workload.name
        waiting = self._starving() if health.unplaced else []
        shortage = stuck(waiting, self.world.index(Schemes).tolerations) if waiting else []
        if shortage:
            return self._shortage(shortage)
        if health.changing:
            return self._waits(Reason.SETTLING, f"{name} {health.changing}")
        urgent = self.world.index(InterruptedNodes).urgent
        if urgent and any(p.node in urgent for p in health.pods):
            return self._waits(Reason.NOTICE, f"{name} has pods on an interrupted node")
        if waiting:
            return self._starved(waiting[0])
        found = plan(health, self.management.target, self.world, to_spot=self.pace.to_spot)
        if self.asking and self._have_asked():
            return self._still_asking(found)
        if found.off_by:
            words = self._wanted_words(found)
            # A pod on a node that is being emptied is moved off it anyway.
            stay = tuple(c for c in found.candidates if c.pod.node not in self.interrupted)
            if found.candidates and not stay:
                return self._waits(Reason.NOTICE, f"{name} has pods on a node that is being emptied")
            return self._guarded(stay, found.off_by, words)
        case = self._returning(health)
        return self._in_transit(found) if case.verdict is None else case

    def _wanted_words(self, found: MovePlan) -> str:
        assert isinstance(self.management, Managed)
        return f"{self.management.target} wants {found.wanted} of {self.health.wanted} on on-demand, has {found.have}"

    @property
    def interrupted(self) -> set[str]:
        return self.world.index(InterruptedNodes).names

    def measure(self, reason: str) -> int:
        """How many pods stand wrong for this reason, now."""
        match reason:
            case Reason.RETURN_TO_SPOT:
                return len(self.health.fallen_back)
            case Reason.DISABLED:
                return sum(carries_ours(p) for p in self.health.pods)
            case Reason.NOTICE:
                return sum(map(self.world.index(InterruptedNodes).has, [p.node for p in self.health.pods]))
            case Reason.NO_ROOM:
                return len(stuck(starved(self.health, self.now, 0.0), self.world.index(Schemes).tolerations))
            case _ if isinstance(self.management, Managed):
                return plan(self.health, self.management.target, self.world, to_spot=self.pace.to_spot).off_by
            case _:
                return 0

    def _disabled(self) -> Case:
        ours = [pod for pod in self.health.pods if carries_ours(pod)]
        if not ours or self.policy.on_disable is OnDisable.LEAVE:
            return NOTHING_WRONG
        if self.health.changing:
            return self._waits(Reason.SETTLING, f"{self.workload.name} {self.health.changing}")
        words = f"{self.workload.name} is switched off; {counted(len(ours), 'pod')} with our affinity left"
        found = tuple(Candidate(pod, NodeClass.UNKNOWN, Reason.DISABLED, words) for pod in ours)
        return self._guarded(found, len(ours), words)

    def _shortage(self, pods: list[Pod]) -> Case:
        words = f"{pods[0].name} finds no on-demand node ({self.room.lack(pods[0], NodeClass.ON_DEMAND).words})"
        if self.policy.on_shortage is OnShortage.WAIT:
            remedy = "add on-demand nodes, or set mix.on-shortage to relax"
            verdict = Verdict(State.BLOCKED, Reason.NO_ROOM, f"{words}, on-shortage: wait", remedy)
            return Case(verdict=verdict, again_at=self.now + self.pace.look_again_s)
        # Deleting a pod that never started disrupts nothing; its own fact is what it is charged for.
        found = tuple(Candidate(p, NodeClass.ON_DEMAND, Reason.NO_ROOM, f"{words}: let it prefer one") for p in pods)
        return self.paused() or Case(found, len(found), Verdict(State.WAITING, Reason.NO_ROOM, words))

    def _starved(self, pod: Pod) -> Case:
        """It may go to either class, and neither has room: nothing that moving it would help."""
        lacks = [f"no {one} node has room ({self.room.lack(pod, one).words})" for one in _CLASSES]
        words = f"{pod.name} finds no node: {'; '.join(lacks)}"
        verdict = Verdict(State.WAITING, Reason.NO_ROOM, words, "add nodes, or make room on them")
        return Case(verdict=verdict, again_at=self.now + self.pace.look_again_s)

    def _guarded(self, candidates: tuple[Candidate, ...], off_by: int, words: str) -> Case:
        """Not while pods come and go, not right after a failure, and only those that fit elsewhere."""
        paused = self.paused()
        if paused is not None:
            return paused
        if candidates and self.standing and not self.asking:
            return Case(candidates, off_by, Verdict(State.MOVING, candidates[0].reason, words))
        if not candidates:
            reason, cause, remedy = immovable(self.health, self.world)
            state = State.BLOCKED if remedy else State.WAITING
            return Case(verdict=Verdict(state, reason, f"{words}; {cause}", remedy))
        repairs = is_repaired(self.health, self.world.index(SlotBook), self.now)
        settle_s = min(self.pace.settle_s, _REPAIR_SETTLE_S) if repairs else self.pace.settle_s
        settled_at = self.health.last_change + settle_s
        if self.now < settled_at:
            return self._waits(Reason.SETTLING, f"{words}; it has just changed", settled_at)
        fitting = [c for c in candidates if self._has_room(c)]
        if not fitting:
            return self._asks(candidates, off_by, words)
        return Case(tuple(fitting), off_by, Verdict(State.MOVING, candidates[0].reason, words))

    def _asks(self, candidates: tuple[Candidate, ...], off_by: int, words: str) -> Case:
        """No node has room: an autoscaler makes one for a Pending replacement, and sees nothing else. It costs nothing
        where the replacement comes first; else one replica is away meanwhile, so somebody who makes nodes must be
        known. While pods only prefer on-demand, a replacement would not wait for a node there."""
        first = candidates[0]
        if all(is_pinned(c.pod, self.world) for c in candidates):
            words, remedy = f"{words}; the volume of {first.pod.name} is bound to {first.pod.node}", self._accept()
            return Case(verdict=Verdict(State.BLOCKED, Reason.LOCAL_VOLUME, words, remedy))
        lacking = self._without_room(first, words)
        if first.wanted is not NodeClass.ON_DEMAND or lacking.verdict is None or self.now < self.note.relaxed_until:
            return lacking
        if lacking.verdict.reason is not Reason.NO_ROOM or (self.note.begun and not self.moves):
            return lacking  # more nodes would not help; or the last request was taken back and has not ended yet
        found = [c for c in candidates if can_detach(c.pod, self.workload) and is_ready(c.pod, self.workload, self.now)]
        if not found and not self.world.index(NodeRoom).autoscaler:
            return self._without_room(first, words, "no autoscaler is known here, so none is asked")
        asked = found or [c for c in candidates if not is_handed_over(c.pod, self.world)]
        floor = tuple(msgspec.structs.replace(c, reason=Reason.UNMET_FLOOR) for c in asked)
        return msgspec.structs.replace(lacking, candidates=floor, off_by=off_by)

    def _have_asked(self) -> bool:
        there = {p.uid for p in self.health.pods}
        return any((how := replacing(one)) is not None and how.uid not in there for one in self.asking)

    def _still_asking(self, found: MovePlan) -> Case:
        words = self._wanted_words(found)
        for pod in self.health.unplaced:
            if not pod.schedulable:
                asks = Candidate(pod, NodeClass.ON_DEMAND, Reason.UNMET_FLOOR, words)
                return self._without_room(asks, words, f"{pod.name} is Pending, so that an autoscaler sees it")
        return Case(verdict=Verdict(State.MOVING, Reason.UNMET_FLOOR, f"{words}; a replacement starts"))

    def _starving(self) -> list[Pod]:
        """Without those that ask for a node. One whose request was taken back is deleted by its ReplicaSet, as soon as
        that has its old pod again."""
        found = sorted(starved(self.health, self.now, self.pace.shortage_s), key=lambda p: (p.created_at, p.name))
        asked_at = self.note.last_move if self.note.begun and self.note.reason == Reason.UNMET_FLOOR else 0.0
        recent = self.now < asked_at + self.pace.room_for_s + self.pace.shortage_s
        return found[: max(0, len(found) - max(len(self.asking), int(recent)))]

    def _returning(self, health: Health) -> Case:
        """Back to spot once it has had room for a while: one of a workload first, and where it stayed the others, each
        replaced before it goes, as many at once as fit into spot and into the workload's surge."""
        away = [p for p in health.fallen_back if p.node not in self.interrupted] if self.pace.to_spot else []
        if not away:
            self.spot_room_since = None
            return NOTHING_WRONG
        words = f"{counted(len(away), 'spot pod')} of {self.workload.name} on on-demand nodes"
        found = tuple(Candidate(p, NodeClass.SPOT, Reason.RETURN_TO_SPOT, words) for p in away)
        if self.standing:
            begun = {one.subject for one in self.standing}
            found = tuple(c for c in found if subject_of(c.pod) in begun)
            return Case(found, len(away), Verdict(State.MOVING, Reason.RETURN_TO_SPOT, words))
        if not self._has_room(found[0]):
            self.spot_room_since = None
            return self._without_room(found[0], words)
        if self.spot_room_since is None:
            self.spot_room_since = self.now
        began = self.spot_room_since
        due = max(began + self.pace.room_for_s, self.note.last_move + self.pace.return_after(self.note.attempts))
        if self.now < due:
            return self._waits(Reason.COOLDOWN, f"{words}; they return from {due - self.now:.0f} s on", due)
        case = self._guarded(found, len(away), words)
        return msgspec.structs.replace(case, candidates=tuple(self._wave(case.candidates)))

    def _wave(self, found: tuple[Candidate, ...]) -> Iterator[Candidate]:
        """Those that go together. The last one helped not long ago, or there is one."""
        stayed = not self.note.attempts and self.now < self.note.last_move + self.pace.room_for_s
        most, going = self.workload.max_surge if stayed else 1, self._on_their_way[NodeClass.SPOT.value]
        yield from found[:1]
        for place, one in enumerate(found[1:most], 1):
            if can_detach(one.pod, self.workload) and self.room.fits(one.pod, one.wanted, others=going + place):
                yield one

    def _in_transit(self, found: MovePlan) -> Case:
        """Pods are being created or deleted, so no pod is moved yet; but too few are on on-demand nodes, even if all
        missing ones are created there."""
        health, there = self.health, len(self.health.pods)
        if found.have + max(0, health.wanted - there) >= found.wanted:
            return NOTHING_WRONG
        first = "those that are missing come first" if there < health.wanted else "those that are too many go first"
        words = f"{self._wanted_words(found)}; {self.workload.name} has {counted(there, 'pod')}, {first}"
        return Case(verdict=Verdict(State.WAITING, Reason.SETTLING, words))

    def paused(self) -> Case | None:
        """The last attempts failed: left alone for a while."""
        note = self.note
        until = note.until
        if note.unadmitted_at and self.world.index(SlotBook).asked_at > note.unadmitted_at:
            until = min(until, note.unadmitted_at + self.pace.pause(note.attempts))
        if until <= self.now or note.begun:
            return None
        words = f"{self.workload.name}: {counted(note.attempts, 'attempt')} failed ({note.reason})"
        again = f"again in {until - self.now:.0f} s"
        if not note.unadmitted_at or until < note.until:
            kept, remedy = self._obstacle()
            words = f"{words}; {kept}; {again}" if kept else f"{words}; {again}"
            return Case(verdict=Verdict(State.WAITING, Reason.BACK_OFF, words, remedy), again_at=until)
        words = f"{words}; its successor was created without the webhook; {again}, or when that is reached"
        verdict = Verdict(State.WAITING, Reason.BACK_OFF, words, "see whether the webhook is reachable: mooring doctor")
        return Case(verdict=verdict, again_at=min(until, self.now + self.pace.pause_s))

    def _obstacle(self) -> tuple[str, str]:
        """What keeps the next one now, and what a person can do about it; "": nothing that can be seen."""
        if not isinstance(self.management, Managed):
            return "", ""
        found = plan(self.health, self.management.target, self.world, to_spot=self.pace.to_spot).candidates
        for one in found[:1]:
            budget = blocked_by_budget(one.pod, self.world)
            if budget is not None:
                return budget.detail, budget.remedy or "scale up, or widen the budget"
            if not self._has_room(one):
                verdict = self._without_room(one, "").verdict
                assert verdict is not None
                return verdict.detail, verdict.remedy
        return "", ""

    def _waits(self, reason: Reason, words: str, again_at: float | None = None) -> Case:
        undecided = reason is Reason.SETTLING
        return Case(verdict=Verdict(State.WAITING, reason, words), again_at=again_at, undecided=undecided)

    # ── Of a move ─────────────────────────────────────────────────────────────────────────────────────────────

    def no_longer(self, op: Operator, pod: Pod) -> str:
        """Right before it begins: "" when this move is still wanted, else why not."""
        case = self.case()
        if case.undecided:
            return case.verdict.detail if case.verdict is not None else "it is being changed"
        if not any(c.pod.uid == pod.uid and c.reason is op.reason for c in case.candidates):
            return "nothing is wrong with it any more"
        return "enough others go" if self._ahead_of(op) >= case.off_by else ""

    def is_in_transit(self) -> bool:
        """Pods of other moves are being replaced: which pods are misplaced is known once the replacements are there."""
        return self.health.wanted != len(self.health.pods) and not self.health.changing

    def _ahead_of(self, op: Operator) -> int:
        """Moves of this workload that were released before this one and whose pods are still counted."""
        counted_pods = {pod.uid for pod in self.health.pods}
        running = [self.queue.get(id_) for id_, _ in self.queue.holders(target_of(self.workload))]
        mine = [
            o
            for o in running
            if o is not None and o.source == SOURCE and (how := replacing(o)) and how.uid in counted_pods
        ]
        return next((place for place, one in enumerate(mine) if one.id == op.id), 0)

    def note_after(self) -> Note:
        """A move has ended: better than before, so the attempts are forgotten; or not, and the workload is paused."""
        note = self.note
        if not note.begun or self.moves or self.requested or self.health.missing or self.health.changing:
            return note
        if len(self.health.pods) > self.health.wanted:
            return note  # a replacement that was taken back is about to be deleted
        same = str(self.management.target) if isinstance(self.management, Managed) else ""
        helped = self.measure(note.reason) < note.off_by or same != note.wanted
        if helped or len(self.health.pods) != self.health.wanted:
            return Note(last_move=note.last_move, relaxed_until=note.relaxed_until)
        since = note.last_move - 1.0  # the API server writes whole seconds
        alone = any(p.created_at > since and RESERVATION not in p.annotations for p in self.health.pods)
        until = self.now + self.pace.pause(note.attempts, alone=alone)
        return msgspec.structs.replace(note, begun=False, until=until, unadmitted_at=self.now if alone else 0.0)

    def note_before(self, reason: Reason) -> Note:
        """What is remembered before a move: as if it had failed."""
        under_way = self.note.begun
        attempts = self.note.attempts if under_way else self.note.attempts + 1
        relaxed = self.now + self.pace.relaxed_s if reason is Reason.NO_ROOM else self.note.relaxed_until
        return Note(
            until=self.now + self.pace.pause(attempts),
            attempts=attempts,
            last_move=self.now,
            begun=True,
            reason=reason.value,
            off_by=self.note.off_by if under_way else self.measure(reason),
            wanted=str(self.management.target) if isinstance(self.management, Managed) else "",
            relaxed_until=relaxed,
        )

    # ── Room ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _has_room(self, candidate: Candidate) -> bool:
        pod, wanted = candidate.pod, candidate.wanted
        if wanted is NodeClass.UNKNOWN or not pod.node:
            return True
        # Where nothing but the shape decides, of which there is one instance, alike pods ask once.
        alike = id(pod if pod.claims or pod.shape.anti_affinity_keys else pod.shape), wanted
        if alike not in self._fits:
            self._fits[alike] = self.room.fits(pod, wanted, others=self._on_their_way[wanted.value])
        return self._fits[alike]

    @cached_property
    def _on_their_way(self) -> Counter[str]:
        """Running moves of housekeeping by the class that their successors go to."""
        running = [record.operator for record in self.queue.running_records()]
        return Counter([how.node_class for one in running if one.source == SOURCE and (how := replacing(one))])

    def _without_room(self, candidate: Candidate, words: str, then: str = "") -> Case:
        lack = self.room.lack(candidate.pod, candidate.wanted)
        parts = words, then, f"no {candidate.wanted} node has room ({lack.words})"
        words = "; ".join(part for part in parts if part)
        verdict = Verdict(State.WAITING, Reason.NO_ROOM, words, self._make_room(candidate.wanted))
        if lack.by_own_rules:
            verdict = Verdict(State.BLOCKED, Reason.CONFLICT, words, CHANGE_RULES)
        return Case(verdict=verdict, again_at=self.now + self.pace.look_again_s)

    def _make_room(self, wanted: NodeClass) -> str:
        """What a person can do, or type, about a floor that is not met; returning to spot only saves money."""
        if wanted is not NodeClass.ON_DEMAND:
            return ""
        return f"add on-demand nodes, or ask for fewer: {self._accept()}"

    def _accept(self) -> str:
        """Asks for as many on on-demand nodes as there are."""
        workload, have = self.workload, self.health.on_demand - len(self.health.exposed)
        label = f"kubectl -n {workload.namespace} label {workload.kind.lower()}/{workload.name}"
        return f"{label} {MODE}=custom {CUSTOM}={have} --overwrite"
