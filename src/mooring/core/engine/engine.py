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
from mooring.core.engine.defects import Defects
from mooring.core.engine.events import Event, Features, LeaseChanged, PolicyChanged, QueueSettingsChanged, Tick
from mooring.core.engine.history import History
from mooring.core.engine.holds import Holds
from mooring.core.engine.intake import Intake, TurnRecorder
from mooring.core.engine.leader_term import Effects, LeaderTerm, OperatorNumbers
from mooring.core.engine.lifecycle import Signal, Stage, after
from mooring.core.engine.recording.memory import NotNowError
from mooring.core.engine.schedule import Slot, soonest
from mooring.core.model.cluster import Node
from mooring.core.model.decision import OperatorRecord, PdRefresh, Verdict
from mooring.core.model.descriptor import Departure, Described
from mooring.core.model.events import (
    EvictionAsked,
    Gone,
    LeadersSeen,
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

_KEPT: Final = ("stage", "on", "observing", "now", "decisions", "_ids", "_recovery")
#: A new leader waits so long, in all, for what its marks need: a tenant chooses how slow its PD is, and when it marks.
RECOVERY_S: Final = 10.0
#: Evaluations and steps per call of `work`: about a millisecond of deciding between turns of the shell.
SLICE = 40


def _settings(capability: Any) -> Any:
    return capability.policy


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
        described: Described | None = None,
        namespace: str = "",
        slice_: int = SLICE,
    ) -> None:
        """`kinds`: what must have been listed and applied before this replica counts as synced. `described`: what the
        capabilities say of themselves, for `why`. `namespace`: our own, where a pause is written."""
        self.world = world
        self.history = History()
        self.defects = Defects()
        #: By name, and asked in that order.
        self.capabilities = {c.name: c for c in sorted(capabilities, key=lambda c: c.name)}
        self.described = described or Described()
        self.stage = Stage.FOLLOWING
        #: The features that are switched on, and those that decide and do nothing.
        self.on: frozenset[str] = frozenset()
        self.observing: frozenset[str] = frozenset()
        self.holds = Holds(world, namespace)
        self.now = 0.0
        #: Evaluations and steps so far: with the events and their times, all that decides what comes out.
        self.decisions = 0
        #: Told of every call of `handle_all`.
        self.recorder: TurnRecorder | None = None
        self._kinds = tuple(kinds)
        self._slice = slice_
        self._intake = Intake(world)
        self._numbers = OperatorNumbers()
        self._term = self._new_term(queue)
        self._ids = 0
        #: Until when the marks are waited for, and the needs that there were when it began.
        self._recovery: tuple[float, frozenset[str]] | None = None
        world.indexes.failed = self.defects.note
        for capability in self.capabilities.values():
            for index in capability.indexes():
                world.register(index)

    # ── Asked from outside ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def queue(self) -> Queue:
        return self._term.queue

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
        return self._term.verdicts

    @property
    def notes(self) -> Mapping[Slot, object]:
        return self._term.notes

    @property
    def refused(self) -> Mapping[Slot, tuple[Verdict, ...]]:
        """Proposals that the queue will never take as it is configured."""
        return self._term.refused

    @property
    def would(self) -> Mapping[Slot, Sequence[Operator]]:
        """What the features that only observe would propose now."""
        return self._term.would

    @property
    def backed_off(self) -> int:
        """How often an operator was proposed again and again without effect and had to back off."""
        return self._term.repetitions.backed_off

    @property
    def synced(self) -> bool:
        """Every kind has been listed and applied: what is missing in the world is missing in the cluster."""
        return self.world.synced(*self._kinds)

    @property
    def leading(self) -> bool:
        return self.stage is not Stage.FOLLOWING

    def departures(self, node: Node) -> list[Departure]:
        """Every sign that this node must be emptied, as the capabilities read it by their settings."""
        known = ((one, self.capabilities.get(one.name)) for one in self.described.by_name.values())
        return [sign for one, its in known if its is not None for sign in one.departures(_settings(its), node)]

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
            "decides": self._term,
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
        self.holds.observing = self.observing
        self._term = kept["decides"]
        self._numbers.last = kept["numbers"]
        self.history.restore(kept["history"])

    def anchors(self) -> dict[str, object]:
        """Objects that every engine has and that are not soft state."""
        there: dict[str, object] = {"world": self.world, "history": self.history, "defects": self.defects}
        there["holds"] = self.holds
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
            self._apply(Effects(self._term.wake(self.now)), out)
            self._apply(Effects(self.queue.tick(self.now)), out)
            for _ in range(self._slice):
                if (enough is not None and enough()) or not self._decide_one(out):
                    break
        if self.leading:
            for instruction in self._term.refreshes.ask(self.now):
                self._issue(instruction, None, "", out)
        return out

    def _decide_one(self, out: list[Instruction]) -> bool:
        term = self._term
        self.decisions += 1
        operator_id = term.worklist.next_step()
        if operator_id is not None:
            self._apply(term.advance(operator_id, self.on, self.now), out)
            return True
        due = term.worklist.next_evaluation()
        if due is None:
            return False
        slot, cause = due
        if slot[0] in self.on or slot[0] in self.observing:
            self._apply(term.evaluate(slot, cause, self.now), out)
        return True

    def next_wakeup(self) -> float | None:
        """When to call `work` at the latest; `now` or earlier means: at once."""
        if self._intake.busy:
            return self.now
        if not self.leading:
            return None
        term = self._term
        if not self.deciding:
            return soonest(term.refreshes.next_due(), self._recovery[0] if self._recovery else None)
        if term.worklist.pending:
            return self.now
        dues = term.refreshes.next_due(), self.queue.next_due(), term.worklist.next_wake()
        return soonest(*dues, term.hold_changes_at)

    # ── Events ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _triggers(self, event: Event) -> Sequence[Trigger]:
        """What an event means for the capabilities."""
        match event:
            case Seen() | Gone() | Listed():
                return self._intake.take(event)
            case Outcome():
                self._term.on_outcome(event, self.now)
                if event.kind is not None and event.object is not None:
                    return self._intake.take(Seen(event.kind, event.object))
                if event.gone is not None:
                    return self._intake.take(event.gone)
            case PdSeen() | PdLost() | LeadersSeen() | MachinesSeen() | MachinesLost() | RegionsSeen():
                self._term.refreshes.answered(event, self.now)
                self._intake.note(event)
                return (event,)
            case EvictionAsked():
                self.world.show(event)
                return (event,)
            case LeaseChanged(leading=leading):
                self._lead(leading=leading)
            case QueueSettingsChanged(settings=settings):
                self._apply(Effects(self.queue.configure(settings)), [])
                self._term.evaluate_refused()
            case Features(on=on, observing=observing):
                self._switch(on, observing)
            case PolicyChanged():
                self._follow(event)
            case Tick():
                pass
        return ()

    def _on_trigger(self, trigger: Trigger) -> None:
        if self.deciding:  # before that there is no need: then everything is evaluated once
            self._term.on_trigger(trigger, self.on | self.observing, self.now)

    # ── Leading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _lead(self, *, leading: bool) -> None:
        before = self.stage
        self.stage = after(before, Signal.LEASE_WON if leading else Signal.LEASE_LOST)
        if self.stage is before:
            return
        self._recovery = None
        # Without the lease, another replica has the queue: what this one held is void.
        self._term = self._new_term(Queue(self.queue.settings))
        verb, text = ("leads", "won the lease") if leading else ("follows", "lost the lease")
        self._term.say(self.now, verb, "engine", text=text)

    def _new_term(self, queue: Queue) -> LeaderTerm:
        return LeaderTerm(self.world, queue, self.capabilities, self.defects, self.history, self._numbers, self.holds)

    def _recover(self) -> None:
        """Read the marks, even of a feature that was switched off: what they name is charged before anything else."""
        # The PD of every cluster is read first: a mark alone does not say how far its operator has come. One that does
        # not answer holds up its own cluster, whose operators wait for it, and no other.
        needs = {need for capability in self.capabilities.values() for need in self._needs(capability)}
        until, first = self._recovery = self._recovery or (self.now + RECOVERY_S, frozenset(needs))
        if self.now < until and not first.isdisjoint(needs):
            seen, lost = self.world.pd, self.world.pd_lost
            unseen = [tc.key for tc in self.world.tidb_clusters() if seen(tc.key) is None and not lost(tc.key)]
            self._term.refreshes.request(PdRefresh(key, self.now) for key in unseen)
            return
        self._recovery = None
        self._apply(Effects(self.queue.tick(self.now)), [])
        for name, capability in self.capabilities.items():
            with self.defects.guard(f"{name} recovery"):
                for read_back in capability.recover(self.world, self.queue, self.now):
                    with self.defects.guard(f"{name} recovery of a mark"):
                        for recovered in read_back():
                            self._apply(Effects(self._term.recover(recovered, self.now)), [])
        self.stage = after(self.stage, Signal.MARKS_READ)
        self._term.evaluate_all(self._listening(), "recover")

    def _needs(self, capability: Capability) -> Iterator[str]:
        with self.defects.guard(f"{capability.name} recovery"):
            yield from capability.recovery_needs(self.world)

    def _listening(self) -> list[str]:
        return [name for name in self.capabilities if name in self.on or name in self.observing]

    def _switch(self, on: frozenset[str], observing: frozenset[str]) -> None:
        """A capability switched on, or to observe, evaluates everything; one switched off proposes nothing more and
        what runs ends."""
        on &= self.capabilities.keys()  # a feature may be served by something that decides nothing
        observing = (observing & self.capabilities.keys()) - on
        switched_on = (on - self.on) | (observing - self.observing)
        switched_off = (self.on - on) | (self.observing - observing)
        self.on, self.observing, self.holds.observing = on, observing, observing
        self.world.note_features(on)
        for name in sorted(switched_off):
            self._apply(Effects(self._term.switch_off(name)), [])
        if self.deciding:
            self._term.evaluate_all(sorted(switched_on), "feature")

    def _follow(self, new: PolicyChanged) -> None:
        """From now on this capability decides by another policy; all that it has decided is asked again."""
        capability: Any = self.capabilities[new.name]
        policy = msgspec.convert(new.policy, type(capability.policy))
        self.capabilities[new.name] = changed = dataclasses.replace(capability, policy=policy)
        if new.rules is not None:
            self.world.reclassify(new.rules)
        for index in changed.indexes():
            self.world.register(index)
        if self.deciding and new.name in self._listening():
            self._term.evaluate_all([new.name], "settings")

    # ── Out ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _apply(self, effects: Effects, out: list[Instruction]) -> None:
        for event in effects.events:
            self._term.on_queue_event(event, self.on | self.observing, self.now)
        for instruction in effects.instructions:
            self._issue(instruction, effects.waiter, effects.cause, out)

    def _issue(self, instruction: Instruction, waiter: Slot | None, cause: str, out: list[Instruction]) -> None:
        self._ids += 1
        stamped = msgspec.structs.replace(instruction, id=f"i{self._ids}", cause=instruction.cause or cause)
        if waiter is not None and not isinstance(stamped, EmitEvent):
            self._term.in_flight.begin(stamped.id, waiter)
        out.append(stamped)
