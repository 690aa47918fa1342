"""`mooring sandbox up`: an embedded cluster with a kubeconfig of its own; what kubectl create sends is read."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mooring.clients.ports import RefusedError
from mooring.sandbox.http import protobuf

#: `kubectl create namespace shop` and `kubectl create deployment web --image=nginx --replicas 2`, as they are sent.
KUBECTL = shutil.which("kubectl") or next(iter(map(str, Path.home().glob(".cache/mooring/bin/*/kubectl"))), "")


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def sent(version: str, kind: str, obj: bytes) -> bytes:
    about = field(1, version.encode()) + field(2, kind.encode())
    return protobuf.MAGIC + field(1, about) + field(2, obj)


def test_protobuf_of_a_namespace_and_a_deployment_is_read():
    """Discovery and creation work without a protobuf library: the fields that kubectl's generators write."""
    label = field(11, field(1, b"app") + field(2, b"web"))
    namespace = sent("v1", "Namespace", field(1, field(1, b"shop") + field(8, b"")))
    assert protobuf.read(namespace) == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    selector = field(2, field(1, field(1, b"app") + field(2, b"web")))
    template = field(3, field(1, label) + field(2, field(2, field(1, b"nginx") + field(2, b"nginx:1"))))
    spec = field(2, field(1, 2) + selector + template)
    made = protobuf.read(sent("apps/v1", "Deployment", field(1, field(1, b"web") + label) + spec))
    assert made["metadata"] == {"name": "web", "labels": {"app": "web"}}
    assert made["spec"]["replicas"] == 2
    assert made["spec"]["selector"] == {"matchLabels": {"app": "web"}}
    assert made["spec"]["template"]["spec"] == {"containers": [{"name": "nginx", "image": "nginx:1"}]}


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (sent("v1", "Secret", b""), "not of Secret; try: kubectl create"),
        (sent("v1", "Namespace", field(1, field(7, b"x"))), "does not read field 7"),
        (protobuf.MAGIC + b"\x0a\xff", "cannot be read"),
        (protobuf.MAGIC, "cannot be read"),
    ],
)
def test_what_is_not_read_is_refused_with_a_sentence(raw, says):
    """Left out silently it would create something else than was asked for."""
    with pytest.raises(RefusedError, match=says):
        protobuf.read(raw)


@pytest.fixture
def sandbox(tmp_path):
    file = tmp_path / "kubeconfig"
    command = [sys.executable, "-m", "mooring", "sandbox", "up", "--spot", "1", "-f", str(file), "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        deadline = time.monotonic() + 30
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        yield running, file
        if running.poll() is None:
            running.terminate()


def test_it_runs_until_it_is_ended_and_leaves_nothing(sandbox):
    """Its kubeconfig is a file of its own, printed; it goes with the cluster. Exit 0."""
    running, file = sandbox
    assert file.stat().st_mode & 0o077 == 0
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 0, err
    assert json.loads(out)["kubeconfig"] == str(file)
    assert not file.exists()
    assert "leftovers: none" in err


@pytest.mark.skipif(not KUBECTL, reason="no kubectl on this machine")
def test_kubectl_creates_applies_and_asks(sandbox):
    """The commands a newcomer types first."""
    _, file = sandbox

    def kubectl(*args, text=""):
        done = subprocess.run(
            [KUBECTL, *args],
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "KUBECONFIG": str(file)},
        )
        assert done.returncode == 0, (args, done.stderr)
        return done.stdout

    assert "n1" in kubectl("get", "nodes")
    kubectl("create", "namespace", "shop")
    kubectl("create", "deployment", "web", "--image=nginx", "-n", "shop", "--replicas", "2")
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    refused = subprocess.run(
        [KUBECTL, "explain", "pod.spec"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "KUBECONFIG": str(file)},
    )
    assert "the sandbox has no schemas to explain" in refused.stderr
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: two, labels: {a: b}}\n"
    for _ in range(2):
        assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", text=namespace)
    assert "web" in kubectl("get", "deploy", "-n", "shop")
