"""A node that does not become empty by itself: pods that come back past the cordon, pods that do not end, workloads that
are short of replicas for another reason. O2, one-queue.md: no circles, and nothing waits for what may take days."""

from typing import Any

import pytest

from mooring.capabilities.fleet.planner import keys
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.controllers import manifests
from mooring_lab.cluster.kubelet import FAIL
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.fleet import cordoned, pods_on, serial_of, taints_of
from tests.capabilities.fleet.test_retire import events_on, names_on, play
from tests.capabilities.fleet.test_retire_scenarios import ask
from tests.sim.scenarios.fleet import SHOP, RetireScenario

PAST_THE_CORDON = {
    "tolerates everything": {"tolerations": [{"operator": "Exists"}]},
    "tolerates the cordon": {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
    "names the node": {},
}


class Stubborn(RetireScenario):
    """Two replicas on n7 that a cordon does not keep off it: their successors come back."""

    def __init__(self, how: str) -> None:
        super().__init__(web=0)
        self.how = how

    async def also(self, rig: Rig) -> None:
        where: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": self.n7}}
        if self.how == "names the node":
            where = {"nodeName": self.n7}
        template = manifests.pod_template({"app": "stub"}, **where, **PAST_THE_CORDON[self.how])
        rig.cluster.deployment(SHOP, "stub", 2, template=template)
        await rig.until(lambda: rig.cluster.ready(SHOP, "stub") == 2)


def evicted(rig: Rig, app: str) -> int:
    return sum(w.startswith(("evict Pod", "delete Pod")) and f"{SHOP}/{app}-" in w for w in rig.writes)


@pytest.mark.parametrize("how", PAST_THE_CORDON)
def test_what_comes_back_past_the_cordon_is_not_evicted_in_circles(how: str):
    """No circles: each replica goes once a try, and a try is ever later. `why` names the pod and what would help."""
    scenario = Stubborn(how)

    async def then(rig: Rig) -> None:
        machine = f"machine/{serial_of(rig, scenario.n7)}"
        await rig.until(lambda: names_on(rig, scenario.n7) == {"agent", "stub"})
        await rig.until(lambda: evicted(rig, "stub") >= 2)
        await rig.sleep(120)
        first = evicted(rig, "stub")
        assert first <= 6, "while pods may still come that were placed before the cordon"
        await rig.sleep(300)
        assert evicted(rig, "stub") == first
        answer = ask(rig, machine)
        assert (answer.state, answer.reason) == ("blocked", "conflict")
        assert "past its cordon" in answer.answer
        assert "node.kubernetes.io/unschedulable" in str(answer)
        await rig.until(lambda: keys.STATE_TAINT in taints_of(rig, scenario.n7), limit_s=7200)
        assert evicted(rig, "stub") <= 4 * first
        (told,) = [m for m in events_on(rig, scenario.n7) if "NoExecute" in m]
        stays = how == "tolerates everything"
        assert ("does not drive out" if stays else "cuts off") in told
        assert f"{SHOP}/stub-" in told

    play(scenario, then)


class Pair(RetireScenario):
    """Two replicas on n7."""

    async def also(self, rig: Rig) -> None:
        rig.cluster.deployment(SHOP, "pair", 2)
        await rig.until(lambda: rig.cluster.ready(SHOP, "pair") == 2)


def test_a_replica_that_crashes_elsewhere_does_not_keep_the_machine_for_ever():
    """Worked example 3: until the time-out nothing of its workload goes, since one is missing already; then what is left
    is evicted one by one as far as budgets allow, and the taint finds the node empty."""
    scenario = Pair(web=0)

    async def then(rig: Rig) -> None:
        n7 = scenario.n7
        rig.cluster.scale(Kind.DEPLOYMENT, SHOP, "pair", 3)
        await rig.until(lambda: rig.cluster.ready(SHOP, "pair") == 3)
        (third,) = [name for name, node in rig.cluster.nodes_of(SHOP, "pair").items() if node != n7]
        rig.cluster.annotate(Kind.POD, SHOP, third, {FAIL: "crash"})
        await rig.until(lambda: cordoned(rig, n7) and names_on(rig, n7) == {"agent", "pair"})
        await rig.sleep(3400)
        assert evicted(rig, "pair") == 0
        least = 2

        def tainted() -> bool:
            nonlocal least
            least = min(least, rig.cluster.ready(SHOP, "pair"))
            return keys.STATE_TAINT in taints_of(rig, n7)

        await rig.until(tainted, limit_s=1800)
        assert names_on(rig, n7) == {"agent"}
        assert evicted(rig, "pair") == 2
        assert least == 1, "one at a time"

    play(scenario, then)


def test_a_pod_that_does_not_end_holds_up_neither_its_siblings_nor_the_taint_for_ever():
    """Nothing waits for what may take days: a finalizer that nobody takes away, or a dead kubelet. The sibling goes, `why`
    names the pod that does not end, and the taint, which cannot harm it, is set when the time is over."""
    scenario = Pair(web=0)

    async def then(rig: Rig) -> None:
        n7, store = scenario.n7, rig.cluster.store
        kept = min(p for p in pods_on(rig, n7) if p.startswith("pair"))
        store.patch(Kind.POD, SHOP, kept, {"metadata": {"finalizers": ["example.org/keep"]}})
        await rig.until(lambda: evicted(rig, "pair") == 2, limit_s=300)
        await rig.until(lambda: names_on(rig, n7) == {"agent"})
        assert store.find(Kind.POD, SHOP, kept) is not None
        await rig.sleep(180)
        answer = ask(rig, f"machine/{serial_of(rig, n7)}")
        assert (answer.state, answer.reason) == ("blocked", "leaving")
        assert f"{kept} was deleted and should have ended" in answer.answer
        assert "finalizers" in str(answer)
        assert keys.STATE_TAINT not in taints_of(rig, n7)
        await rig.until(lambda: keys.STATE_TAINT in taints_of(rig, n7), limit_s=7200)
        (told,) = [m for m in events_on(rig, n7) if "NoExecute" in m]
        assert f"{SHOP}/{kept}, which it does not drive out" in told

    play(scenario, then)
