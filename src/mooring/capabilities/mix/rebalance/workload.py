"""What is done about one workload: proposals, withdrawals, facts, writes that disrupt nothing, what is noted."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from mooring.capabilities.drain.leaders import is_handed_over, kept_leaders
from mooring.capabilities.drain.readiness import is_ready, subject_of, target_of
from mooring.capabilities.drain.replace_pod import replacing
from mooring.capabilities.drain.request import DETACH, EVICT, ask, can_detach, request_of, withdraw
from mooring.capabilities.mix import memory as remembering
from mooring.capabilities.mix.admission.book import SlotBook
from mooring.capabilities.mix.labels import AFFINITY, Managed, Misconfigured
from mooring.capabilities.mix.memory import Note
from mooring.capabilities.mix.moves import ALL_MOVES, move, read_move
from mooring.capabilities.mix.policy import SOURCES
from mooring.capabilities.mix.rebalance.diagnosis import SOURCE, Case, Diagnosis, WorkloadNotes
from mooring.capabilities.mix.rebalance.health import facts_of, is_fast
from mooring.capabilities.mix.rebalance.misplaced import Candidate, carries_ours, fix_slots, unmark
from mooring.capabilities.mix.targets import Target
from mooring.core.model.cluster import Pod
from mooring.core.model.decision import Evaluation, Verdict, Withdrawal
from mooring.core.model.instructions import EmitEvent, HarmlessWrite
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State


class Rebalance:
    """The answer to a diagnosis: who goes, what is written, what is remembered."""

    def __init__(self, seen: Diagnosis) -> None:
        self.seen = seen
        self.mix = seen.mix
        self.pace = seen.pace
        self.workload = seen.workload
        self.world = seen.world
        self.queue = seen.queue
        self.now = seen.now
        self.health = seen.health
        self.management = seen.management

    # ── The look ──────────────────────────────────────────────────────────────────────────────────────────────

    def evaluate(self) -> Evaluation:
        if isinstance(self.management, Misconfigured):
            words = f"{self.workload.name} is not managed: {self.management}"
            told = self._tell(Reason.MISCONFIGURED, words, warning=True)
            verdict = Verdict(State.BLOCKED, Reason.MISCONFIGURED, words, "correct the label")
            withdrawn = tuple(self._withdrawn(()))
            return Evaluation(verdict=verdict, instructions=(told,), withdrawals=withdrawn, notes=self._notes([]))
        managed = isinstance(self.management, Managed)
        instructions: list[HarmlessWrite] = []
        if isinstance(self.management, Managed):
            instructions += self._fixed_slot(self.management.target)
        else:
            instructions += [unmark(p) for p in self.health.pods if AFFINITY in p.labels and not carries_ours(p)]
        note = self.seen.note
        self.seen.note = self.seen.note_after()
        case = self.seen.case()
        chosen = self._chosen(case)
        handed = [c for c in chosen if is_handed_over(c.pod, self.world)]
        if handed and not self.world.is_on("handoff"):
            case, chosen, handed = _blocked_without_handoff(handed[0].pod, case), (), []
        if self.seen.note.begun and not self.seen.requested:
            # What came of the last request is not known yet: until then there is no next one.
            chosen, handed = tuple(c for c in chosen if c not in handed), []
        if handed and not self.seen.note.begun:
            self.seen.note = self.seen.note_before(handed[0].reason)
        instructions += [self._request(c) for c in handed if request_of(c.pod) is None]
        if self.seen.note != note:
            # Before the first step that disturbs: handoff does not act on a request within the same turn.
            instructions.insert(0, self._remember(self.seen.note))
        if self.health.marked and not case.undecided:
            instructions += self._swept(frozenset(c.pod.uid for c in chosen))
        mine = [c for c in chosen if c not in handed and self._is_free(c.pod)]
        proposals = [*self._proposals(mine), *self._taken_over()] if mine or self.seen.detached else []
        kept = self._kept() if self.seen.requested else None
        needed = managed or bool(case.candidates) or bool(self.seen.standing)
        return Evaluation(
            proposals=tuple(proposals),
            withdrawals=tuple(self._withdrawn(chosen)) if self.seen.standing and not case.undecided else (),
            facts=tuple(facts_of(self.health, self.queue, self.now)) if needed else (),
            limits=self._limits(proposals) if needed else {},
            instructions=tuple(instructions),
            verdict=kept or case.verdict,
            again_at=self._again_at(case),
            notes=self._notes(proposals),
        )

    def _kept(self) -> Verdict | None:
        """Why the leaders of a pod that handoff was asked to move do not leave."""
        asked = [p for p in self.seen.requested if is_handed_over(p, self.world)]
        return next((v for p in asked if (v := kept_leaders(p, self.world, self.queue)) is not None), None)

    def _notes(self, proposals: list[Operator]) -> WorkloadNotes:
        if not self.seen.standing and not proposals:
            return WorkloadNotes((), self.seen.spot_room_since, self.seen.worth)
        moves = dict.fromkeys(o.subject for o in (*self.seen.standing, *proposals))
        return WorkloadNotes(tuple(moves), self.seen.spot_room_since, self.seen.worth)

    def _limits(self, proposals: list[Operator]) -> dict[str, int | None]:
        mine = self.mix.limit_of(self.workload, self.world, self.now)
        # They are replaced first, so that nobody is away; their replacements take the room until they are Ready.
        if proposals or self.seen.standing:
            moves = (*self.seen.standing, *proposals)
            mine = max(mine, len({o.subject for o in moves if o.reason is Reason.RETURN_TO_SPOT}))
        return {target_of(self.workload): mine, ALL_MOVES: self.pace.at_once}

    def _again_at(self, case: Case) -> float | None:
        """Also when a pod that is Ready becomes available, and when one that finds no node has waited long enough."""
        times = [case.again_at]
        if self.workload.min_ready_s:
            since = [p.ready_since for p in self.health.pods if p.ready and p.ready_since is not None]
            times += [at + self.workload.min_ready_s for at in since]
        if isinstance(self.management, Managed):
            waiting = [p for p in self.health.unplaced if not p.schedulable]
            times += [p.created_at + self.pace.shortage_s for p in waiting]
        elif self.health.missing and (case.candidates or self.seen.standing):
            times.append(self.now + self.pace.look_again_s)  # no event comes for pods that are no longer ours
        if self.seen.requested:
            times.append(self.now + self.pace.look_again_s)  # nor when PD keeps their leaders
        return min((at for at in times if at is not None and at > self.now), default=None)

    # ── Who goes ──────────────────────────────────────────────────────────────────────────────────────────────

    def _chosen(self, case: Case) -> tuple[Candidate, ...]:
        """Those that are on their way count; the rest of the places go to the first of the others."""
        if not case.candidates:
            return ()
        if case.candidates[0].reason is Reason.RETURN_TO_SPOT:
            return case.candidates  # they are counted already
        limit = min(case.off_by, self.mix.calm_limit_of(self.workload, self.world, self.now))
        if case.candidates[0].reason is Reason.NO_ROOM:
            limit = case.off_by  # they never started: deleting them interrupts nothing
        running = {o.subject for o in self.seen.standing if self.queue.is_running(o.id)}
        places = max(0, limit - len(running))
        requested = {p.uid for p in self.seen.requested}
        waiting = [c for c in case.candidates if subject_of(c.pod) not in running]
        return tuple(sorted(waiting, key=lambda c: c.pod.uid not in requested)[:places])

    def _withdrawn(self, chosen: tuple[Candidate, ...]) -> Iterator[Withdrawal]:
        wanted = {(subject_of(c.pod), c.reason) for c in chosen}
        for one in self.seen.standing:
            if not self.queue.is_running(one.id) and (one.subject, one.reason) not in wanted:
                yield Withdrawal(one.id, Reason.WITHDRAWN, "nothing is wrong with it any more, or another goes first")

    def _proposals(self, chosen: list[Candidate]) -> Iterator[Operator]:
        """By the quicker way as many at once are replaced first as the workload may have beyond its replicas, and
        beside them as many are evicted as may be unavailable. What was proposed keeps its way."""
        workload, ways = self.workload, {one.subject: how.way for one in self.seen.standing if (how := replacing(one))}
        left = Counter({DETACH: workload.max_surge, EVICT: workload.max_unavailable})
        left.subtract(ways.values())
        for candidate in chosen:
            pod, returns = candidate.pod, candidate.reason is Reason.RETURN_TO_SPOT
            ready = is_ready(pod, workload, self.now)
            # Where this is the only one that serves: evicted, the workload would be down.
            first = self.health.ready == 1 or candidate.reason is Reason.UNMET_FLOOR
            first = first or ((returns or is_fast(workload)) and left[DETACH] > 0)
            way = ways.get(subject_of(pod)) or (DETACH if first and ready and can_detach(pod, workload) else EVICT)
            if subject_of(pod) not in ways:
                if is_fast(workload) and way == EVICT and ready and left[EVICT] <= 0 < workload.max_surge:
                    continue
                left[way] -= 1
            yield move(
                pod,
                workload,
                source=SOURCE,
                way=way,
                reason=candidate.reason,
                detail=candidate.detail,
                wanted=candidate.wanted,
            )

    def _request(self, candidate: Candidate) -> HarmlessWrite:
        """A TiKV or PD pod: handoff takes it away."""
        pod = candidate.pod
        why = "asks handoff to move it"
        return ask(pod, SOURCE, candidate.reason.value, candidate.detail, self.now, why=why)

    def _is_free(self, pod: Pod) -> bool:
        """Nothing else is taking it away. A mark of ours without an operator (its writer stalled) is taken over."""
        mark = request_of(pod)
        return mark is None or (mark.source in SOURCES and bool(mark.operator))

    def _taken_over(self) -> Iterator[Operator]:
        """Detached pods without an operator: a write of a stalled leader came late. They end as all others do."""
        for pod in self.seen.detached:
            mark = request_of(pod) if self.queue.holder(subject_of(pod)) is None else None
            if mark is not None and mark.source in SOURCES:
                yield msgspec.structs.replace(read_move(pod, mark, self.workload), id="")

    def _swept(self, chosen: frozenset[str]) -> Iterator[HarmlessWrite]:
        """Marks without cause: a request that is gone, or a late write of a leader that stalled."""
        for pod in self.health.marked:
            mark = request_of(pod)
            if mark is None or mark.source not in SOURCES or pod.uid in chosen:
                continue
            # It was to be let go since it found no node; what was handed over before it holds it until it is back.
            placed = mark.reason == Reason.NO_ROOM and not mark.operator and bool(pod.node)
            busy = pod.node in self.seen.interrupted or self.queue.holder(subject_of(pod)) is not None
            if busy and not placed:
                continue
            why = "nothing is wrong with it any more"
            yield withdraw(pod, why)
            yield EmitEvent(
                kind=Kind.POD, key=pod.key, uid=pod.uid, reason=Reason.SWEPT, message=f"mark removed: {why}"
            )

    # ── Writes that disrupt nothing ────────────────────────────────────────────────────────────────────────────

    def _fixed_slot(self, target: Target) -> Iterator[HarmlessWrite]:
        if self.seen.standing:
            return
        patches = fix_slots(self.health, target, self.world)
        if not patches:
            return
        owners = {p.owner.uid for p in self.health.pods if p.owner is not None}
        book = self.world.index(SlotBook)
        if any(book.reserved(uid, self.now) for uid in owners):
            return  # pods are on their way in: their slots are spoken for
        adopted = sorted(p.key.name for p in patches if AFFINITY in p.patch["metadata"].get("labels", {}))
        yield from patches
        if adopted:
            yield self._tell(Reason.ADOPTED, f"adopted without a restart: {', '.join(adopted)}")

    def _remember(self, note: Note) -> HarmlessWrite:
        where = self.mix.memory_key
        why = "notes the move" if note.begun else "the move helped" if not note.attempts else "the move did not help"
        return remembering.write(self.world.config_map(where), where, self.workload.uid, note, self.now, why)

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


def _blocked_without_handoff(pod: Pod, case: Case) -> Case:
    """Handoff takes TiKV and PD members away, and it is off."""
    words = f"{pod.name} is a member of TiKV or PD: handoff moves it, and handoff is off"
    verdict = Verdict(State.BLOCKED, Reason.FEATURE_OFF, words, "mooring run --features handoff=true,mix=true")
    return msgspec.structs.replace(case, candidates=(), verdict=verdict)
