"""What a leader decides and remembers while it leads. All of it is soft state and goes with the lease.

`evaluate(slot)` and `advance(operator)` ask a capability and answer with `Effects`; the loop in `engine` applies them:
queue events by `on_queue_event`, instructions by issuing them. Nothing here calls the loop.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from mooring.core.engine.capability import Capability
from mooring.core.engine.concerns import OperatorIndex, Statements
from mooring.core.engine.defects import RETRY_AFTER_DEFECT_S, Defects
from mooring.core.engine.history import History, cause_of, entry_of, follow
from mooring.core.engine.holds import Holds
from mooring.core.engine.schedule import (
    MOMENT_S,
    OPERATOR,
    CapBacklog,
    InFlightWrites,
    RefreshSchedule,
    Repetitions,
    Slot,
    WorkList,
)
from mooring.core.engine.standing import state_of_refusal
from mooring.core.model import subjects
from mooring.core.model.cluster import Node, Pod
from mooring.core.model.decision import WAITING, End, Evaluation, NextStep, Recovered, Verdict
from mooring.core.model.events import OperatorChanged, RegionsSeen, Trigger
from mooring.core.model.instructions import EmitEvent, Instruction, Look, Outcome
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import TidbCluster
from mooring.core.queue import Queue
from mooring.core.queue.events import Ended, How, Promoted, Rejected
from mooring.core.queue.events import Event as QueueEvent
from mooring.core.queue.targets import shared
from mooring.core.world.world import World


class Effects(NamedTuple):
    """What a handler wants done."""

    events: list[QueueEvent]
    #: With the slot that waits for their outcome, and what caused them.
    instructions: Iterable[Instruction] = ()
    waiter: Slot | None = None
    cause: str = ""


NOTHING = Effects([])


class OperatorNumbers:
    """Operators are numbered from 1, across terms of leadership; what a mark names is not given out again."""

    def __init__(self) -> None:
        self.last = 0

    def seen(self, operator_id: str) -> bool:
        """Whether nothing is wrong with it: a mark is input, and may name a number that is none."""
        ours = operator_id.isascii() and operator_id.isdecimal() and len(operator_id) < 16
        if ours:
            self.last = max(self.last, int(operator_id))
        return ours or not operator_id.isdigit()


class LeaderTerm:
    def __init__(
        self,
        world: World,
        queue: Queue,
        capabilities: Mapping[str, Capability],
        defects: Defects,
        history: History,
        numbers: OperatorNumbers,
        holds: Holds,
    ) -> None:
        self.world = world
        self.queue = queue
        self._capabilities = capabilities
        self._defects = defects
        self._history = history
        self._numbers = numbers
        self._holds = holds
        #: Slots whose proposals are held back, and what was held when that was last looked at.
        self._held: dict[Slot, None] = {}
        self._hold_state: tuple[object, ...] = ()
        #: When what is held next changes by itself.
        self.hold_changes_at: float | None = None
        #: Proposals that the queue will never take as it is configured: why, and of which object.
        self.refused: dict[Slot, tuple[Verdict, ...]] = {}
        #: What would be proposed where a feature only observes.
        self.would: dict[Slot, tuple[Operator, ...]] = {}
        #: Soft memory of capabilities, per key.
        self.notes: dict[Slot, object] = {}
        #: The last verdict about each evaluated key.
        self.verdicts: dict[Slot, Verdict] = {}
        self.worklist = WorkList()
        self.in_flight = InFlightWrites(self.worklist)
        self.refreshes = RefreshSchedule()
        self.repetitions = Repetitions()
        self._statements = Statements()
        self._operators = OperatorIndex()
        self._cap_backlog = CapBacklog()
        #: What is claimed → the slots that were refused it: they are looked at again when it is let go.
        self._behind: dict[str, dict[Slot, None]] = {}

    # ── What is affected ──────────────────────────────────────────────────────────────────────────────────────────

    def on_trigger(self, trigger: Trigger, on: frozenset[str], now: float) -> None:
        """Mark what this may concern. Regions go to the capability that asked, on or off: what has begun must still
        end."""
        for name, capability in self._capabilities.items():
            if name in on or isinstance(trigger, RegionsSeen):
                self._mark_affected(capability, trigger, now)
        for operator_id in self._operators.of(trigger):
            self.worklist.step(operator_id)

    def _mark_affected(self, capability: Capability, trigger: Trigger, now: float, at: float | None = None) -> None:
        name = capability.name
        try:  # for every capability and event: cheaper than a guard
            for key in capability.affected_keys(trigger, self.world):
                self.worklist.affect(name, key, cause_of(trigger), now, at)
        except Exception as error:  # noqa: BLE001 - a defect costs one object
            self._defects.note(f"{name} {cause_of(trigger)}", error)

    def evaluate_all(self, names: Iterable[str], cause: str) -> None:
        """Every key that there is, and every one that was evaluated before."""
        for name in names:
            with self._defects.guard(f"{name} {cause}"):
                known = (slot[1] for slot in self.verdicts if slot[0] == name)
                for key in dict.fromkeys((*self._capabilities[name].keys(self.world), *known)):
                    self.worklist.evaluate((name, key), cause)

    def evaluate_refused(self) -> None:
        """The settings are others now: what was refused may be taken."""
        for slot in self.refused:
            self.worklist.evaluate(slot, "settings")

    def on_outcome(self, outcome: Outcome, now: float) -> None:
        ended = self.in_flight.end(outcome, now)
        if ended is None:
            return  # asked for before we led
        (name, key), wait_s = ended
        record = self.queue.records.running.get(key) if name == OPERATOR else None
        if record is not None and not outcome.looked:
            verb = "wrote" if outcome.reason is None else "could-not"
            self.say(now, verb, outcome.instruction, record.operator, outcome.reason or "", outcome.detail)
            if outcome.reason is None:
                record.acted_at = now
        if wait_s:
            self.worklist.wake_at(now + wait_s, (name, key))
        elif name != OPERATOR:
            self.worklist.evaluate((name, key), outcome.instruction)
        elif record is not None:
            self.worklist.step(key)

    def wake(self, now: float) -> list[QueueEvent]:
        events = self._follow_holds(now)
        self.worklist.ripen(now)
        for slot in self.worklist.due(now):
            name, key = slot
            if name != OPERATOR:
                self.worklist.evaluate(slot, "time")
            elif key in self.queue.records.running:
                self.worklist.step(key)
        return events

    def _follow_holds(self, now: float) -> list[QueueEvent]:
        """A window has opened or closed, or a pause has begun or ended: what waits and is held now is taken back, and
        what was held is asked again."""
        windows = self.queue.settings.windows
        state = self._holds.state(windows, now)
        if state == self._hold_state:
            return []
        self._hold_state, self.hold_changes_at = state, self._holds.next_change(windows, now)
        for slot in self._held:
            self.worklist.evaluate(slot, "held")
        self._held.clear()
        events: list[QueueEvent] = []
        for operator in [record.operator for record in self.queue.records.waiting()]:
            held = self._holds.verdict(self._capability_of(operator).name, operator, windows, now)
            if held is not None:
                events += self.queue.cancel(operator.id, held.reason, held.detail)
        return events

    # ── Evaluating a key ──────────────────────────────────────────────────────────────────────────────────────────

    def evaluate(self, slot: Slot, cause: str, now: float) -> Effects:
        name, key = slot
        # An outstanding write of its own answers first, and affects it again: until then nothing is written twice.
        # What is seen meanwhile still counts: a member that went away takes room at once.
        writing = self.in_flight.busy(slot, now)
        capability, found = self._capabilities[name], None
        with self._defects.guard(f"{name} {key}") as guard:
            found = capability.evaluate(key, self.world, self.queue, self.notes.get(slot), now)
        if found is None:
            self.verdicts[slot] = guard.verdict
            self.worklist.wake_at(now + RETRY_AFTER_DEFECT_S, slot)
            return NOTHING
        if not writing:
            _set_or_drop(self.notes, slot, found.notes)
        _set_or_drop(self.verdicts, slot, found.verdict)
        before, refused = self.would.pop(slot, ()), self.refused.pop(slot, ())
        events = self._statements.replace(f"{name}:{key}", found.facts, found.limits, self.queue)
        for gone in found.withdrawals:
            record = self.queue.records.by_id.get(gone.operator)
            if record is not None and record.state == WAITING:
                events += self.queue.cancel(gone.operator, gone.reason, gone.detail)
        for proposal in found.proposals:
            events += self._propose(proposal, slot, cause, now)
        for operator in self.would.get(slot, ()):
            if operator not in before:
                self.say(now, "would", "", operator, operator.reason, operator.detail)
        self._schedule(found, slot)
        instructions: Iterable[Instruction] = () if writing else found.instructions
        new = (one for one in self.refused.get(slot, ()) if one not in refused)
        instructions = [*instructions, *(event for one in new if (event := self._event_of(one)) is not None)]
        if name in self._holds.observing:
            instructions = [one for one in instructions if isinstance(one, Look)]
        return Effects(events, instructions, slot, cause)

    def _schedule(self, found: Evaluation, slot: Slot) -> None:
        self.refreshes.request(found.refreshes)
        if found.machines_by is not None:
            self.refreshes.request_machines(found.machines_by)
        if found.again_at is not None:
            self.worklist.wake_at(found.again_at, slot)

    def _propose(self, proposal: Operator, slot: Slot, cause: str, now: float) -> list[QueueEvent]:
        holder = self.queue.holder(proposal.subject)
        if holder is not None and holder.source == proposal.source and holder.kind == proposal.kind:
            if holder.deadline == proposal.deadline or self.queue.is_running(holder.id):
                return []  # proposed already: capabilities recompute, they do not remember
            # A deadline that was corrected, in either direction, is another place in the queue.
            moved = self.queue.cancel(holder.id, Reason.DEADLINE, "its deadline has changed")
            return [*moved, *self._propose(proposal, slot, cause, now)]
        held = self._holds.verdict(slot[0], proposal, self.queue.settings.windows, now)
        if held is not None:
            self._held[slot] = None
            self.verdicts[slot] = held
            if held.reason is Reason.OBSERVING:
                self.would[slot] = (*self.would.get(slot, ()), proposal)
            return []
        until = self.repetitions.back_off_until(proposal, now)
        if until is not None:
            times = self.repetitions.times(proposal)
            detail = f"{proposal.kind} of {proposal.subject} ended {times} times with nothing done; backing off"
            self.verdicts[slot] = Verdict(State.WAITING, Reason.BACK_OFF, detail, f"tried again in {until - now:.0f} s")
            self.worklist.wake_at(until, slot)
            return []
        number = self._numbers.last + 1
        operator = msgspec.structs.replace(
            proposal, id=str(number), cause=proposal.cause or cause, claims=proposal.claims or (proposal.subject,)
        )
        events = self.queue.submit(operator)
        rejected = next((e for e in events if isinstance(e, Rejected) and e.id == operator.id), None)
        if rejected is not None:
            if rejected.reason == Reason.SUBJECT_BUSY:
                for claim in operator.claims:
                    self._behind.setdefault(claim, {})[slot] = None
            if rejected.reason == Reason.TOO_MANY_WAITING:
                self._cap_backlog.defer(operator.source, slot)
            state = state_of_refusal(self.queue, operator, rejected.reason)
            self.verdicts[slot] = verdict = Verdict(state, rejected.reason, rejected.detail, subject=operator.subject)
            if state is State.REFUSED:
                self.refused[slot] = (*self.refused.get(slot, ()), verdict)
            return []
        self._numbers.last = number
        self._cap_backlog.admitted(operator.source, slot, number)
        self.say(now, "queued", operator.id, operator, operator.reason, operator.detail)
        return events

    def _event_of(self, refused: Verdict) -> EmitEvent | None:
        """What a person reads who asked for it: nothing will happen as it is configured."""
        found = self._object_of(refused.subject)
        if found is None:
            return None
        kind, obj = found
        message = f"{refused.subject} is refused: {refused.detail}"
        return EmitEvent(
            kind=kind, key=obj.key, uid=obj.uid, reason=refused.reason, message=message, warning=True, why=message
        )

    def _object_of(self, subject: str) -> tuple[Kind, Pod | Node | TidbCluster] | None:
        named, world = subjects.parse(subject), self.world
        found: Pod | Node | TidbCluster | None
        match named.kind:
            case "pod":
                kind, found = Kind.POD, world.pod(named.key)
            case "node":
                kind, found = Kind.NODE, world.node(named.name)
            case "cluster" | "store" | "region":
                of = named.key if named.kind == "cluster" else subjects.key_of(subjects.cluster_of_store(subject))
                found = tc = world.tidb_cluster(of)
                kind = tc.kind if tc is not None else Kind.TIDB_CLUSTER
            case _:
                return None
        return (kind, found) if found is not None else None

    # ── One running operator ──────────────────────────────────────────────────────────────────────────────────────

    def advance(self, operator_id: str, on: frozenset[str], now: float) -> Effects:
        record = self.queue.records.running.get(operator_id)
        waiter = (OPERATOR, operator_id)
        if record is None or self.in_flight.busy(waiter, now):
            return NOTHING
        operator = record.operator
        capability, found = self._capability_of(operator), None
        record.off = capability.name not in on
        with self._defects.guard(f"operator {operator_id}, {operator.subject}") as guard:
            found = capability.next_step(record, self.world, self.queue, now)
        if found is None:
            found = NextStep(step=record.step, waiting_on=guard.verdict, again_at=now + RETRY_AFTER_DEFECT_S)
        if found.notes is not None:
            record.notes = dict(found.notes)
        for verb, reason, text in follow(record, found, now):
            self.say(now, verb, operator_id, operator, reason, text)
        if found.end is not None:
            return Effects(self._end(operator_id, found.end))
        events: list[QueueEvent] = []
        if found.phase is not None and found.phase > record.phase:
            events = self.queue.advance(operator_id, found.phase)
            if capability.name in on:
                self._mark_affected(capability, OperatorChanged(operator), now)
        self.refreshes.request(found.refreshes)
        if found.again_at is not None:
            self.worklist.wake_at(found.again_at, waiter)
        return Effects(events, found.instructions, waiter, operator_id)

    def _capability_of(self, operator: Operator) -> Capability:
        return next(c for c in self._capabilities.values() if operator.source in c.sources)

    def _end(self, operator_id: str, end: End) -> list[QueueEvent]:
        if end.failed:
            return self.queue.fail(operator_id, end.reason, end.detail)
        if end.reason == Reason.DONE:
            return self.queue.finish(operator_id, end.detail)
        return self.queue.cancel(operator_id, end.reason, end.detail)

    # ── What the queue says ───────────────────────────────────────────────────────────────────────────────────────

    def on_queue_event(self, event: QueueEvent, on: frozenset[str], now: float) -> None:
        match event:
            case Promoted(id=operator_id):
                operator = self.queue.get(operator_id)
                if operator is None:
                    return  # over already
                self._operators.add(operator)
                self.say(now, "promoted", operator_id, operator)
                self.worklist.step(operator_id)
                self._make_room(operator)
            case Ended():
                self._ended(event, on, now)

    def _ended(self, event: Ended, on: frozenset[str], now: float) -> None:
        record, operator = event.record, event.record.operator
        self._operators.drop(event.id)
        self.worklist.drop(event.id)
        self.in_flight.forget((OPERATOR, event.id))
        failed = event.how is How.FAILED
        if event.reason is not Reason.DEADLINE:  # the world has changed: that is no circle
            self.repetitions.ended(operator, now, acted=bool(record.acted_at), failed=failed)
        self.say(now, event.how, event.id, operator, event.reason, event.detail)
        # The capability that proposed it evaluates again: there may be a next operator to propose. If nothing was
        # written, a moment later: the same evaluation would propose the same operator for ever.
        idle = not record.acted_at and now - record.promoted_at < MOMENT_S
        capability = self._capability_of(operator)
        if capability.name in on:
            self._mark_affected(capability, OperatorChanged(operator), now, now + MOMENT_S if idle else None)
        for claim in operator.claims:  # whoever else wanted the same object
            for slot in self._behind.pop(claim, ()):
                self.worklist.wake_at(now + MOMENT_S, slot)
        self._make_room(operator)

    def _make_room(self, operator: Operator) -> None:
        for source in self._capability_of(operator).sources:  # they may have one share
            for slot in self._cap_backlog.ready(source):
                self.worklist.evaluate(slot, "room")

    # ── Switched off, recovered ───────────────────────────────────────────────────────────────────────────────────

    def switch_off(self, name: str) -> list[QueueEvent]:
        """Stop proposing: cancel waiting operators, ask the capability how to end running ones, drop its facts and
        limits."""
        sources = self._capabilities[name].sources
        events: list[QueueEvent] = []
        for operator in [r.operator for r in self.queue.records.waiting() if r.operator.source in sources]:
            events += self.queue.cancel(operator.id, Reason.FEATURE_OFF, f"{name} was switched off")
        for record in self.queue.records.running.values():
            if record.operator.source in sources:
                self.worklist.step(record.operator.id)
        self.verdicts = {slot: verdict for slot, verdict in self.verdicts.items() if slot[0] != name}
        self.refused = {slot: refused for slot, refused in self.refused.items() if slot[0] != name}
        self.would = {slot: operators for slot, operators in self.would.items() if slot[0] != name}
        self.notes = {slot: notes for slot, notes in self.notes.items() if slot[0] != name}
        for key in self._statements.keys_of(name):
            events += self._statements.replace(key, (), {}, self.queue)
        return events

    def recover(self, recovered: Recovered, now: float) -> list[QueueEvent]:
        """A mark says that this runs: it is charged before anything else may be promoted."""
        operator = recovered.operator
        # A copied or forged mark may name an operator that runs, or none that we would have written.
        if not self._numbers.seen(operator.id) or operator.id in self.queue:
            self._numbers.last += 1
            operator = msgspec.structs.replace(operator, id=str(self._numbers.last))
        operator = self._within_shares(operator)
        events = self.queue.resume(operator, recovered.phase)
        record = self.queue.records.running.get(operator.id)
        if record is None or record.operator is not operator:
            self.say(now, "not-resumed", operator.id, operator, Reason.CONFLICT, "another mark claims the same")
            return []
        record.step = recovered.step
        record.step_since = record.promoted_at = recovered.since
        self.say(now, "resumed", operator.id, operator, "", f"read back from its mark at step {recovered.step + 1}")
        return events

    def _within_shares(self, operator: Operator) -> Operator:
        """Marks of one namespace, forged or not, take no more of what all share (a node) than operators of it could:
        beyond that one goes on without being charged there."""
        dropped = set[str]()
        for target, amount in operator.phases[0].items() if operator.phases else ():
            if (whole := shared(target)) and not (self._has_room(target, amount) and self._has_room(whole, amount)):
                dropped |= {target, whole}
        if not dropped:
            return operator
        phases = tuple({t: amount for t, amount in phase.items() if t not in dropped} for phase in operator.phases)
        return msgspec.structs.replace(operator, phases=phases)

    def _has_room(self, target: str, amount: int) -> bool:
        limit = self.queue.limit(target)
        return limit is None or self.queue.used(target) + amount <= limit

    def say(
        self, now: float, verb: str, id_: str, operator: Operator | None = None, reason: str = "", text: str = ""
    ) -> None:
        self._history.tell(entry_of(now, verb, id_, operator, str(reason), text))


def _set_or_drop(memory: dict[Slot, object] | dict[Slot, Verdict], slot: Slot, value: object | None) -> None:
    if value is None:
        memory.pop(slot, None)
    else:
        memory[slot] = value  # type: ignore[assignment]
