"""Completion knows objects: the running Mooring is asked, briefly; nobody there is no error."""

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from mooring.cli.completion import candidates
from mooring.cli.why import objects

FOUND = ["pod/tidb/demo-tikv-0", "pod/tidb/demo-tikv-1", "workload/shop/Deployment/demo-web", "store/tidb/demo/1"]


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"found": FOUND}).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    with HTTPServer(("127.0.0.1", 0), Answer) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        monkeypatch.setenv("MOORING_SERVER", f"http://127.0.0.1:{found.server_port}")
        yield found
        found.shutdown()


def test_kinds_then_objects(server):
    """`po` → `pod/`; `pod/demo` → the pods; `deploy/demo` → Deployments; `store/demo` → CLUSTER/ID."""
    assert objects("po") == ["pod/"]
    assert objects("pod/demo") == ["pod/demo-tikv-0", "pod/demo-tikv-1"]
    assert objects("pods/demo-tikv-1") == ["pods/demo-tikv-1"]
    assert objects("deploy/demo") == ["deploy/demo-web"]
    assert objects("store/demo") == ["store/demo/1"]
    assert candidates(["why"], "pod/demo") == ["pod/demo-tikv-0", "pod/demo-tikv-1"]


def test_the_shell_gets_them_from_the_command(server):
    """The script that `mooring completion` prints calls back."""
    done = subprocess.run(
        [sys.executable, "-m", "mooring", "__complete", "why", "pod/demo"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    assert "pod/demo-tikv-0" in done.stdout


def test_nobody_there_is_no_completion_and_quick(monkeypatch, unused_tcp_port):
    """Half a second at most, and not a word."""
    monkeypatch.setenv("MOORING_SERVER", f"http://127.0.0.1:{unused_tcp_port}")
    began = time.monotonic()
    assert objects("pod/demo") == []
    assert time.monotonic() - began < 2.0
