"""Worked example 6 of the one queue, on the sandbox: killed at every write of a hand-over, it ends the same."""

import pytest

from mooring.capabilities.handoff.requests import RESTART
from mooring.core.engine.why import explain
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF
from mooring.core.model.reasons import State
from mooring_lab.cluster.clock import run_virtual
from mooring_lab.cluster.pd import requests
from tests.sim.kill import kill_everywhere, undisturbed
from tests.sim.scenarios.restart import NAME, NAMESPACE, RestartScenario


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


def test_a_scheduler_whose_mark_a_person_took_away_is_named_with_the_command_that_ends_it():
    """E3, E5, O3: the mark goes, then the leader: nothing says any more that the schedulers were Mooring's, so they stay,
    and a restart that they keep from moving its leaders is `blocked` until the command that `why` names was typed."""
    scenario = RestartScenario((0,))
    rig = scenario.rig()
    last = f"{NAME}-tikv-2"

    async def whole():
        rig.start()
        await rig.until(rig.leads)
        await scenario.build(rig)
        server = scenario.pd(rig).server
        await scenario.act(rig)
        await rig.until(lambda: bool(server.evict_list()))
        requests.add_evict_leader(server, 2)
        rig.kill()
        rig.cluster.annotate(Kind.TIDB_CLUSTER, NAMESPACE, NAME, {HANDOFF: None})
        rig.cluster.annotate(Kind.POD, NAMESPACE, f"{NAME}-tikv-0", {RESTART: None})
        rig.cluster.annotate(Kind.POD, NAMESPACE, last, {RESTART: ""})
        before = rig.cluster.store.get(Kind.POD, NAMESPACE, last)["metadata"]["uid"]
        leader = rig.start()
        await rig.until(rig.leads)
        await rig.sleep(60)
        answer = explain(leader.engine, f"pod/{NAMESPACE}/{last}", now=leader.shell.now())
        typed = [line.text.split(maxsplit=1)[1] for line in answer.lines if line.label == "to change"]
        assert answer.state is State.BLOCKED and "pd-ctl scheduler remove evict-leader-scheduler-1" in typed
        assert server.evict_list() == (1, 2), "what Mooring does not know as its own is never removed"
        requests.remove_evict_leader(server, 1)
        new = lambda: rig.cluster.store.find(Kind.POD, NAMESPACE, last)
        await rig.until(lambda: new() is not None and new()["metadata"]["uid"] != before, 900)
        await rig.until(lambda: rig.cluster.ready(NAMESPACE, f"{NAME}-tikv") == 3 and server.evict_list() == (2,), 300)
        assert not scenario.pd(rig).interruptions
        rig.kill()

    run_virtual(whole, rig.cluster.timeline)
