"""The loop itself, pure: events in, instructions out.

    event ──► world ──► affected keys ──► evaluate ──► queue ──► promoted ──► next step ──► instructions
                             ▲                                                     │
                             └──────────── outcomes, wake-ups ◄────────────────────┘

`handle_all(events, now)` does a bounded amount of work and returns the instructions for the shell; `next_wakeup()`
is the time of the next call even if nothing happens. Driven by asyncio in `process/`, by virtual time in the sandbox.

`lifecycle` has the stages of a replica, `deciding` what a leader does in the last of them. Handlers answer with
values; only the loop here applies them.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from mooring.core.engine.capability import Capability
from mooring.core.engine.deciding import Deciding, Effects, OperatorNumbers
from mooring.core.engine.defects import Defects
from mooring.core.engine.events import Event, Features, LeaseChanged, PolicyChanged, QueueSettingsChanged, Tick
from mooring.core.engine.history import History
from mooring.core.engine.intake import Intake, TurnRecorder
from mooring.core.engine.lifecycle import Signal, Stage, after
from mooring.core.engine.recording.memory import NotNowError
from mooring.core.engine.worklist import Slot, soonest
from mooring.core.model.decision import OperatorRecord, PdRefresh, Verdict
from mooring.core.model.events import (
    Gone,
    Listed,
    MachinesLost,
    MachinesSeen,
    PdLost,
    PdSeen,
    RegionsSeen,
    Seen,
    Trigger,
)
from mooring.core.model.instructions import EmitEvent, Instruction, Outcome
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator
from mooring.core.queue import Queue
from mooring.core.world.world import World

_KEPT: Final = ("stage", "on", "now", "decisions", "_ids")
#: Evaluations and steps per call of `work`: about a millisecond of deciding between turns of the shell.
SLICE = 40


def _policy(capability: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(capability.policy)
    return plain


class Engine:
    def __init__(
        self,
        world: World,
        queue: Queue,
        capabilities: Sequence[Capability],
        *,
        kinds: Iterable[Kind] = (),
        slice_: int = SLICE,
    ) -> None:
        """`kinds`: what must have been listed and applied before this replica counts as synced."""
        self.world = world
        self.history = History()
        self.defects = Defects()
        #: By name, and asked in that order.
        self.capabilities = {c.name: c for c in sorted(capabilities, key=lambda c: c.name)}
        self.stage = Stage.FOLLOWING
        #: The features that are switched on.
        self.on: frozenset[str] = frozenset()
        self.now = 0.0
        #: Evaluations and steps so far: with the events and their times, all that decides what comes out.
        self.decisions = 0
        #: Told of every call of `handle_all`.
        self.recorder: TurnRecorder | None = None
        self._kinds = tuple(kinds)
        self._slice = slice_
        self._intake = Intake(world)
        self._numbers = OperatorNumbers()
        self._decides = self._new_term(queue)
        self._ids = 0
        world.indexes.failed = self.defects.note
        for capability in self.capabilities.values():
            for index in capability.indexes():
                world.register(index)

    # ── Asked from outside ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def queue(self) -> Queue:
        return self._decides.queue

    @property
    def running(self) -> Mapping[str, OperatorRecord]:
        """Released operators by id, in the order of their promotion."""
        return self.queue.records.running

    @property
    def waiting(self) -> Mapping[str, Operator]:
        """Those that wait, by id, in queue order."""
        return {record.operator.id: record.operator for record in self.queue.records.waiting()}

    @property
    def verdicts(self) -> Mapping[Slot, Verdict]:
        return self._decides.verdicts

    @property
    def notes(self) -> Mapping[Slot, object]:
        return self._decides.notes

    @property
    def backed_off(self) -> int:
        """How often an operator was proposed again and again without effect and had to back off."""
        return self._decides.repetitions.backed_off

    @property
    def synced(self) -> bool:
        """Every kind has been listed and applied: what is missing in the world is missing in the cluster."""
        return self.world.synced(*self._kinds)

    @property
    def leading(self) -> bool:
        return self.stage is not Stage.FOLLOWING

    @property
    def deciding(self) -> bool:
        """Marks have been read back: only then are operators proposed and promoted."""
        return self.stage is Stage.DECIDING

    # ── Checkpoints ───────────────────────────────────────────────────────────────────────────────────────────────

    def kept(self) -> dict[str, object]:
        """What a checkpoint keeps besides the rows of the world. `NotNowError`: a list is being taken in."""
        if self._intake.busy:
            raise NotNowError("a list is being taken in")
        return {
            "engine": {name: getattr(self, name) for name in _KEPT},
            "decides": self._decides,
            "numbers": self._numbers.last,
            "history": self.history.kept(),
            "policies": {name: _policy(capability) for name, capability in self.capabilities.items()},
            "rules": self.world.rules,
        }

    def restore_policies(self, kept: Mapping[str, Any]) -> None:
        """Before the world is filled: they may have changed since the start."""
        for name, capability in self.capabilities.items():
            if kept["policies"][name] != _policy(capability):
                self._follow(PolicyChanged(name, kept["policies"][name], kept["rules"]))

    def restore(self, kept: Mapping[str, Any]) -> None:
        vars(self).update(kept["engine"])
        self._decides = kept["decides"]
        self._numbers.last = kept["numbers"]
        self.history.restore(kept["history"])

    def anchors(self) -> dict[str, object]:
        """Objects that every engine has and that are not soft state."""
        there: dict[str, object] = {"world": self.world, "history": self.history, "defects": self.defects}
        return {**there, "numbers": self._numbers, "capabilities": self.capabilities}

    # ── Driving ───────────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take one event in, decide a slice, and say what to do."""
        return self.handle_all((event,), now)

    def handle_all(
        self, events: Sequence[Event], now: float, enough: Callable[[], bool] | None = None
    ) -> list[Instruction]:
        """Take several in before deciding: what many of them affect is evaluated once."""
        self.now = max(now, self.now)
        before = self.decisions
        # Not while a list of pods is being taken in: others wait behind it.
        changes: list[Sequence[Trigger]] | None = [] if self.recorder and not self._intake.holds(Kind.POD) else None
        for event in events:
            triggers = self._triggers(event)
            if changes is not None:
                changes.append(triggers)
            for trigger in triggers:
                self._on_trigger(trigger)
        out = self.work(self.now, enough)
        if self.recorder is not None:
            self.recorder.turn(now, self.decisions - before, events, out, changes)
        return out

    def work(self, now: float, enough: Callable[[], bool] | None = None) -> list[Instruction]:
        """Decide a slice of what is affected or due, less if `enough()` says so; again while `next_wakeup()` is due."""
        self.now = max(now, self.now)
        for trigger in self._intake.advance():
            self._on_trigger(trigger)
        if self.stage is Stage.SYNCING and self.synced:
            self.stage = after(self.stage, Signal.WORLD_APPLIED)
        if self.stage is Stage.RECOVERING and not self._intake.busy:
            self._recover()
        out: list[Instruction] = []
        if self.deciding:
            self._decides.wake(self.now)
            self._apply(Effects(self.queue.tick(self.now)), out)
            for _ in range(self._slice):
                if (enough is not None and enough()) or not self._decide_one(out):
                    break
        if self.leading:
            for instruction in self._decides.refreshes.ask(self.now):
                self._issue(instruction, None, "", out)
        return out

    def _decide_one(self, out: list[Instruction]) -> bool:
        decides = self._decides
        self.decisions += 1
        operator_id = decides.worklist.next_step()
        if operator_id is not None:
            self._apply(decides.advance(operator_id, self.on, self.now), out)
            return True
        due = decides.worklist.next_evaluation()
        if due is None:
            return False
        slot, cause = due
        if slot[0] in self.on:
            self._apply(decides.evaluate(slot, cause, self.now), out)
        return True

    def next_wakeup(self) -> float | None:
        """When to call `work` at the latest; `now` or earlier means: at once."""
        if self._intake.busy:
            return self.now
        if not self.leading:
            return None
        decides = self._decides
        if not self.deciding:
            return decides.refreshes.next_due()
        if decides.worklist.pending:
            return self.now
        return soonest(decides.refreshes.next_due(), self.queue.next_due(), decides.worklist.next_wake())

    # ── Events ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _triggers(self, event: Event) -> Sequence[Trigger]:
        """What an event means for the capabilities."""
        match event:
            case Seen() | Gone() | Listed():
                return self._intake.take(event)
            case Outcome():
                self._decides.on_outcome(event, self.now)
                if event.kind is not None and event.object is not None:
                    return self._intake.take(Seen(event.kind, event.object))
                if event.gone is not None:
                    return self._intake.take(event.gone)
            case PdSeen() | PdLost() | MachinesSeen() | MachinesLost() | RegionsSeen():
                self._decides.refreshes.answered(event, self.now)
                self._intake.note(event)
                return (event,)
            case LeaseChanged(leading=leading):
                self._lead(leading=leading)
            case QueueSettingsChanged(settings=settings):
                self._apply(Effects(self.queue.configure(settings)), [])
            case Features(on=on):
                self._switch(on)
            case PolicyChanged():
                self._follow(event)
            case Tick():
                pass
        return ()

    def _on_trigger(self, trigger: Trigger) -> None:
        if self.deciding:  # before that there is no need: then everything is evaluated once
            self._decides.on_trigger(trigger, self.on, self.now)

    # ── Leading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _lead(self, *, leading: bool) -> None:
        before = self.stage
        self.stage = after(before, Signal.LEASE_WON if leading else Signal.LEASE_LOST)
        if self.stage is before:
            return
        # Without the lease, another replica has the queue: what this one held is void.
        self._decides = self._new_term(Queue(self.queue.settings))
        verb, text = ("leads", "won the lease") if leading else ("follows", "lost the lease")
        self._decides.say(self.now, verb, "engine", text=text)

    def _new_term(self, queue: Queue) -> Deciding:
        return Deciding(self.world, queue, self.capabilities, self.defects, self.history, self._numbers)

    def _recover(self) -> None:
        """Read the marks, even of a feature that was switched off: what they name is charged before anything else."""
        # The PD of every cluster is read first: a mark alone does not say how far its operator has come.
        seen, lost = self.world.pd, self.world.pd_lost
        unseen = [tc.key for tc in self.world.tidb_clusters() if seen(tc.key) is None and not lost(tc.key)]
        if any(True for capability in self.capabilities.values() for _ in self._needs(capability)):
            self._decides.refreshes.request(PdRefresh(key, self.now) for key in unseen)
            return
        self._apply(Effects(self.queue.tick(self.now)), [])
        for name, capability in self.capabilities.items():
            with self.defects.guard(f"{name} recovery"):
                for read_back in capability.recover(self.world, self.queue, self.now):
                    with self.defects.guard(f"{name} recovery of a mark"):
                        for recovered in read_back():
                            self._apply(Effects(self._decides.recover(recovered, self.now)), [])
        self.stage = after(self.stage, Signal.MARKS_READ)
        self._decides.evaluate_all(self._listening(), "recover")

    def _needs(self, capability: Capability) -> Iterator[str]:
        with self.defects.guard(f"{capability.name} recovery"):
            yield from capability.recovery_needs(self.world)

    def _listening(self) -> list[str]:
        return [name for name in self.capabilities if name in self.on]

    def _switch(self, on: frozenset[str]) -> None:
        """A capability switched on evaluates everything; one switched off proposes nothing more and what runs ends."""
        on &= self.capabilities.keys()  # a feature may be served by something that decides nothing
        switched_on, switched_off = on - self.on, self.on - on
        self.on = on
        self.world.note_features(on)
        for name in sorted(switched_off):
            self._apply(Effects(self._decides.switch_off(name)), [])
        if self.deciding:
            self._decides.evaluate_all(sorted(switched_on), "feature")

    def _follow(self, new: PolicyChanged) -> None:
        """From now on this capability decides by another policy; all that it has decided is asked again."""
        capability: Any = self.capabilities[new.name]
        policy = msgspec.convert(new.policy, type(capability.policy))
        self.capabilities[new.name] = changed = dataclasses.replace(capability, policy=policy)
        if new.rules is not None:
            self.world.reclassify(new.rules)
        for index in changed.indexes():
            self.world.register(index)
        if self.deciding and new.name in self.on:
            self._decides.evaluate_all([new.name], "settings")

    # ── Out ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _apply(self, effects: Effects, out: list[Instruction]) -> None:
        for event in effects.events:
            self._decides.on_queue_event(event, self.on, self.now)
        for instruction in effects.instructions:
            self._issue(instruction, effects.waiter, effects.cause, out)

    def _issue(self, instruction: Instruction, waiter: Slot | None, cause: str, out: list[Instruction]) -> None:
        self._ids += 1
        stamped = msgspec.structs.replace(instruction, id=f"i{self._ids}", cause=instruction.cause or cause)
        if waiter is not None and not isinstance(stamped, EmitEvent):
            self._decides.in_flight.begin(stamped.id, waiter)
        out.append(stamped)
