"""Asking Fleet is free: over a simulated day, evaluating twice gives the same and changes nothing (rule 1)."""

import copy
import io
import pickle
from types import MappingProxyType
from typing import Any

import pytest

from mooring.capabilities.fleet.live.capability import Fleet
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.core.engine.engine import Engine
from mooring.core.model.machine import MachineState
from mooring.sim.rig import Rig
from mooring.sim.scenarios.fleet import RetireScenario, build_fleet, fleet_config, set_state, stored
from tests.capabilities.fleet.test_anything import Anybody


def test_the_capability_is_its_policy():
    """Rule 1: nothing can be set on it, and two of one policy are equal."""
    with pytest.raises(AttributeError):
        Fleet().policy = FleetPolicy()  # type: ignore[misc]
    assert Fleet() == Fleet()
    assert vars(Fleet()).keys() == {"policy", "namespace"}


class ByValue(pickle.Pickler):
    def reducer_override(self, obj: object) -> Any:
        return (dict, (dict(obj),)) if isinstance(obj, MappingProxyType) else NotImplemented


def everything(engine: Engine) -> bytes:
    out = io.BytesIO()
    ByValue(out).dump((vars(engine.capabilities["fleet"]), vars(engine.world), vars(engine.queue), engine.notes))
    return out.getvalue()


class Asker:
    """Asks about every key and every running operator twice, and compares everything within reach by value."""

    def __init__(self) -> None:
        self.evaluations = self.steps = self.proposals = 0

    def ask(self, engine: Engine) -> None:
        fleet, world, queue, now = engine.capabilities["fleet"], engine.world, engine.queue, engine.now
        before = everything(engine)
        for key in [*fleet.keys(world), "node/nobody", "machine/nobody"]:
            notes = engine.notes.get(("fleet", key))
            first, second = (fleet.evaluate(key, world, queue, notes, now) for _ in range(2))
            assert first == second, key
            self.evaluations += 1
            self.proposals += len(first.proposals)
        for running in engine.running.values():
            if running.operator.source in fleet.sources:
                was = copy.deepcopy(running)
                first_, second_ = (fleet.next_step(running, world, queue, now) for _ in range(2))
                assert first_ == second_
                assert running == was
                self.steps += 1
        assert everything(engine) == before, "something was changed by asking"


def test_asking_twice_over_a_day_in_which_anything_happens():
    """Rule 1: states, vanished machines, lost nodes, new settings and crashes, each followed by all questions, twice."""
    rig, asker = Rig(seed=4, config=fleet_config(settle_timeout_s=300.0, retire_timeout_s=600.0)), Asker()

    async def whole(rig: Rig) -> None:
        anybody = Anybody(rig, build_fleet(rig, machines=10, planes=3, workers=4), 4)
        rig.start()
        await rig.until(lambda: len(stored(rig).members) == 7)
        for _ in range(25):
            anybody.act()
            for _ in range(10):
                await rig.sleep(6)
                anybody.as_cke_does()
                leader = rig.leader()
                if leader is not None and leader.engine.deciding:
                    asker.ask(leader.engine)

    rig.play(whole)
    assert asker.evaluations > 300


def test_asking_twice_while_a_machine_retires():
    """Rule 1: the same with TiKV, a Deployment and a DaemonSet on the node."""
    scenario, asker = RetireScenario(), Asker()

    async def whole(rig: Rig) -> None:
        await scenario.build(rig)
        rig.start()
        await rig.until(lambda: len(stored(rig).members) == 7)
        set_state(rig, scenario.n7, MachineState.RETIRING)
        while not scenario.done(rig):
            await rig.sleep(1.0)
            asker.ask(rig.leader().engine)

    scenario.rig().play(whole)
    assert asker.steps > 10
    assert asker.proposals > 0
