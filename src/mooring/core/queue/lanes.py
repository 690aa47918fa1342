"""All lanes together: who stands in which line, who is parked, and what facts and limits do to them.

                 ┌── parked ──┐        facts alone keep it out: keeps its place, reserves nothing
                 ▼            │
       enter ─> lanes ─────> settle ─> ready ─> begin ─> … ─> end
                 └── leave ────────────────────────────────────┘   canceled while it waits

Each method leaves the books right by itself. An operator that fits everywhere is in `ready` afterwards; the queue
promotes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mooring.core.model.decision import WAITING, Fact, OperatorRecord
from mooring.core.model.reasons import Reason
from mooring.core.queue import targets
from mooring.core.queue.checks import charges
from mooring.core.queue.config import Settings
from mooring.core.queue.facts import FactBook
from mooring.core.queue.lane import Lane
from mooring.core.queue.records import BY_KEY, Records

_SWEEP_AT: Final = 4096


class LaneTable(dict[str, Lane]):
    """Lanes by target, made when first asked for."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        #: Limits that follow the target itself rather than the settings.
        self.limits: dict[str, int | None] = {}
        #: Target → its shares and its first places that have a lane.
        self.shares: dict[str, dict[str, None]] = {}
        self._sweep_at = _SWEEP_AT

    def __missing__(self, target: str) -> Lane:
        if len(self) >= self._sweep_at:
            self._sweep()
        lane = self[target] = Lane(target, self.limit(target))
        if whole := targets.shared(target):
            self.shares.setdefault(whole, {})[target] = None
        return lane

    def kept(self) -> dict[str, object]:
        """What a checkpoint keeps; an idle lane is made again when it is asked for."""
        used = {
            name: lane
            for name, lane in self.items()
            if lane.used or lane.facts or lane.running or lane.parked or len(lane.queue) > lane.dead
        }
        return {**vars(self), "lanes": used}

    def restore(self, kept: Mapping[str, Any]) -> None:
        attributes = dict(kept)
        self.update(attributes.pop("lanes"))
        vars(self).update(attributes)

    def limit(self, target: str) -> int | None:
        if whole := targets.shared(target):
            limit = self.limit(whole)
            return max(1, limit * 4 // 5) if limit and targets.is_share(target) else limit
        return self.limits[target] if target in self.limits else self.settings.limit(target)

    def following(self, target: str) -> list[Lane]:
        """The lanes whose limits follow this target's: its own, and those of its shares."""
        return [self[name] for name in (target, *self.shares.get(target, ()))]

    def _sweep(self) -> None:
        """Workloads and nodes come and go: drop unused lanes now and then."""
        for name in [name for name, lane in self.items() if lane.idle]:
            del self[name]
            if whole := targets.shared(name):
                parts = self.shares[whole]
                del parts[name]
                if not parts:
                    del self.shares[whole]
        self._sweep_at = max(_SWEEP_AT, 2 * len(self))


class Lanes:
    def __init__(self, settings: Settings, records: Records) -> None:
        self.table = LaneTable(settings)
        self.facts = FactBook(self.table)
        #: Those that fit on every target they touch.
        self.ready: list[OperatorRecord] = []
        self._over_share: list[OperatorRecord] = []
        self._records = records

    # ── Standing in line ──────────────────────────────────────────────────────────────────────────────────────────

    def never_fits(self, cost: Mapping[str, int], claims: tuple[str, ...]) -> tuple[Reason, str] | None:
        """Why an operator with this cost can never run, as things are configured."""
        for target in sorted(cost, key=targets.order):
            if self.table[target].cap == 0:
                return targets.paused_reason(target), f"{target} is paused: its limit is 0"
        need = self.facts.need(claims, cost)
        for target in sorted(need, key=targets.order):
            cap = self.table[target].cap
            if cost[target] > cap:
                return Reason.NEVER_FITS, f"needs {cost[target]} on {target}, whose limit is {cap}"
        return None

    def over_share(self, claims: tuple[str, ...], cost: Mapping[str, int]) -> str:
        """Why an operator may not wait: what waits reserves room ahead of all others, so the first of a share may wait,
        and more are let in while there is room for them. Those that facts keep out reserve nothing."""
        table = self.table
        for share, amount in cost.items():
            if not targets.is_share(share) or (lane := table[share]).unused:
                continue
            shared = table[targets.shared(share)]
            if (lane.fits(amount) and shared.fits(amount)) or self.facts.keeps_out(self.facts.need(claims, cost)):
                continue
            full = shared if lane.fits(amount) else lane
            return f"{lane.used} on {share} already, and {full.name} ({full.limit}) has no room for more"
        return ""

    def enter(self, record: OperatorRecord) -> None:
        """Let it stand in line at its key, or park it. It is counted as waiting already."""
        if self.table.shares:
            record.cost = self._placed(charges(record.operator.phases[record.phase]))
        need = record.cost
        facts = self.facts
        if facts.count:
            need = facts.need(record.claims, need)
            if facts.keeps_out(need):
                record.need = need
                self._park(record)
                return
        record.need = need
        table, ready = self.table, self.ready
        for target, amount in need.items():
            table[target].insert(record, amount, ready)
        if not record.blocked:
            ready.append(record)

    def _placed(self, cost: Mapping[str, int]) -> Mapping[str, int]:
        """Where the places that all namespaces use (`mix`) are full, the first of a namespace goes into one of the
        first places beside them, as many again: so none waits because others are slow, or blocked. What one object can
        bear (`node/n7`) has no such places: its limit holds for all together."""
        table = self.table
        mine = [targets.shared(share) for share in cost if targets.is_share(share) and table[share].unused]
        full = [t for t in mine if "/" not in t and t in cost and not table[t].fits(cost[t])]
        beside = [t for t in full if table[f"first/{t}"].fits(cost[t])]
        return {f"first/{t}" if t in beside else t: amount for t, amount in cost.items()} if beside else cost

    def leave(self, record: OperatorRecord) -> None:
        """Take a waiting one out of every line; afterwards it counts as waiting and not parked."""
        if record.parked:
            for target in record.need:
                del self.table[target].parked[record.operator.id]
            record.parked = False
            self._records.count(record)
            return
        for target, need in record.need.items():
            self.table[target].remove(record, need, self.ready)

    def _park(self, record: OperatorRecord) -> None:
        record.parked = True
        self._records.uncount(record)
        for target in record.need:
            self.table[target].parked[record.operator.id] = record

    def settle(self) -> None:
        """Park those that facts alone now keep out, and let back in those that they no longer do."""
        for lane in self.facts.settled():
            slack = lane.cap - lane.unowned
            if lane.unowned and lane.peak > slack:
                name = lane.name
                for record in [record for record in lane.waiting() if record.need[name] > slack]:
                    self.leave(record)
                    self._park(record)
            for record in list(lane.parked.values()):
                if not self.facts.keeps_out(record.need):
                    if self.over_share(record.claims, record.cost):
                        self._over_share.append(record)
                        continue
                    self.leave(record)
                    self.enter(record)

    def crowding(self) -> list[OperatorRecord]:
        """Those that facts no longer keep out, and that are more than their share: they may be proposed again."""
        found, self._over_share = self._over_share, []
        # One that stands on several lanes may have been found on each of them.
        once = {record.operator.id: record for record in found if record.parked and record.state == WAITING}
        return list(once.values())

    # ── Running ───────────────────────────────────────────────────────────────────────────────────────────────────

    def promote(self, record: OperatorRecord) -> None:
        """It fits and begins: its room becomes used."""
        table, name = self.table, record.operator.id
        for target, need in record.need.items():
            lane = table[target]
            lane.promote(need)
            lane.running[name] = record
        if record.need is not record.cost:  # facts charge some of it already
            self.begin(record)
        elif self.facts.count:
            self.facts.recount_unowned(record.cost)

    def charge(self, record: OperatorRecord) -> None:
        """It runs already, whether there is room or not."""
        record.need = self.facts.need(record.claims, record.cost)
        for target, need in record.need.items():
            lane = self.table[target]
            lane.used += need
            lane.take(need)
        self.begin(record)

    def begin(self, record: OperatorRecord) -> None:
        table = self.table
        for target in record.cost:
            table[target].running[record.operator.id] = record
        if self.facts.count:
            self.facts.recount_unowned(record.cost)

    def end(self, record: OperatorRecord, *, cools: bool) -> None:
        """Release what a running one holds; what cools down stays charged until `cooled`."""
        table, ready, charged, name = self.table, self.ready, record.need, record.operator.id
        for target in record.cost:
            lane = table[target]
            del lane.running[name]
            need = charged.get(target, 0)
            if cools:
                lane.cooling += need
            elif need:
                lane.used -= need
                lane.room += need
                if lane.front < len(lane.queue):
                    lane.advance(ready)
        if self.facts.count:
            self.facts.recount_unowned(record.cost)

    def cooled(self, charged: Mapping[str, int]) -> None:
        for target, need in charged.items():
            lane = self.table[target]
            lane.cooling -= need
            lane.used -= need
            lane.give(need, self.ready)

    def lower(self, record: OperatorRecord, cost: Mapping[str, int]) -> None:
        """The cost of a running one falls."""
        before = record.cost
        cost = record.cost = {first if (first := f"first/{t}") in before else t: amount for t, amount in cost.items()}
        for target in before:
            if target not in cost:
                del self.table[target].running[record.operator.id]
        self._recharge(record)
        self.facts.recount_unowned(before)

    def _recharge(self, record: OperatorRecord) -> None:
        """Charge a running one what it adds now: its cost fell, or its own facts changed."""
        before = record.need
        need = record.need = self.facts.need(record.claims, record.cost)
        for target in before.keys() | need.keys():
            delta = need.get(target, 0) - before.get(target, 0)
            lane = self.table[target]
            lane.used += delta
            if delta > 0:
                lane.take(delta)
            elif delta:
                lane.give(-delta, self.ready)

    # ── Facts and limits ──────────────────────────────────────────────────────────────────────────────────────────

    def note(self, fact: Fact) -> OperatorRecord | None:
        """Charge a fact, and let its own subject's operator stand as it now should. Answers with that, if it waits."""
        lane = self.table[fact.target]
        delta = self.facts.write(lane, fact)
        if not delta:
            return None
        record = self._records.by_claim.get(fact.subject) if fact.subject else None
        waiting = record if record is not None and record.state == WAITING else None
        if waiting:
            self.leave(waiting)
        lane.used += delta
        if delta > 0:
            lane.take(delta)
        else:
            lane.give(-delta, self.ready)
        if waiting:
            self.enter(waiting)
        elif record is not None:
            self._recharge(record)
            self.facts.recount_unowned(record.cost)
        return waiting

    def configure(self, settings: Settings) -> Sequence[OperatorRecord]:
        self.table.settings = settings
        return self.resize([lane for target, lane in self.table.items() if lane.limit != self.table.limit(target)])

    def resize(self, lanes: Iterable[Lane]) -> Sequence[OperatorRecord]:
        """Let lanes have the limits they should; answers with those who may now never run, in queue order."""
        found: dict[str, OperatorRecord] = {}
        for lane in lanes:
            lane.resize(self.table.limit(lane.name), self.ready)
            self.facts.touch(lane)
            if lane.peak > lane.cap or lane.parked or lane.facts:
                # Those whose own facts cover their cost stand in no line here, yet a paused target stops them too.
                own = (self._records.by_claim.get(subject) for subject in lane.facts)
                for record in (*lane.waiting(), *lane.parked.values(), *own):
                    if record is not None and lane.name in record.cost:
                        found[record.operator.id] = record
        return sorted(found.values(), key=BY_KEY)
