"""`mooring queue --kubeconfig …` on the real control plane: kubectl forwards a port through the API server to Mooring.

The lab's nodes have no kubelets. One node here has kwok's stand-in for a kubelet's port-forward, which leads to a
`mooring run` on this machine; kubectl, the API server and the way through it are the real ones.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooring.cli.server import OWN_NAMESPACE
from mooring_lab.control import loopback
from mooring_lab.control.cluster import Lab
from mooring_lab.control.pki import Authority
from mooring_lab.control.processes import Server
from mooring_lab.control.servers import STAGES
from tests.e2e.waiting import until

NODE = "with-a-kubelet"
LABELS = {"app": "mooring-reach"}


@pytest.fixture
def forwarding(lab: Lab, tmp_path: Path) -> Iterator[None]:
    """A Deployment mooring whose one pod is on a node that forwards its ports to a Mooring on this machine."""
    http, extender, kubelet = loopback.free_ports(3)
    certificate, key = Authority().server("kubelet", ["127.0.0.1"]).write(tmp_path, "kubelet")
    forward = {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterPortForward",
        "metadata": {"name": "to-this-machine"},
        "spec": {"forwards": [{"target": {"address": "127.0.0.1", "port": http}}]},
    }
    (tmp_path / "forward.yaml").write_text(json.dumps(forward))
    stand_in = Server(
        name="kwok-forward",
        argv=(
            str(lab.layout.bin / "kwok"),
            f"--kubeconfig={lab.layout.kubeconfig_of('kwok')}",
            "--manage-nodes-with-label-selector=lab.mooring.dev/forward=true",
            f"--config={STAGES / 'pod.yaml'}",
            f"--config={tmp_path / 'forward.yaml'}",
            f"--server-address=127.0.0.1:{kubelet}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
        ),
        ready_url=f"http://127.0.0.1:{kubelet}/healthz",
    )
    lab.processes.start(stand_in)
    lab.processes.wait_ready([stand_in])
    lab.kubectl("create", "namespace", OWN_NAMESPACE)
    flags = ["--kubeconfig", str(lab.kubeconfig), "--namespace", OWN_NAMESPACE, "--features", "handoff=true"]
    listens = ["--listen-http", f"127.0.0.1:{http}", "--listen-extender", f"127.0.0.1:{extender}"]
    log = (tmp_path / "mooring.log").open("w")
    with subprocess.Popen(
        [sys.executable, "-m", "mooring", "run", *flags, *listens], stdout=log, stderr=log
    ) as running:
        try:
            _place(lab, kubelet)
            yield
        finally:
            running.terminate()
            running.wait(180)
            log.close()
            lab.kubectl("delete", "namespace", OWN_NAMESPACE, "--wait=false")
            lab.kubectl("delete", "node", NODE, "--ignore-not-found")
            lab.processes.stop("kwok-forward")


def _place(lab: Lab, kubelet: int) -> None:
    silent = {"lab.mooring.dev/silent": "true", "lab.mooring.dev/forward": "true"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": silent}}
    lab.kubectl("create", "-f", "-", input=json.dumps(node))
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet}},
    }
    lab.kubectl("patch", "node", NODE, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    spec = {
        "nodeName": NODE,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "mooring", "image": "mooring", "ports": [{"containerPort": 8390}]}],
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "mooring", "namespace": OWN_NAMESPACE},
        "spec": {
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": spec},
        },
    }
    lab.kubectl("create", "-f", "-", input=json.dumps(deployment))

    def pods() -> list[str]:
        return lab.kubectl("-n", OWN_NAMESPACE, "get", "pods", "-o", "name").split()

    until(pods, "the Deployment has a pod")
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    patch = ["--subresource=status", "--type=merge", "-p", json.dumps(ready)]
    lab.kubectl("-n", OWN_NAMESPACE, "patch", pods()[0], *patch)


@pytest.mark.usefixtures("forwarding")
def test_a_mooring_in_the_cluster_is_found_by_kubeconfig(lab: Lab, tmp_path: Path) -> None:
    """O3: without --server and with a kubeconfig, the commands reach Mooring through the API server."""
    path = f"{lab.layout.bin}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path)}
    said = []

    def asked() -> bool:
        command = [sys.executable, "-m", "mooring", "queue", "--kubeconfig", str(lab.kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
        said.append((done.returncode, done.stdout, done.stderr))
        return done.returncode == 0

    def state() -> str:
        return f"{said[-1:]}\n{lab.processes.tail('kwok-forward')}\n{(tmp_path / 'mooring.log').read_text()[-2000:]}"

    until(asked, "Mooring is reached", every_s=2.0, tell=state)
    assert "no pending changes" in said[-1][2]
