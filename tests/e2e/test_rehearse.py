"""A snapshot of a real API server, and an event played on it: what Kubernetes writes is what the sandbox takes up."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooring.clients.kube import load as load_kubeconfig
from mooring.core.model.kinds import Kind
from mooring.process.clock import WallClock
from mooring.process.settings.config import Config
from mooring_lab.cluster.controllers.podstate import node_of
from mooring_lab.control.cluster import Lab
from mooring_lab.rehearse.snapshot import schema
from mooring_lab.rehearse.snapshot.capture import take
from mooring_lab.rehearse.snapshot.load import load
from mooring_lab.rehearse.snapshot.schema import Snapshot
from tests.e2e.waiting import stands, until

pytestmark = pytest.mark.e2e

MARK = "rehearsed"
CAPACITY = "node.kubernetes.io/capacity"
SECRET = "hunter2"
#: Of a loaded machine.


def pod_template(app: str, **spec: object) -> dict[str, object]:
    container = {
        "name": "c",
        "image": "app:1",
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "resources": {"requests": {"cpu": "200m", "memory": "64Mi"}},
    }
    selector = {"nodeSelector": {MARK: "true"}}
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [container], **selector, **spec}}


def workload(kind: str, name: str, template: dict[str, object], **spec: object) -> dict[str, object]:
    selector = {"matchLabels": {"app": name}}
    labels = {"vacant.io/optimize-scheduling": "true"} if kind == "Deployment" else {}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels},
        "spec": {"selector": selector, "template": template, **spec},
    }


@pytest.fixture
def shop(lab: Lab) -> Iterator[str]:
    """Three nodes of each class, a Deployment, a StatefulSet, a DaemonSet and a budget; everybody Ready."""
    for capacity in ("on-demand", "spot"):
        lab.add_nodes(3, prefix=f"{MARK}-{capacity}-", labels={MARK: "true", CAPACITY: capacity, "rack": capacity})
    namespace = lab.namespace("rehearse")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 4, "selector": {"matchLabels": {"app": "web"}}},
    }
    members = pod_template("db", nodeSelector={MARK: "true", CAPACITY: "on-demand"})
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {
            "minReplicas": 6,
            "maxReplicas": 6,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        },
    }
    things = [
        scaler,
        workload("Deployment", "web", pod_template("web"), replicas=6),
        workload("StatefulSet", "db", members, replicas=3, serviceName="db"),
        workload("DaemonSet", "agent", pod_template("agent")),
        budget,
    ]
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": things})
    lab.kubectl("apply", "-n", namespace, "-f", "-", input=manifest)
    for name in ("deployment/web", "statefulset/db", "daemonset/agent"):
        stands(lab, "rollout", "status", name, "-n", namespace)
    # A second revision: the old ReplicaSet stays, empty, and only what is left behind differs.
    lab.kubectl("set", "image", "deployment/web", "c=app:2", "-n", namespace)
    stands(lab, "rollout", "status", "deployment/web", "-n", namespace)
    pods = ("get", "pods", "-n", namespace, "-l", "app=web", "-o", "name")
    until(lambda: len(lab.kubectl(*pods).split()) == 6, "no pod of the first revision lingers")
    try:
        yield namespace
    finally:
        lab.clear(namespace, nodes=f"{MARK}=true")


def mooring(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mooring", "rehearse", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def test_a_real_cluster_is_rehearsed(lab: Lab, shop: str, tmp_path: Path) -> None:
    """O4: read only, no secret in the file, nothing moves when it is loaded, and every spot pod is moved in time."""
    path = tmp_path / "lab.json"
    versions = ("get", "pods,deployments", "-n", shop, "-o", "jsonpath={.items[*].metadata.resourceVersion}")

    def still() -> str:
        """Once nothing writes any more: controllers note the end of a rollout a moment after it."""
        now = lab.kubectl(*versions)
        time.sleep(1.0)
        return now if lab.kubectl(*versions) == now else ""

    before = until(still, "nothing changes any more")
    done = mooring("snapshot", "--to", str(path), "--kubeconfig", str(lab.kubeconfig))
    assert done.returncode == 0, done.stderr
    assert lab.kubectl(*versions) == before
    assert SECRET not in path.read_text()
    taken = schema.read(path)
    assert taken.remarks == ()  # every list at one revision
    assert any(one.startswith(f"HorizontalPodAutoscaler {shop}/web") for one in taken.autoscalers)

    cluster = load(schema.read(path), 1).cluster
    places = {p["metadata"]["uid"]: node_of(p) for p in cluster.store.list(Kind.POD, shop)}
    assert len(places) == 6 + 3 + 6
    cluster.run_for(600)
    assert {p["metadata"]["uid"]: node_of(p) for p in cluster.store.list(Kind.POD, shop)} == places

    done = mooring("play", "spot-gone", "--from", str(path), "-o", "json")
    assert done.returncode in (0, 1), done.stderr  # other tests' leftovers are on this lab too
    played = json.loads(done.stdout)["played"]
    assert [one for one in played["interrupted"] if shop in one["workload"]] == []
    assert [one for one in played["breaches"] if shop in one["subject"]] == []
    mine = [one for one in played["gone"] if one["pod"].startswith(f"{shop}/web-")]
    assert {one["how"] for one in mine} == {"moved"}

    assert "; not played: " in json.loads(done.stdout)["answer"]

    done = mooring("play", "rack-lost", "spot", "--rack-label", "rack", "--from", str(path), "-o", "json")
    found = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert "budget" in {one["rule"] for one in found["played"]["breaches"] if shop in one["subject"]}


def test_every_list_is_of_the_revision_of_the_first(lab: Lab, shop: str) -> None:
    """O4: a node that changes between two lists is in the snapshot as it was; the sandbox shows the other case."""
    node = f"{MARK}-spot-0"

    def cordoned() -> bool:
        return bool(lab.kubectl("get", "node", node, "-o", "jsonpath={.spec.unschedulable}"))

    async def taken() -> Snapshot:
        return await take(
            load_kubeconfig(str(lab.kubeconfig)),
            Config(),
            now=WallClock().now(),
            make_pd=None,
            make_registry=None,
            progress=lambda _: None if cordoned() else print(lab.kubectl("cordon", node)),
        )

    found = asyncio.run(taken())
    assert cordoned()
    assert found.remarks == ()
    listed = next(one for one in found.of(Kind.NODE) if one["metadata"]["name"] == node)
    assert "unschedulable" not in listed["spec"], "nodes come last, and are of the revision of the first list"
