"""How operators flow: in at the door, along their lanes, through the pass, and out.

                 ┌── parked ──┐        facts alone keep it out: keeps its place, reserves nothing
                 ▼            │
    _take_in ─> lanes ─────> _pass ─> _begin ─> … ─> _end
                 └─────────────────────────────────────┘   canceled while it waits

Each of these leaves the books right by itself; `queue.Queue` puts them together into calls, and every call ends with
one `_pass`.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappush
from math import inf

from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason
from mooring.core.queue import targets
from mooring.core.queue.checks import charges, claims_of, fault
from mooring.core.queue.events import Accepted, Ended, Event, How, Ignored, Promoted, Rejected
from mooring.core.queue.lane import ENDED, RUNNING, WAITING, Entry, Fact, Lane
from mooring.core.queue.state import BY_KEY, State


class Flow(State):
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
            if replaced:
                count -= sum(e.state == WAITING and not e.parked and e.op.source == op.source for e in replaced)
            if count >= cap:
                detail = f"{count} of {op.source} wait already, {cap} may"
                events.append(Rejected(op.id, self.now, Reason.TOO_MANY_WAITING, detail))
                return
        for holder in replaced:
            self._end(holder, How.CANCELED, Reason.REPLACED, f"by op {op.id} of higher priority", events)
        entry = self._entry(op, claims, cost, 0)
        events.append(Accepted(op.id, self.now))
        self.waiting_count[op.source] = self.waiting_count.get(op.source, 0) + 1
        self._enter_lanes(entry)

    def _entry(self, op: Operator, claims: tuple[str, ...], cost: Mapping[str, int], phase: int) -> Entry:
        """Make it known under its id and its claims. It stands in no line yet."""
        self._arrivals += 1
        entry = Entry(
            op=op,
            key=(inf if op.deadline is None else op.deadline, self._arrivals),
            claims=claims,
            cost=cost,
            need=cost,
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
        need = entry.cost
        if self._book:
            need = self._book.need(entry.claims, need)
        entry.need = need
        if self._book and self._book.keeps_out(need):
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
            lanes = self.lanes
            if len(ready) > 1:
                ready.sort(key=BY_KEY)
            for entry in ready:
                if entry.state == WAITING and not entry.blocked and not entry.parked:
                    entry.state = RUNNING
                    for target, need in entry.need.items():
                        lanes[target].promote(need)
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
        lanes = self.lanes
        for target in entry.cost:
            lanes[target].running[op.id] = entry
        if self._book:
            self._book.answer(entry.cost)
        if op.timeout_s is not None:
            timers = self._timers
            if len(timers) > 64 and len(timers) > 2 * len(self._running):
                timers[:] = [timer for timer in timers if timer[3].state == RUNNING]
                heapify(timers)
            heappush(timers, (now + op.timeout_s, op.id, entry.key[1], entry))
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
            lanes, charged = self.lanes, entry.need
            for target in entry.cost:
                lane = lanes[target]
                del lane.running[op.id]
                need = charged.get(target, 0)
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
