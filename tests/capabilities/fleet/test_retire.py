"""A machine retires: cordon, leaders handed over, pods moved, then NoExecute; and every way out of it."""

from typing import Any

import msgspec
import pytest

from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.planner import keys
from mooring.core.engine.capability import Explains
from mooring.core.engine.why import explain
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.core.model.marks import CORDONED_BY, RETIRING
from mooring_lab.cluster.controllers import manifests
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.fleet import (
    cordoned,
    marks_left,
    pods_on,
    roles_by_address,
    serial_of,
    set_settings,
    set_state,
    stored,
    taints_of,
)
from tests.sim.kill import kill_everywhere, undisturbed
from tests.sim.scenarios.fleet import DEMO, SHOP, TIDB, RetireScenario, annotations_of

RETIRING_STATE, RETIRED = MachineState.RETIRING, MachineState.RETIRED


class Guarded(RetireScenario):
    """Worked example 3: one more pod on n7, under a budget that allows none."""

    async def also(self, rig: Rig) -> None:
        rig.cluster.stateful_set(SHOP, "lock", 1)
        rig.cluster.pdb(SHOP, "lock", {"app": "lock"}, min_available=1)
        await rig.until(lambda: rig.cluster.ready(SHOP, "lock") == 1)


def play(scenario: RetireScenario, then: Any) -> Rig:
    """Build, start, set the machine to retiring, and go on with `then`."""
    rig = scenario.rig()

    async def whole(rig: Rig) -> None:
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        await scenario.act(rig)
        await then(rig)

    rig.play(whole)
    return rig


def events_on(rig: Rig, node: str) -> list[str]:
    found = rig.cluster.store.list(Kind.EVENT)
    return [
        e["message"] for e in found if e["involvedObject"]["name"] == node and e["source"]["component"] == "mooring"
    ]


def names_on(rig: Rig, node: str) -> set[str]:
    return {p.split("-")[0] for p in pods_on(rig, node)}


def test_worked_example_3_a_retiring_node_is_emptied_and_waits_for_its_budget():
    """O2, worked example 3: TiKV handed over, web as its workload allows, DaemonSet stays, the last is held by its PDB."""
    scenario = Guarded()

    async def then(rig: Rig) -> None:
        n7 = scenario.n7
        serial = serial_of(rig, n7)
        await rig.until(lambda: scenario.done(rig) or names_on(rig, n7) == {"agent", "lock"})
        await rig.sleep(600)
        assert cordoned(rig, n7)
        assert keys.STATE_TAINT not in taints_of(rig, n7), "the taint waits with the pod"
        assert roles_by_address(rig)[n7] == "worker", "and is not in the stored cluster before"
        leader = rig.leader()
        assert leader is not None
        answer = explain(leader.engine, f"machine/{serial}")
        assert answer is not None
        assert answer.state == "blocked"
        assert answer.reason == "pdb"
        assert scenario.most_away == 1, "never more web pods away than its workload allows"
        assert not rig.cluster.pd[TIDB, DEMO].interruptions, "no leader was on the TiKV pod when it went"
        await rig.until(lambda: keys.STATE_TAINT in taints_of(rig, n7), limit_s=3600)
        assert roles_by_address(rig)[n7] == "worker, retiring"
        told = [m for m in events_on(rig, n7) if "NoExecute" in m]
        assert len(told) == 1
        assert "shop/lock-" in told[0], "the Event names what it breaks"

    play(scenario, then)


def test_a_budget_that_opens_lets_the_retirement_finish():
    """O2: what a person had to do is done, and the node is empty a moment later."""
    scenario = Guarded()

    async def then(rig: Rig) -> None:
        await rig.until(lambda: names_on(rig, scenario.n7) == {"agent", "lock"})
        rig.cluster.store.delete(Kind.PDB, SHOP, "lock")
        await rig.until(lambda: keys.STATE_TAINT in taints_of(rig, scenario.n7), limit_s=120)
        assert names_on(rig, scenario.n7) == {"agent"}
        assert rig.cluster.ready(SHOP, "lock") == 1

    play(scenario, then)


def test_hold_gives_its_place_up_keeps_the_cordon_and_tries_again():
    """O2: with `retire: hold` nothing is broken off; after the time-out the place is free and the cordon stays."""
    scenario = Guarded(retire="hold", retire_timeout_s=300.0, retire_hold_s=600.0)

    async def then(rig: Rig) -> None:
        n7 = scenario.n7
        leader = rig.leader()
        assert leader is not None
        await rig.until(lambda: '"step":"blocked"' in annotations_of(rig, Kind.NODE, "", n7).get(RETIRING, ""))
        await rig.until(lambda: not rig.unsettled())
        assert leader.engine.queue.used("fleet") == 0
        assert cordoned(rig, n7)
        assert keys.STATE_TAINT not in taints_of(rig, n7)
        rig.cluster.store.delete(Kind.PDB, SHOP, "lock")
        await rig.until(lambda: keys.STATE_TAINT in taints_of(rig, n7), limit_s=1200)

    play(scenario, then)


def test_immediate_taints_first_as_cke_does():
    """O2: `retire: immediate` is for sites where disks are wiped a minute after RETIRING."""
    scenario = RetireScenario(retire="immediate")

    async def then(rig: Rig) -> None:
        await rig.until(lambda: keys.STATE_TAINT in taints_of(rig, scenario.n7), limit_s=90)
        assert roles_by_address(rig)[scenario.n7] == "worker, retiring"
        assert not [w for w in rig.writes if w.startswith("evict")]

    play(scenario, then)


@pytest.mark.parametrize("by_hand", [False, True], ids=["our cordon", "a person's cordon"])
def test_healthy_again_midway_takes_back_what_was_ours(by_hand: bool):
    """O2: moves not begun are canceled, our cordon goes, a person's stays; no mark is left."""

    class Cordoned(Guarded):
        async def act(self, rig: Rig) -> None:
            rig.cluster.cordon(self.n7)
            await super().act(rig)

    scenario = Cordoned() if by_hand else Guarded()

    async def then(rig: Rig) -> None:
        n7 = scenario.n7
        await rig.until(lambda: CORDONED_BY in annotations_of(rig, Kind.NODE, "", n7))
        await rig.until(lambda: names_on(rig, n7) == {"agent", "lock"})
        set_state(rig, n7, RETIRED, MachineState.UNINITIALIZED, MachineState.HEALTHY)
        await rig.until(lambda: not list(marks_left(rig)) and not rig.unsettled(), limit_s=200)
        assert cordoned(rig, n7) is by_hand
        assert CORDONED_BY not in annotations_of(rig, Kind.NODE, "", n7)
        assert roles_by_address(rig)[n7] == "worker"
        assert "lock" in names_on(rig, n7), "what had not begun stays"

    play(scenario, then)


def test_healthy_again_after_the_taint_lifts_taint_and_cordon():
    """O2: taint and our cordon go; neither needs the queue."""
    scenario = RetireScenario()

    async def then(rig: Rig) -> None:
        n7 = scenario.n7
        await rig.until(lambda: scenario.done(rig))
        set_state(rig, n7, RETIRED, MachineState.UNINITIALIZED, MachineState.HEALTHY)
        await rig.until(lambda: not cordoned(rig, n7), limit_s=200)
        assert keys.STATE_TAINT not in taints_of(rig, n7)
        assert roles_by_address(rig)[n7] == "worker"
        assert CORDONED_BY not in annotations_of(rig, Kind.NODE, "", n7)

    play(scenario, then)


def test_a_machine_that_vanishes_midway_ends_the_retirement_visibly():
    """O2, worked example 3: the operator ends with its reason, an Event says so, and no wish is left on a pod."""
    scenario = Guarded()

    async def then(rig: Rig) -> None:
        n7 = scenario.n7
        await rig.until(lambda: names_on(rig, n7) == {"agent", "lock"})
        serial = serial_of(rig, n7)
        del rig.cluster.sabakan.entries[serial]
        await rig.until(lambda: not list(marks_left(rig)) and not rig.unsettled(), limit_s=200)
        leader = rig.leader()
        assert leader is not None
        ended = [e for e in leader.engine.history.of(f"machine/{serial}") if e.verb == "canceled"]
        assert [e.reason for e in ended] == ["subject-gone"]
        assert any("not in the registry" in m for m in events_on(rig, n7))
        await rig.until(lambda: n7 not in roles_by_address(rig), limit_s=200)

    play(scenario, then)


@pytest.mark.parametrize("what", ["bare pod", "emptyDir"])
def test_what_a_drain_would_ask_about_is_held(what: str):
    """O2: bare pods and emptyDir data wait `held`, take nobody's room, and a person's deletion lets it go on."""

    class Kept(RetireScenario):
        async def also(self, rig: Rig) -> None:
            if what == "bare pod":
                pod = {"metadata": {"namespace": SHOP, "name": "keep"}, **_bare(self.n7)}
                rig.cluster.store.create(Kind.POD, pod)
                await rig.until(lambda: "keep" in pods_on(rig, self.n7))
            else:
                volumes = [{"name": "scratch", "emptyDir": {}}]
                rig.cluster.deployment(
                    SHOP, "keep", 1, template=manifests.pod_template({"app": "keep"}, volumes=volumes)
                )
                await rig.until(lambda: rig.cluster.ready(SHOP, "keep") == 1)

    scenario = Kept(web=0, gentle_empty_dir="hold")

    async def then(rig: Rig) -> None:
        await rig.until(lambda: names_on(rig, scenario.n7) == {"agent", "keep"})
        await rig.sleep(300)
        kept = next(p for p in pods_on(rig, scenario.n7) if p.startswith("keep"))
        leader = rig.leader()
        assert leader is not None
        answer = explain(leader.engine, f"pod/{SHOP}/{kept}")
        assert answer is not None
        assert answer.state == "blocked"
        assert answer.reason == ("bare-pod" if what == "bare pod" else "empty-dir")
        rig.cluster.store.delete(Kind.POD, SHOP, kept)
        await rig.until(lambda: keys.STATE_TAINT in taints_of(rig, scenario.n7), limit_s=120)

    play(scenario, then)


def _bare(node: str) -> dict[str, Any]:
    made = manifests.pod_template({"app": "keep"})
    return {"spec": {**made["spec"], "nodeName": node}}


def test_at_most_four_machines_are_on_their_way_out():
    """O1: `fleet` has room for four; the others wait for one to end, and are emptied then."""
    scenario = RetireScenario(web=0)

    async def then(rig: Rig) -> None:
        leader = rig.leader()
        assert leader is not None
        workers = [a for a, what in roles_by_address(rig).items() if what == "worker"]
        assert len(workers) == 6
        for address in workers:
            set_state(rig, address, RETIRING_STATE)
        most = 0

        def all_tainted() -> bool:
            nonlocal most
            most = max(most, leader.engine.queue.used("fleet"))
            return all(keys.STATE_TAINT in taints_of(rig, a) for a in workers)

        rig.cluster.store.delete(Kind.TIDB_CLUSTER, TIDB, DEMO)
        await rig.until(all_tainted, limit_s=1800, every_s=0.25)
        assert 1 <= most <= 4

    play(scenario, then)


def test_a_retired_machine_that_is_listed_no_more_leaves_the_cluster():
    """F5: by the query's default RETIRED machines are not listed, so one that was emptied goes as non-existent."""
    scenario = RetireScenario(web=0)

    async def then(rig: Rig) -> None:
        n7 = scenario.n7
        await rig.until(lambda: scenario.done(rig))
        set_state(rig, n7, RETIRED)
        await rig.until(lambda: n7 not in roles_by_address(rig), limit_s=900)
        assert [e.action for e in stored(rig).history][-1] == "remove-non-existent"

    play(scenario, then)


def test_killed_at_every_write_of_a_retirement_it_ends_the_same():
    """Worked example 6 for example 3: kill -9 around every write; nothing twice, no mark stays."""
    scenario = RetireScenario(web=2, regions=12)
    assert list(kill_everywhere(scenario)) == []


def test_the_undisturbed_retirement_marks_before_it_disturbs():
    """O2: the cordon and its mark come first, the taint last, in the stored cluster before on the node."""
    ending = undisturbed(RetireScenario(web=1))
    acts = [w.split(" ")[0] + " " + w.split(" ")[1] for w in ending.writes]
    evicted = acts.index("evict Pod")
    assert "patch Node" in acts[:evicted]
    assert acts[evicted - 1] != "evict Pod"
    stored_at = max(i for i, w in enumerate(ending.writes) if w.startswith("patch ConfigMap"))
    tainted_at = max(i for i, w in enumerate(ending.writes) if w.startswith("patch Node"))
    assert evicted < stored_at < tainted_at


@pytest.mark.parametrize("how", ["disabled in the settings", "feature off", "feature off and a new leader"])
def test_switched_off_midway_what_was_begun_is_taken_back(how: str):
    """O2: no cordon, no wish and no mark outlives the switch."""
    scenario = Guarded()

    async def then(rig: Rig) -> None:
        n7 = scenario.n7
        await rig.until(lambda: names_on(rig, n7) == {"agent", "lock"})
        if how == "disabled in the settings":
            set_settings(rig, **{settings.ENABLED: "false"})
        elif how == "feature off":
            leader = rig.leader()
            assert leader is not None
            leader.shell.switch(frozenset({"handoff"}))
        else:
            rig.kill()
            rig.config = msgspec.structs.replace(rig.config, features={"handoff": True})
            rig.start()
        await rig.until(lambda: not list(marks_left(rig)) and not rig.unsettled(), limit_s=600)
        assert not cordoned(rig, n7)
        assert "lock" in names_on(rig, n7)

    play(scenario, then)


def test_why_names_a_machines_seat_and_why_it_was_chosen():
    """O3, F11: the score that assigned a machine is still told when somebody asks later."""
    scenario = RetireScenario(web=0)

    async def then(rig: Rig) -> None:
        leader = rig.leader()
        assert leader is not None
        capability = leader.engine.capabilities["fleet"]
        assert isinstance(capability, Explains)
        serial = serial_of(rig, scenario.n7)
        lines = list(capability.explain(f"machine/{serial}", leader.world, leader.engine.queue, 0.0))
        assert ("now", "worker in the stored cluster, revision 1") in [(x.label, x.text) for x in lines]
        assert any(x.label == "why there" and "score" in x.text for x in lines)
        spare = next(
            a for a in (e.ipv4[0] for e in rig.cluster.sabakan.entries.values()) if a not in roles_by_address(rig)
        )
        about = capability.explain(f"machine/{serial_of(rig, spare)}", leader.world, leader.engine.queue, 0.0)
        assert any("in no cluster" in x.text for x in about)

    play(scenario, then)
