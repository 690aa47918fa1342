"""Leaders that can go nowhere keep a machine that has to be emptied: `blocked`, with what a person does about it."""

from typing import Any

import pytest

from mooring.core.engine.why import explain
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.core.model.marks import LEAVING, RETIRING
from mooring_lab.cluster.pd import requests
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.fleet import cordoned, keys, pods_on, serial_of, set_state, taints_of
from tests.capabilities.fleet.test_retire import play
from tests.sim.scenarios.fleet import DEMO, TIDB, RetireScenario, annotations_of

MEMBER = f"{DEMO}-tikv-1"


def pd_of(rig: Rig):
    return rig.cluster.pd[TIDB, DEMO]


def said(rig: Rig, subject: str):
    return explain(rig.leader().engine, subject)


def no_other_store(rig: Rig, *, kept: bool) -> None:
    for member in (0, 2):
        pd_of(rig).silence(f"{DEMO}-tikv-{member}", silent=kept)


def evicted_by_a_person(rig: Rig, *, kept: bool) -> None:
    change = requests.add_evict_leader if kept else requests.remove_evict_leader
    for member in (0, 2):
        change(pd_of(rig).server, pd_of(rig).store_of(f"{DEMO}-tikv-{member}").id)


def one_replica(rig: Rig, *, kept: bool) -> None:
    server = pd_of(rig).server
    if not kept:
        server.placement.set_rules([{**server.placement.rules[0], "count": 3}])
        server.heard.to_check.update(dict.fromkeys(server.cache))
        server.kick()


def one_region(rig: Rig, *, kept: bool) -> None:
    pd_of(rig).stick(MEMBER, 1 if kept else 0)


@pytest.mark.parametrize(
    ("keeps", "reason", "says"),
    [
        (one_replica, "one-store", "pd-ctl config set max-replicas 3"),
        (no_other_store, "one-store", "the only store that is Up"),
        (evicted_by_a_person, "one-store", "pd-ctl scheduler remove evict-leader-scheduler-"),
        (one_region, "leaders-left", "pd-ctl region check"),
    ],
    ids=lambda one: one.__name__ if callable(one) else "",
)
def test_leaders_that_cannot_leave_block_the_machine_and_say_what_to_do(keeps: Any, reason: str, says: str):
    """E7, O2: pod and machine are `blocked` with what ends it, no leader is cut off, and the machine is emptied once
    they can go."""
    copies = 1 if keeps is one_replica else 3
    scenario = RetireScenario(web=0, copies=copies, retire_patience_s=120.0, retire_hold_s=120.0)

    async def then(rig: Rig) -> None:
        pod, machine = f"pod/{TIDB}/{MEMBER}", f"machine/{serial_of(rig, scenario.n7)}"
        await rig.until(lambda: said(rig, pod).state == "blocked", limit_s=1200)
        assert said(rig, pod).reason == reason
        assert says in str(said(rig, pod))
        await rig.until(lambda: said(rig, machine).state == "blocked", limit_s=60)
        assert said(rig, machine).reason == reason
        assert says in str(said(rig, machine))
        await rig.sleep(900)  # its place is given back, and taken again
        assert keys.STATE_TAINT not in taints_of(rig, scenario.n7)
        keeps(rig, kept=False)
        await rig.until(lambda: scenario.done(rig), limit_s=7200)
        assert not pd_of(rig).interruptions

    async def before(rig: Rig) -> None:
        keeps(rig, kept=True)
        await then(rig)

    play(scenario, before)


def test_a_machine_says_what_keeps_its_leaders_also_while_its_place_is_given_back():
    """Issue 20.8: hours later, with nothing under way."""
    scenario = RetireScenario(web=0, copies=1, retire_patience_s=120.0)

    async def then(rig: Rig) -> None:
        marks = lambda: annotations_of(rig, Kind.NODE, "", scenario.n7).get(RETIRING, "")
        await rig.until(lambda: '"step":"blocked"' in marks(), limit_s=1200)
        answer = said(rig, f"machine/{serial_of(rig, scenario.n7)}")
        assert (answer.state, answer.reason) == ("blocked", "one-store")
        assert "pd-ctl config set max-replicas 3" in str(answer)
        assert LEAVING not in annotations_of(rig, Kind.POD, TIDB, MEMBER)

    play(scenario, then)


def test_a_machine_whose_leaders_can_go_at_last_need_not_wait_for_its_next_try():
    """O2: it was given up on for hours; the person who ended what kept it is told what to type, and that begins it."""
    scenario = RetireScenario(web=0, copies=1, retire_patience_s=120.0, retire_hold_s=7200.0)

    async def then(rig: Rig) -> None:
        marks = lambda: annotations_of(rig, Kind.NODE, "", scenario.n7).get(RETIRING, "")
        await rig.until(lambda: '"step":"blocked"' in marks(), limit_s=1200)
        one_replica(rig, kept=False)
        machine = f"machine/{serial_of(rig, scenario.n7)}"
        await rig.until(lambda: said(rig, machine).state == "waiting", limit_s=300)
        assert f"kubectl annotate node {scenario.n7} {RETIRING}-" in str(said(rig, machine))
        rig.cluster.annotate(Kind.NODE, "", scenario.n7, {RETIRING: None})
        await rig.until(lambda: scenario.done(rig), limit_s=900)
        assert not pd_of(rig).interruptions

    play(scenario, then)


def test_leaders_leave_a_retiring_machine_whose_volumes_keep_their_pods():
    """E7, O2: local volumes, the default on bare metal: the pod can come back nowhere and stays, its leaders leave all
    the same and stay away; it keeps no other machine waiting, and healthy again everything is taken back."""
    scenario = RetireScenario(web=0, storage="local-ssd", retire_patience_s=120.0)

    async def then(rig: Rig) -> None:
        machine, pd = f"machine/{serial_of(rig, scenario.n7)}", pd_of(rig)
        leaders = lambda: len(pd.server.tikv.led[pd.store_of(MEMBER).id])
        await rig.until(lambda: leaders() == 0, limit_s=300)
        eviction = lambda: next(r for r in rig.leader().engine.running.values() if r.operator.kind == "evict-leaders")
        begun = eviction().operator.id
        await rig.sleep(2 * 3600)
        assert leaders() == 0
        assert eviction().operator.id == begun, "one eviction for all the time, not one every ten minutes"
        assert (eviction().waiting_on.state, eviction().waiting_on.reason) == ("blocked", "local-volume")
        assert MEMBER in pods_on(rig, scenario.n7)
        assert rig.leader().engine.queue.used("fleet") == 0
        assert (said(rig, machine).state, said(rig, machine).reason) == ("blocked", "local-volume")
        set_state(rig, scenario.n7, MachineState.RETIRED, MachineState.UNINITIALIZED, MachineState.HEALTHY)
        await rig.until(lambda: not scenario.left_overs(rig) and not cordoned(rig, scenario.n7), limit_s=600)
        await rig.until(lambda: leaders() > 0, limit_s=600)
        assert not pd.interruptions

    play(scenario, then)
