"""The incremental queue and a slow, obvious one get the same calls and must say the same, call by call."""

import random

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from mooring.core.queue import Queue, Settings, why, why_all
from mooring.core.queue.audit import audit
from mooring.core.queue.lane import UNLIMITED
from tests.core.queue.build import op, plain
from tests.core.queue.slow_queue import SlowQueue

TARGETS = ("1", "2", "10", "tikv/ns/a", "node/n1", "workload/ns/d/w", "fleet")
SUBJECTS = ("pod/a", "pod/b", "region/1", "region/2")


class Pair:
    """Both queues, fed alike. `call` compares the answers and then what can be seen from outside."""

    def __init__(self, settings=None):
        self.real, self.slow = Queue(settings), SlowQueue(settings)

    def call(self, name, *args):
        said = plain(getattr(self.real, name)(*args))
        assert said == getattr(self.slow, name)(*args), (name, args)
        self.check()
        if name != "resume":
            self.promotions_stay_within_limits(said)
        return said

    def promotions_stay_within_limits(self, said):
        for entry in (self.real.records.by_id[event[1]] for event in said if event[0] == "promoted"):
            for target in entry.need:
                limit = self.real.limit(target)
                assert limit is None or self.real.used(target) <= limit

    def end_everything(self):
        """Conservation: when all have ended and nothing is broken, nothing is charged, claimed or counted."""
        real = self.real
        self.call("configure", Settings())
        for name in (*real.waiting, *real.running):
            self.call("cancel", name)
        for target in TARGETS:
            for fact in real.facts(target):
                self.call("set_fact", target, fact.subject, 0)
        self.call("tick", real.now + 1000.0)
        assert all(real.used(target) == 0 for target in TARGETS)
        records = real.records
        assert not (records.by_id or records.waiting_count or records.by_claim or real._cooling)
        assert all(lane.idle and lane.room == lane.cap for lane in real.lanes.values())

    def check(self):
        real, slow = self.real, self.slow
        assert audit(real) == []
        assert list(real.running) == [r["op"].id for r in slow.running]
        assert list(real.waiting) == [r["op"].id for r in slow.line()]
        assert [i for i in real.waiting if real.records.by_id[i].parked] == [
            r["op"].id for r in slow.line() if slow.parked(r)
        ]
        for target in TARGETS:
            assert real.used(target) == slow.used(target)
        answers = why_all(real)
        for name in real.waiting:
            assert answers[name] == why(real, name)
            assert answers[name].missing > 0 or answers[name].parked


def random_settings(rng):
    return Settings(
        max_schedule_cost=rng.choice([20, 20, 12, 6, 3, 0, None]),
        store_max_schedule_cost=rng.choice([{}, {"1": 8}, {"2": 0}, {"10": None}]),
        max_waiting_operator=rng.choice([3, 3, 1, 10, None, 0]),
        scheduler_max_waiting_operator=rng.choice([{}, {"spot": None}, {"s": 1}]),
        cooldown_s=rng.choice([0, 0, 0, 2.0]),
        replacement=rng.random() < 0.2,
    )


def random_op(rng, name, now):
    costs = {t: rng.choice([1, 1, 2, 3, 5, 8]) for t in rng.sample(TARGETS[:3], rng.randint(0, 3))}
    costs |= {t: rng.choice([0, 1, 1, 2, 4]) for t in rng.sample(TARGETS[3:], rng.randint(0, 2))}
    phases = [costs]
    while rng.random() < 0.3:
        phases.append({t: rng.randint(0, c) for t, c in phases[-1].items() if rng.random() < 0.7})
    return op(
        name,
        phases[0],
        phases=phases[1:],
        source=rng.choice(["s", "t", "spot"]),
        subject=rng.choice([*SUBJECTS, f"pod/{name}", f"pod/{name}", ""]),
        claims=rng.choice([(), (), ("region/1",), ("region/1", "region/2"), (f"region/{name}",)]),
        deadline=rng.choice([None, None, None, now + 5, now + 9]),
        priority=rng.choice([0, 0, 1, 2]),
        timeout_s=rng.choice([None, 0, 3, 10, 600]),
    )


def random_call(rng, pair, number):
    name = rng.choice([*pair.real.running, *pair.real.waiting, "nobody"])
    now = max(pair.real.now, 0.0)
    match rng.choice("ssssssbffffxcatttgglFFFFhr"):
        case "s":
            # An id may come again once its operator has ended: at the same moment, and while its old timer still lies there.
            return "submit", random_op(rng, f"o{rng.choice([number, number % 5])}", now)
        case "b":
            return "submit_batch", [random_op(rng, f"o{number}.{i}", now) for i in range(rng.randint(0, 4))]
        case "r":
            made = random_op(rng, f"o{rng.choice([number, number % 5])}", now)
            return "resume", made, rng.randrange(len(made.phases))
        case "f":
            return "finish", name
        case "x":
            return "fail", name
        case "c":
            return "cancel", name
        case "a":
            return "advance", name, rng.randint(0, 2)
        case "t":
            return "tick", now + rng.choice([0, 0, 1, 2.5, 10, -1])
        case "g":
            return "configure", random_settings(rng)
        case "l" if rng.random() < 0.5:
            return "reset_limit", rng.choice(TARGETS)
        case "l":
            return "set_limit", rng.choice(TARGETS), rng.choice([None, 0, 1, 2, 5, 20])
        case _:
            return "set_fact", rng.choice(TARGETS), rng.choice([*SUBJECTS, ""]), rng.choice([0, 0, 1, 2, 4, 15])


@pytest.mark.parametrize("seed", range(100))
def test_random_runs(seed):
    """Any sequence of calls gets the same events as a full walk, and the books balance after each (T3–T8, T11)."""
    rng = random.Random(seed)
    pair = Pair(random_settings(rng))
    pair.call("tick", 0.0)
    for number in range(60):
        pair.call(*random_call(rng, pair, number))
    pair.end_everything()


@pytest.mark.parametrize("seed", range(8))
def test_long_lines(seed):
    """Lines longer than the point at which dead entries are dropped behave alike."""
    rng = random.Random(seed)
    pair = Pair(Settings(max_waiting_operator=None, max_schedule_cost=9))
    check, pair.check = pair.check, lambda: None
    for number in range(260):
        if number < 60 or rng.random() < 0.5:
            costs = {t: rng.randint(1, 9) for t in rng.sample(("1", "2"), rng.randint(1, 2))}
            pair.call("submit", op(f"o{number}", costs, deadline=rng.choice([None, None, None, 7.0, 3.0])))
        else:
            pair.call("finish", rng.choice([*pair.real.running, "nobody"]))
        if number % 20 == 0:
            check()
    check()


class QueueMachine(RuleBasedStateMachine):
    """Hypothesis looks for a short sequence of calls after which the two disagree."""

    ids = Bundle("ids")

    def __init__(self):
        super().__init__()
        self.pair = Pair(Settings(max_waiting_operator=4))
        self.pair.call("tick", 0.0)
        self.number = 0

    costs = st.dictionaries(st.sampled_from(TARGETS), st.sampled_from([1, 2, 8]), max_size=3)

    @rule(
        target=ids,
        costs=costs,
        subject=st.sampled_from([*SUBJECTS, ""]),
        deadline=st.sampled_from([None, 5.0]),
        timeout=st.sampled_from([None, 2.0]),
    )
    def submit(self, costs, subject, deadline, timeout):
        self.number += 1
        name = f"o{self.number}"
        half = {t: c // 2 for t, c in costs.items()}
        made = op(name, costs, phases=(half,), subject=subject, deadline=deadline, timeout_s=timeout)
        self.pair.call("submit", made)
        return name

    @rule(name=ids, how=st.sampled_from(["finish", "fail", "cancel"]))
    def end(self, name, how):
        self.pair.call(how, name)

    @rule(name=ids)
    def advance(self, name):
        self.pair.call("advance", name, 1)

    @rule(target_name=st.sampled_from(TARGETS), subject=st.sampled_from([*SUBJECTS, ""]), amount=st.integers(0, 3))
    def fact(self, target_name, subject, amount):
        self.pair.call("set_fact", target_name, subject, amount)

    @rule(target_name=st.sampled_from(TARGETS), limit=st.sampled_from([None, 0, 1, 8, 20]))
    def limit(self, target_name, limit):
        self.pair.call("set_limit", target_name, limit)

    @rule(limit=st.sampled_from([None, 0, 8, 20]), cap=st.sampled_from([0, 1, 4, None]))
    def configure(self, limit, cap):
        self.pair.call("configure", Settings(max_schedule_cost=limit, max_waiting_operator=cap))

    @rule(by=st.sampled_from([0.0, 1.0, 2.0]))
    def tick(self, by):
        self.pair.call("tick", self.pair.real.now + by)

    @invariant()
    def nothing_is_left_behind(self):
        """When nobody runs and nothing is broken, nothing is charged."""
        real = self.pair.real
        if not real.running:
            for target in TARGETS:
                assert real.used(target) == sum(fact.amount for fact in real.facts(target)) < UNLIMITED


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = hypothesis_settings(max_examples=40, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("seed", range(6))
def test_lanes_forgotten_at_any_moment_take_nothing_with_them(seed, monkeypatch):
    """T7, conservation: lanes that nobody uses are swept now and then; here at every new one, and nobody notices."""
    monkeypatch.setattr("mooring.core.queue.lanes._SWEEP_AT", 1)
    rng = random.Random(seed)
    pair = Pair(random_settings(rng))
    pair.call("tick", 0.0)
    for number in range(100):
        pair.real.lanes._sweep_at = 1
        pair.call(*random_call(rng, pair, number))
    pair.end_everything()
