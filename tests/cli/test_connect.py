"""One way to a cluster, one way to a running Mooring: the same flags, messages and exit codes in every command."""

import os
import socket
import stat
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

CLUSTER = [
    ("run",),
    ("doctor", "--pre"),
    ("cleanup", "--dry-run"),
    ("mix", "release", "--dry-run"),
    ("balance", "release", "tidb/demo"),
    ("home", "scheduler-config"),
    ("fleet", "status"),
    ("rehearse", "snapshot", "-f", "{tmp}/s.json"),
]


def mooring(*args, **environment):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MOORING_", "KUBE"))}
    return subprocess.run(
        [sys.executable, "-m", "mooring", *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**kept, **environment},
    )


def kubeconfig(tmp_path: Path, port: int) -> str:
    file = tmp_path / "kubeconfig"
    file.write_text(
        "current-context: c\n"
        f"clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "users: [{name: u, user: {token: x}}]\n"
    )
    return str(file)


@pytest.mark.parametrize("command", CLUSTER, ids=" ".join)
def test_a_bad_kubeconfig_is_2_and_a_silent_cluster_4(command, tmp_path, unused_tcp_port):
    """Contract: one exit code for one thing in every command."""
    args = [word.format(tmp=tmp_path) for word in command]
    missing = mooring(*args, "--kubeconfig", str(tmp_path / "none"))
    assert (missing.returncode, missing.stdout) == (2, ""), missing.stderr
    assert "Traceback" not in missing.stderr
    silent = mooring(*args, "--kubeconfig", kubeconfig(tmp_path, unused_tcp_port))
    assert silent.returncode == 4, silent.stderr
    assert "Traceback" not in silent.stderr
    wrong = mooring(*args, "--kubeconfig", kubeconfig(tmp_path, unused_tcp_port), "--context", "nobody")
    assert wrong.returncode == 2, wrong.stderr


def test_nobody_answers_says_how_to_reach_one(unused_tcp_port):
    """Exit 4 with three ways: port-forward, the kept demo, --server."""
    done = mooring("why", "pod/x", "--server", f"http://127.0.0.1:{unused_tcp_port}")
    assert done.returncode == 4
    assert "kubectl -n mooring-system port-forward deploy/mooring 8390" in done.stderr
    assert "mooring demo --keep" in done.stderr
    assert "--server" in done.stderr


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"rows": [], "as_of": 0}')

    def log_message(self, *_):
        pass


def test_a_kubeconfig_is_enough_to_reach_the_mooring_in_its_cluster(tmp_path):
    """`kubectl mooring queue --context prod`: a port is forwarded for the time of the command, and closed after."""
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        seen, kubectl = tmp_path / "seen", tmp_path / "kubectl"
        kubectl.write_text(
            f'#!/bin/sh\necho "$@" > {seen}\necho $$ >> {seen}\n'
            f'echo "Forwarding from 127.0.0.1:{server.server_port} -> 8390"\nexec sleep 60\n'
        )
        kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        done = mooring("queue", "--kubeconfig", kubeconfig(tmp_path, 1), "--context", "c", PATH=path)
        server.shutdown()
    assert (done.returncode, done.stderr) == (0, "no pending changes\n")
    said, pid = seen.read_text().splitlines()
    assert said.endswith("--context=c -n mooring-system port-forward deploy/mooring :8390")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_kubectl_that_cannot_forward_is_said(tmp_path):
    """What kubectl said is in the message, and the exit code is still 4."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\necho 'error: deployments.apps \"mooring\" not found' >&2\nexit 1\n")
    kubectl.chmod(0o755)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        done = mooring(
            "queue", "--kubeconfig", kubeconfig(tmp_path, 1), PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        )
    assert done.returncode == 4
    assert 'deployments.apps "mooring" not found' in done.stderr
