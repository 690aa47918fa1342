"""Asking Mix is free: over a simulated day, evaluating twice gives the same and changes nothing (rule 1)."""

from mooring.capabilities.mix.labels import CUSTOM, MODE
from mooring.capabilities.mix.policy import MixPolicy, RebalancePolicy
from mooring.capabilities.mix.rebalance.health import Healths, health_of
from mooring.capabilities.mix.rebalance.misplaced import fix_slots, plan
from mooring.core.engine.engine import Engine
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.controllers.podstate import labels_of
from mooring_lab.cluster.nodes import CAPACITY_LABEL
from mooring_lab.stage.scenarios.mix import NAMESPACE, slow_template, switched_on
from tests.capabilities.asking import Asker
from tests.capabilities.mix.rebalance.mix_stage import Stage
from tests.sim.scenarios.mix import relabel


def remembers_rightly(engine: Engine) -> None:
    """The last look at a workload that is remembered is what a fresh one shows, and so is what followed from it."""
    world = engine.world
    for workload in world.workloads():
        known, fresh = world.index(Healths).of(workload, world, engine.now), health_of(workload, world, engine.now)
        for asked, target, *to_spot in known.followed:
            if asked is plan:
                plan(fresh, target, world, to_spot=to_spot[0])
            else:
                fix_slots(fresh, target, world)
        assert known == fresh, workload.key


async def _day(stage: Stage, asker: Asker) -> None:
    async def pass_(seconds: float, every_s: float = 7.0) -> None:
        for _ in range(int(seconds / every_s)):
            await stage.rig.sleep(every_s)
            leader = stage.rig.leader()
            if leader is not None:
                remembers_rightly(leader.engine)
                asker.ask(leader.engine, "node/n0", "workload/Deployment/shop/nobody")

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
    spot = next(node for node in stage.cluster.store.list(Kind.NODE) if labels_of(node)[CAPACITY_LABEL] == "spot")
    another = {"metadata": {"labels": {CAPACITY_LABEL: "on-demand"}}}
    stage.cluster.store.patch(Kind.NODE, "", spot["metadata"]["name"], another)
    await pass_(20.0, 4.0)
    for node in stage.cluster.store.list(Kind.NODE):
        stage.cluster.store.patch(Kind.NODE, "", node["metadata"]["name"], {"spec": {"unschedulable": True}})
    stage.cluster.scale(Kind.DEPLOYMENT, NAMESPACE, "web", 9)
    await pass_(300.0, 10.0)


def test_asking_twice_gives_the_same_and_changes_nothing():
    """Rule 1, issue 17: mode changes, the quicker way, notices taken and withdrawn, returns to spot, a new leader,
    nonsense in labels, a shortage: at every moment the same question has the same answer and leaves no trace."""
    asker = Asker("mix")
    quick = RebalancePolicy(room_for_s=60.0, return_every_s=60.0)

    async def scenario(stage: Stage) -> None:
        await _day(stage, asker)

    Stage(MixPolicy(rebalance=quick)).play(scenario)
    assert asker.evaluations["mix"] > 300
    assert min(asker.steps["mix"], asker.notes["mix"], asker.proposals["mix"]) > 5, vars(asker)
