"""Issue 20, items 9 to 14: a machine retires in somebody else's cluster."""

from typing import Any

import msgspec
import pytest

from mooring.capabilities.fleet.planner import keys
from mooring.core.engine.why.answer import explain
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.core.model.marks import LEAVING, RETIRING
from mooring_lab.cluster.controllers import manifests
from mooring_lab.cluster.controllers.podstate import ready as is_ready
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.fleet import cordoned, marks_left, pods_on, serial_of, set_state, taints_of
from tests.capabilities.fleet.test_retire import Guarded, names_on, play
from tests.sim.kill import kill_everywhere
from tests.sim.scenarios.fleet import DEMO, SHOP, TIDB, RetireScenario, annotations_of


class WithoutHandoff(RetireScenario):
    def rig(self) -> Rig:
        rig = super().rig()
        rig.config = msgspec.structs.replace(rig.config, features={"fleet": True})
        return rig


def ask(rig: Rig, subject: str):
    answer = explain(rig.leader().engine, subject)
    assert answer is not None
    return answer


def test_with_handoff_off_a_tikv_pod_blocks_the_retirement_and_is_never_cut_off():
    """Issue 20.9, "Features know each other": no wish that nobody reads, `blocked` with what to type, no NoExecute."""
    scenario = WithoutHandoff()

    async def then(rig: Rig) -> None:
        n7, serial = scenario.n7, serial_of(rig, scenario.n7)
        await rig.until(lambda: names_on(rig, n7) == {"agent", "demo"})
        await rig.sleep(60)
        answer = ask(rig, f"machine/{serial}")
        assert (answer.state, answer.reason) == ("blocked", "feature-off")
        assert "handoff" in answer.answer
        tikv = next(p for p in pods_on(rig, n7) if "tikv" in p)
        assert LEAVING not in annotations_of(rig, Kind.POD, TIDB, tikv)
        await rig.sleep(3 * 3600)
        assert keys.STATE_TAINT not in taints_of(rig, n7), "hours later, too"
        assert not rig.cluster.pd[TIDB, DEMO].interruptions
        assert tikv in pods_on(rig, n7)
        answer = ask(rig, f"machine/{serial}")
        assert (answer.state, answer.reason) == ("blocked", "feature-off"), "also while its place is given back"

    play(scenario, then)


def test_uncordoned_by_hand_midway_counts_as_taken_back():
    """Issue 20.10: nothing more is evicted, nothing fights the person, `why` says so; a cordon lets it go on."""
    scenario = Guarded()

    async def then(rig: Rig) -> None:
        n7, serial = scenario.n7, serial_of(rig, scenario.n7)
        await rig.until(lambda: names_on(rig, n7) == {"agent", "lock"})
        rig.cluster.cordon(n7, on=False)
        await rig.sleep(120)
        assert not cordoned(rig, n7)
        rig.cluster.store.delete(Kind.PDB, SHOP, "lock")
        await rig.sleep(7200)
        assert not cordoned(rig, n7)
        assert "lock" in names_on(rig, n7), "it could go, and stays"
        assert keys.STATE_TAINT not in taints_of(rig, n7)
        for subject in (f"machine/{serial}", f"node/{n7}"):
            answer = ask(rig, subject)
            assert (answer.state, answer.reason) == ("blocked", "cordoned"), subject
            assert f"kubectl cordon {n7}" in str(answer), subject
        rig.cluster.cordon(n7)
        await rig.until(lambda: keys.STATE_TAINT in taints_of(rig, n7), limit_s=300)

    play(scenario, then)


def test_pods_with_empty_dir_data_go_one_by_one_before_the_taint():
    """Issue 20.11: by default, as budgets and workloads allow; the taint finds the node empty."""

    class Scratch(RetireScenario):
        async def also(self, rig: Rig) -> None:
            volumes = [{"name": "scratch", "emptyDir": {}}]
            template = manifests.pod_template({"app": "keep"}, volumes=volumes)
            rig.cluster.deployment(SHOP, "keep", 3, template=template)
            await rig.until(lambda: rig.cluster.ready(SHOP, "keep") == 3)

    scenario = Scratch(web=0)

    async def then(rig: Rig) -> None:
        least = 3

        def tainted() -> bool:
            nonlocal least
            least = min(least, rig.cluster.ready(SHOP, "keep"))
            return keys.STATE_TAINT in taints_of(rig, scenario.n7)

        await rig.until(tainted, limit_s=600, every_s=0.25)
        assert names_on(rig, scenario.n7) == {"agent"}
        assert least == 2, "one at a time"

    play(scenario, then)


@pytest.mark.parametrize("subject", ["machine", "node"])
def test_why_of_a_drained_and_tainted_machine_says_what_it_waits_for(subject: str):
    """Issue 20.14: not "no pending changes" while it is to leave the cluster."""
    scenario = RetireScenario(web=0)

    async def then(rig: Rig) -> None:
        await rig.until(lambda: scenario.done(rig))
        await rig.sleep(90)
        answer = ask(rig, f"machine/{serial_of(rig, scenario.n7)}" if subject == "machine" else f"node/{scenario.n7}")
        assert answer.state == "waiting"
        assert answer.reason == "retiring"
        assert "RETIRED" in answer.answer

    play(scenario, then)


def test_a_pod_that_comes_after_the_node_was_empty_is_not_cut_off():
    """O2, worked example 3: between "empty" and the taint a pod is put on the node past the scheduler: it is asked
    about, not cut off."""
    scenario = RetireScenario(web=0)

    async def then(rig: Rig) -> None:
        n7 = scenario.n7
        spec = {**manifests.pod_template({"app": "late"})["spec"], "nodeName": n7}
        late = {"metadata": {"namespace": SHOP, "name": "late"}, "spec": spec}

        def come(kind: Kind, event: str, old: Any, new: Any) -> None:
            marked = '"step":"emptied"' in ((new or {}).get("metadata", {}).get("annotations") or {}).get(RETIRING, "")
            if marked and rig.cluster.store.find(Kind.POD, SHOP, "late") is None:
                rig.cluster.timeline.after(0.0, lambda: rig.cluster.store.create(Kind.POD, late))

        rig.cluster.store.listen(come)
        await rig.until(lambda: rig.cluster.store.find(Kind.POD, SHOP, "late") is not None)
        await rig.sleep(300)
        assert "late" in pods_on(rig, n7)
        assert keys.STATE_TAINT not in taints_of(rig, n7)
        spec["nodeName"] = "elsewhere"
        rig.cluster.store.delete(Kind.POD, SHOP, "late")
        await rig.until(lambda: keys.STATE_TAINT in taints_of(rig, n7), limit_s=120)

    play(scenario, then)


class Solo(RetireScenario):
    """A Deployment of one on n7, under a budget that wants it."""

    async def also(self, rig: Rig) -> None:
        rig.cluster.deployment(SHOP, "solo", 1)
        rig.cluster.pdb(SHOP, "solo", {"app": "solo"}, min_available=1)
        await rig.until(lambda: rig.cluster.ready(SHOP, "solo") == 1)


def serving(rig: Rig, app: str) -> int:
    """Ready pods that a Service selects, whoever owns them."""
    pods = rig.cluster.store.list(Kind.POD)
    return sum(p["metadata"].get("labels", {}).get("app") == app and is_ready(p) for p in pods)


def test_a_deployment_of_one_gets_its_replacement_first():
    """Issue 20.12: it serves throughout, and its budget does not keep the machine."""
    scenario = Solo(web=0)

    async def then(rig: Rig) -> None:
        least = 1

        def tainted() -> bool:
            nonlocal least
            least = min(least, serving(rig, "solo"))
            return keys.STATE_TAINT in taints_of(rig, scenario.n7)

        await rig.until(tainted, limit_s=600, every_s=0.1)
        assert least == 1, "never down"
        assert names_on(rig, scenario.n7) == {"agent"}
        await rig.until(lambda: rig.cluster.ready(SHOP, "solo") == 1 and serving(rig, "solo") == 1)

    play(scenario, then)


def test_healthy_again_gives_the_detached_pod_back():
    """Issue 20.12, O2: its ReplicaSet owns it again, no mark is left, and one of it serves."""
    scenario = Solo(web=0)

    async def then(rig: Rig) -> None:
        n7 = scenario.n7
        others = [n["metadata"]["name"] for n in rig.cluster.store.list(Kind.NODE) if n["metadata"]["name"] != n7]
        for node in others:
            rig.cluster.cordon(node)  # nowhere to go: the replacement stays Pending
        await rig.until(lambda: sorted(owners(rig, "solo")) == ["", "ReplicaSet"], limit_s=200)
        set_state(rig, n7, MachineState.RETIRED, MachineState.UNINITIALIZED, MachineState.HEALTHY)
        await rig.until(lambda: owners(rig, "solo") == ["ReplicaSet"], limit_s=200)
        for node in others:
            rig.cluster.cordon(node, on=False)
        await rig.until(lambda: not list(marks_left(rig)) and not rig.unsettled(), limit_s=300)
        assert serving(rig, "solo") == 1

    play(scenario, then)


def owners(rig: Rig, app: str) -> list[str]:
    pods = [
        p["metadata"] for p in rig.cluster.store.list(Kind.POD) if p["metadata"].get("labels", {}).get("app") == app
    ]
    return [next((o["kind"] for o in p.get("ownerReferences") or ()), "") for p in pods]


def test_killed_around_every_write_of_a_replacement_first_it_ends_the_same():
    """Worked example 6: kill -9 around every write; nothing twice, no mark stays, the Deployment has its one."""
    assert list(kill_everywhere(Solo(web=0, regions=6))) == []
