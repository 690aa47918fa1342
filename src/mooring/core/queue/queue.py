"""The queue: operators wait in order and run when they fit on every target they touch.

One place decides, atomically: every call does its work, then one pass promotes everything that fits, then it answers
with the events in order. It touches nothing outside and knows no clock: `tick(now)` says how late it is, and comes
before the call that belongs to that moment.

`records` holds one record per operator, `lanes` who stands where. Work per call is the number of operators whose
standing changes, not the number that wait (see `lane`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from mooring.core.model.decision import ENDED, RUNNING, WAITING, Fact, OperatorRecord
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason
from mooring.core.queue import targets
from mooring.core.queue.checks import charges, claims_of, fault
from mooring.core.queue.config import Settings
from mooring.core.queue.events import Accepted, Advanced, Ended, Event, How, Ignored, Promoted, Rejected
from mooring.core.queue.lane import Lane
from mooring.core.queue.lanes import Lanes
from mooring.core.queue.records import BY_KEY, Records
from mooring.core.queue.why import Why, why

#: The usual end, by plain names: asking an enumeration for its member takes as long as a call.
_FINISHED, _DONE = How.FINISHED, Reason.DONE


class Queue:
    """See `mooring.core.queue` for the calls at a glance."""

    def __init__(self, settings: Settings | None = None, now: float = 0.0) -> None:
        self.settings = settings or Settings()
        #: As `tick` last said. Time-outs count from it, so the first tick comes before the first operator.
        self.now = now
        self.records = Records()
        self._lanes = Lanes(self.settings, self.records)
        #: By due time, then id; the arrival tells apart two of one id, since records have no order.
        self._timers: list[tuple[float, str, int, OperatorRecord]] = []
        self._cooling: list[tuple[float, int, Mapping[str, int]]] = []

    def kept(self) -> dict[str, object]:
        """What a checkpoint keeps; records in it are those of `records`."""
        return {**vars(self), "_timers": [list(timer) for timer in self._timers]}

    def restore(self, kept: Mapping[str, Any]) -> None:
        vars(self).update(kept, _timers=[tuple(timer) for timer in kept["_timers"]])

    # ── Looking: changes nothing ──────────────────────────────────────────────────────────────────────────────────

    def __contains__(self, op_id: object) -> bool:
        return op_id in self.records.by_id

    def get(self, op_id: str) -> Operator | None:
        record = self.records.by_id.get(op_id)
        return record.operator if record else None

    def is_running(self, op_id: str) -> bool:
        return op_id in self.records.running

    def phase(self, op_id: str) -> int | None:
        record = self.records.by_id.get(op_id)
        return record.phase if record else None

    def holder(self, claim: str) -> Operator | None:
        """The operator, waiting or running, that claims a region or an object."""
        record = self.records.by_claim.get(claim)
        return record.operator if record else None

    def record_of(self, claim: str) -> OperatorRecord | None:
        return self.records.by_claim.get(claim)

    def running_records(self) -> Iterable[OperatorRecord]:
        return self.records.running.values()

    @property
    def running(self) -> tuple[str, ...]:
        """Ids, by promotion."""
        return tuple(self.records.running)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids in queue order, parked ones at their place."""
        return tuple(record.operator.id for record in self.records.waiting())

    @property
    def lanes(self) -> dict[str, Lane]:
        return self._lanes.table

    def waiting_of(self, source: str, quota: str = "") -> int:
        """How many of a source count against its cap, which each quota (a cluster, a namespace) has for itself."""
        return self.records.waiting_count.get((source, quota), 0)

    def used(self, target: str) -> int:
        lane = self.lanes.get(target)
        return lane.used if lane else 0

    def limit(self, target: str) -> int | None:
        return self._lanes.table.limit(target)

    def facts(self, target: str) -> tuple[Fact, ...]:
        lane = self.lanes.get(target)
        return tuple(lane.facts.values()) if lane else ()

    def holders(self, target: str) -> Sequence[tuple[str, int]]:
        """Running operators on a target and what each is charged there, by promotion."""
        lane = self.lanes.get(target)
        return [(name, record.need.get(target, 0)) for name, record in lane.running.items()] if lane else []

    def operators(self) -> Iterator[Operator]:
        return (record.operator for record in self.records.by_id.values())

    def why(self, op_id: str) -> Why | None:
        """What a waiting operator waits for; None for one that does not wait. `why.why_all` answers for all at once."""
        return why(self, op_id)

    def next_due(self) -> float | None:
        """When `tick` next has something to do by itself."""
        dues = ([self._timers[0][0]] if self._timers else []) + ([self._cooling[0][0]] if self._cooling else [])
        return min(dues) if dues else None

    # ── Operators come ────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, op: Operator) -> list[Event]:
        """Take one operator in, or reject it with the first reason that applies; then promote what fits."""
        events: list[Event] = []
        self._admit(op, events)
        return self._pass(events)

    def submit_batch(self, ops: Iterable[Operator]) -> list[Event]:
        """Take several in, each with its own result; then one pass."""
        events: list[Event] = []
        for op in ops:
            self._admit(op, events)
        return self._pass(events)

    def _admit(self, op: Operator, events: list[Event]) -> None:
        lanes, records = self._lanes, self.records
        if lanes.facts.dirty:
            lanes.settle()
        wrong = fault(op)
        if wrong or op.id in records.by_id:
            events.append(Rejected(op.id, self.now, Reason.INVALID, wrong or f"id {op.id} is in use"))
            return
        claims, cost = claims_of(op), charges(op.phases[0])
        replaced: list[OperatorRecord] = []
        for claim in claims:
            holder = records.by_claim.get(claim)
            if holder is None or holder in replaced:
                continue
            if not self.settings.replacement or op.priority <= holder.operator.priority:
                events.append(self._busy(op, claim, holder))
                return
            replaced.append(holder)
        table = lanes.table
        for target, amount in cost.items():
            if amount > table[target].cap and (verdict := lanes.never_fits(cost, claims)):
                events.append(Rejected(op.id, self.now, *verdict))
                return
        capped = table.shares or self.settings.cap(op.source) is not None
        if capped and (full := self.over_source_cap(op, replaced)):
            events.append(Rejected(op.id, self.now, Reason.TOO_MANY_WAITING, full))
            return
        for holder in replaced:
            self._end(holder, How.CANCELED, Reason.REPLACED, f"by op {op.id} of higher priority", events)
        record = records.add(op, claims, cost, 0)
        events.append(Accepted(op.id, self.now))
        records.count(record)
        lanes.enter(record)

    def _busy(self, op: Operator, claim: str, holder: OperatorRecord) -> Rejected:
        return Rejected(op.id, self.now, targets.busy_reason(claim), f"{claim} is claimed by op {holder.operator.id}")

    def over_source_cap(self, op: Operator, replaced: Sequence[OperatorRecord] = ()) -> str:
        """Why no more of its source, or of its share, may wait; "" when it may."""
        cap = self.settings.cap(op.source)
        if cap is not None and (count := self.records.beside(op, replaced)) >= cap:
            whose = f"{op.source} of {op.quota}" if op.quota else op.source
            return f"{count} of {whose} wait already, {cap} may"
        # Without a lane of a share none is used, so the first may wait.
        return self._lanes.over_share(claims_of(op), op.cost) if self._lanes.table.shares else ""

    def resume(self, op: Operator, phase: int = 0) -> list[Event]:
        """Take in, as running, what ran before we looked: no room is asked for, only its claims must be free."""
        wrong = fault(op) or ("" if 0 <= phase < len(op.phases) else f"it has no phase {phase}")
        if wrong or op.id in self.records.by_id:
            return [Rejected(op.id, self.now, Reason.INVALID, wrong or f"id {op.id} is in use")]
        claims = claims_of(op)
        for claim in claims:
            if holder := self.records.by_claim.get(claim):
                return [self._busy(op, claim, holder)]
        record = self.records.add(op, claims, charges(op.phases[phase]), phase)
        events: list[Event] = []
        self._lanes.charge(record)
        self._begin(record, events, Reason.RESUMED)
        return self._pass(events)

    # ── Operators go on and go ────────────────────────────────────────────────────────────────────────────────────

    def advance(self, op_id: str, phase: int) -> list[Event]:
        """Lower its cost to that of a later phase; never back. One that still waits keeps its place."""
        record = self.records.by_id.get(op_id)
        if record is None:
            return [Ignored(op_id, self.now, Reason.UNKNOWN)]
        phases = record.operator.phases
        if not record.phase < phase < len(phases):
            return [Ignored(op_id, self.now, Reason.INVALID, f"it is in phase {record.phase} of {len(phases)}")]
        record.phase, cost = phase, charges(phases[phase])
        if record.state == WAITING:
            self._lanes.leave(record)
            record.cost = cost
            self._lanes.enter(record)
        else:
            self._lanes.lower(record, cost)
        return self._pass([Advanced(op_id, self.now, phase)])

    def finish(self, op_id: str, detail: str = "") -> list[Event]:
        return self._end_running(op_id, _FINISHED, _DONE, detail)

    def fail(self, op_id: str, reason: Reason = Reason.FAILED, detail: str = "") -> list[Event]:
        return self._end_running(op_id, How.FAILED, reason, detail)

    def cancel(self, op_id: str, reason: Reason = Reason.CANCELED, detail: str = "") -> list[Event]:
        """End an operator, waiting or running."""
        record = self.records.by_id.get(op_id)
        if record is None:
            return [Ignored(op_id, self.now, Reason.UNKNOWN)]
        events: list[Event] = []
        self._end(record, How.CANCELED, reason, detail, events)
        return self._pass(events)

    # ── The world changes ─────────────────────────────────────────────────────────────────────────────────────────

    def tick(self, now: float) -> list[Event]:
        """It is `now`: running operators whose time is up end, by due time and then id; then one pass."""
        if not now >= self.now:
            return [Ignored("", self.now, Reason.TIME, f"{now} is before {self.now}")]
        self.now = now
        events: list[Event] = []
        cooling = self._cooling
        while cooling and cooling[0][0] <= now:
            self._lanes.cooled(heappop(cooling)[2])
        timers = self._timers
        while timers and timers[0][0] <= now:
            record = heappop(timers)[3]
            if record.state == RUNNING:
                self._end(record, How.TIMEOUT, Reason.TIMEOUT, f"ran for {record.operator.timeout_s:g} s", events)
        return self._pass(events) if events or self._lanes.ready or self._lanes.facts.dirty else events

    def configure(self, settings: Settings) -> list[Event]:
        """Change settings at any moment. Running operators go on; waiting ones that can never run are canceled."""
        self.settings = settings
        return self._cancel_misfits(self._lanes.configure(settings))

    def set_limit(self, target: str, limit: int | None) -> list[Event]:
        """Give a target a limit of its own. None: it is no target, nothing waits for it; 0: paused."""
        if limit is not None and (type(limit) is not int or limit < 0):
            return [Ignored("", self.now, Reason.INVALID, f"the limit of {target} is {limit!r}: 0 or more, or None")]
        self._lanes.table.limits[target] = limit
        return self._follow_limit(target)

    def reset_limit(self, target: str) -> list[Event]:
        """Back to what the settings say of this kind of target."""
        self._lanes.table.limits.pop(target, None)
        return self._follow_limit(target)

    def _follow_limit(self, target: str) -> list[Event]:
        table = self._lanes.table
        changed = table.following(target) if table[target].limit != table.limit(target) else ()
        return self._cancel_misfits(self._lanes.resize(changed) if changed else ())

    def set_fact(self, target: str, subject: str, amount: int, detail: str = "") -> list[Event]:
        """Charge what is already broken. One fact per target and subject; a new one replaces the old, 0 clears it."""
        if type(amount) is not int or amount < 0 or not target:
            return [Ignored("", self.now, Reason.INVALID, f"a fact of {amount!r} on {target!r}: 0 or more, on a name")]
        own = self._lanes.note(Fact(target, subject, amount, detail))
        return self._cancel_misfits([own] if own is not None else [])

    def clear_fact(self, target: str, subject: str) -> list[Event]:
        return self.set_fact(target, subject, 0)

    # ── Inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _pass(self, events: list[Event]) -> list[Event]:
        """Promote everything that fits, in queue order. One walk is a fixed point."""
        lanes = self._lanes
        if lanes.facts.dirty:
            lanes.settle()
            for record in lanes.crowding():
                self._end(record, How.CANCELED, Reason.TOO_MANY_WAITING, "others of its share came first", events)
        ready = lanes.ready
        if ready:
            if len(ready) > 1:
                ready.sort(key=BY_KEY)
            for record in ready:
                if record.state == WAITING and not record.blocked and not record.parked:
                    record.state = RUNNING
                    lanes.promote(record)
                    self.records.uncount(record)
                    self._begin(record, events, None)
            ready.clear()
            if lanes.facts.dirty:
                # What facts charge is now the promoted one's to answer for: some may be parked no longer. They had no
                # room then and have none now, so this promotes none.
                lanes.settle()
        return events

    def _begin(self, record: OperatorRecord, events: list[Event], reason: Reason | None) -> None:
        """It runs, timed from now."""
        op, now = record.operator, self.now
        record.state = RUNNING
        record.promoted_at = record.step_since = record.moved_at = now
        running = self.records.running
        running[op.id] = record
        if op.timeout_s is not None:
            timers = self._timers
            if len(timers) > 64 and len(timers) > 2 * len(running):
                timers[:] = [timer for timer in timers if timer[3].state == RUNNING]
                heapify(timers)
            heappush(timers, (now + op.timeout_s, op.id, record.key[1], record))
        events.append(Promoted(op.id, now, reason))

    def _end_running(self, op_id: str, how: How, reason: Reason, detail: str) -> list[Event]:
        record = self.records.by_id.get(op_id)
        if record is None:
            return [Ignored(op_id, self.now, Reason.UNKNOWN)]
        if record.state != RUNNING:
            return [Ignored(op_id, self.now, Reason.NOT_RUNNING)]
        events: list[Event] = []
        self._end(record, how, reason, detail, events)
        return self._pass(events)

    def _end(self, record: OperatorRecord, how: How, reason: Reason, detail: str, events: list[Event]) -> None:
        """Forget an operator and release what it holds: exactly once, on every way out."""
        self.records.drop(record)
        if record.state == WAITING:
            self._lanes.leave(record)
            self.records.uncount(record)
        else:
            del self.records.running[record.operator.id]
            cools = self.settings.cooldown_s > 0 and how is _FINISHED and bool(record.need)
            self._lanes.end(record, cools=cools)
            if cools:
                heappush(self._cooling, (self.now + self.settings.cooldown_s, self.records.arrival(), record.need))
        record.state = ENDED
        events.append(Ended(record.operator.id, self.now, how, reason, detail, record))

    def _cancel_misfits(self, records: Iterable[OperatorRecord]) -> list[Event]:
        """End those among them that wait for what can never be; then one pass."""
        events: list[Event] = []
        for record in records:
            if record.state == WAITING and (verdict := self._lanes.never_fits(record.cost, record.claims)):
                self._end(record, How.CANCELED, *verdict, events)
        return self._pass(events)
