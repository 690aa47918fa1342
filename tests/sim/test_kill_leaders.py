"""L1 on the sandbox: leadership first, seen twice, then the pod; killed at every write, a hand-over ends the same."""

import pytest

from tests.sim.kill import kill_everywhere, undisturbed
from tests.sim.scenarios.leaders import LeadersScenario

DRIVERS = ["etcd", "patroni", "hook"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_leader_is_moved_before_its_pod_goes_and_nothing_is_left(driver):
    """L1: one mark, one move, one deletion; the system was never without a leader, and no mark stays."""
    ending = undisturbed(LeadersScenario(driver))
    assert ending.state == {"new": ["db-0"], "led by somebody": True, "cut": 0}
    assert ending.left_overs == ()
    disturbing = [w for w in ending.writes if w.startswith(("evict", "delete", "leaders"))]
    assert disturbing == ["leaders move_off db-0 db-1", "evict Pod data/db-0"]
    assert ending.writes[0].startswith("patch StatefulSet"), "the mark is written before anything is disturbed"


@pytest.mark.parametrize("driver", DRIVERS)
def test_all_members_go_one_by_one_each_when_the_last_is_in_sync(driver):
    """L1: three asked in one second; at no moment are two away or behind, and no leader goes with its pod."""
    scenario = LeadersScenario(driver, (0, 1, 2))
    ending = undisturbed(scenario)
    assert ending.state == {"new": ["db-0", "db-1", "db-2"], "led by somebody": True, "cut": 0}
    assert scenario.most_away == 1


@pytest.mark.parametrize("driver", DRIVERS)
def test_killed_at_every_write_it_ends_the_same(driver):
    """L1: kill -9 right before and right after every write of two hand-overs changes nothing about the end."""
    assert list(kill_everywhere(LeadersScenario(driver, (0, 1)))) == []
