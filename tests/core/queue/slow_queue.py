"""The queue as the design's words say it, with nothing remembered: every answer is a walk over everything.

Slow and obvious on purpose. The real queue must give the same events, one by one.
"""

from mooring.core.model.reasons import Reason
from mooring.core.queue import Settings
from mooring.core.queue.targets import busy_reason, is_store, order

INF = float("inf")


class SlowQueue:
    def __init__(self, settings=None):
        self.settings = settings or Settings()
        self.now = 0.0
        self.limits = {}
        self.facts = {}  # (target, subject) -> amount
        self.waiting = []  # records, by arrival
        self.running = []  # records, by promotion
        self.cooling = []  # (due, {target: amount})
        self.arrivals = 0

    # what is so
    def limit(self, target):
        limit = self.limits[target] if target in self.limits else self.settings.limit(target)
        return INF if limit is None else limit

    def cost(self, rec):
        return {t: c for t, c in rec["op"].phases[rec["phase"]].items() if c}

    def need(self, rec):
        own = lambda t: sum(a for (target, s), a in self.facts.items() if target == t and s in rec["claims"])
        return {t: c - own(t) for t, c in self.cost(rec).items() if c > own(t)}

    def used(self, target):
        facts = sum(a for (t, _), a in self.facts.items() if t == target)
        return (
            facts
            + sum(self.need(r).get(target, 0) for r in self.running)
            + sum(a.get(target, 0) for _, a in self.cooling)
        )

    def loose(self, target):
        facts = sum(a for (t, _), a in self.facts.items() if t == target)
        return facts - sum(self.cost(r).get(target, 0) - self.need(r).get(target, 0) for r in self.running)

    def parked(self, rec):
        return any(self.loose(t) > 0 and self.loose(t) + n > self.limit(t) for t, n in self.need(rec).items())

    def line(self):
        return sorted(self.waiting, key=lambda r: (INF if r["op"].deadline is None else r["op"].deadline, r["no"]))

    def find(self, op_id):
        return next((r for r in self.waiting + self.running if r["op"].id == op_id), None)

    def never_fits(self, rec):
        cost = self.cost(rec)
        for t in sorted(cost, key=order):
            if self.limit(t) == 0:
                return Reason.STORE_PAUSED if is_store(t) else Reason.TARGET_PAUSED
        return Reason.NEVER_FITS if any(cost[t] > self.limit(t) for t in self.need(rec)) else None

    # what happens
    def promote(self, events):
        parked = [r["op"].id for r in self.waiting if self.parked(r)]
        reserved = {}
        for rec in self.line():
            if rec["op"].id in parked:
                continue
            need = self.need(rec)
            if all(self.used(t) + reserved.get(t, 0) + n <= self.limit(t) for t, n in need.items()):
                self.waiting.remove(rec)
                self.running.append(rec)
                timeout = rec["op"].timeout_s
                rec["due"] = INF if timeout is None else self.now + timeout
                events.append(("promoted", rec["op"].id))
            else:
                for t, n in need.items():
                    reserved[t] = reserved.get(t, 0) + n
        return events

    def take_in(self, op, events):
        if self.find(op.id):
            events.append(("rejected", op.id, Reason.INVALID))
            return
        self.arrivals += 1
        rec = {"op": op, "phase": 0, "no": self.arrivals, "claims": {op.subject, *op.claims} - {""}}
        ordered = list(dict.fromkeys(c for c in (op.subject, *op.claims) if c))
        if op.subject in op.claims:
            ordered = list(op.claims)
        replaced = []
        for claim in ordered:
            for holder in self.waiting + self.running:
                if claim in holder["claims"] and holder not in replaced:
                    if not (self.settings.replacement and op.priority > holder["op"].priority):
                        events.append(("rejected", op.id, busy_reason(claim)))
                        return
                    replaced.append(holder)
        if reason := self.never_fits(rec):
            events.append(("rejected", op.id, reason))
            return
        cap = self.settings.cap(op.source)
        mine = [r for r in self.waiting if r["op"].source == op.source and not self.parked(r) and r not in replaced]
        if cap is not None and len(mine) >= cap:
            events.append(("rejected", op.id, Reason.TOO_MANY_WAITING))
            return
        for holder in replaced:
            self.end(holder, "canceled", Reason.REPLACED, events)
        self.waiting.append(rec)
        events.append(("accepted", op.id))

    def end(self, rec, how, reason, events):
        need = self.need(rec)
        if rec in self.running:
            self.running.remove(rec)
            if how == "finished" and self.settings.cooldown_s > 0:
                self.cooling.append((self.now + self.settings.cooldown_s, need))
        else:
            self.waiting.remove(rec)
        events.append((how, rec["op"].id, reason))

    def drop_misfits(self, events):
        for rec in self.line():
            if reason := self.never_fits(rec):
                self.end(rec, "canceled", reason, events)
        return events

    # the calls
    def submit_batch(self, ops):
        events = []
        for op in ops:
            self.take_in(op, events)
        return self.promote(events)

    def submit(self, op):
        return self.submit_batch([op])

    def resume(self, op, phase=0):
        if self.find(op.id):
            return [("rejected", op.id, Reason.INVALID)]
        claims = {op.subject, *op.claims} - {""}
        for claim in dict.fromkeys(op.claims if op.subject in op.claims else (op.subject, *op.claims)):
            if any(claim in r["claims"] for r in self.waiting + self.running):
                return [("rejected", op.id, busy_reason(claim))]
        self.arrivals += 1
        due = INF if op.timeout_s is None else self.now + op.timeout_s
        self.running.append({"op": op, "phase": phase, "no": self.arrivals, "claims": claims, "due": due})
        return self.promote([("promoted", op.id)])

    def advance(self, op_id, phase):
        rec = self.find(op_id)
        if rec is None:
            return [("ignored", op_id, Reason.UNKNOWN)]
        if not rec["phase"] < phase < len(rec["op"].phases):
            return [("ignored", op_id, Reason.INVALID)]
        rec["phase"] = phase
        return self.promote([("advanced", op_id, phase)])

    def end_running(self, op_id, how, reason):
        rec = self.find(op_id)
        if rec is None:
            return [("ignored", op_id, Reason.UNKNOWN)]
        if rec in self.waiting:
            return [("ignored", op_id, Reason.NOT_RUNNING)]
        events = []
        self.end(rec, how, reason, events)
        return self.promote(events)

    def finish(self, op_id):
        return self.end_running(op_id, "finished", Reason.DONE)

    def fail(self, op_id):
        return self.end_running(op_id, "failed", Reason.FAILED)

    def cancel(self, op_id):
        rec = self.find(op_id)
        if rec is None:
            return [("ignored", op_id, Reason.UNKNOWN)]
        events = []
        self.end(rec, "canceled", Reason.CANCELED, events)
        return self.promote(events)

    def tick(self, now):
        if now < self.now:
            return [("ignored", "", Reason.TIME)]
        self.now = now
        self.cooling = [(due, amounts) for due, amounts in self.cooling if due > now]
        events = []
        for rec in sorted(self.running, key=lambda r: (r["due"], r["op"].id)):
            if rec["due"] <= now:
                self.end(rec, "timeout", Reason.TIMEOUT, events)
        return self.promote(events)

    def configure(self, settings):
        self.settings = settings
        return self.promote(self.drop_misfits([]))

    def set_limit(self, target, limit):
        self.limits[target] = limit
        return self.promote(self.drop_misfits([]))

    def reset_limit(self, target):
        self.limits.pop(target, None)
        return self.promote(self.drop_misfits([]))

    def set_fact(self, target, subject, amount):
        self.facts.pop((target, subject), None)
        if amount:
            self.facts[target, subject] = amount
        return self.promote(self.drop_misfits([]))
