"""Asking Fleet is free: over a simulated day, evaluating twice gives the same and changes nothing (rule 1)."""

from mooring.core.model.machine import MachineState
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.fleet import set_state, stored
from tests.capabilities.asking import Asker
from tests.capabilities.fleet.test_anything import Anybody
from tests.sim.scenarios.fleet import RetireScenario, build_fleet, fleet_config


def test_asking_twice_over_a_day_in_which_anything_happens():
    """Rule 1: states, vanished machines, lost nodes, new settings and crashes, each followed by all questions, twice."""
    rig, asker = Rig(seed=4, config=fleet_config(settle_timeout_s=300.0, retire_timeout_s=600.0)), Asker("fleet")

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
                    asker.ask(leader.engine, "node/nobody", "machine/nobody")

    rig.play(whole)
    assert asker.evaluations["fleet"] > 300


def test_asking_twice_while_a_machine_retires():
    """Rule 1: the same with TiKV, a Deployment and a DaemonSet on the node."""
    scenario, asker = RetireScenario(), Asker("fleet")

    async def whole(rig: Rig) -> None:
        await scenario.build(rig)
        rig.start()
        await rig.until(lambda: len(stored(rig).members) == 7)
        set_state(rig, scenario.n7, MachineState.RETIRING)
        while not scenario.done(rig):
            await rig.sleep(1.0)
            asker.ask(rig.leader().engine)

    scenario.rig().play(whole)
    assert asker.steps["fleet"] > 10
    assert asker.proposals["fleet"] > 0
