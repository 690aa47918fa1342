"""Mix in somebody else's cluster: voluntary disruptions, tainted spot pools, a webhook that nobody reaches. On a real
API server, with the real controllers and scheduler (issue 20)."""

import json
import time

import pytest

from mooring.lab.loopback import free_ports
from tests.e2e.observer import Observer
from tests.e2e.test_mix_rebalance import CAPACITY, ENABLED, MODE, SETTINGS, Environment, Mooring
from tests.e2e.waiting import until

pytestmark = pytest.mark.e2e
SPOT_TAINT = f"{CAPACITY}=spot:NoSchedule"


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


def stateful_set(environment, name, replicas, labels, start_s=0):
    made = json.loads(environment.manifest(name, replicas, labels, start_s=start_s))
    made["kind"] = "StatefulSet"
    made["spec"] |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    environment.lab.kubectl("apply", "-f", "-", input=json.dumps(made))
    until(lambda: len(environment.ready(name)) == replicas, f"{replicas} of {name} Ready", tell=environment.scenario)


def test_a_voluntary_disruption_does_not_go_past_a_budget(environment):
    """M8: Karpenter's taint on an on-demand node, a PDB of 2 of 3: never fewer than 2 Ready; in the end it is empty."""
    environment.start()
    stateful_set(environment, "db", 3, {ENABLED: "true", MODE: "all-in-on-demand"}, start_s=8)
    environment.lab.kubectl(
        "create", "pdb", "db", "--selector=app=db", "--min-available=2", "-n", environment.namespace
    )
    nodes = [p["spec"]["nodeName"] for p in environment.ready("db")]
    node = max(set(nodes), key=nodes.count)
    time.sleep(3.0)
    environment.lab.kubectl("taint", "node", node, "karpenter.sh/disrupted:NoSchedule")
    fewest = 3

    def emptied():
        nonlocal fewest
        ready = environment.ready("db")
        fewest = min(fewest, len(ready))
        return len(ready) == 3 and node not in {p["spec"]["nodeName"] for p in ready}

    until(emptied, f"{node} is empty", tell=environment.scenario)
    assert fewest == 2


def test_on_demand_is_full_and_every_spot_node_is_tainted(environment):
    """M10: the successors of pods that found no on-demand node tolerate the taint of the spot pool, and run there."""
    environment.start()
    environment.lab.kubectl("cordon", *environment.safe)
    environment.lab.kubectl("taint", "node", *environment.spot, SPOT_TAINT)
    environment.deploy("web", 2, {ENABLED: "true", MODE: "all-in-on-demand"})
    assert {p["spec"]["nodeName"] for p in environment.ready("web")} <= set(environment.spot)
    assert all(p["metadata"]["annotations"]["vacant.io/relaxed"] == "true" for p in environment.ready("web"))


def test_nobody_is_moved_in_circles_while_the_webhook_is_not_reached(environment):
    """M10: no circles: the first successor comes back on spot without our patch, and then nobody goes."""
    environment.lab.kubectl("taint", "node", *environment.safe, "dear=yes:PreferNoSchedule")
    (listens, nobody) = free_ports(2)
    environment.port = nobody
    environment.mooring = Mooring(environment.lab, environment.own, environment.config, listens, hook_port=nobody)
    until(environment.mooring.deciding, "deciding")
    stateful_set(environment, "db", 3, {ENABLED: "true", MODE: "all-in-on-demand"})
    until(lambda: environment.pods("db") and len(environment.seen["db"]) > 3, "one is moved")
    time.sleep(25.0)
    assert len(environment.pods("db")) == 3 and len(environment.seen["db"]) == 4
    told = environment.mooring.get(f"/api/v1/mix/StatefulSet/{environment.namespace}/db")
    assert told["reason"] == "back-off" and "without our webhook" in told["wrong"]
