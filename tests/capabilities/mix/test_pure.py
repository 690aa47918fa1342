"""Asking Mix is free: over a simulated day, evaluating twice gives the same and changes nothing (rule 1)."""

import copy
import io
import pickle
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from mooring.capabilities.mix.capability import Mix
from mooring.capabilities.mix.labels import CUSTOM, MODE
from mooring.capabilities.mix.pace import RebalancePolicy
from mooring.capabilities.mix.policy import MixPolicy
from mooring.core.engine.engine import Engine
from mooring.core.model.kinds import Kind
from mooring.core.queue import Queue
from mooring.sim.scenarios.mix import NAMESPACE, relabel, slow_template, switched_on
from tests.capabilities.mix.rebalance.mix_stage import Stage


def test_the_capability_is_its_policy():
    """Rule 1: nothing can be set on it, and two of one policy are equal."""
    with pytest.raises(AttributeError):
        Mix().policy = MixPolicy()  # type: ignore[misc]
    assert Mix() == Mix()
    assert vars(Mix()).keys() == {"policy", "namespace"}


class Asker:
    """Asks about every key and every running move twice, and compares everything within reach by value."""

    def __init__(self) -> None:
        self.evaluations = self.steps = self.notes = self.proposals = 0

    def ask(self, engine: Engine) -> None:
        mix = engine.capabilities["mix"]
        before = self._all(engine)
        keys = [*mix.keys(engine.world), "node/n0", "workload/Deployment/shop/nobody"]
        for key in dict.fromkeys(keys):
            notes = engine.notes.get(("mix", key))
            first, second = (mix.evaluate(key, engine.world, engine.queue, notes, engine.now) for _ in range(2))
            assert first == second, key
            self.evaluations += 1
            self.notes += notes is not None
            fresh = [mix.evaluate(key, engine.world, Queue(), None, engine.now) for _ in range(2)]
            assert fresh[0] == fresh[1], key
            self.proposals += len(fresh[0].proposals)  # what is proposed already stands in the engine's queue
        for running in engine.running.values():
            if running.operator.source in mix.sources:
                was = copy.deepcopy(running)
                steps = [mix.next_step(running, engine.world, engine.queue, engine.now) for _ in range(2)]
                assert steps[0] == steps[1]
                assert running == was
                self.steps += 1
        assert self._all(engine) == before, "something was changed by asking"

    def _all(self, engine: Engine) -> bytes:
        capability, out = engine.capabilities["mix"], io.BytesIO()
        ByValue(out).dump((vars(capability), vars(engine.world), vars(engine.queue), engine.notes))
        return out.getvalue()


class ByValue(pickle.Pickler):
    def reducer_override(self, obj: object) -> Any:
        return (dict, (dict(obj),)) if isinstance(obj, MappingProxyType) else NotImplemented


async def _day(stage: Stage, asker: Asker) -> None:
    async def pass_(seconds: float, every_s: float = 7.0) -> None:
        for _ in range(int(seconds / every_s)):
            await stage.rig.sleep(every_s)
            leader = stage.rig.leader()
            if leader is not None:
                asker.ask(leader.engine)

    await stage.deployed("web", 6, "custom", 2, template=slow_template("web", 12.0))
    stage.cluster.stateful_set(NAMESPACE, "db", 3, labels=switched_on(), template=slow_template("db", 9.0))
    await stage.deployed("off", 2, "off")
    await pass_(60.0)
    relabel(stage.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "5"})
    await pass_(120.0)
    stage.cluster.annotate(Kind.DEPLOYMENT, NAMESPACE, "web", {"vacant.io/rebalance": "fast"})
    relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-spot", CUSTOM: None})
    await pass_(90.0, 3.0)
    notices = stage.cluster.cloud.notice_all_spot(after_s=120)
    await pass_(30.0, 2.0)
    stage.cluster.cloud.withdraw(notices[0].node)
    await pass_(150.0)
    stage.cluster.add_nodes(2, "s1", capacity="spot")
    await pass_(1500.0, 60.0)
    stage.rig.kill()
    stage.rig.start()
    await stage.rig.until(stage.rig.leads)
    relabel(stage.rig, Kind.STATEFUL_SET, "db", {MODE: "nonsense"})
    relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-on-demand"})
    await pass_(120.0, 4.0)
    for node in stage.cluster.store.list(Kind.NODE):
        stage.cluster.store.patch(Kind.NODE, "", node["metadata"]["name"], {"spec": {"unschedulable": True}})
    stage.cluster.scale(Kind.DEPLOYMENT, NAMESPACE, "web", 9)
    await pass_(300.0, 10.0)


def test_asking_twice_gives_the_same_and_changes_nothing():
    """Rule 1, issue 17: mode changes, the quicker way, notices taken and withdrawn, returns to spot, a new leader,
    nonsense in labels, a shortage: at every moment the same question has the same answer and leaves no trace."""
    asker = Asker()
    quick = RebalancePolicy(room_for_s=60.0, return_every_s=60.0)

    async def scenario(stage: Stage) -> None:
        await _day(stage, asker)

    Stage(MixPolicy(rebalance=quick)).play(scenario)
    assert asker.evaluations > 300
    assert min(asker.steps, asker.notes, asker.proposals) > 5, msgspec.to_builtins(vars(asker))
