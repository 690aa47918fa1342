"""The loop itself, pure: events in, instructions out.

    event ──► world ──► dirty keys ──► look ──► queue ──► promoted ──► steer ──► instructions
                           ▲                                             │
                           └──────────── outcomes, wake-ups ◄────────────┘

`handle(event, now)` does a bounded amount of work and returns what the shell shall do; `next_wakeup()` says when it
wants to be called even if nothing happens. The same object is driven by asyncio in `run/`, by virtual time in the
sandbox, and by hand in tests.

Life of a leader (one-queue.md, "A crash, and two leaders"):

    following ──Led──► waiting for sync ──Synced, PD behind marks seen──► resuming ──► deciding
        ▲                                                                               │
        └──────────────────────────── lease lost: the queue is forgotten ◄──────────────┘

Until it decides, nothing is proposed and nothing is promoted: what has begun must be charged first.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from mooring.core.engine.cap_backlog import CapBacklog
from mooring.core.engine.capability import Capability
from mooring.core.engine.defects import AGAIN_S, Defects
from mooring.core.engine.events import Event, Features, LeaseChanged, QueueSettingsChanged, Synced, Tick
from mooring.core.engine.facts import FactBook
from mooring.core.engine.history import History, cause_of, entry_of, follow
from mooring.core.engine.in_flight import InFlightWrites
from mooring.core.engine.intake import Intake
from mooring.core.engine.operator_index import OperatorIndex
from mooring.core.engine.refresh import MOMENT_S, RefreshSchedule
from mooring.core.engine.worklist import OPERATOR, Slot, WorkList
from mooring.core.model.decision import End, NextStep, PdRefresh, Recovered, Running, Verdict
from mooring.core.model.events import (
    Change,
    Gone,
    Listed,
    MachinesLost,
    MachinesSeen,
    OperatorEnded,
    PdLost,
    PdSeen,
    RegionsSeen,
    Seen,
    Trigger,
)
from mooring.core.model.instructions import EmitEvent, Instruction, Outcome
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import REFUSED_REASONS, Reason, State
from mooring.core.queue import Queue
from mooring.core.queue.events import Ended, Promoted, Rejected
from mooring.core.queue.events import Event as QueueEvent
from mooring.core.world.world import World

#: Looks per call of `handle`: about a millisecond of deciding between turns of the shell.
SLICE = 40


class Engine:
    def __init__(self, world: World, queue: Queue, capabilities: Sequence[Capability], *, slice_: int = SLICE) -> None:
        self.world = world
        self.queue = queue
        self.story = History()
        self.defects = Defects()
        #: By name, and asked in that order.
        self.capabilities = {c.name: c for c in sorted(capabilities, key=lambda c: c.name)}
        self._of_source = {source: c for c in capabilities for source in c.sources}
        #: Told of every change of the world right after it happened, leading or not (admission counts by it).
        self.observers: list[Callable[[Change], None]] = []
        self._slice = slice_
        for capability in self.capabilities.values():
            for index in capability.indexes():
                world.register(index)
        #: The features that are switched on, and who is asked about what happens (`_switch` sets both).
        self.on: frozenset[str] = frozenset()
        self._listening: dict[str, Capability] = {}
        self.synced = False
        self.leading = False
        #: True once marks have been read back: only then are operators proposed and promoted.
        self.deciding = False
        self.now = 0.0
        self._intake = Intake(world)
        self._out: list[Instruction] = []
        self._ids = 0
        self._operator_ids = 0
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Soft state: worth something only while we lead."""
        #: Released operators by id.
        self.running: dict[str, Running] = {}
        #: Those that wait, by id: what the queue says of an end names only the id.
        self.waiting: dict[str, Operator] = {}
        #: The last word about each looked-at key: (capability, key) → verdict.
        self.verdicts: dict[Slot, Verdict] = {}
        #: Soft memory of capabilities, per key.
        self.notes: dict[Slot, object] = {}
        self._facts = FactBook()
        self._worklist = WorkList()
        self._in_flight = InFlightWrites(self._worklist)
        self._refreshes = RefreshSchedule()
        self._operator_index = OperatorIndex()
        #: Slots whose proposal found the cap of its source reached: looked at again when there is room.
        self._cap_backlog = CapBacklog()
        #: How an operator that is being ended ended, in words.
        self._last_words: dict[str, str] = {}

    # ── Driving ───────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take one event in, decide a slice, and say what to do."""
        return self.handle_all((event,), now)

    def handle_all(
        self, events: Iterable[Event], now: float, enough: Callable[[], bool] | None = None
    ) -> list[Instruction]:
        """Take several in before deciding: what many of them make dirty is looked at once."""
        self.now = max(now, self.now)
        for event in events:
            self._dispatch(event)
        return self.work(self.now, enough)

    def work(self, now: float, enough: Callable[[], bool] | None = None) -> list[Instruction]:
        """Decide a slice of what is dirty or due, less if `enough()` says so. Again while `next_wakeup()` is due."""
        self.now = max(now, self.now)
        self._apply_changes(self._intake.advance())
        if self.leading and self.synced and not self._intake.busy and not self.deciding:
            self._recover()
        if self.deciding:
            self._wake()
            self._on_queue_events(self.queue.tick(self.now))
            for _ in range(self._slice):
                if enough is not None and enough():
                    break
                operator_id = self._worklist.next_steer()
                if operator_id is not None:
                    self._steer(operator_id)
                elif (due := self._worklist.next_look()) is not None:
                    self._look(*due)
                else:
                    break
        if self.leading:
            for instruction in self._refreshes.ask(self.now):
                self._issue(instruction, None, "")
        out, self._out = self._out, []
        return out

    def next_wakeup(self) -> float | None:
        """When to call `work` at the latest; `now` or earlier means: at once."""
        times: list[float | None] = [self.now] if self._intake.busy else []
        if not self.leading:
            return self.now if times else None
        times.append(self._refreshes.next_due())
        if self.deciding:
            times += [self.queue.next_due(), self._worklist.next_wake(), self.now if self._worklist.pending else None]
        return min((at for at in times if at is not None), default=None)

    # ── Events ────────────────────────────────────────────────────────────────────────────────────────────────

    def _dispatch(self, event: Event) -> None:
        match event:
            case Seen() | Gone() | Listed():
                self._apply_changes(self._intake.take(event))
            case Outcome():
                self._on_outcome(event)
            case PdSeen(cluster=cluster) | PdLost(cluster=cluster):
                self._refreshes.answered(cluster, self.now)
                self._intake.note(event)
                self._mark_affected(event)
            case MachinesSeen() | MachinesLost():
                self._refreshes.answered_machines()
                self._intake.note(event)
                self._mark_affected(event)
            case RegionsSeen():
                self._intake.note(event)
                self._mark_affected(event)
            case Synced():
                self.synced = True
            case LeaseChanged(leading=leading):
                self._lead(leading=leading)
            case QueueSettingsChanged(settings=settings):
                self._on_queue_events(self.queue.configure(settings))
            case Features(on=on):
                self._switch(on)
            case Tick():
                pass

    def _apply_changes(self, changes: Iterable[Change]) -> None:
        for change in changes:
            try:
                for observe in self.observers:
                    observe(change)
            except Exception as error:  # noqa: BLE001
                self.defects.note(f"observing {cause_of(change)}", error)
            self._mark_affected(change)

    def _mark_affected(self, trigger: Trigger) -> None:
        """Mark dirty what this may concern. Before we decide there is no need: then everything is looked at once."""
        if not self.deciding:
            return
        # Regions go to whoever asked, on or off: what a switched-off capability has begun must still end.
        asked = self.capabilities if isinstance(trigger, RegionsSeen) else self._listening
        for name, capability in asked.items():
            try:
                for touched in capability.affected_keys(trigger, self.world):
                    self._worklist.touch(name, touched, cause_of(trigger), self.now)
            except Exception as error:  # noqa: BLE001
                self.defects.note(f"{name} {cause_of(trigger)}", error)
        for operator_id in self._operator_index.of(trigger):
            self._worklist.steer(operator_id)

    def _on_outcome(self, outcome: Outcome) -> None:
        if outcome.kind is not None and outcome.object is not None:
            self._dispatch(Seen(outcome.kind, outcome.object))
        elif outcome.gone is not None:
            self._dispatch(outcome.gone)
        ended = self._in_flight.end(outcome, self.now)
        if ended is None:
            return
        (name, key), wait_s = ended
        running = self.running.get(key) if name == OPERATOR else None
        if running is not None and not outcome.looked:
            verb = "wrote" if outcome.reason is None else "could-not"
            self._say(verb, outcome.instruction, running.operator, reason=outcome.reason or "", text=outcome.detail)
            if outcome.reason is None:
                running.acted_at = self.now
        if wait_s:
            self._worklist.wake_at(self.now + wait_s, (name, key))
        elif name != OPERATOR:
            self._worklist.look((name, key), outcome.instruction)
        elif running is not None:
            self._worklist.steer(key)

    # ── Leading ───────────────────────────────────────────────────────────────────────────────────────────────

    def _lead(self, *, leading: bool) -> None:
        if leading == self.leading:
            return
        self.leading = leading
        self._say("leads" if leading else "follows", "engine", text="won the lease" if leading else "lost the lease")
        # Without the lease the queue is somebody else's: what it held here is worth nothing any more.
        self.deciding = False
        self.queue = Queue(self.queue.settings)
        self._begin_anew()

    def _recover(self) -> None:
        """Read the marks; what they name is running and charged before anything else may be promoted."""
        # PD is asked about every cluster first: a mark alone does not say how far its operator has come.
        seen, lost = self.world.pd, self.world.pd_lost
        unseen = [tc.key for tc in self.world.tidb_clusters() if seen(tc.key) is None and not lost(tc.key)]
        if any(True for capability in self.capabilities.values() for _ in capability.recovery_needs(self.world)):
            self._refreshes.wish(PdRefresh(key, self.now) for key in unseen)
            return
        self._on_queue_events(self.queue.tick(self.now))
        # Marks are read back even of a feature that was switched off meanwhile: what has begun must end well.
        for capability in self.capabilities.values():
            for resumed in capability.recover(self.world, self.now):
                self._recover_operator(resumed)
        self.deciding = True
        for name, capability in self._listening.items():
            for key in capability.keys(self.world):
                self._worklist.look((name, key), "resume")

    def _recover_operator(self, resumed: Recovered) -> None:
        operator = resumed.operator
        if operator.id.isdecimal() and len(operator.id) < 16:  # a mark may say anything
            self._operator_ids = max(self._operator_ids, int(operator.id))
        if operator.id not in self.running:
            self.waiting[operator.id] = operator
            self._on_queue_events(self.queue.resume(operator, resumed.phase))
        running = self.running.get(operator.id)
        if self.waiting.pop(operator.id, None) is not None or running is None or running.operator is not operator:
            self._say("not-resumed", operator.id, operator, reason=Reason.CONFLICT, text="another mark claims the same")
            return
        running.step, running.phase = resumed.step, resumed.phase
        running.step_since = running.promoted_at = resumed.since
        self._say("resumed", operator.id, operator, text=f"read back from its mark at step {resumed.step + 1}")

    def _switch(self, on: frozenset[str]) -> None:
        """A capability switched on looks at everything; one switched off proposes nothing more and what runs ends."""
        on = on & self.capabilities.keys()  # a feature may be served by something that decides nothing
        switched_on, switched_off = on - self.on, self.on - on
        self.on = on
        self._listening = {name: capability for name, capability in self.capabilities.items() if name in on}
        for name in sorted(switched_off):
            sources = self.capabilities[name].sources
            for operator in [o for o in self.waiting.values() if o.source in sources]:
                self._on_queue_events(self.queue.cancel(operator.id, Reason.FEATURE_OFF, f"{name} was switched off"))
            for running in self.running.values():
                if running.operator.source in sources:
                    self._worklist.steer(running.operator.id)
            self.verdicts = {slot: verdict for slot, verdict in self.verdicts.items() if slot[0] != name}
            for stated in self._facts.keys_of(name):
                self._on_queue_events(self._facts.replace(stated, (), self.queue))
        if self.deciding:
            for name in sorted(switched_on):
                for key in self.capabilities[name].keys(self.world):
                    self._worklist.look((name, key), "feature")

    # ── Deciding ──────────────────────────────────────────────────────────────────────────────────────────────

    def _look(self, slot: Slot, cause: str) -> None:
        name, key = slot
        if name not in self.on or self._in_flight.busy(slot, self.now):
            return  # an outstanding write of its own answers first, and makes it dirty again
        try:
            look = self.capabilities[name].evaluate(key, self.world, self.queue, self.notes.get(slot), self.now)
        except Exception as error:  # noqa: BLE001
            self.verdicts[slot] = self.defects.note(f"{name} {key}", error)
            self._worklist.wake_at(self.now + AGAIN_S, slot)
            return
        if look.notes is None:
            self.notes.pop(slot, None)
        else:
            self.notes[slot] = look.notes
        if look.verdict is None:
            self.verdicts.pop(slot, None)
        else:
            self.verdicts[slot] = look.verdict
        self._on_queue_events(self._facts.replace(f"{name}:{key}", look.facts, self.queue))
        for target, limit in look.limits.items():
            self._on_queue_events(self.queue.set_limit(target, limit))
        for gone in look.withdrawals:
            if gone.operator in self.waiting:
                self._on_queue_events(self.queue.cancel(gone.operator, gone.reason, gone.detail))
        for proposal in look.proposals:
            self._propose(proposal, slot, cause)
        for instruction in look.instructions:
            self._issue(instruction, slot, cause)
        self._refreshes.wish(look.refreshes)
        if look.machines_by is not None:
            self._refreshes.wish_machines(look.machines_by)
        if look.again_at is not None:
            self._worklist.wake_at(look.again_at, slot)

    def _propose(self, proposal: Operator, slot: Slot, cause: str) -> None:
        holder = self.queue.holder(proposal.subject)
        if holder is not None and holder.source == proposal.source and holder.kind == proposal.kind:
            return  # proposed already: deciders recompute, they do not remember
        self._operator_ids += 1
        operator = msgspec.structs.replace(
            proposal,
            id=str(self._operator_ids),
            cause=proposal.cause or cause,
            claims=proposal.claims or (proposal.subject,),
        )
        events = self.queue.submit(operator)
        rejected = next((e for e in events if isinstance(e, Rejected) and e.id == operator.id), None)
        if rejected is not None:
            self._operator_ids -= 1
            if rejected.reason == Reason.TOO_MANY_WAITING:
                self._cap_backlog.defer(operator.source, slot)
            state = State.REFUSED if rejected.reason in REFUSED_REASONS else State.WAITING
            self.verdicts[slot] = Verdict(state, rejected.reason, rejected.detail)
            return
        self._cap_backlog.admitted(operator.source, slot, self._operator_ids)
        self.waiting[operator.id] = operator
        self._say("queued", operator.id, operator, reason=operator.reason, text=operator.detail)
        self._on_queue_events(events)

    def _steer(self, operator_id: str) -> None:
        running = self.running.get(operator_id)
        waiter = (OPERATOR, operator_id)
        if running is None or self._in_flight.busy(waiter, self.now):
            return
        operator = running.operator
        running.off = self._of_source[operator.source].name not in self.on
        try:
            answer = self._of_source[operator.source].next_step(running, self.world, self.queue, self.now)
        except Exception as error:  # noqa: BLE001
            held = self.defects.note(f"operator {operator_id}, {operator.subject}", error)
            answer = NextStep(step=running.step, waiting_on=held, again_at=self.now + AGAIN_S)
        if answer.notes is not None:
            running.notes = dict(answer.notes)
        for verb, reason, text in follow(running, answer, self.now):
            self._say(verb, operator_id, operator, reason=reason, text=text)
        if answer.end is not None:
            self._last_words[operator_id] = answer.end.detail
            self._on_queue_events(self._end(operator_id, answer.end))
            return
        if answer.phase is not None and answer.phase > running.phase:
            running.phase = answer.phase
            self._on_queue_events(self.queue.advance(operator_id, answer.phase))
            self._look_again(operator)
        for instruction in answer.instructions:
            self._issue(instruction, waiter, operator_id)
        self._refreshes.wish(answer.refreshes)
        if answer.again_at is not None:
            self._worklist.wake_at(answer.again_at, waiter)

    def _end(self, operator_id: str, end: End) -> list[QueueEvent]:
        if end.failed:
            return self.queue.fail(operator_id, end.reason, end.detail)
        if end.reason == Reason.DONE:
            return self.queue.finish(operator_id)
        return self.queue.cancel(operator_id, end.reason, end.detail)

    # ── The queue's answers ───────────────────────────────────────────────────────────────────────────────────

    def _on_queue_events(self, events: Iterable[QueueEvent]) -> None:
        for event in events:
            match event:
                case Promoted(id=operator_id):
                    operator = self.waiting.pop(operator_id)
                    self.running[operator_id] = Running(
                        operator=operator, promoted_at=self.now, step_since=self.now, moved_at=self.now
                    )
                    self._operator_index.add(operator)
                    self._say("promoted", operator_id, operator)
                    self._worklist.steer(operator_id)
                    self._make_room(operator.source)
                case Ended():
                    self._ended(event)

    def _ended(self, event: Ended) -> None:
        running = self.running.pop(event.id, None)
        self._operator_index.drop(event.id)
        operator = running.operator if running is not None else self.waiting.pop(event.id)
        self._worklist.drop(event.id)
        self._in_flight.forget((OPERATOR, event.id))
        self._say(event.how, event.id, operator, reason=event.reason, text=self._last_words.pop(event.id, event.detail))
        # Whoever proposed it looks again: the world may already want the next thing. If nothing was done, then a moment
        # later: the same look would propose the same for ever.
        idle = running is not None and not running.acted_at and self.now - running.promoted_at < MOMENT_S
        self._look_again(operator, self.now + MOMENT_S if idle else None)
        self._make_room(operator.source)

    def _look_again(self, operator: Operator, at: float | None = None) -> None:
        capability, ended = self._of_source[operator.source], OperatorEnded(operator)
        if capability.name in self.on:
            for touched in capability.affected_keys(ended, self.world):
                self._worklist.touch(capability.name, touched, cause_of(ended), self.now, at)

    def _make_room(self, source: str) -> None:
        for slot in self._cap_backlog.ready(source):
            self._worklist.look(slot, "room")

    # ── Out, and in words ─────────────────────────────────────────────────────────────────────────────────────

    def _issue(self, instruction: Instruction, waiter: Slot | None, cause: str) -> None:
        self._ids += 1
        stamped = msgspec.structs.replace(instruction, id=f"i{self._ids}", cause=instruction.cause or cause)
        if waiter is not None and not isinstance(stamped, EmitEvent):
            self._in_flight.begin(stamped.id, waiter)
        self._out.append(stamped)

    def _wake(self) -> None:
        self._worklist.ripen(self.now)
        for slot in self._worklist.due(self.now):
            name, key = slot
            if name != OPERATOR:
                self._worklist.look(slot, "time")
            elif key in self.running:
                self._worklist.steer(key)

    def _say(self, verb: str, id_: str, operator: Operator | None = None, *, reason: str = "", text: str = "") -> None:
        self.story.tell(entry_of(self.now, verb, id_, operator, str(reason), text))
