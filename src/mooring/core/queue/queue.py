"""The queue: operators wait in order and run when they fit on every target they touch.

One place decides, atomically: every call does its work, then one pass promotes everything that fits, then it answers
with the events in order. It touches nothing outside and knows no clock: `tick(now)` says how late it is, and comes
before the call that belongs to that moment.

Work per call is the number of operators whose standing changes, not the number that wait (see `lane`).
"""

from collections.abc import Iterable
from heapq import heappop

from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason
from mooring.core.queue import targets
from mooring.core.queue.checks import charges, claims_of, fault
from mooring.core.queue.config import Settings
from mooring.core.queue.events import Advanced, Event, How, Ignored, Rejected
from mooring.core.queue.flow import Flow
from mooring.core.queue.lane import RUNNING, WAITING, Fact
from mooring.core.queue.why import Why, why


class Queue(Flow):
    """See `mooring.core.queue` for the calls at a glance."""

    # ── Operators come ────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, op: Operator) -> list[Event]:
        """Take one operator in, or reject it with the first reason that applies; then promote what fits."""
        events: list[Event] = []
        self._take_in(op, events)
        return self._pass(events)

    def submit_batch(self, ops: Iterable[Operator]) -> list[Event]:
        """Take several in, each with its own result; then one pass."""
        events: list[Event] = []
        for op in ops:
            self._take_in(op, events)
        return self._pass(events)

    def resume(self, op: Operator, phase: int = 0) -> list[Event]:
        """Take in, as running, what ran before we looked: no room is asked for, only its claims must be free."""
        wrong = fault(op) or ("" if 0 <= phase < len(op.phases) else f"it has no phase {phase}")
        if wrong or op.id in self.entries:
            return [Rejected(op.id, self.now, Reason.INVALID, wrong or f"id {op.id} is in use")]
        claims = claims_of(op)
        for claim in claims:
            if holder := self._claims.get(claim):
                return [
                    Rejected(op.id, self.now, targets.busy_reason(claim), f"{claim} is claimed by op {holder.op.id}")
                ]
        entry = self._entry(op, claims, charges(op.phases[phase]), phase)
        entry.need = self._book.need(claims, entry.cost)
        events: list[Event] = []
        for target, need in entry.need.items():
            lane = self.lanes[target]
            lane.used += need
            lane.take(need)
        self._begin(entry, events, Reason.RESUMED)
        return self._pass(events)

    # ── Operators go on and go ────────────────────────────────────────────────────────────────────────────────────

    def advance(self, op_id: str, phase: int) -> list[Event]:
        """Lower its cost to that of a later phase; never back. One that still waits keeps its place."""
        entry = self.entries.get(op_id)
        if entry is None:
            return [Ignored(op_id, self.now, Reason.UNKNOWN)]
        if not entry.phase < phase < len(entry.op.phases):
            return [Ignored(op_id, self.now, Reason.INVALID, f"it is in phase {entry.phase} of {len(entry.op.phases)}")]
        if entry.state == WAITING:
            self._leave_lanes(entry)
            entry.phase, entry.cost = phase, charges(entry.op.phases[phase])
            self._enter_lanes(entry)
        else:
            held = entry.cost
            entry.phase, entry.cost = phase, charges(entry.op.phases[phase])
            for target in held:
                if target not in entry.cost:
                    del self.lanes[target].running[op_id]
            self._recharge(entry)
            self._book.answer(held)
        return self._pass([Advanced(op_id, self.now, phase)])

    def finish(self, op_id: str) -> list[Event]:
        return self._end_running(op_id, How.FINISHED, Reason.DONE, "")

    def fail(self, op_id: str, reason: Reason = Reason.FAILED, detail: str = "") -> list[Event]:
        return self._end_running(op_id, How.FAILED, reason, detail)

    def cancel(self, op_id: str, reason: Reason = Reason.CANCELED, detail: str = "") -> list[Event]:
        """End an operator, waiting or running."""
        entry = self.entries.get(op_id)
        if entry is None:
            return [Ignored(op_id, self.now, Reason.UNKNOWN)]
        events: list[Event] = []
        self._end(entry, How.CANCELED, reason, detail, events)
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
            for target, need in heappop(cooling)[2].items():
                lane = self.lanes[target]
                lane.cooling -= need
                lane.used -= need
                lane.give(need, self._ready)
        timers = self._timers
        while timers and timers[0][0] <= now:
            entry = heappop(timers)[3]
            if entry.state == RUNNING:
                self._end(entry, How.TIMEOUT, Reason.TIMEOUT, f"ran for {entry.op.timeout_s:g} s", events)
        return self._pass(events) if events or self._ready or self._book.dirty else events

    def configure(self, settings: Settings) -> list[Event]:
        """Change settings at any moment. Running operators go on; waiting ones that can never run are canceled."""
        self.settings = self.lanes.settings = settings
        events: list[Event] = []
        changed = [lane for target, lane in self.lanes.items() if lane.limit != self.lanes.limit(target)]
        self._resize(changed, events)
        return self._pass(events)

    def set_limit(self, target: str, limit: int | None) -> list[Event]:
        """Give a target a limit of its own. None: it is no target, nothing waits for it; 0: paused."""
        if limit is not None and (type(limit) is not int or limit < 0):
            return [Ignored("", self.now, Reason.INVALID, f"the limit of {target} is {limit!r}: 0 or more, or None")]
        self.lanes.limits[target] = limit
        return self._follow_limit(target)

    def reset_limit(self, target: str) -> list[Event]:
        """Back to what the settings say of this kind of target."""
        self.lanes.limits.pop(target, None)
        return self._follow_limit(target)

    def set_fact(self, target: str, subject: str, amount: int, text: str = "") -> list[Event]:
        """Charge what is already broken. One fact per target and subject; a new one replaces the old, 0 clears it."""
        if type(amount) is not int or amount < 0 or not target:
            return [Ignored("", self.now, Reason.INVALID, f"a fact of {amount!r} on {target!r}: 0 or more, on a name")]
        return self._write([Fact(target, subject, amount, text)])

    def clear_fact(self, target: str, subject: str) -> list[Event]:
        return self.set_fact(target, subject, 0)

    def set_facts(self, target: str, facts: Iterable[Fact]) -> list[Event]:
        """All there is to say about a target, at once: what is missing here no longer holds."""
        told = {fact.subject: fact for fact in facts}
        if wrong := next((f for f in told.values() if type(f.amount) is not int or f.amount < 0), None):
            return [Ignored("", self.now, Reason.INVALID, f"a fact of {wrong.amount!r} on {target}: 0 or more")]
        lane = self.lanes.get(target)
        gone = [Fact(target, subject, 0) for subject in (lane.facts if lane else ()) if subject not in told]
        return self._write([*gone, *(Fact(target, f.subject, f.amount, f.text) for f in told.values())])

    def hold(self) -> list[Event]:
        """Promote nothing until `release`: before marks are read, and while stopping."""
        self.held = True
        return []

    def release(self) -> list[Event]:
        self.held = False
        return self._pass([])

    def why(self, op_id: str) -> Why | None:
        """What a waiting operator waits for; None for one that does not wait. `why.why_all` answers for all at once."""
        return why(self, op_id)
