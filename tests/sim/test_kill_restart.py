"""Worked example 6 of the one queue, on the sandbox: killed at every write of a hand-over, it ends the same."""

import pytest

from tests.sim.kill import kill_everywhere, undisturbed
from tests.sim.scenarios.restart import RestartScenario


def disturbances(writes):
    """Deletions and what PD was told; a lock without its id, and given back once where both operators saw it."""
    said = [w if "_lock" not in w else " ".join(w.split()[:2]) for w in writes if w.startswith(("delete", "pd"))]
    return [one for before, one in zip([None, *said], said, strict=False) if one != before]


def test_the_undisturbed_restart_deletes_once_and_leaves_nothing():
    """E1, E3, E6: one mark, one scheduler, one deletion, nothing left; no leader was on the pod when it went."""
    ending = undisturbed(RestartScenario())
    assert ending.state == {"new": ["demo-tikv-0"], "ready": 3, "deleted with leaders": 0}
    assert ending.left_overs == ()
    assert disturbances(ending.writes) == [
        "pd add_evict_leader 1",
        "pd hold_lock",
        "delete Pod tidb/demo-tikv-0",
        "pd release_lock",
        "pd remove_evict_leader 1",
    ]
    assert ending.writes[0].startswith("patch TidbCluster"), "the mark is written before anything is disturbed"


@pytest.mark.parametrize("members", [(0,), (0, 1)], ids=["one pod", "two pods in the same second"])
def test_killed_at_every_write_it_ends_the_same(members):
    """E5, worked example 6: kill -9 right before and right after every write changes nothing about the end."""
    scenario = RestartScenario(members)
    assert list(kill_everywhere(scenario)) == []


def test_two_pods_annotated_in_the_same_second_are_never_both_away():
    """E7, worked example 1: the second begins when the first is back, and no member more is ever away."""
    scenario = RestartScenario((0, 1))
    ending = undisturbed(scenario)
    assert ending.state["new"] == ["demo-tikv-0", "demo-tikv-1"]
    assert scenario.most_away == 1
    assert disturbances(ending.writes) == [
        "pd add_evict_leader 1",
        "pd hold_lock",
        "delete Pod tidb/demo-tikv-0",
        "pd release_lock",
        "pd remove_evict_leader 1",
        "pd add_evict_leader 2",
        "pd hold_lock",
        "delete Pod tidb/demo-tikv-1",
        "pd release_lock",
        "pd remove_evict_leader 2",
    ]
