"""Mix in somebody else's cluster: voluntary disruptions, tainted spot pools, a webhook that nobody reaches. On a real
API server, with the real controllers and scheduler (issue 20)."""

import json
import time

import pytest

from mooring.lab.loopback import free_ports
from tests.e2e.test_mix_rebalance import CAPACITY, ENABLED, MODE, SETTINGS, Environment, Mooring
from tests.e2e.waiting import until

pytestmark = pytest.mark.e2e
SPOT_TAINT = f"{CAPACITY}=spot:NoSchedule"


@pytest.fixture
def ground(lab, tmp_path):
    made = Environment(lab, tmp_path)
    pace = {"settle-s": 2.0, "pause-s": 2.0, "shortage-s": 5.0}
    made.config.write_text(json.dumps({**SETTINGS, "mix": {"rebalance": pace}}))
    try:
        yield made
    finally:
        made.close()


def stateful_set(ground, name, replicas, labels, start_s=0):
    made = json.loads(ground.manifest(name, replicas, labels, start_s=start_s))
    made["kind"] = "StatefulSet"
    made["spec"] |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    ground.lab.kubectl("apply", "-f", "-", input=json.dumps(made))
    until(lambda: len(ground.ready(name)) == replicas, f"{replicas} of {name} Ready", tell=ground.scene)


def test_a_voluntary_disruption_does_not_go_past_a_budget(ground):
    """M8: Karpenter's taint on an on-demand node, a PDB of 2 of 3: never fewer than 2 Ready; in the end it is empty."""
    ground.start()
    stateful_set(ground, "db", 3, {ENABLED: "true", MODE: "all-in-on-demand"}, start_s=8)
    ground.lab.kubectl("create", "pdb", "db", "--selector=app=db", "--min-available=2", "-n", ground.namespace)
    nodes = [p["spec"]["nodeName"] for p in ground.ready("db")]
    node = max(set(nodes), key=nodes.count)
    time.sleep(3.0)
    ground.lab.kubectl("taint", "node", node, "karpenter.sh/disrupted:NoSchedule")
    fewest = 3

    def emptied():
        nonlocal fewest
        ready = ground.ready("db")
        fewest = min(fewest, len(ready))
        return len(ready) == 3 and node not in {p["spec"]["nodeName"] for p in ready}

    until(emptied, f"{node} is empty", tell=ground.scene)
    assert fewest == 2


def test_on_demand_is_full_and_every_spot_node_is_tainted(ground):
    """M10: the successors of pods that found no on-demand node tolerate the taint of the spot pool, and run there."""
    ground.start()
    ground.lab.kubectl("cordon", *ground.safe)
    ground.lab.kubectl("taint", "node", *ground.spot, SPOT_TAINT)
    ground.deploy("web", 2, {ENABLED: "true", MODE: "all-in-on-demand"})
    assert {p["spec"]["nodeName"] for p in ground.ready("web")} <= set(ground.spot)
    assert all(p["metadata"]["annotations"]["vacant.io/relaxed"] == "true" for p in ground.ready("web"))


def test_nobody_is_moved_in_circles_while_the_webhook_is_not_reached(ground):
    """M10: no circles: the first successor comes back on spot without our patch, and then nobody goes."""
    ground.lab.kubectl("taint", "node", *ground.safe, "dear=yes:PreferNoSchedule")
    (listens, nobody) = free_ports(2)
    ground.port = nobody
    ground.mooring = Mooring(ground.lab, ground.own, ground.config, listens, hook_port=nobody)
    until(ground.mooring.deciding, "deciding")
    stateful_set(ground, "db", 3, {ENABLED: "true", MODE: "all-in-on-demand"})
    until(lambda: ground.pods("db") and len(ground.seen["db"]) > 3, "one is moved")
    time.sleep(25.0)
    assert len(ground.pods("db")) == 3 and len(ground.seen["db"]) == 4
    told = ground.mooring.get(f"/api/v1/mix/StatefulSet/{ground.namespace}/db")
    assert told["reason"] == "back-off" and "without our webhook" in told["wrong"]
