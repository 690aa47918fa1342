"""Rule 1, over days of the whole simulation: every capability, evaluated twice, answers the same and changes nothing.

`test_pure.py` of each capability plays what is rare: retirements, notices, PD away, crashes.
"""

from dataclasses import FrozenInstanceError
from typing import ClassVar

import msgspec
import pytest

from mooring.capabilities.registry import names
from mooring.core.model.operator import Operator, Step, StepKind
from mooring.process.assemble import capabilities
from mooring.process.settings.config import Config
from mooring_lab.simulate.plan import draw_plan
from mooring_lab.simulate.simulation import Simulation
from tests.capabilities.asking import Asker

MINUTES = 18


class Asked(Simulation):
    """Stops its day every so often to ask the leader everything, twice."""

    def __init__(self, plan, asker, tamper=lambda engine: None):
        super().__init__(plan)
        self.asker, self.tamper = asker, tamper

    async def _pass(self, seconds):
        for _ in range(3 * MINUTES):
            if not await super()._pass(20.0):
                return False
            engine = self.engine()
            if engine is not None and engine.deciding:
                self.tamper(engine)
                self.asker.ask(engine)
        return False


@pytest.fixture(scope="module")
def asked():
    """Two days with all features, under load, faults and interference."""
    asker = Asker(*names())
    for seed in (3, 4):
        result = Asked(draw_plan(seed, hours=MINUTES / 60, features=names()), asker).run()
        assert result.failure is None, result.failure
    return asker


@pytest.mark.parametrize("name", names())
def test_asking_twice_gives_the_same_and_changes_nothing(asked, name):
    """Rule 1: of every capability there is, many keys were asked, some with notes, and some answers were proposals."""
    assert asked.evaluations[name] > 20
    assert asked.proposals[name] + asked.notes[name] + asked.steps[name] > 5


@pytest.mark.parametrize("capability", capabilities(Config()), ids=lambda one: one.name)
def test_a_capability_is_its_policy(capability):
    """Rule 1: nothing can be set on it, and two of one policy are equal."""
    with pytest.raises((AttributeError, FrozenInstanceError)):
        capability.policy = None
    assert capability in capabilities(Config())
    assert vars(capability).keys() <= {"policy", "namespace"}


class Forgetful:
    """A capability that breaks the rule in one way or another, around one that keeps it."""

    submitted: ClassVar[list[str]] = []

    def __init__(self, inner, how):
        self.inner, self.how, self.count = inner, how, 0

    def __getattr__(self, name):
        if name == "inner":  # while it is copied
            raise AttributeError(name)
        return getattr(self.inner, name)

    def evaluate(self, key, world, queue, notes, now):
        answer = self.inner.evaluate(key, world, queue, notes, now)
        match self.how:
            case "remembers on itself":
                self.count += 1
            case "answers otherwise the second time":
                self.count = 1 - self.count
                return msgspec.structs.replace(answer, again_at=now + self.count)
            case "keeps an index of its own":
                world.index_of_forgetful = [*getattr(world, "index_of_forgetful", ()), key]
            case "changes a row":
                node = min(world.nodes(), key=lambda one: one.name)
                msgspec.structs.force_setattr(node, "resource_version", f"{node.resource_version}+")
            case "submits by itself":
                self.submitted.append(key)
                id_, step = f"f{len(self.submitted)}", Step(StepKind.CORDON)
                queue.submit(
                    Operator(id=id_, source="home", kind="x", subject=f"node/{id_}", steps=(step,), phases=({},))
                )
        return answer


HOWS = [
    "remembers on itself",
    "answers otherwise the second time",
    "keeps an index of its own",
    "changes a row",
    "submits by itself",
]


@pytest.mark.parametrize("how", HOWS)
def test_the_test_fails_on_a_capability_that_breaks_the_rule(how):
    """A test that could not fail would show nothing: memory on the capability, in world or queue, or a second answer."""

    def tamper(engine):
        if not isinstance(engine.capabilities["mix"], Forgetful):
            engine.capabilities["mix"] = Forgetful(engine.capabilities["mix"], how)

    plan = msgspec.structs.replace(draw_plan(1, hours=0.1, features=names()), actions=())
    failure = Asked(plan, Asker("mix"), tamper).run().failure
    assert failure is not None
    assert failure.detail.startswith("AssertionError: mix: ")
