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

import heapq
from collections.abc import Iterable, Sequence

import msgspec

from mooring.engine.capability import Capability
from mooring.engine.events import Event, Features, Led, Synced, Tick
from mooring.engine.facts import FactBook
from mooring.engine.story import Entry, Story
from mooring.model.cluster import Key
from mooring.model.decision import Course, Glance, Look, Resumed, Running, Verdict
from mooring.model.events import (
    Change,
    Gone,
    Happening,
    Listed,
    MachinesLost,
    MachinesSeen,
    OperatorEnded,
    PdLost,
    PdSeen,
    Seen,
)
from mooring.model.instructions import Instruction, LookAtMachines, LookAtPd, Outcome, Tell
from mooring.model.operator import Operator
from mooring.model.reasons import Reason, State
from mooring.traffic import Queue
from mooring.traffic.events import Ended, Promoted, QueueEvent, Rejected
from mooring.world import World

#: Looks per call of `handle`: about a millisecond of deciding between turns of the shell.
SLICE = 40
#: A step that takes longer than this without progress is called stalled.
STALLED_AFTER_S = 600.0


class Engine:
    def __init__(self, world: World, queue: Queue, capabilities: Sequence[Capability], *, slice_: int = SLICE) -> None:
        self.world = world
        self.queue = queue
        self.story = Story()
        self.capabilities = {c.name: c for c in capabilities}
        self._of_source = {source: c for c in capabilities for source in c.sources}
        self._fresh_queue = queue.fresh
        self._slice = slice_
        self.on: frozenset[str] = frozenset()
        self.synced = False
        self.leading = False
        #: True once marks have been read back: only then are operators proposed and promoted.
        self.deciding = False
        #: Released operators by id.
        self.running: dict[str, Running] = {}
        #: The last word about each looked-at key: "<capability>:<key>" → verdict.
        self.verdicts: dict[str, Verdict] = {}
        self._facts = FactBook()
        # Work: keys to look at, operators to steer; insertion-ordered, so that equal inputs give equal outputs.
        self._dirty: dict[tuple[str, str], str] = {}
        self._to_steer: dict[str, str] = {}
        #: Keys whose proposal found its source's cap reached: looked at again when the source has room.
        self._turned_away: dict[str, dict[tuple[str, str], None]] = {}
        self._wakeups: list[tuple[float, int, str, str]] = []
        self._wakeup_count = 0
        self._wakeup_of: dict[tuple[str, str], float] = {}
        self._pd_due: dict[Key, float] = {}
        self._pd_asked: set[Key] = set()
        self._machines_due: float | None = None
        self._machines_asked = False
        #: Instruction id → who waits for it ("op:41" or "look:handoff:…").
        self._in_flight: dict[str, str] = {}
        self._busy: dict[str, int] = {}
        self._back_off: dict[str, float] = {}
        self._out: list[Instruction] = []
        self._ids = 0
        self._operator_ids = 0
        self._now = 0.0

    # ── Driving ───────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take one event in, decide a slice, and say what to do."""
        self._now = max(now, self._now)
        self._take(event)
        return self.work(self._now)

    def work(self, now: float) -> list[Instruction]:
        """Decide a slice of what is dirty or due. Call again at once while `next_wakeup()` is not in the future."""
        self._now = now = max(now, self._now)
        if self.leading and self.synced and not self.deciding:
            self._resume()
        self._wake(now)
        if self.deciding:
            self._learn(self.queue.tick(now))
            budget = self._slice
            while budget > 0 and (self._to_steer or self._dirty):
                budget -= 1
                if self._to_steer:
                    operator, cause = next(iter(self._to_steer.items()))
                    del self._to_steer[operator]
                    self._steer(operator, cause)
                else:
                    (capability, key), cause = next(iter(self._dirty.items()))
                    del self._dirty[(capability, key)]
                    self._look(capability, key, cause)
        self._ask(now)
        out, self._out = self._out, []
        return out

    def next_wakeup(self) -> float | None:
        """When to call `work` at the latest; `now` or earlier means: at once."""
        times = [at for at in (self.queue.next_wakeup(), self._machines_due) if at is not None] if self.deciding else []
        if self.deciding and (self._dirty or self._to_steer):
            times.append(self._now)
        if self._wakeups:
            times.append(self._wakeups[0][0])
        if self.leading:
            times.extend(at for cluster, at in self._pd_due.items() if cluster not in self._pd_asked)
        return min(times, default=None)

    # ── Events ────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, event: Event) -> None:
        match event:
            case Seen() | Gone() | Listed():
                for change in self.world.apply(event):
                    self._touch(change, f"{change.kind}/{change.key}")
            case Outcome():
                self._settle(event)
            case PdSeen():
                self._pd_asked.discard(event.cluster)
                self.world.see_pd(event.cluster, event.view, event.at)
                self._touch(event, f"pd/{event.cluster}")
            case PdLost():
                self._pd_asked.discard(event.cluster)
                self.world.lose_pd(event.cluster, event.detail, event.at)
                self._touch(event, f"pd/{event.cluster}")
            case MachinesSeen():
                self._machines_asked = False
                self.world.see_machines(event.machines, event.at)
                self._touch(event, "machines")
            case MachinesLost():
                self._machines_asked = False
                self.world.lose_machines(event.detail, event.at)
                self._touch(event, "machines")
            case Synced():
                self.synced = True
            case Led(leading=leading):
                self._lead(leading=leading)
            case Features(on=on):
                self._switch(on)
            case Tick():
                pass

    def _touch(self, happening: Happening, cause: str) -> None:
        for name in sorted(self.on):
            capability = self.capabilities[name]
            for key in capability.touched(happening, self.world):
                self._dirty.setdefault((name, key), cause)
        if self.running:
            # Few run at a time; each is asked again whenever something moved that its capability cares about.
            for operator_id, running in self.running.items():
                if self._concerns(running, happening):
                    self._to_steer.setdefault(operator_id, cause)

    def _concerns(self, running: Running, happening: Happening) -> bool:
        """Does this concern the operator? Its own cluster's PD, or an object it names."""
        named = running.operator.args
        if isinstance(happening, PdSeen | PdLost):
            return named.get("cluster") == str(happening.cluster)
        if not isinstance(happening, Change):
            return running.operator.source == "fleet"
        text = f"{happening.kind.lower()}/{happening.key}"
        return (
            running.operator.subject == text
            or text in running.operator.claims
            or named.get(happening.kind.lower()) == str(happening.key)
        )

    def _settle(self, outcome: Outcome) -> None:
        waiter = self._in_flight.pop(outcome.instruction, None)
        if outcome.kind is not None and outcome.object is not None:
            self._take(Seen(outcome.kind, outcome.object))
        elif outcome.kind is not None and outcome.gone is not None:
            self._take(Gone(outcome.kind, outcome.gone))
        if waiter is None:
            return
        left = self._busy[waiter] - 1
        if left:
            self._busy[waiter] = left
        else:
            del self._busy[waiter]
        if outcome.reason is None:
            self._back_off.pop(waiter, None)
        else:
            # The same wish again, but not at once: 1 s, 2 s, … 30 s, or what the server asked for.
            wait = max(outcome.retry_after_s, min(30.0, 2 * self._back_off.get(waiter, 0.5)))
            self._back_off[waiter] = wait
        kind, _, name = waiter.partition(":")
        if kind == "op":
            running = self.running.get(name)
            if running is not None:
                if outcome.reason is None:
                    running.acted_at = self._now
                self._tell_outcome(outcome, running.operator)
                if outcome.reason is None:
                    self._to_steer.setdefault(name, outcome.instruction)
                else:
                    self._wake_at(self._now + self._back_off[waiter], "op", name)
        else:
            capability, _, key = name.partition(":")
            if outcome.reason is None:
                self._dirty.setdefault((capability, key), outcome.instruction)
            else:
                self._wake_at(self._now + self._back_off[waiter], capability, key)

    # ── Leading ───────────────────────────────────────────────────────────────────────────────────────────────

    def _lead(self, *, leading: bool) -> None:
        if leading == self.leading:
            return
        self.leading = leading
        self._say("leads" if leading else "follows", "engine", text="won the lease" if leading else "lost the lease")
        if not leading:
            self._forget()
        else:
            for cluster in self.world.tidb_clusters():
                self._pd_due.setdefault(cluster.key, self._now)

    def _forget(self) -> None:
        """Without the lease the queue is somebody else's: what it held here is worth nothing any more."""
        self.deciding = False
        self.queue = self._fresh_queue()
        self.running.clear()
        self._facts = FactBook()
        for soft in (self._dirty, self._to_steer, self._turned_away, self._wakeup_of, self._pd_due):
            soft.clear()
        self._wakeups.clear()
        self._pd_asked.clear()
        self._in_flight.clear()
        self._busy.clear()
        self._back_off.clear()
        self._machines_asked = False
        self._machines_due = None

    def _resume(self) -> None:
        """Read the marks; what they name is running and charged before anything else may be promoted."""
        missing = [what for name in sorted(self.on) for what in self.capabilities[name].waits_for(self.world)]
        if missing:
            return
        # Marks are read back even of a feature that was switched off meanwhile: what has begun must end well.
        resumed = [
            r for name in sorted(self.capabilities) for r in self.capabilities[name].resume(self.world, self._now)
        ]
        for one in resumed:
            self._take_back(one)
        self.deciding = True
        for name in sorted(self.on):
            for key in self.capabilities[name].keys(self.world):
                self._dirty.setdefault((name, key), "resume")

    def _take_back(self, resumed: Resumed) -> None:
        operator = resumed.operator
        if operator.id.isdigit():
            self._operator_ids = max(self._operator_ids, int(operator.id))
        self._learn(self.queue.resume(operator, phase=resumed.phase, now=self._now))
        running = self.running.get(operator.id)
        if running is not None:
            running.step, running.phase, running.step_since = resumed.step, resumed.phase, resumed.since
            running.promoted_at = resumed.since
            self._say(
                "resumed", operator.id, operator=operator, text=f"read back from its mark at step {resumed.step + 1}"
            )

    def _switch(self, on: frozenset[str]) -> None:
        """A capability switched on looks at everything; one switched off proposes nothing more and what runs ends."""
        switched_on, switched_off = on - self.on, self.on - on
        self.on = on
        for name in sorted(switched_off):
            sources = self.capabilities[name].sources
            for operator in [o for o in self.queue.waiting() if o.source in sources]:
                self._learn(self.queue.cancel(operator.id, self._now, Reason.FEATURE_OFF, f"{name} was switched off"))
            for waiter in [w for w in self.verdicts if w.startswith(f"{name}:")]:
                del self.verdicts[waiter]
            for fact_key in self._facts.keys_of(name):
                self._learn(self._facts.replace(fact_key, (), self.queue, self._now))
        if self.deciding:
            for name in sorted(switched_on):
                for key in self.capabilities[name].keys(self.world):
                    self._dirty.setdefault((name, key), "feature")

    # ── Deciding ──────────────────────────────────────────────────────────────────────────────────────────────

    def _look(self, name: str, key: str, cause: str) -> None:
        waiter = f"look:{name}:{key}"
        if name not in self.on or waiter in self._busy:
            return  # an outstanding write of its own answers first, and makes it dirty again
        look = self.capabilities[name].look(key, self.world, self.queue, self._now)
        self._note_look(name, key, look)
        self._learn(self._facts.replace(f"{name}:{key}", look.facts, self.queue, self._now))
        for target, limit in look.limits.items():
            self._learn(self.queue.set_limit(target, limit, self._now))
        for gone in look.withdrawals:
            if self.queue.is_waiting(gone.operator):
                self._learn(self.queue.cancel(gone.operator, self._now, gone.reason, gone.detail))
        for proposal in look.proposals:
            self._propose(proposal, name, key, cause)
        for instruction in look.instructions:
            self._issue(instruction, waiter, cause or key)
        self._wish(look.glances)
        if look.again_at is not None:
            self._wake_at(look.again_at, name, key)

    def _note_look(self, name: str, key: str, look: Look) -> None:
        slot = f"{name}:{key}"
        if look.verdict is None:
            self.verdicts.pop(slot, None)
        else:
            self.verdicts[slot] = look.verdict

    def _propose(self, proposal: Operator, name: str, key: str, cause: str) -> None:
        holder = self.queue.claimed_by(proposal.subject)
        if holder is not None and holder.source == proposal.source and holder.kind == proposal.kind:
            return  # proposed already: deciders recompute, they do not remember
        self._operator_ids += 1
        operator = msgspec.structs.replace(
            proposal,
            id=str(self._operator_ids),
            cause=proposal.cause or cause,
            claims=proposal.claims or (proposal.subject,),
        )
        events = self.queue.submit(operator, self._now)
        rejected = next((e for e in events if isinstance(e, Rejected) and e.id == operator.id), None)
        if rejected is not None:
            self._operator_ids -= 1
            if rejected.reason == Reason.TOO_MANY_WAITING:
                self._turned_away.setdefault(operator.source, {})[(name, key)] = None
            refused = rejected.reason in {Reason.NEVER_FITS, Reason.INVALID}
            self.verdicts[f"{name}:{key}"] = Verdict(
                State.REFUSED if refused else State.WAITS, rejected.reason, rejected.detail
            )
            return
        self._say("queued", operator.id, operator=operator, reason=operator.reason, text=operator.detail)
        self._learn(events)

    def _steer(self, operator_id: str, cause: str) -> None:
        running = self.running.get(operator_id)
        waiter = f"op:{operator_id}"
        if running is None or waiter in self._busy:
            return
        operator = running.operator
        course = self._of_source[operator.source].steer(running, self.world, self.queue, self._now)
        self._follow(running, course)
        if course.end is not None:
            end = course.end
            call = (
                self.queue.fail if end.failed else self.queue.finish if end.reason == Reason.DONE else self.queue.cancel
            )
            self._learn(call(operator_id, self._now, end.reason, end.detail))
            return
        if course.phase is not None and course.phase > running.phase:
            running.phase = course.phase
            self._learn(self.queue.advance(operator_id, course.phase, self._now))
        for instruction in course.instructions:
            self._issue(instruction, waiter, operator_id)
        self._wish(course.glances)
        if course.again_at is not None:
            self._wake_at(course.again_at, "op", operator_id)

    def _follow(self, running: Running, course: Course) -> None:
        operator = running.operator
        if course.step != running.step:
            running.step, running.step_since = course.step, self._now
            kind = operator.steps[course.step].kind if course.step < len(operator.steps) else "end"
            self._say("step", operator.id, operator=operator, text=f"{course.step + 1}/{len(operator.steps)} {kind}")
        before = running.waits
        running.progress, running.waits = course.progress, course.waits
        now_waits = course.waits
        if now_waits is not None and (before is None or before.reason != now_waits.reason):
            self._say("waits", operator.id, operator=operator, reason=now_waits.reason, text=now_waits.detail)

    # ── The queue's answers ───────────────────────────────────────────────────────────────────────────────────

    def _learn(self, events: Iterable[QueueEvent]) -> None:
        for event in events:
            match event:
                case Promoted(id=operator_id):
                    operator = self.queue.operator(operator_id)
                    if operator is None:  # ended within the same batch of events
                        continue
                    self.running[operator_id] = Running(
                        operator=operator, promoted_at=self._now, step_since=self._now, acted_at=0.0
                    )
                    self._say("promoted", operator_id, operator=operator)
                    self._to_steer[operator_id] = operator_id
                    self._make_room_for(operator.source)
                case Ended(id=operator_id):
                    self._ended(event)
                case _:
                    pass

    def _ended(self, event: Ended) -> None:
        running = self.running.pop(event.id, None)
        self._to_steer.pop(event.id, None)
        operator = running.operator if running is not None else event.operator
        self._say("ended", event.id, operator=operator, reason=event.reason, text=event.detail, outcome=event.outcome)
        self._back_off.pop(f"op:{event.id}", None)
        capability = self._of_source[operator.source]
        if capability.name in self.on:
            # Whoever proposed it looks again: the world may already want the next thing.
            for key in capability.touched(OperatorEnded(operator), self.world):
                self._dirty.setdefault((capability.name, key), event.id)
        self._make_room_for(operator.source)

    def _make_room_for(self, source: str) -> None:
        for slot in self._turned_away.pop(source, {}):
            self._dirty.setdefault(slot, "room")

    # ── Instructions, wake-ups, words ─────────────────────────────────────────────────────────────────────────

    def _issue(self, instruction: Instruction, waiter: str, cause: str) -> None:
        self._ids += 1
        stamped = msgspec.structs.replace(instruction, id=f"i{self._ids}", cause=instruction.cause or cause)
        if not isinstance(stamped, Tell | LookAtPd | LookAtMachines):
            self._in_flight[stamped.id] = waiter
            self._busy[waiter] = self._busy.get(waiter, 0) + 1
        self._out.append(stamped)

    def _wish(self, glances: Iterable[Glance]) -> None:
        for glance in glances:
            due = self._pd_due.get(glance.cluster)
            if due is None or glance.at < due:
                self._pd_due[glance.cluster] = glance.at

    def ask_for_machines(self, at: float) -> None:
        """The fleet loop's wish for a fresh list of machines, no later than `at`."""
        if self._machines_due is None or at < self._machines_due:
            self._machines_due = at

    def _ask(self, now: float) -> None:
        """Turn due wishes into one look per cluster; never two at once."""
        if not self.leading:
            return
        for cluster in [c for c, at in self._pd_due.items() if at <= now and c not in self._pd_asked]:
            del self._pd_due[cluster]
            self._pd_asked.add(cluster)
            self._issue(LookAtPd(cluster=cluster, why="looks at PD"), "", f"pd/{cluster}")
        if self._machines_due is not None and self._machines_due <= now and not self._machines_asked:
            self._machines_due = None
            self._machines_asked = True
            self._issue(LookAtMachines(why="asks the machine registry"), "", "machines")

    def _wake_at(self, at: float, who: str, key: str) -> None:
        slot = (who, key)
        known = self._wakeup_of.get(slot)
        if known is not None and known <= at:
            return
        self._wakeup_of[slot] = at
        self._wakeup_count += 1
        heapq.heappush(self._wakeups, (at, self._wakeup_count, who, key))

    def _wake(self, now: float) -> None:
        while self._wakeups and self._wakeups[0][0] <= now:
            at, _, who, key = heapq.heappop(self._wakeups)
            if self._wakeup_of.get((who, key)) != at:
                continue  # an earlier one has been set since
            del self._wakeup_of[(who, key)]
            if who == "op":
                if key in self.running:
                    self._to_steer.setdefault(key, "time")
            elif who in self.on:
                self._dirty.setdefault((who, key), "time")

    def _tell_outcome(self, outcome: Outcome, operator: Operator) -> None:
        if outcome.reason is None:
            self._say("wrote", outcome.instruction, operator=operator, text=outcome.detail)
        else:
            self._say("could-not", outcome.instruction, operator=operator, reason=outcome.reason, text=outcome.detail)

    def _say(
        self,
        verb: str,
        id_: str,
        *,
        operator: Operator | None = None,
        reason: str = "",
        text: str = "",
        outcome: str = "",
    ) -> None:
        subjects = (operator.subject, f"operator/{operator.id}") if operator is not None else ()
        self.story.tell(
            Entry(
                at=self._now,
                id=id_,
                cause=operator.cause if operator is not None else "",
                verb=outcome or verb,
                source=operator.source if operator is not None else "",
                reason=str(reason),
                text=text,
                subjects=subjects,
            )
        )
