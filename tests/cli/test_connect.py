"""One way to a cluster, one way to a running Mooring: the same flags, messages and exit codes in every command."""

import asyncio
import os
import socket
import stat
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from mooring.cli import connect as connecting
from mooring.cli.server import Reach, _forwarded, ask
from mooring.core.model.exits import Exit, UserError
from tests import program

CLUSTER = [
    ("run",),
    ("doctor", "--pre"),
    ("cleanup", "--dry-run"),
    ("mix", "release", "--dry-run"),
    ("balance", "release", "tidb/demo"),
    ("home", "scheduler-config"),
    ("fleet", "status"),
    ("rehearse", "snapshot", "--to", "{tmp}/s.json"),
    ("queue",),
    ("why", "node/n1"),
]


def mooring(*args, **environment):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MOORING_", "KUBE"))}
    return program.mooring(*args, env={**kept, **environment})


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
    body = b'{"rows": [], "as_of": 0}'

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.body)

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


def test_a_mooring_in_another_namespace_is_found(tmp_path):
    """Installed elsewhere than in mooring-system: the namespace of the only one in the cluster is looked up."""
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        kubectl = tmp_path / "kubectl"
        kubectl.write_text(
            "#!/bin/sh\n"
            'case "$*" in\n'
            '*"-n mooring-system"*) echo \'Error from server (NotFound): deployments.apps "mooring" not found\' >&2; exit 1;;\n'
            '*"get deployments -A"*) echo ops;;\n'
            f'*"-n ops port-forward"*) echo "Forwarding from 127.0.0.1:{server.server_port} -> 8390"; exec sleep 60;;\n'
            "esac\n"
        )
        kubectl.chmod(0o755)
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        done = mooring("queue", "--kubeconfig", kubeconfig(tmp_path, 1), PATH=path)
        server.shutdown()
    assert (done.returncode, done.stderr) == (0, "no pending changes\n")


@pytest.fixture
def forwarded(tmp_path, monkeypatch):
    """As `mooring top`, in this process: kubectl forwards to the port in a file, and says a lot meanwhile."""
    port, talked, kubectl = tmp_path / "port", tmp_path / "talked", tmp_path / "kubectl"
    kubectl.write_text(
        f'#!/bin/sh\necho "Forwarding from 127.0.0.1:$(cat {port}) -> 8390"\n'
        f"yes 'Handling connection for 8390' | head -c 300000\ntouch {talked}\nexec sleep 60\n"
    )
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    reach = Reach(kubeconfig=kubeconfig(tmp_path, 1))
    yield reach, port, talked
    if reach in _forwarded:
        _forwarded.pop(reach).close()


def served(port_file):
    server = HTTPServer(("127.0.0.1", 0), Answer)
    port_file.write_text(str(server.server_port))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def test_what_kubectl_says_while_it_forwards_is_read(forwarded):
    """kubectl prints a line for each connection; after 36 minutes of `mooring top` the pipe was full."""
    reach, port, talked = forwarded
    with served(port) as server:
        ask(reach, "/api/v1/frame")
        deadline = time.monotonic() + 30
        while not talked.exists():
            assert time.monotonic() < deadline, "kubectl hangs: nobody reads what it prints"
            time.sleep(0.01)
        server.shutdown()


def test_a_pod_that_is_replaced_is_reached_again(forwarded):
    """The port that was forwarded leads nowhere any more; another is."""
    reach, port, _ = forwarded
    with served(port) as first:
        ask(reach, "/api/v1/frame")
        first.shutdown()
    with served(port) as second:
        assert ask(reach, "/api/v1/frame") == {"rows": [], "as_of": 0}
        second.shutdown()


def test_kubectl_that_cannot_forward_is_said(tmp_path):
    """What kubectl said is in the message, without what its libraries log, and the exit code is still 4."""
    kubectl = tmp_path / "kubectl"
    logged = 'E1116 21:12:03.968210 24142 memcache.go:265] "Unhandled Error" err="no group list"'
    kubectl.write_text(
        f"#!/bin/sh\necho '{logged}' >&2\necho 'error: deployments.apps \"mooring\" not found' >&2\nexit 1\n"
    )
    kubectl.chmod(0o755)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        done = mooring(
            "queue", "--kubeconfig", kubeconfig(tmp_path, 1), PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        )
    assert done.returncode == 4
    assert 'in the cluster of the kubeconfig: error: deployments.apps "mooring" not found;' in done.stderr
    assert "memcache" not in done.stderr


class Greeting(Answer):
    body = b"<html>hello</html>"


@pytest.mark.parametrize("command", [c for c in CLUSTER if c[0] not in {"run", "queue", "why"}], ids=" ".join)
def test_what_is_no_api_server_could_not_be_looked_at(command, tmp_path):
    """A proxy's page where a cluster was expected: exit 4 and a sentence, no traceback."""
    with HTTPServer(("127.0.0.1", 0), Greeting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        args = [word.format(tmp=tmp_path) for word in command]
        done = mooring(*args, "--kubeconfig", kubeconfig(tmp_path, server.server_port))
        server.shutdown()
    assert done.returncode == 4, done.stderr
    assert "not a Kubernetes API server: GET /version answered" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_cluster_that_takes_a_connection_and_says_nothing_is_given_up_soon(tmp_path, monkeypatch):
    """Before anything is asked that may take a minute; exit 4, naming the address."""
    monkeypatch.setattr(connecting, "PROBE_S", 0.05)

    async def look(file: str) -> None:
        async with connecting.connect(file, ""):
            raise AssertionError("nobody has answered")

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(UserError, match=f"no answer from http://127.0.0.1:{port} within") as raised:
            asyncio.run(look(kubeconfig(tmp_path, port)))
    assert raised.value.code is Exit.UNREACHABLE
