"""What others write into marks, and keys that want more than their source may hold: nobody is forgotten for it."""

from functools import partial

import pytest

from mooring.core.engine.engine import Engine
from mooring.core.engine.events import Features, LeaseChanged, Tick
from mooring.core.engine.invariants import broken
from mooring.core.engine.leader_term import Effects
from mooring.core.model.decision import Evaluation, NextStep, Recovered
from mooring.core.model.events import Listed, Seen
from mooring.core.model.instructions import Outcome, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator, Step, StepKind
from mooring.core.model.reasons import Reason
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World
from mooring.process.replica import KINDS
from tests.core.engine.engine_by_hand import RESTART, of, pod, tidb_cluster


def move(subject, *, id_="", target="", cost=1):
    return Operator(
        id=id_,
        source="fleet",
        kind="move",
        subject=subject,
        claims=(subject,),
        steps=(Step(StepKind.DELETE_POD), Step(StepKind.AWAIT_READY)),
        phases=({target or f"node/{subject}": cost},),
    )


class Wants:
    """A capability as data: what was begun before, and what each key wants now. Its operators run until told to end."""

    name, sources = "fleet", frozenset({"fleet"})

    def __init__(self, begun=(), wanted=None):
        self.begun, self.wanted = list(begun), dict(wanted or {})

    def affected_keys(self, trigger, world):
        return ()

    def keys(self, world):
        return tuple(self.wanted)

    def indexes(self):
        return ()

    def evaluate(self, key, world, queue, notes, now):
        return Evaluation(proposals=tuple(self.wanted[key]))

    def next_step(self, running, world, queue, now):
        return NextStep(step=running.step)

    def recovery_needs(self, world):
        return ()

    def recover(self, world, queue, now):
        for operator, step in self.begun:
            yield partial(self.read_back, operator, step)

    def read_back(self, operator, step):
        return [Recovered(operator, step, 0, 7.0)]


def lead(capability, listener=None):
    engine = Engine(World(), Queue(live_settings()), [capability])
    engine.defects.listener = listener
    for event in (*(Listed(kind, ()) for kind in KINDS), Features(frozenset({"fleet"})), LeaseChanged(True)):
        engine.handle(event, 100.0)
    settle(engine)
    return engine


def settle(engine):
    while (due := engine.next_wakeup()) is not None and due <= engine.now:
        engine.handle(Tick(), engine.now)


def test_two_marks_with_one_operators_name_do_not_mix():
    """One-queue, marks: a copied mark names an operator that runs already; that one goes on as its own mark says."""
    engine = lead(Wants(begun=[(move("a", id_="7"), 1), (move("b", id_="7"), 0)]))
    assert (engine.running["7"].operator.subject, engine.running["7"].step) == ("a", 1)
    (other,) = [r for r in engine.running.values() if r.operator.subject == "b"]
    assert other.operator.id == "8", "it goes on under a number of its own"
    assert broken(engine) == []


@pytest.mark.parametrize("name", ["²", "9" * 5000, "-1", "", "vii", "٣"])
def test_a_mark_whose_operator_has_an_odd_name_ends_nobody(name):
    """One-queue, marks: anybody may edit one; a new leader reads it and leads."""
    engine = lead(Wants(begun=[(move("a", id_=name), 0)], wanted={"k": [move("b")]}))
    assert engine.deciding
    assert "b" in {r.operator.subject for r in engine.running.values()}
    assert broken(engine) == []


def test_a_key_with_one_wish_is_not_kept_out_by_a_key_with_fifty():
    """O1, T5: of a full source each key that was turned away has its turn: the one served longest ago comes first."""
    many = [move(f"pod-{n}", target="workload/shop/Deployment/web") for n in range(50)]
    one = move("plane", target="control-plane")
    wants = Wants(wanted={"many": many, "one": [one]})
    engine = lead(wants)
    assert len(engine.waiting) == 10
    assert "plane" not in {o.subject for o in engine.queue.operators()}
    for _ in range(3):
        (running,) = [r.operator for r in engine.running.values() if r.operator.subject.startswith("pod")]
        wants.wanted["many"] = [m for m in wants.wanted["many"] if m.subject != running.subject]
        engine._apply(Effects(engine.queue.finish(running.id)), [])
        settle(engine)
        if "plane" in {r.operator.subject for r in engine.running.values()}:
            break
    assert "plane" in {r.operator.subject for r in engine.running.values()}, "within three places that fell free"
    assert broken(engine) == []


@pytest.mark.parametrize(
    ("reason", "wish_s", "rests_s"),
    [(Reason.BACK_OFF, 7.0, 7.0), (Reason.FAILED, 10.0, 10.0), (Reason.UNKNOWN, 0.0, 1.0)],
)
def test_a_refused_write_rests_however_much_happens_meanwhile(hand, reason, wish_s, rests_s):
    """Retry-After is honoured: a pod that flaps beside it is no reason to ask the server again at once."""
    hand.lead()
    (mark,) = of(Patch, hand.annotate(0))
    hand.feed(Outcome(instruction=mark.id, reason=reason, retry_after_s=wish_s))
    for number in range(20):
        ready = bool(number % 2)
        busy = pod(0, RESTART, version=str(10 + number), ready=ready)
        assert not of(Patch, hand.feed(Seen(Kind.POD, busy), at=100.0 + number * rests_s / 21))
    assert len(of(Patch, hand.feed(Tick(), at=100.0 + rests_s))) == 1


def test_a_conflict_is_answered_with_what_was_seen(hand):
    """E3: the object in a refusal is news, and the next try, which carries its version, need not wait."""
    hand.lead()
    (mark,) = of(Patch, hand.annotate(0))
    theirs = tidb_cluster({"mooring.dev/pd-endpoints": "x"}, version="9")
    said = Outcome(instruction=mark.id, reason=Reason.CONFLICT, kind=Kind.TIDB_CLUSTER, object=theirs)
    (again,) = of(Patch, hand.feed(said))
    assert again.resource_version == "9"
