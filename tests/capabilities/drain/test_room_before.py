"""Room is checked before a well machine is emptied (F14), whoever empties it: fleet for a retirement, a person by
`mooring.dev/drain`."""

import pytest

from mooring.capabilities.drain.nodes import DRAIN
from mooring.capabilities.fleet.planner import keys
from mooring.core.engine.why import explain
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.controllers import manifests
from mooring_lab.cluster.kubelet import FAIL
from mooring_lab.stage.scenarios.fleet import cordoned, serial_of, taints_of
from tests.capabilities.drain.test_gate_scenarios import SHOP, Least, gated, play, pods_of, serving
from tests.capabilities.drain.test_nodes import reported
from tests.capabilities.fleet.test_retire import names_on
from tests.capabilities.fleet.test_retire import play as play_retirement
from tests.sim.scenarios.fleet import RetireScenario


def large(name, cpu="2", **spec):
    return manifests.pod_template({"app": name}, cpu=cpu, **spec)


async def full(rig, nodes, replicas=1):
    """`nodes` nodes of 4 CPU: `db` with 2 CPU a replica on n0, and so much of `fill` on the others that 1 CPU is left."""
    await gated(rig, nodes=0)
    rig.cluster.add_nodes(nodes, "n", cpu="4")
    for other in range(1, nodes):
        rig.cluster.cordon(f"n{other}")
    rig.cluster.stateful_set(SHOP, "db", replicas, template=large("db"), podManagementPolicy="Parallel")
    await rig.until(lambda: rig.cluster.ready(SHOP, "db") == replicas)
    for other in range(1, nodes):
        rig.cluster.cordon(f"n{other}", on=False)
    rig.cluster.deployment(SHOP, "fill", nodes - 1, template=large("fill", "3"))
    await rig.until(lambda: rig.cluster.ready(SHOP, "fill") == nodes - 1)


def test_the_only_replica_of_a_statefulset_is_not_evicted_into_a_full_cluster():
    """F14, D4: it was down for 87 minutes. Now it serves on, and what is missing is said; a node with room lets it go."""

    async def scenario(rig):
        await full(rig, 3)
        rig.cluster.annotate(Kind.NODE, "", "n0", {DRAIN: ""})
        await rig.until(lambda: reported(rig).get("n0", {}).get("state") == "blocked")
        least = Least(rig, lambda: serving(rig, "db"))
        over = rig.clock.now() + 1100
        await least.watch(lambda: rig.clock.now() >= over)
        assert least.seen == 1
        (blocked,) = reported(rig)["n0"]["blocked"]
        assert (blocked["pod"], blocked["reason"]) == (f"{SHOP}/db-0", "no-room")
        for figure in ("2000m CPU", "3 nodes: 1 cordoned, 2 full", "1000m CPU"):
            assert figure in blocked["detail"]
        answer = explain(rig.leader().engine, f"pod/{SHOP}/db-0")
        assert (answer.state, answer.reason) == ("blocked", "no-room")
        assert "2000m CPU" in answer.answer
        assert f"kubectl -n {SHOP} delete pod db-0" in str(answer)
        rig.cluster.add_node("n9", cpu="4")
        await rig.until(lambda: reported(rig)["n0"]["state"] == "drained" and serving(rig, "db") == 1, limit_s=120)
        assert [p["spec"]["nodeName"] for p in pods_of(rig, "db")] == ["n9"]

    play(scenario)


def test_room_for_one_is_given_to_one():
    """F14: two replicas, one place elsewhere: one goes there, and the other is not evicted after it."""

    async def scenario(rig):
        await full(rig, 2, replicas=2)
        rig.cluster.add_node("n9", cpu="2")
        rig.cluster.annotate(Kind.NODE, "", "n0", {DRAIN: ""})
        least = Least(rig, lambda: serving(rig, "db"))
        await least.watch(lambda: reported(rig).get("n0", {}).get("state") == "blocked")
        await rig.sleep(600)
        assert sorted(p["spec"].get("nodeName", "") for p in pods_of(rig, "db")) == ["n0", "n9"]
        assert (least.seen, serving(rig, "db")) == (1, 2)

    play(scenario)


@pytest.mark.parametrize("why", ["an autoscaler makes nodes", "its machine is not well", "it does not serve"])
def test_a_pod_is_not_kept_where_staying_helps_nobody(why):
    """F14 keeps what serves on a well machine, and nothing else: a Pending pod is what an autoscaler waits for."""

    async def scenario(rig):
        await full(rig, 3)
        if why == "an autoscaler makes nodes":
            labels = {"karpenter.sh/nodepool": "main"}
            rig.cluster.store.patch(Kind.NODE, "", "n1", {"metadata": {"labels": labels}})
        elif why == "its machine is not well":
            rig.cluster.annotate(Kind.NODE, "", "n0", {"vacant.io/interrupt-at": "2030-01-01T00:00:00Z"})
        else:
            rig.cluster.annotate(Kind.POD, SHOP, "db-0", {FAIL: "crash"})
            await rig.until(lambda: not serving(rig, "db"))
        uid = pods_of(rig, "db")[0]["metadata"]["uid"]
        rig.cluster.annotate(Kind.NODE, "", "n0", {DRAIN: ""})
        await rig.until(lambda: uid not in {p["metadata"]["uid"] for p in pods_of(rig, "db")}, limit_s=120)

    play(scenario)


class Full(RetireScenario):
    """`db` on n7, and no room for it anywhere else."""

    async def also(self, rig):
        rig.cluster.stateful_set(SHOP, "db", 1, template=large("db", "6"))
        await rig.until(lambda: rig.cluster.ready(SHOP, "db") == 1)
        others = len(rig.cluster.store.list(Kind.NODE)) - 1
        for number in range(others):
            rig.cluster.deployment(SHOP, f"fill{number}", 1, template=large(f"fill{number}", "5"))


def test_a_machine_that_retires_while_the_cluster_is_full_serves_on():
    """F14: blocked with what is missing; the rest of it leaves; no NoExecute when the time is over; room lets it go."""
    scenario = Full(web=2)

    async def then(rig):
        n7 = scenario.n7
        await rig.until(lambda: names_on(rig, n7) == {"agent", "db"}, limit_s=600)
        down = 0.0
        for _ in range(3 * 60):
            await rig.sleep(60)
            down += 60 * (rig.cluster.ready(SHOP, "db") < 1)
        assert down == 0.0
        assert cordoned(rig, n7)
        assert keys.STATE_TAINT not in taints_of(rig, n7)
        answer = explain(rig.leader().engine, f"machine/{serial_of(rig, n7)}")
        assert (answer.state, answer.reason) == ("blocked", "no-room")
        assert "6000m CPU" in answer.answer
        for number in range(8):
            rig.cluster.scale(Kind.DEPLOYMENT, SHOP, f"fill{number}", 0)
        await rig.until(lambda: keys.STATE_TAINT in taints_of(rig, n7), limit_s=7200)
        assert names_on(rig, n7) == {"agent"}

    play_retirement(scenario, then)
