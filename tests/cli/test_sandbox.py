"""`mooring sandbox up`: an embedded cluster with a kubeconfig of its own."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from mooring_lab.control.loopback import free_ports

KUBECTL = shutil.which("kubectl") or next(iter(map(str, Path.home().glob(".cache/mooring/bin/*/kubectl"))), "")


@pytest.fixture
def sandbox(tmp_path):
    file = tmp_path / "kubeconfig"
    command = [
        sys.executable,
        "-m",
        "mooring",
        "sandbox",
        "up",
        "--spot",
        "1",
        "--kubeconfig-file",
        str(file),
        "-o",
        "json",
    ]
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


def test_a_drain_is_rehearsed_on_the_cluster_as_it_is(sandbox):
    """D4: `mooring drain --dry-run` says who would be interrupted, exits as `rehearse play` does, and writes nothing."""
    _, file = sandbox

    def mooring(*args):
        command = [sys.executable, "-m", "mooring", *args, "--kubeconfig", str(file), "-o", "json"]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    done = mooring("drain", "n1", "--dry-run")
    outcome = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert outcome["verdict"] == "kept" and "mooring drain n1" in done.stdout
    refused = mooring("drain", "no-such-node", "--dry-run")
    assert refused.returncode == 2 and "no-such-node" in refused.stderr
    again = json.loads(mooring("rehearse", "play", "empty", "n1", "--live").stdout)
    assert again["verdict"] == "kept"


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
    for words in ("namespace shop", "deployment web --image=nginx -n shop --replicas 2"):
        made = kubectl("create", *words.split(), "--dry-run=client", "-o", "yaml")
        kubectl("apply", "-f", "-", text=made)
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"

    def refusal(*args):
        done = subprocess.run(
            [KUBECTL, *args],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "KUBECONFIG": str(file)},
        )
        assert done.returncode != 0
        return done.stderr

    assert "the sandbox has no schemas to explain" in refusal("explain", "pod.spec")
    assert "--dry-run=client" in refusal("create", "namespace", "three")
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: two, labels: {a: b}}\n"
    for _ in range(2):
        assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", text=namespace)
    assert "web" in kubectl("get", "deploy", "-n", "shop")


def test_with_tidb_its_pd_answers_where_it_says(tmp_path):
    """E1: the command that `sandbox up --tidb` prints names a PD that answers and knows the cluster's three stores."""
    command = [sys.executable, "-m", "mooring", "sandbox", "up", "--tidb", "--speed", "50", "-o", "json"]
    with subprocess.Popen(
        [*command, "--kubeconfig-file", str(tmp_path / "kubeconfig")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        lines: list[str] = []
        while not lines or not lines[-1].startswith("mooring run"):
            lines.append(running.stderr.readline())
            assert lines[-1], lines
        url = lines[-1].strip().rpartition("--pd tidb/demo=")[2]
        up, deadline = 0, time.monotonic() + 60
        while up != 3 and time.monotonic() < deadline:
            with urllib.request.urlopen(f"{url}/pd/api/v1/stores") as answer:
                up = len(json.load(answer)["stores"])
        running.terminate()
        out, _ = running.communicate(timeout=30)
    assert up == 3 and json.loads(out)["pd"] == url


class Newcomer:
    """`sandbox up --tidb`, and `mooring run` as it says; both end with the block."""

    def __init__(self, directory):
        self.directory = directory
        self.env = {**os.environ, "KUBECONFIG": str(directory / "kubeconfig")}
        self.extender, self.http = free_ports(2)
        self.told, self.running = [], []

    def start(self, *args, sink):
        command = [sys.executable, "-m", "mooring", *args]
        self.running.append(subprocess.Popen(command, stdout=sink, stderr=sink, text=True, env=self.env))
        return self.running[-1]

    def __enter__(self):
        up = ["sandbox", "up", "--tidb", "--nodes", "5", "--speed", "10", "-f", self.env["KUBECONFIG"]]
        try:
            with (self.directory / "told").open("w") as sink:
                self.start(*up, "--extender", f"http://127.0.0.1:{self.extender}/scheduler", sink=sink)
            self.until(lambda: "Ctrl-C" in (self.directory / "told").read_text(), "the sandbox is up")
            self.told = (self.directory / "told").read_text().splitlines()
            (run,) = (line for line in self.told if line.startswith("mooring run"))
            listens = ["--listen-extender", f"127.0.0.1:{self.extender}", "--listen-http", f"127.0.0.1:{self.http}"]
            with (self.directory / "log").open("w") as sink:
                self.start(*run.split()[1:], *listens, "--blackbox", "none", sink=sink)
            self.pd = run.rpartition("=")[2]
            self.until(lambda: '"deciding":true' in self.asked("/api/v1/status"), "it decides")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for one in reversed(self.running):
            one.terminate()
            one.wait(60)

    def asked(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=10) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def until(self, holds, what):
        deadline = time.monotonic() + 100
        while not holds():
            logs = "".join(
                file.read_text()[-1500:] for file in self.directory.iterdir() if file.name in {"told", "log"}
            )
            assert time.monotonic() < deadline, f"{what}: {logs}"
            time.sleep(0.1)

    def kubectl(self, *args):
        done = subprocess.run(
            [KUBECTL, *args], capture_output=True, text=True, env=self.env, timeout=60, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, (args, done.stderr)
        return done.stdout

    def pod(self, name):
        return json.loads(self.kubectl("-n", "tidb", "get", "pod", name, "--ignore-not-found", "-o", "json") or "{}")

    def renewed(self, name, uid):
        now = self.pod(name)
        ready = {c["type"]: c["status"] for c in now.get("status", {}).get("conditions", ())}.get("Ready") == "True"
        return ready and now["metadata"]["uid"] != uid

    def leads(self, member):
        with urllib.request.urlopen(f"{self.pd}/pd/api/v1/stores", timeout=10) as answer:
            stores = json.load(answer)["stores"]
        return sum(s["status"].get("leader_count", 0) for s in stores if s["store"]["address"].startswith(f"{member}."))


@pytest.mark.skipif(not KUBECTL, reason="no kubectl on this machine")
def test_with_tidb_a_newcomer_tries_handoff_home_and_balance(tmp_path):
    """E1, H1, T12: every line that `sandbox up --tidb` prints does what it is for: a TiKV pod is handed over, a TiDB pod
    comes back to its node because the scheduler asked, and a fourth store fills."""
    with Newcomer(tmp_path) as one:
        old = {name: one.pod(name) for name in ("demo-tikv-0", "demo-tidb-0")}
        for line in (line for line in one.told if line.startswith("kubectl -n tidb")):
            one.kubectl(*shlex.split(line)[1:])
        for name, was in old.items():
            one.until(lambda n=name, uid=was["metadata"]["uid"]: one.renewed(n, uid), f"{name} is renewed")
        assert one.pod("demo-tidb-0")["spec"]["nodeName"] == old["demo-tidb-0"]["spec"]["nodeName"]
        assert 'mooring_extender_requests_total{reason="home",verb="filter"}' in one.asked("/metrics")
        one.until(lambda: one.leads("demo-tikv-3") >= 15, "the new store fills")
