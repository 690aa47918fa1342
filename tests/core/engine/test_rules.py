"""The rules of the architecture, one by one, on an engine driven by hand."""

import pytest

from mooring.core.engine.engine import Engine
from mooring.core.engine.events import Features, LeaseChanged, Tick
from mooring.core.engine.lifecycle import TRANSITIONS, Signal, Stage, after
from mooring.core.engine.schedule import FIRST_BACK_OFF_S, FREE, LONGEST_BACK_OFF_S
from mooring.core.model.decision import End, Evaluation, Fact, NextStep
from mooring.core.model.events import Listed, OperatorChanged
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import Queue, live_settings
from mooring.core.queue.targets import UNKNOWN_KIND_LIMIT
from mooring.core.world.world import World
from mooring.process.replica import KINDS
from tests.core.engine.engine_by_hand import pod


def move(subject: str, target: str = "workload/shop/Deployment/web") -> Operator:
    return Operator(id="", source="scripted", kind="move", subject=subject, phases=({target: 1},))


class Scripted:
    """A capability whose answers are given by the test."""

    name, sources = "scripted", frozenset({"scripted"})

    def __init__(self, evaluation=None, step=None, broken=""):
        self.evaluation = evaluation or Evaluation()
        self.step = step or NextStep(step=0)
        self.broken = broken

    def _stumble(self, verb):
        if verb == self.broken:
            raise KeyError(verb)

    def affected_keys(self, trigger, world):
        if isinstance(trigger, OperatorChanged):
            self._stumble("ended")
        return ["k"]

    def keys(self, world):
        self._stumble("keys")
        return ["k"]

    def indexes(self):
        return ()

    def evaluate(self, key, world, queue, notes, now):
        return self.evaluation

    def next_step(self, running, world, queue, now):
        return self.step

    def recover(self, world, queue, now):
        self._stumble("recover")
        return ()

    def recovery_needs(self, world):
        self._stumble("needs")
        return ()


def leading(capability, now=100.0, listener=None):
    engine = Engine(World(), Queue(live_settings()), [capability])
    engine.defects.listener = listener
    for event in (Features(frozenset({"scripted"})), LeaseChanged(leading=True)):
        engine.handle(event, now)
    return engine


def settle(engine, until):
    """Call the engine whenever it wants to be called, as the shell does; answers with the number of calls."""
    calls = 0
    while (due := engine.next_wakeup()) is not None and due <= until:
        engine.handle(Tick(), max(due, engine.now))
        calls += 1
        assert calls < 10_000, "virtual time stands still"
    return calls


# ── Rule 2: a lifecycle, not booleans ────────────────────────────────────────────────────────────────────────────────


def test_every_stage_is_reached_by_its_signal_and_left_when_the_lease_is_lost():
    """Rule 2: the table is the diagram; a signal that means nothing in a stage changes nothing."""
    stage = Stage.FOLLOWING
    for signal, reached in zip(Signal, (Stage.SYNCING, Stage.RECOVERING, Stage.DECIDING, Stage.FOLLOWING), strict=True):
        stage = after(stage, signal)
        assert stage is reached
    assert {(s, Signal.LEASE_LOST) for s in Stage if s is not Stage.FOLLOWING} <= TRANSITIONS.keys()
    assert after(Stage.DECIDING, Signal.LEASE_WON) is Stage.DECIDING


def test_synced_means_listed_and_applied():
    """Rule 2: 30,000 pods have arrived and none is in the world yet: not synced, for `/readyz`, extender or webhook."""
    engine = Engine(World(), Queue(live_settings()), [], kinds=KINDS)
    for kind in KINDS:
        if kind is not Kind.POD:
            engine.handle(Listed(kind, ()), 1.0)
    engine.handle(Listed(Kind.POD, tuple(pod(i) for i in range(30_000))), 1.0)
    assert not engine.synced
    while not engine.synced:
        assert engine.next_wakeup() == engine.now, "it asks to be called until all is applied"
        engine.handle(Tick(), engine.now)
    assert sum(1 for _ in engine.world.pods()) == 30_000


# ── Rule 12: every loop has a budget ─────────────────────────────────────────────────────────────────────────────────


def test_what_is_proposed_and_given_up_again_and_again_backs_off():
    """Rule 12, one-queue "No circles": a few tries, then a minute, doubling to an hour; and `why` says so."""
    engine = leading(Scripted(Evaluation(proposals=(move("pod/a"),)), NextStep(step=0, end=End(Reason.WITHDRAWN))))
    settle(engine, 100.0 + FIRST_BACK_OFF_S - 1)
    ended = [e for e in engine.history.timeline if e.verb == "canceled"]
    assert FREE < len(ended) <= FREE + 1
    verdict = engine.verdicts["scripted", "k"]
    assert (verdict.state, verdict.reason) == (State.WAITING, Reason.BACK_OFF)
    assert engine.backed_off == 1
    settle(engine, 100.0 + 24 * LONGEST_BACK_OFF_S)
    ended = [e for e in engine.history.timeline if e.verb == "canceled"]
    assert len(ended) < 40, "about once an hour in the end"


def test_one_that_has_acted_is_no_circle():
    """Rule 12: what really moves something may be proposed again at once."""
    engine = leading(Scripted(Evaluation(proposals=(move("pod/a"),)), NextStep(step=0)))
    for turn in range(3 * FREE):
        (record,) = engine.running.values()
        record.acted_at = engine.now
        capability = engine.capabilities["scripted"]
        capability.step = NextStep(step=0, end=End())
        engine._term.worklist.step(record.operator.id)
        engine.handle(Tick(), 101.0 + turn)
        capability.step = NextStep(step=0)
        settle(engine, 101.5 + turn)
    assert engine.backed_off == 0


# ── Statements end with their cause ──────────────────────────────────────────────────────────────────────────────────


def test_a_limit_ends_with_the_evaluation_that_stated_it():
    """A node that was unlimited because it was interrupted is a target again when nobody says so any more."""
    capability = Scripted(Evaluation(limits={"node/n7": None}, facts=(Fact("node/n8", "pod/x", 3),)))
    engine = leading(capability)
    assert engine.queue.limit("node/n7") is None
    assert engine.queue.used("node/n8") == 3
    engine.handle(Features(frozenset()), 101.0)
    assert engine.queue.limit("node/n7") == UNKNOWN_KIND_LIMIT
    assert engine.queue.used("node/n8") == 0
    assert not engine.queue._lanes.table.limits, "the table of limits shrinks"


def test_facts_that_change_places_let_nobody_pass_in_between():
    """T3, facts are charged too: one broken pod recovers and another breaks in the same evaluation; who waits, waits."""
    target = "workload/shop/Deployment/web"
    engine = leading(Scripted(Evaluation(facts=(Fact(target, "pod/z", 1),), proposals=(move("pod/a"),))))
    assert engine.waiting and not engine.running
    engine.capabilities["scripted"].evaluation = Evaluation(facts=(Fact(target, "pod/b", 1),))
    engine._term.worklist.evaluate(("scripted", "k"), "test")
    engine.handle(Tick(), 101.0)
    assert engine.waiting and not engine.running
    assert engine.queue.used(target) == 1


def test_the_limit_stated_last_counts_and_the_other_one_after_it():
    """Two keys limit one target: when one takes its word back, the other's counts."""
    engine = leading(Scripted())
    statements, queue = engine._term._statements, engine.queue
    statements.replace("scripted:a", (), {"node/n7": None}, queue)
    statements.replace("scripted:b", (), {"node/n7": 4}, queue)
    assert queue.limit("node/n7") == 4
    statements.replace("scripted:b", (), {}, queue)
    assert queue.limit("node/n7") is None


# ── A defect costs one object ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("verb", ["ended", "keys", "recover", "needs"])
def test_a_defect_in_any_call_into_a_capability_does_not_leave_the_loop(verb):
    """One object's defect must not end the process, whichever call it shows in."""
    told = []
    script = Scripted(Evaluation(proposals=(move("pod/a"),)), NextStep(step=0, end=End(Reason.WITHDRAWN)), verb)
    engine = leading(script, listener=lambda where, error: told.append(where))
    settle(engine, 130.0)
    assert engine.deciding
    assert told and all(where.startswith("scripted") for where in told)
