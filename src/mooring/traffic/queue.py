"""The queue: operators wait in order and run when they fit on every target they touch.

One place decides, atomically: every call does its work, then one pass promotes everything that fits, then it answers
with the events in order. It touches nothing outside and knows no clock: `tick(now)` says how late it is, and comes
before the call that belongs to that moment.

Work per call is the number of operators whose standing changes, not the number that wait (see `lane`).
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf

from mooring.model.operator import Operator
from mooring.model.reasons import Reason
from mooring.traffic import targets
from mooring.traffic.admission import charges, claims_of, fault
from mooring.traffic.config import Settings
from mooring.traffic.events import Accepted, Advanced, Ended, Event, How, Ignored, Promoted, Rejected
from mooring.traffic.lane import ENDED, RUNNING, WAITING, Entry, Fact, Lane
from mooring.traffic.state import BY_KEY, State
from mooring.traffic.why import Why, why


class Queue(State):
    """See `mooring.traffic` for the calls at a glance."""

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
        entry = self._entry(op, claims, phase)
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
            entry = heappop(timers)[2]
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

    # ── How it is done ────────────────────────────────────────────────────────────────────────────────────────────

    def _take_in(self, op: Operator, events: list[Event]) -> None:
        if self._book.dirty:
            self._settle()
        wrong = fault(op)
        if wrong or op.id in self.entries:
            events.append(Rejected(op.id, self.now, Reason.INVALID, wrong or f"id {op.id} is in use"))
            return
        claims = claims_of(op)
        cost = charges(op.phases[0])
        replaced: list[Entry] = []
        for claim in claims:
            holder = self._claims.get(claim)
            if holder is None or holder in replaced:
                continue
            if not self.settings.replacement or op.priority <= holder.op.priority:
                detail = f"{claim} is claimed by op {holder.op.id}"
                events.append(Rejected(op.id, self.now, targets.busy_reason(claim), detail))
                return
            replaced.append(holder)
        lanes = self.lanes
        for target, amount in cost.items():
            if amount > lanes[target].cap and (verdict := self._misfit(cost, claims)):
                events.append(Rejected(op.id, self.now, *verdict))
                return
        cap = self.settings.cap(op.source)
        if cap is not None:
            count = self.waiting_count.get(op.source, 0)
            count -= sum(1 for e in replaced if e.state == WAITING and not e.parked and e.op.source == op.source)
            if count >= cap:
                detail = f"{count} of {op.source} wait already, {cap} may"
                events.append(Rejected(op.id, self.now, Reason.TOO_MANY_WAITING, detail))
                return
        for holder in replaced:
            self._end(holder, How.CANCELED, Reason.REPLACED, f"by op {op.id} of higher priority", events)
        entry = self._entry(op, claims, 0)
        events.append(Accepted(op.id, self.now))
        self.waiting_count[op.source] = self.waiting_count.get(op.source, 0) + 1
        self._enter_lanes(entry)

    def _entry(self, op: Operator, claims: tuple[str, ...], phase: int) -> Entry:
        """Make it known under its id and its claims. It stands in no line yet."""
        self._arrivals += 1
        cost = charges(op.phases[phase])
        entry = Entry(
            op=op,
            key=(inf if op.deadline is None else op.deadline, self._arrivals),
            claims=claims,
            cost=cost,
            need=self._book.need(claims, cost),
            phase=phase,
            submitted_at=self.now,
        )
        self.entries[op.id] = entry
        for claim in claims:
            self._claims[claim] = entry
        return entry

    def _misfit(self, cost: Mapping[str, int], claims: tuple[str, ...]) -> tuple[Reason, str] | None:
        """Why an operator with this cost can never run, as things are configured."""
        for target in sorted(cost, key=targets.order):
            if self.lanes[target].cap == 0:
                return targets.paused_reason(target), f"{target} is paused: its limit is 0"
        need = self._book.need(claims, cost)
        for target in sorted(need, key=targets.order):
            cap = self.lanes[target].cap
            if cost[target] > cap:
                return Reason.NEVER_FITS, f"needs {cost[target]} on {target}, whose limit is {cap}"
        return None

    def _enter_lanes(self, entry: Entry) -> None:
        """Let it stand in line at its key, or park it. It is counted as waiting already."""
        need = entry.need = self._book.need(entry.claims, entry.cost)
        if self._book.keeps_out(need):
            self._park(entry)
            return
        lanes, ready = self.lanes, self._ready
        for target, amount in need.items():
            lanes[target].insert(entry, amount, ready)
        if not entry.blocked:
            ready.append(entry)

    def _leave_lanes(self, entry: Entry) -> None:
        """Take a waiting one out of every line; afterwards it counts as waiting and not parked."""
        if entry.parked:
            for target in entry.need:
                del self.lanes[target].parked[entry.op.id]
            entry.parked = False
            self.waiting_count[entry.op.source] = self.waiting_count.get(entry.op.source, 0) + 1
            return
        for target, need in entry.need.items():
            self.lanes[target].remove(entry, need, self._ready)

    def _park(self, entry: Entry) -> None:
        entry.parked = True
        self._uncount(entry)
        for target in entry.need:
            self.lanes[target].parked[entry.op.id] = entry

    def _uncount(self, entry: Entry) -> None:
        source = entry.op.source
        left = self.waiting_count[source] - 1
        if left:
            self.waiting_count[source] = left
        else:
            del self.waiting_count[source]

    def _pass(self, events: list[Event]) -> list[Event]:
        """Promote everything that fits, in queue order. One walk is a fixed point."""
        if self._book.dirty:
            self._settle()
        ready = self._ready
        if ready and not self.held:
            if len(ready) > 1:
                ready.sort(key=BY_KEY)
            for entry in ready:
                if entry.state == WAITING and not entry.blocked and not entry.parked:
                    entry.state = RUNNING
                    for target, need in entry.need.items():
                        self.lanes[target].promote(need)
                    self._uncount(entry)
                    self._begin(entry, events, None)
            ready.clear()
            if self._book.dirty:
                # What facts charge is now the promoted one's to answer for: some may be parked no longer. They had no
                # room then and have none now, so this promotes nobody.
                self._settle()
        return events

    def _settle(self) -> None:
        """Park those that facts alone now keep out, and let back in those that they no longer do."""
        for lane in self._book.settled():
            slack = lane.cap - lane.loose
            if lane.loose and lane.peak > slack:
                name = lane.name
                for entry in [entry for entry in lane.waiting() if entry.need[name] > slack]:
                    self._leave_lanes(entry)
                    self._park(entry)
            for entry in list(lane.parked.values()):
                if not self._book.keeps_out(entry.need):
                    self._leave_lanes(entry)
                    self._enter_lanes(entry)

    def _begin(self, entry: Entry, events: list[Event], reason: Reason | None) -> None:
        """It runs: known on each target it touches, timed from now."""
        op, now = entry.op, self.now
        entry.state = RUNNING
        entry.promoted_at = now
        self._running[op.id] = entry
        for target in entry.cost:
            self.lanes[target].running[op.id] = entry
        if self._book:
            self._book.answer(entry.cost)
        if op.timeout_s is not None:
            timers = self._timers
            if len(timers) > 64 and len(timers) > 2 * len(self._running):
                timers[:] = [timer for timer in timers if timer[2].state == RUNNING]
                heapify(timers)
            heappush(timers, (now + op.timeout_s, op.id, entry))
        events.append(Promoted(op.id, now, reason))

    def _end_running(self, op_id: str, how: How, reason: Reason, detail: str) -> list[Event]:
        entry = self.entries.get(op_id)
        if entry is None:
            return [Ignored(op_id, self.now, Reason.UNKNOWN)]
        if entry.state != RUNNING:
            return [Ignored(op_id, self.now, Reason.NOT_RUNNING)]
        events: list[Event] = []
        self._end(entry, how, reason, detail, events)
        return self._pass(events)

    def _end(self, entry: Entry, how: How, reason: Reason, detail: str, events: list[Event]) -> None:
        """Forget an operator and release what it holds: exactly once, on every way out."""
        op = entry.op
        del self.entries[op.id]
        for claim in entry.claims:
            del self._claims[claim]
        if entry.state == WAITING:
            self._leave_lanes(entry)
            self._uncount(entry)
            entry.state = ENDED
        else:
            entry.state = ENDED
            del self._running[op.id]
            cools = how is How.FINISHED and self.settings.cooldown_s > 0 and bool(entry.need)
            for target in entry.cost:
                lane = self.lanes[target]
                del lane.running[op.id]
                need = entry.need.get(target, 0)
                if cools:
                    lane.cooling += need
                elif need:
                    lane.used -= need
                    lane.give(need, self._ready)
            if cools:
                self._arrivals += 1
                heappush(self._cooling, (self.now + self.settings.cooldown_s, self._arrivals, entry.need))
            if self._book:
                self._book.answer(entry.cost)
        events.append(Ended(op.id, self.now, how, reason, detail))

    def _recharge(self, entry: Entry) -> None:
        """Charge a running one what it adds now: its cost fell, or its own facts changed."""
        held = entry.need
        need = entry.need = self._book.need(entry.claims, entry.cost)
        for target in held.keys() | need.keys():
            delta = need.get(target, 0) - held.get(target, 0)
            lane = self.lanes[target]
            lane.used += delta
            if delta > 0:
                lane.take(delta)
            elif delta:
                lane.give(-delta, self._ready)

    def _write(self, facts: Iterable[Fact]) -> list[Event]:
        own = [entry for fact in facts if (entry := self._note(fact))]
        events: list[Event] = []
        self._cancel_misfits(own, events)
        return self._pass(events)

    def _note(self, fact: Fact) -> Entry | None:
        """Charge a fact, and let its own subject's operator stand as it now should. Answers with that, if it waits."""
        lane = self.lanes[fact.target]
        delta = self._book.write(lane, fact)
        if not delta:
            return None
        entry = self._claims.get(fact.subject) if fact.subject else None
        waiting = entry if entry is not None and entry.state == WAITING else None
        if waiting:
            self._leave_lanes(waiting)
        lane.used += delta
        if delta > 0:
            lane.take(delta)
        else:
            lane.give(-delta, self._ready)
        if waiting:
            self._enter_lanes(waiting)
        elif entry is not None:
            self._recharge(entry)
            self._book.answer(entry.cost)
        return waiting

    def _follow_limit(self, target: str) -> list[Event]:
        events: list[Event] = []
        lane = self.lanes[target]
        if lane.limit != self.lanes.limit(target):
            self._resize([lane], events)
        return self._pass(events)

    def _resize(self, lanes: Sequence[Lane], events: list[Event]) -> None:
        """Let lanes have the limits they should; cancel, in queue order, who can now never run."""
        misfits: dict[str, Entry] = {}
        for lane in lanes:
            lane.resize(self.lanes.limit(lane.name), self._ready)
            self._book.touch(lane)
            if lane.peak > lane.cap or lane.parked or lane.facts:
                # Those whose own facts cover their cost stand in no line here, yet a paused target stops them too.
                own = (self._claims.get(subject) for subject in lane.facts)
                for entry in (*lane.waiting(), *lane.parked.values(), *own):
                    if entry is not None and lane.name in entry.cost:
                        misfits[entry.op.id] = entry
        self._cancel_misfits(misfits.values(), events)

    def _cancel_misfits(self, entries: Iterable[Entry], events: list[Event]) -> None:
        """End, in queue order, those among them that wait for what can never be."""
        for entry in sorted(entries, key=BY_KEY):
            if entry.state == WAITING and (verdict := self._misfit(entry.cost, entry.claims)):
                self._end(entry, How.CANCELED, *verdict, events)
