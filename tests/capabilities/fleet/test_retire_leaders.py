"""O2, L1: a machine retires on which members of an etcd, a Patroni or a hook's system run, one of them the leader."""

import pytest

from mooring.capabilities.fleet.planner import keys
from mooring.core.model.leaders import LEADERS, LEADERS_ENDPOINT
from mooring_lab.stage.scenarios.fleet import pods_on, taints_of
from tests.capabilities.fleet.test_retire import play
from tests.sim.scenarios.fleet import SHOP, RetireScenario


class WithSystem(RetireScenario):
    def __init__(self, driver):
        super().__init__()
        self.driver = driver

    async def also(self, rig):
        """All three are on the machine that retires."""
        annotations = {LEADERS: self.driver, LEADERS_ENDPOINT: f"http://hook.{SHOP}.svc:8080/"}
        if self.driver != "hook":
            del annotations[LEADERS_ENDPOINT]
        rig.cluster.stateful_set(SHOP, "db", 3, annotations=annotations)
        await rig.until(lambda: rig.cluster.ready(SHOP, "db") == 3)
        assert set(rig.cluster.nodes_of(SHOP, "db").values()) == {self.n7}


@pytest.mark.parametrize("driver", ["etcd", "patroni", "hook"])
def test_members_hand_over_one_by_one_before_the_machine_is_tainted(driver):
    """O2, L1: no leader goes with its pod, one member is away at a time, each back in sync before the next, then
    NoExecute on an empty node."""
    scenario, most_away = WithSystem(driver), 0

    async def then(rig):
        nonlocal most_away
        system = rig.cluster.led[SHOP, "db"]

        def over():
            nonlocal most_away
            most_away = max(most_away, sum(system.lag(name) != 0 for name in system.members))
            if keys.STATE_TAINT in taints_of(rig, scenario.n7):
                assert not [p for p in pods_on(rig, scenario.n7) if p.startswith("db")]
            return scenario.done(rig)

        await rig.until(over, limit_s=1800)
        assert system.interruptions == [] and system.moves >= 1
        assert scenario.n7 not in rig.cluster.nodes_of(SHOP, "db").values()

    play(scenario, then)
    assert most_away == 1
