"""One look at one workload: what is wrong, who should go, and why not yet.

switched off?      pods with our affinity are made anew one by one (`on-disable`), adopted ones lose our labels
not understood?    left alone, and its owner is told
a pod stuck?       on-demand is full: it may try again without the requirement (`on-shortage`)
being changed?     wait: a rollout makes all pods anew anyway
paused?            the last attempt failed: wait
off its target?    propose to move exactly the difference, those with room first
fallen back?       return to spot, late and slowly
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from mooring.capabilities.drain.component import is_handed_over
from mooring.capabilities.drain.detach import DETACH, EVICT, can_detach, drop_mark, mark_on, put_mark
from mooring.capabilities.drain.readiness import is_ready, subject_of, target_of
from mooring.capabilities.mix import memory as remembering
from mooring.capabilities.mix.labels import AFFINITY, Managed, Misconfigured, wish_of
from mooring.capabilities.mix.memory import Note
from mooring.capabilities.mix.policy import SOURCES, OnDisable, OnShortage
from mooring.capabilities.mix.rebalance.health import Health, facts_of, health_of, is_fast
from mooring.capabilities.mix.rebalance.misplaced import (
    CHANGE_RULES,
    Candidate,
    Plan,
    carries_ours,
    immovable,
    mend,
    plan,
    stuck,
    unmark,
)
from mooring.capabilities.mix.rebalance.move import ALL_MOVES, operator, read_back
from mooring.capabilities.mix.rebalance.room import Lack
from mooring.capabilities.mix.targets import Target
from mooring.capabilities.mix.wording import counted
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Pod, Workload
from mooring.core.model.decision import Evaluation, Verdict, Withdrawal
from mooring.core.model.instructions import EmitEvent, Instruction
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import Mark
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import Queue
from mooring.core.world.read import WorldRead

if TYPE_CHECKING:
    from mooring.capabilities.mix.capability import Mix

SOURCE = "mix"


class Case(msgspec.Struct, frozen=True, gc=False):
    """Who should go, and what it would mend; or why nobody goes just now."""

    candidates: tuple[Candidate, ...] = ()
    #: Pods that stand wrong for this reason. At most so many go.
    off_by: int = 0
    verdict: Verdict | None = None
    again_at: float | None = None
    #: Nothing can be said just now: what waits keeps waiting.
    undecided: bool = False


NOTHING_WRONG = Case()


class Rebalance:
    def __init__(self, mix: "Mix", workload: Workload, world: WorldRead, queue: Queue, now: float) -> None:
        self.mix = mix
        self.policy = mix.policy
        self.pace = mix.policy.rebalance
        self.workload = workload
        self.world = world
        self.queue = queue
        self.now = now
        self.health: Health = health_of(workload, world, now)
        self.wish = wish_of(workload, mix.policy.deployment_target, mix.left_out)
        self.note: Note = mix.note_of(workload.uid, world)
        self._operators: list[Operator] | None = None

    # ── The look ──────────────────────────────────────────────────────────────────────────────────────────────

    def evaluate(self) -> Evaluation:
        if isinstance(self.wish, Misconfigured):
            words = f"{self.workload.name} is not managed: {self.wish}"
            told = self._tell(Reason.MISCONFIGURED, words, warning=True)
            verdict = Verdict(State.BLOCKED, Reason.MISCONFIGURED, words, "correct the label")
            return Evaluation(verdict=verdict, instructions=(told,), withdrawals=tuple(self._withdrawn(())))
        managed = isinstance(self.wish, Managed)
        instructions: list[Instruction] = []
        if isinstance(self.wish, Managed):
            instructions += self._mended(self.wish.target)
        else:
            instructions += [unmark(p) for p in self.health.pods if AFFINITY in p.labels and not carries_ours(p)]
        settled = self._settle_note()
        if settled is not None:
            instructions.append(settled)
        case = self.case()
        chosen = self._chosen(case)
        handed = [c for c in chosen if is_handed_over(c.pod, self.world)]
        instructions += [self._wish(c) for c in handed if mark_on(c.pod) is None]
        if not case.undecided:
            instructions += self._swept(frozenset(c.pod.uid for c in chosen))
        proposals = [self._proposal(c) for c in chosen if c not in handed and self._is_free(c.pod)]
        proposals += self._taken_over()
        busy = bool(self._standing())
        needed = managed or bool(case.candidates) or busy
        return Evaluation(
            proposals=tuple(proposals),
            withdrawals=() if case.undecided else tuple(self._withdrawn(chosen)),
            facts=tuple(facts_of(self.health, self.queue, self.now)) if needed else (),
            limits=self._limits() if needed else {},
            instructions=tuple(instructions),
            verdict=case.verdict,
            again_at=self._again_at(case),
        )

    def _limits(self) -> dict[str, int | None]:
        mine = self.mix.limit_of(self.workload, self.world)
        return {target_of(self.workload): mine, ALL_MOVES: self.pace.at_once}

    def _again_at(self, case: Case) -> float | None:
        """Also when a pod that is Ready becomes available, and when one that finds no node has waited long enough."""
        times = [case.again_at]
        if self.workload.min_ready_s:
            since = [p.ready_since for p in self.health.pods if p.ready and p.ready_since is not None]
            times += [at + self.workload.min_ready_s for at in since]
        if isinstance(self.wish, Managed):
            waiting = [p for p in self.health.unplaced if not p.schedulable]
            times += [p.created_at + self.pace.shortage_s for p in waiting]
        return min((at for at in times if at is not None and at > self.now), default=None)

    # ── What is wrong ─────────────────────────────────────────────────────────────────────────────────────────

    def case(self) -> Case:
        """The first thing that is wrong, by what hurts most."""
        if isinstance(self.wish, Misconfigured):
            return NOTHING_WRONG
        if not isinstance(self.wish, Managed):
            return self._disabled()
        health, name = self.health, self.workload.name
        shortage = stuck(health, self.now, self.pace.shortage_s)
        if shortage:
            return self._shortage(shortage)
        if health.changing:
            return self._waits(Reason.SETTLING, f"{name} {health.changing}")
        doomed = self.mix.watchlist.doomed
        if doomed and any(p.node in doomed for p in health.pods):
            return self._waits(Reason.NOTICE, f"{name} has pods on a node that is about to go")
        found = plan(health, self.wish.target, self.world, to_spot=self.pace.to_spot)
        if found.off_by:
            return self._guarded(found.candidates, found.off_by, self._words(self.wish.target, found))
        return self._returning(health)

    def _words(self, target: Target, found: Plan) -> str:
        return f"{target} wants {found.wanted} of {self.health.wanted} on on-demand, has {found.have}"

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
        first = Candidate(pods[0], NodeClass.ON_DEMAND, Reason.NO_ROOM, "")
        words = f"{pods[0].name} finds no on-demand node ({self._lack(first).words})"
        if self.policy.on_shortage is OnShortage.WAIT:
            remedy = "add on-demand nodes, or set mix.on-shortage to relax"
            verdict = Verdict(State.BLOCKED, Reason.NO_ROOM, f"{words}, on-shortage: wait", remedy)
            return Case(verdict=verdict, again_at=self.now + self.pace.look_again_s)
        # Deleting a pod that never started hurts nobody; its own fact is what it is charged for.
        found = tuple(Candidate(p, NodeClass.ON_DEMAND, Reason.NO_ROOM, f"{words}: let it prefer one") for p in pods)
        return self._paused() or Case(found, len(found), Verdict(State.WAITING, Reason.NO_ROOM, words))

    def _guarded(self, candidates: tuple[Candidate, ...], off_by: int, words: str) -> Case:
        """Not while pods come and go, not right after a failure, and only those for whom there is room."""
        paused = self._paused()
        if paused is not None:
            return paused
        if candidates and self._standing():
            return Case(candidates, off_by, Verdict(State.MOVING, candidates[0].reason, words))
        if not candidates:
            reason, cause, remedy = immovable(self.health, self.world)
            state = State.BLOCKED if remedy else State.WAITING
            return Case(verdict=Verdict(state, reason, f"{words}; {cause}", remedy))
        settled_at = self.health.last_change + self.pace.settle_s
        if self.now < settled_at:
            return self._waits(Reason.SETTLING, f"{words}; it has just changed", settled_at)
        fitting = [c for c in candidates if self._has_room(c)]
        if not fitting:
            wanted = candidates[0].wanted
            return self._without_room(candidates[0], words, f"add {wanted} nodes, or make room on them")
        return Case(tuple(fitting), off_by, Verdict(State.MOVING, candidates[0].reason, words))

    def _returning(self, health: Health) -> Case:
        """Back to spot once it has had room for a while; one of a workload at a time, and not often."""
        away = health.fallen_back if self.pace.to_spot else ()
        since = self.mix.spot_room_since
        name = self.workload.name
        if not away:
            since.pop(self.workload.uid, None)
            return NOTHING_WRONG
        words = f"{counted(len(away), 'spot pod')} of {name} on on-demand nodes"
        found = tuple(Candidate(p, NodeClass.SPOT, Reason.RETURN_TO_SPOT, words) for p in away)
        if self._standing():
            return Case(found, len(away), Verdict(State.MOVING, Reason.RETURN_TO_SPOT, words))
        if not self._has_room(found[0]):
            since.pop(self.workload.uid, None)
            return self._without_room(found[0], words, "")
        began = since.setdefault(self.workload.uid, self.now)
        due = max(began + self.pace.room_for_s, self.note.last_move + self.pace.return_after(self.note.attempts))
        if self.now < due:
            return self._waits(Reason.COOLDOWN, f"{words}; they return from {due - self.now:.0f} s on", due)
        case = self._guarded(found, len(away), words)
        return msgspec.structs.replace(case, candidates=case.candidates[:1])

    def _paused(self) -> Case | None:
        if self.note.until <= self.now or self.note.begun:
            return None
        words = f"{self.workload.name}: {counted(self.note.attempts, 'attempt')} failed ({self.note.reason})"
        return self._waits(Reason.BACK_OFF, f"{words}; again in {self.note.until - self.now:.0f} s", self.note.until)

    def _waits(self, reason: Reason, words: str, again_at: float | None = None) -> Case:
        undecided = reason is Reason.SETTLING
        return Case(verdict=Verdict(State.WAITING, reason, words), again_at=again_at, undecided=undecided)

    def _has_room(self, candidate: Candidate) -> bool:
        if candidate.wanted is NodeClass.UNKNOWN or not candidate.pod.node:
            return True
        others = sum(
            1
            for one in (self.queue.get(i) for i in self.queue.running)
            if one is not None and one.source == SOURCE and one.args.get("class") == candidate.wanted.value
        )
        doomed = self.mix.watchlist.doomed
        return self.mix.room.fits(candidate.pod, candidate.wanted, self.world, doomed, self.now, others=others)

    def _without_room(self, candidate: Candidate, words: str, remedy: str) -> Case:
        lack = self._lack(candidate)
        words = f"{words}; no {candidate.wanted} node has room ({lack.words})"
        verdict = Verdict(State.WAITING, Reason.NO_ROOM, words, remedy)
        if lack.by_own_rules:
            verdict = Verdict(State.BLOCKED, Reason.CONFLICT, words, CHANGE_RULES)
        return Case(verdict=verdict, again_at=self.now + self.pace.look_again_s)

    def _lack(self, candidate: Candidate) -> Lack:
        doomed = self.mix.watchlist.doomed
        return self.mix.room.lack(candidate.pod, candidate.wanted, self.world, doomed, self.now)

    # ── Who goes ──────────────────────────────────────────────────────────────────────────────────────────────

    def _chosen(self, case: Case) -> tuple[Candidate, ...]:
        """Those that are on their way count; the rest of the places go to the first of the others."""
        limit = min(case.off_by, self.mix.limit_of(self.workload, self.world))
        running = {o.subject for o in self._standing() if self.queue.is_running(o.id)}
        places = max(0, limit - len(running))
        return tuple(c for c in case.candidates if subject_of(c.pod) not in running)[:places]

    def _standing(self) -> list[Operator]:
        """Our own moves of this workload, waiting or running, until the last of its replacements is Ready."""
        if self._operators is None:
            moves = self.mix.moves.of(self.workload, self.queue)
            self._operators = [o for o in moves if o.source == SOURCE]
        return self._operators

    def _detached(self) -> tuple[Pod, ...]:
        workload = self.workload
        return self.mix.detached_of(f"{workload.kind}/{workload.namespace}/{workload.name}", self.world)

    def _withdrawn(self, chosen: tuple[Candidate, ...]) -> Iterator[Withdrawal]:
        wanted = {(subject_of(c.pod), c.reason) for c in chosen}
        for one in self._standing():
            if not self.queue.is_running(one.id) and (one.subject, one.reason) not in wanted:
                yield Withdrawal(one.id, Reason.WITHDRAWN, "nothing is wrong with it any more, or another goes first")

    def _proposal(self, candidate: Candidate) -> Operator:
        pod = candidate.pod
        fast = is_fast(self.workload) and can_detach(pod, self.workload) and is_ready(pod, self.workload, self.now)
        return operator(
            pod,
            self.workload,
            source=SOURCE,
            way=DETACH if fast else EVICT,
            reason=candidate.reason,
            detail=candidate.detail,
            wanted=candidate.wanted,
        )

    def _wish(self, candidate: Candidate) -> Instruction:
        """A TiKV or PD pod: handoff takes it away."""
        pod = candidate.pod
        mark = Mark(
            operator="",
            source=SOURCE,
            reason=candidate.reason.value,
            step="wish",
            since=self.now,
            detail=candidate.detail,
            pod_uid=pod.uid,
            node=pod.node,
        )
        return put_mark(pod, mark, "asks handoff to move it")

    def _is_free(self, pod: Pod) -> bool:
        """Nobody else is taking it away. A mark of ours without an operator (its writer stalled) is taken over."""
        mark = mark_on(pod)
        return mark is None or (mark.source in SOURCES and bool(mark.operator))

    def _taken_over(self) -> Iterator[Operator]:
        """Detached pods that no operator stands for: a write of a stalled leader came late. They end as all others."""
        for pod in self._detached():
            mark = mark_on(pod)
            if mark is not None and mark.source in SOURCES and self.queue.holder(subject_of(pod)) is None:
                yield msgspec.structs.replace(read_back(pod, mark, self.workload), id="")

    def _swept(self, chosen: frozenset[str]) -> Iterator[Instruction]:
        """Marks without cause: a wish that nobody has any more, or a late write of a leader that stalled."""
        for pod in self.health.marked:
            mark = mark_on(pod)
            if mark is None or mark.source not in SOURCES or pod.uid in chosen:
                continue
            if pod.node in self.mix.watchlist.doomed or self.queue.holder(subject_of(pod)) is not None:
                continue
            why = "nothing is wrong with it any more"
            yield drop_mark(pod, why)
            yield EmitEvent(
                kind=Kind.POD, key=pod.key, uid=pod.uid, reason=Reason.SWEPT, message=f"mark removed: {why}"
            )

    def no_longer(self, op: Operator, pod: Pod) -> str:
        """Right before it begins: "" when this move is still wanted, else why not."""
        case = self.case()
        if case.undecided:
            return case.verdict.detail if case.verdict is not None else "it is being changed"
        if not any(c.pod.uid == pod.uid and c.reason is op.reason for c in case.candidates):
            return "nothing is wrong with it any more"
        return ""

    # ── Writes that disturb nobody ────────────────────────────────────────────────────────────────────────────

    def _mended(self, target: Target) -> Iterator[Instruction]:
        if self._standing():
            return
        owners = {p.owner.uid for p in self.health.pods if p.owner is not None}
        if any(self.mix.admission.reserved(uid, self.now) for uid in owners):
            return  # pods are on their way in: their slots are spoken for
        patches = mend(self.health, target, self.world)
        adopted = sorted(p.key.name for p in patches if AFFINITY in p.patch["metadata"].get("labels", {}))
        yield from patches
        if adopted:
            yield self._tell(Reason.ADOPTED, f"adopted without a restart: {', '.join(adopted)}")

    def note_for(self, op: Operator) -> Note:
        """What is remembered before a move: as if it had failed."""
        under_way = self.note.begun
        attempts = self.note.attempts if under_way else self.note.attempts + 1
        return Note(
            until=self.now + self.pace.pause(attempts),
            attempts=attempts,
            last_move=self.now,
            begun=True,
            reason=op.reason.value,
            off_by=self.note.off_by if under_way else self._measure(op.reason),
            wanted=str(self.wish.target) if isinstance(self.wish, Managed) else "",
        )

    def _settle_note(self) -> Instruction | None:
        """A move has ended: better than before, so the attempts are forgotten; or not, and the workload is paused."""
        note = self.note
        if not note.begun or self._standing() or self.health.missing or self.health.changing:
            return None
        wanted = str(self.wish.target) if isinstance(self.wish, Managed) else ""
        case = self._measure(note.reason)
        if case >= note.off_by and wanted == note.wanted and len(self.health.pods) == self.health.wanted:
            failed = msgspec.structs.replace(note, begun=False, until=self.now + self.pace.pause(note.attempts))
            words = f"a move did not help ({note.reason}); paused for {self.pace.pause(note.attempts):.0f} s"
            self.note = failed
            return self._remember(failed, words)
        kept = Note(last_move=note.last_move)
        self.note = kept
        return self._remember(kept, "the move helped")

    def _measure(self, reason: str) -> int:
        """How many pods stand wrong for this reason, now."""
        match reason:
            case Reason.RETURN_TO_SPOT:
                return len(self.health.fallen_back)
            case Reason.DISABLED:
                return sum(carries_ours(p) for p in self.health.pods)
            case Reason.NO_ROOM:
                return len(stuck(self.health, self.now, 0.0))
            case _ if isinstance(self.wish, Managed):
                return plan(self.health, self.wish.target, self.world, to_spot=self.pace.to_spot).off_by
            case _:
                return 0

    def _remember(self, note: Note, why: str) -> Instruction:
        memory, where = self.mix.memory(self.world), self.mix.memory_key
        return remembering.write(memory, where, self.workload.uid, note, self.now, why)

    def _tell(self, reason: Reason, message: str, *, warning: bool = False) -> EmitEvent:
        workload = self.workload
        return EmitEvent(
            kind=Kind(workload.kind),
            key=workload.key,
            uid=workload.uid,
            reason=reason,
            message=message,
            warning=warning,
        )
