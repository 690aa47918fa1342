"""Mix in somebody else's cluster: voluntary disruptions, tainted spot pools, a webhook that nobody reaches. On a real
API server, with the real controllers and scheduler (issue 20)."""

import asyncio
import json

import pytest

from mooring.core.model.kinds import Kind
from tests.e2e.observer import Observer
from tests.e2e.spine_environment import Environment as TidbEnvironment
from tests.e2e.spine_environment import pod_ready
from tests.e2e.test_mix_rebalance import CAPACITY, ENABLED, MODE, SETTINGS, Environment
from tests.e2e.waiting import eventually, until

pytestmark = pytest.mark.e2e
SPOT_TAINT = f"{CAPACITY}=spot:NoSchedule"


class Circles(TidbEnvironment):
    """TiKV and a plain StatefulSet on spot nodes, with on-demand nodes that are free and dear."""

    features = "mix=true,handoff=true"

    async def __aenter__(self):
        await super().__aenter__()
        self.settings = {"mix": {"rebalance": {"settle-s": 2.0, "pause-s": 2.0}}}
        await asyncio.to_thread(self.lab.kubectl, "label", "nodes", *self.nodes, f"{CAPACITY}=spot")
        ours = {"for": self.namespace, CAPACITY: "on-demand"}
        dear = await asyncio.to_thread(self.lab.add_nodes, 4, prefix=f"{self.namespace}-n", labels=ours)
        await asyncio.to_thread(self.lab.kubectl, "taint", "nodes", *dear, "dear=yes:PreferNoSchedule")
        plain = self._stateful_set("db", 3)
        plain["metadata"] = {"namespace": self.namespace, "name": "db"}
        await self.api.create(Kind.STATEFUL_SET, plain)
        await eventually(lambda: self._all("db"), "three of db are Ready")
        return self

    async def _of(self, name):
        pods = await self.pods()
        return [pods[one] for one in (f"{name}-{i}" for i in range(3)) if one in pods]

    async def _all(self, name):
        return sum(pod_ready(pod) for pod in await self._of(name)) == 3

    async def uids(self, name):
        return {pod["metadata"]["uid"] for pod in await self._of(name)}


@pytest.fixture
def environment(lab, tmp_path):
    made = Environment(lab, tmp_path)
    pace = {"settle-s": 2.0, "pause-s": 2.0, "shortage-s": 5.0}
    made.config.write_text(json.dumps({**SETTINGS, "mix": {"rebalance": pace}}))
    try:
        with Observer(lab):
            yield made
    finally:
        made.close()


#: One of each that names a disruption without a moment: Karpenter's, the cluster-autoscaler's, and a maintenance that NTH
#: was told of hours before.
VOLUNTARY = (
    "karpenter.sh/disrupted:NoSchedule",
    "ToBeDeletedByClusterAutoscaler=1:NoSchedule",
    "aws-node-termination-handler/scheduled-maintenance=x:NoSchedule",
)


def test_a_voluntary_disruption_does_not_go_past_a_budget(environment):
    """M8: three on-demand nodes are to go at once, each by another sign, and then a Node object is being deleted: never
    fewer than the 2 of 3 Ready that the budget asks for, and in the end each node is empty. Were any of these taken for
    a notice of two minutes, its last call would come after 19 s (`margin-s`), before two pods could have moved."""
    lab = environment.lab
    environment.safe += lab.add_nodes(
        5, prefix=f"{environment.namespace}-m", labels={"for": environment.namespace, CAPACITY: "on-demand"}
    )
    settings = json.loads(environment.config.read_text())
    settings["mix"]["interruption"] = {"margin-s": 100}
    environment.config.write_text(json.dumps(settings))
    environment.start()
    made = json.loads(environment.manifest("db", 3, {ENABLED: "true", MODE: "all-in-on-demand"}, start_s=12))
    made["kind"] = "StatefulSet"
    made["spec"] |= {"serviceName": "db", "podManagementPolicy": "Parallel"}
    apart = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    template = made["spec"]["template"]["spec"]
    template["affinity"]["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    lab.kubectl("apply", "-f", "-", input=json.dumps(made))
    lab.kubectl("create", "pdb", "db", "--selector=app=db", "--min-available=2", "-n", environment.namespace)
    until(lambda: len(environment.ready("db")) == 3, "3 Ready", tell=environment.scenario)
    fewest = 3

    def emptied(nodes):
        nonlocal fewest
        ready = environment.ready("db")
        fewest = min(fewest, len(ready))
        return len(ready) == 3 and not set(nodes) & {p["spec"]["nodeName"] for p in ready}

    nodes = [p["spec"]["nodeName"] for p in environment.ready("db")]
    for node, taint in zip(nodes, VOLUNTARY, strict=True):
        lab.kubectl("taint", "node", node, taint)
    until(lambda: emptied(nodes), f"{nodes} are empty", tell=environment.scenario)
    leaving = environment.ready("db")[0]["spec"]["nodeName"]
    held = json.dumps({"metadata": {"finalizers": ["example.org/held"]}})
    lab.kubectl("patch", "node", leaving, "--type=merge", "-p", held)
    try:
        lab.kubectl("delete", "node", leaving, "--wait=false")
        until(lambda: emptied([leaving]), f"{leaving} is empty", tell=environment.scenario)
    finally:
        lab.kubectl("patch", "node", leaving, "--type=merge", "-p", json.dumps({"metadata": {"finalizers": None}}))
    assert fewest == 2


def test_on_demand_is_full_and_every_spot_node_is_tainted(environment):
    """M10: the successors of pods that found no on-demand node tolerate the taint of the spot pool, and run there."""
    environment.start()
    environment.lab.kubectl("cordon", *environment.safe)
    environment.lab.kubectl("taint", "node", *environment.spot, SPOT_TAINT)
    environment.deploy("web", 2, {ENABLED: "true", MODE: "all-in-on-demand"})
    assert {p["spec"]["nodeName"] for p in environment.ready("web")} <= set(environment.spot)
    assert all(p["metadata"]["annotations"]["vacant.io/relaxed"] == "true" for p in environment.ready("web"))


async def test_nobody_is_moved_in_circles_while_the_webhook_is_not_reached(lab, tmp_path):
    """M10: no circles: nobody serves our webhook. The first successor of each comes back on spot without our patch, and
    then nobody goes, neither of a plain StatefulSet (eight in two hours) nor, by way of handoff, of TiKV (224)."""
    async with Circles(lab, tmp_path, real_pd=lab.pd_server is not None) as tidb:
        await tidb.start()
        await eventually(tidb.leads, tell=tidb.logs)
        sets = {"demo-tikv": await tidb.uids("demo-tikv"), "db": await tidb.uids("db")}
        labels = (f"{ENABLED}=true", f"{MODE}=all-in-on-demand")
        await asyncio.to_thread(lab.kubectl, "label", "statefulsets", *sets, "-n", tidb.namespace, *labels)
        seen = {name: set(uids) for name, uids in sets.items()}

        async def left_alone(name):
            seen[name] |= await tidb.uids(name)
            leader = await eventually(tidb.leader, tell=tidb.logs)
            told = await leader.ask(f"/api/v1/mix/StatefulSet/{tidb.namespace}/{name}")
            return told["reason"] == "back-off" and "without the webhook" in told["wrong"]

        for name in sets:
            await eventually(lambda name=name: left_alone(name), f"{name} is left alone", tell=tidb.logs)
        # With pauses of 2 s, and 40 s for those that nobody patches: whoever goes in circles has gone again by then.
        for _ in range(40):
            await asyncio.sleep(0.5)
            for name in sets:
                seen[name] |= await tidb.uids(name)
        assert {name: len(uids) for name, uids in seen.items()} == {"demo-tikv": 4, "db": 4}
        assert tidb.placement.interrupted() == 0
