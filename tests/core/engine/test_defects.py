"""A defect of ours, and what it costs: the object it shows on, and nothing else."""

import pytest

from mooring.core.engine.defects import RETRY_AFTER_DEFECT_S
from mooring.core.engine.events import Features
from mooring.core.model.decision import Evaluation, NextStep, Verdict
from mooring.core.model.events import Change, Seen
from mooring.core.model.instructions import DeletePod
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from tests.core.engine.engine_by_hand import Hand, of, pod

ALL = "tikv/all"
GO = {"go": "now"}


class Deleting:
    """Deletes annotated pods, one at a time; and has a defect that shows on one of them, in one verb."""

    name, sources = "deleting", frozenset({"deleting"})

    def __init__(self, verb=""):
        self.verb = verb

    def _stumble(self, verb, pod_name):
        if verb == self.verb and pod_name == "demo-tikv-0":
            raise KeyError(verb)

    def affected_keys(self, trigger, world):
        if not isinstance(trigger, Change):
            return []
        self._stumble("touched", trigger.key.name)
        return [trigger.key.name]

    def keys(self, world):
        return [one.name for one in world.pods()]

    def indexes(self):
        return ()

    def evaluate(self, key, world, queue, notes, now):
        self._stumble("look", key)
        if not any(one.annotations == GO for one in world.pods() if one.name == key):
            return Evaluation()
        subject = f"pod/tidb/{key}"
        wanted = Operator(id="", source=self.name, kind="delete", subject=subject, phases=({ALL: 1},))
        return Evaluation(proposals=(wanted,), limits={ALL: 1}, verdict=Verdict(State.MOVING, Reason.ASKED, key))

    def next_step(self, running, world, queue, now):
        name = running.operator.subject.rpartition("/")[2]
        self._stumble("steer", name)
        (found,) = [one for one in world.pods() if one.name == name]
        return NextStep(step=0, instructions=(DeletePod(key=found.key, uid=found.uid, evict=False, why="test"),))

    def recover(self, world, queue, now):
        return ()

    def recovery_needs(self, world):
        return ()


class Listening(Hand):
    """A hand whose engine has somebody to tell of defects."""

    def __init__(self, verb=""):
        self.decider = Deleting(verb)
        super().__init__(self.decider)
        self.told = []
        self.engine.defects.listener = lambda where, error: self.told.append((where, repr(error)))
        self.lead()
        self.feed(Features(frozenset({"deleting"})))
        self.told.clear()

    def ask(self, ordinal):
        asked = self.feed(Seen(Kind.POD, pod(ordinal, GO, version="2")))
        return [one.key.name for one in of(DeletePod, asked)]

    def later(self):
        self.now += RETRY_AFTER_DEFECT_S
        return [one.key.name for one in of(DeletePod, self.engine.work(self.now))]


@pytest.mark.parametrize("verb", ["look", "touched"])
def test_one_pod_costs_nobody_else_a_decision(verb):
    """The pod that we stumble over stays as it is; the next one is decided about as ever."""
    hand = Listening(verb)
    assert hand.ask(0) == []
    assert hand.told
    assert all("demo-tikv-0" in where and "KeyError" in error for where, error in hand.told)
    assert hand.ask(1) == ["demo-tikv-1"]


def test_what_is_held_for_a_defect_says_so_and_is_tried_again():
    """O3: `why` finds the defect in words and a person is asked for; when it is gone, the wish is carried out."""
    hand = Listening("look")
    hand.ask(0)
    verdict = hand.engine.verdicts["deleting", "demo-tikv-0"]
    assert (verdict.state, verdict.reason) == (State.BLOCKED, Reason.DEFECT)
    assert "KeyError: 'look'" in verdict.detail
    hand.decider.verb = ""
    assert hand.later() == ["demo-tikv-0"]
    assert hand.engine.verdicts["deleting", "demo-tikv-0"].state is State.MOVING


def test_an_operator_keeps_its_place_and_its_cost():
    """What has begun may have disturbed something: it stays charged, waits in words, and goes on later."""
    hand = Listening("steer")
    assert hand.ask(0) == []
    ((operator_id, running),) = hand.engine.running.items()
    assert running.waiting_on.reason is Reason.DEFECT
    assert hand.ask(1) == []
    assert list(hand.engine.running) == [operator_id]
    hand.decider.verb = ""
    assert hand.later() == ["demo-tikv-0"]


def test_an_observer_that_stumbles_takes_nobody_along():
    """Admission counts by what it observes; the world and the deciders go on without it."""
    hand = Listening()

    class Stumbling:
        observes = frozenset({Kind.POD})

        def observe(self, change, world):
            if change.old is not None:
                raise ValueError(change.key.name)

        def advance(self):
            return False

    hand.engine.world.register(Stumbling())
    assert hand.ask(0) == ["demo-tikv-0"]
    assert [error for _, error in hand.told] == ["ValueError('demo-tikv-0')"]


def test_without_a_listener_it_is_raised():
    """Tests and the sandbox shall see a defect, not live with it."""
    hand = Listening("look")
    hand.engine.defects.listener = None
    with pytest.raises(KeyError):
        hand.ask(0)
