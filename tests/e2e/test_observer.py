"""The observer of the long scenarios can fail: on a real API server it sees each promise broken, and a kept one as kept."""

import json

import pytest
import yaml

from mooring.capabilities.fleet.planner import keys
from mooring.core.model.marks import LEAVING
from tests.e2e.observer import Observer
from tests.e2e.test_lab import workload
from tests.e2e.waiting import stands, until

pytestmark = pytest.mark.e2e
TIKV = {"app.kubernetes.io/component": "tikv", "app.kubernetes.io/instance": "demo"}


@pytest.fixture
def shop(lab):
    name = lab.namespace("shop")
    nodes = lab.add_nodes(2, prefix=f"{name}-", labels={"test": "lab", "for": name})
    yield name, nodes
    lab.clear(name, nodes=f"for={name}")


def come_up(lab, namespace, kind, name, replicas, labels=None):
    made = yaml.safe_load(workload(kind, name, replicas))
    made["spec"]["template"]["metadata"]["labels"] |= labels or {}
    made["spec"]["template"]["spec"]["nodeSelector"] = {"for": namespace}
    lab.kubectl("apply", "-n", namespace, "-f", "-", input=json.dumps(made))
    stands(lab, "rollout", "status", f"{kind}/{name}", "-n", namespace)
    return lab.kubectl("get", "pods", "-n", namespace, "-l", f"app={name}", "-o", "name").split()


def send_away(lab, namespace, pods):
    """As Mooring does: marked first, then deleted."""
    lab.kubectl("annotate", "-n", namespace, *pods, f"{LEAVING}={{}}")
    lab.kubectl("delete", "-n", namespace, *pods)


def test_every_promise_can_be_seen_broken(lab, shop):
    """E6, E7, M5, O2 by a person who acts in our name; one pod of a healthy workload goes without a word."""
    namespace, nodes = shop
    tikv = come_up(lab, namespace, "StatefulSet", "demo-tikv", 3, TIKV)
    web = come_up(lab, namespace, "Deployment", "web", 4)
    observer = Observer(lab, leaders=lambda pod: 7 if pod == "demo-tikv-2" else 0)
    with observer:
        send_away(lab, namespace, web[:1])
        until(lambda: observer.seen["pod-went-by-us"] == 1, "the observer sees the pod go")
        stands(lab, "rollout", "status", "deployment/web", "-n", namespace)
    # What goes now finds no node: it cannot be back before the next one goes.
    lab.kubectl("cordon", *nodes)
    occupied = lab.kubectl("get", "-n", namespace, tikv[0], "-o", "jsonpath={.spec.nodeName}")
    observer = Observer(lab, leaders=lambda pod: 7 if pod == "demo-tikv-2" else 0)
    with pytest.raises(AssertionError) as found, observer:
        send_away(lab, namespace, web[1:])
        send_away(lab, namespace, tikv[1:])
        lab.kubectl("taint", "node", occupied, f"{keys.STATE_TAINT}=retiring:NoExecute")
        until(
            lambda: observer.seen["pod-went-by-us"] == 5 and observer.seen["no-execute-set"] == 1, "all of it is seen"
        )
    words = str(found.value)
    assert "E6 no leader on a TiKV pod that goes: demo-tikv-2 goes by mooring: 7 leaders" in words
    assert "E7 never two members away: demo-tikv-2 goes by mooring: demo-tikv-1 is away by our own act" in words
    assert "M5 one by one, only while healthy" in words
    assert f"O2 NoExecute only on an empty node: {occupied} still has" in words
