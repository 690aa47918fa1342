import json

import pytest

from mooring.clients.wire.kube import decode, decode_list, project
from mooring.core.model.cluster import NO_LABELS, Node, Pod, Toleration, Workload
from mooring.core.model.kinds import Kind

KINDS = {
    "pod_statefulset": Kind.POD,
    "pod_replicaset": Kind.POD,
    "pod_bare": Kind.POD,
    "pod_admitted": Kind.POD,
    "node": Kind.NODE,
    "deployment": Kind.DEPLOYMENT,
    "statefulset": Kind.STATEFUL_SET,
}


@pytest.mark.parametrize("name", KINDS)
def test_bytes_and_plain_values_say_the_same(recorded, name):
    """The real client (bytes) and the sandbox (plain dicts) see the same rows, one by one and in a list."""
    obj = recorded(name)
    kind, raw = KINDS[name], json.dumps(obj).encode()
    assert decode(kind, raw) == project(kind, obj)
    page = b'{"metadata":{"resourceVersion":"41","continue":"next"},"items":[%b,%b]}' % (raw, raw)
    assert decode_list(kind, page) == ((decode(kind, raw),) * 2, "41", "next")


def test_a_pod_of_a_stateful_set(recorded):
    """H1: a real TiDB pod keeps what placement reads of it, and loses the labels that would make each shape unique."""
    pod = project(Kind.POD, recorded("pod_statefulset"))
    assert isinstance(pod, Pod)
    assert (str(pod.key), pod.node, pod.phase, pod.ready) == ("default/demo-tidb-0", "", "Pending", False)
    assert pod.owner is not None
    assert (pod.owner.kind, pod.owner.name, pod.owner.api_version) == ("StatefulSet", "demo-tidb", "apps/v1")
    assert pod.generate_name == "demo-tidb-"
    assert pod.shape.scheduler_name == "tidb-scheduler"
    assert (pod.shape.cpu_milli, pod.shape.memory_bytes) == (1000, 0)
    assert Toleration("node.kubernetes.io/not-ready", "Exists", "", "NoExecute", 300) in pod.shape.tolerations
    assert pod.labels == {
        "app.kubernetes.io/component": "tidb",
        "app.kubernetes.io/instance": "demo",
        "controller-revision-hash": pod.labels["controller-revision-hash"],
    }


def test_a_node(recorded):
    """M3: a real node keeps its labels, its allocatable room and its Ready condition; 30 images leave nothing behind."""
    node = project(Kind.NODE, recorded("node"))
    assert isinstance(node, Node)
    assert node.labels["node.kubernetes.io/capacity"] == "on-demand"
    assert (node.cpu_milli, node.memory_bytes, node.pods_limit) == (2000, 4 << 30, 10)
    assert (node.ready, node.internal_ip, node.unschedulable) == ("True", "127.0.0.1", False)
    assert node.ready_since is not None
    assert node.annotations is NO_LABELS


def test_workloads(recorded):
    """M1: the labels that ask for a mix are read from the workload, and its own limits are absolute numbers."""
    web = project(Kind.DEPLOYMENT, recorded("deployment"))
    demo = project(Kind.STATEFUL_SET, recorded("statefulset"))
    assert isinstance(web, Workload)
    assert isinstance(demo, Workload)
    assert web.labels["vacant.io/optimize-scheduling"] == "true"
    assert (web.kind, web.replicas, web.max_surge, web.max_unavailable) == ("Deployment", 2, 1, 0)
    assert (demo.kind, demo.replicas, demo.max_surge, demo.max_unavailable) == ("StatefulSet", 2, 0, 1)
    assert demo.match_labels == {"app.kubernetes.io/component": "tidb", "app.kubernetes.io/instance": "demo"}
    assert demo.annotations is NO_LABELS  # kubectl's copy of the object does not stay
