"""kubectl on the sandbox: what a newcomer types works there as on a real cluster."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from mooring_lab.cluster.clock import WallDriver
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.http.facade import Facade
from mooring_lab.control.binaries import find, release
from tests.sandbox.certificates import make_certificates

pytestmark = pytest.mark.e2e
LABELS = {"app": "web"}
WEB = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {"containers": [{"name": "web", "image": "example.org/web:1"}]},
        },
    },
}


class Kubectl:
    def __init__(self, program: Path, kubeconfig: Path) -> None:
        self._base = [str(program), "--kubeconfig", str(kubeconfig), "--cache-dir", str(kubeconfig.parent / "cache")]

    async def __call__(self, line: str, stdin: str = "") -> str:
        process = await asyncio.create_subprocess_exec(
            *self._base,
            *line.split(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(stdin.encode())
        assert process.returncode == 0, f"kubectl {line}: {err.decode()}"
        return out.decode()


@pytest.fixture
async def kubectl(tmp_path: Path):
    cluster = Cluster(seed=1)
    cluster.add_nodes(3)
    certificates = make_certificates(tmp_path / "pki")
    driver = WallDriver(cluster.timeline, speed=20)
    async with Facade(cluster.api.server, certificates=certificates, driver=driver) as facade:
        facade.write_kubeconfig(tmp_path / "kubeconfig")
        yield Kubectl(find(release())["kubectl"], tmp_path / "kubeconfig")


async def test_a_workloads_life(kubectl: Kubectl) -> None:
    """apply, rollout status, scale, restart, set image, apply again, delete."""
    await kubectl("apply -f -", yaml.safe_dump(WEB))
    assert "successfully rolled out" in await kubectl("rollout status deploy/web --timeout=180s")
    table = await kubectl("get pods")
    assert table.splitlines()[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert table.count("Running") == 3
    await kubectl("scale deploy/web --replicas=4")
    await kubectl("rollout status deploy/web --timeout=180s")
    before = set((await kubectl("get pods -o name")).split())
    await kubectl("rollout restart deploy/web")
    await kubectl("rollout status deploy/web --timeout=180s")
    await kubectl("wait --for=delete --timeout=180s " + " ".join(sorted(before)))
    assert len((await kubectl("get pods -o name")).split()) == 4
    await kubectl("set image deploy/web web=example.org/web:2")
    await kubectl("rollout status deploy/web --timeout=180s")
    again = {**WEB, "spec": {**WEB["spec"], "replicas": 1}}
    assert "configured" in await kubectl("apply -f -", yaml.safe_dump(again))
    await kubectl("delete deploy web --timeout=180s")
    await kubectl("wait --for=delete pod -l app=web --timeout=180s")


async def test_a_nodes_maintenance(kubectl: Kubectl) -> None:
    """label, annotate, taint, cordon, drain, uncordon."""
    await kubectl("apply -f -", yaml.safe_dump(WEB))
    await kubectl("rollout status deploy/web --timeout=180s")
    await kubectl("label node node-0 zone=a")
    await kubectl("annotate node node-0 note=b")
    await kubectl("taint node node-1 k=v:NoSchedule")
    await kubectl("taint node node-1 k-")
    await kubectl("cordon node-0")
    assert "SchedulingDisabled" in await kubectl("get node node-0")
    await kubectl("drain node-0 --ignore-daemonsets --timeout=180s")
    pods = json.loads(await kubectl("get pods -o json"))["items"]
    assert all(p["spec"].get("nodeName") != "node-0" for p in pods)
    await kubectl("uncordon node-0")
    node = json.loads(await kubectl("get node node-0 -o json"))
    assert node["metadata"]["labels"]["zone"] == "a" and not node["spec"].get("unschedulable")
    assert "node-0" in await kubectl("describe node node-0")


async def test_small_things(kubectl: Kubectl) -> None:
    """namespaces and config maps from files, discovery, version."""
    await kubectl("apply -f -", yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "shop"},
        "data": {"a": "1"},
    }
    await kubectl("create -f -", yaml.safe_dump(config))
    assert await kubectl("get cm c -n shop -o jsonpath={.data.a}") == "1"
    await kubectl("delete ns shop --timeout=180s")
    assert "tidbclusters" in await kubectl("api-resources")
    assert "sandbox" in await kubectl("version -o json")
