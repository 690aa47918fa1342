"""The command line as kubectl's users expect it: -n, -A, -o, -w, NAMESPACE/NAME."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import yaml

from mooring.cli.server import following
from mooring.core.model.exits import UserError
from tests.program import mooring

ROW = {"id": "op:41", "op": "41", "state": "moving", "source": "handoff", "what": "evict leaders", "step": "1/3"}
QUEUE = {"rows": [{**ROW, "subject": "pod/tidb/demo-tikv-0", "about": "tidb/demo-tikv-0", "since": 1.0}], "as_of": 5.0}
MOVE = {**ROW, "id": "op:42", "op": "42", "source": "balance-region", "subject": "region/tidb/demo/9"}
STORE = {"id": "tidb/demo/4", "cluster": "tidb/demo", "pod": "demo-tikv-0", "leaders": 44, "used": 18, "limit": 20}
HEAD = {"verdict": {"state": "safe", "words": "✓ Safe"}, "needs": 0, "needs_do": "", "needs_about": ""}
WHY = {"subject": "cluster/tidb/demo", "state": "stable", "reason": "done", "answer": "demo is stable.", "lines": []}
MEMBER = {"pod": "demo-tikv-0", "state": "stable", "asked": False}
WORKLOAD = {
    "kind": "Deployment",
    "namespace": "shop",
    "name": "web",
    "state": "stable",
    "mode": "custom 3",
    "ready": 5,
    "replicas": 5,
    "have": 3,
    "wanted": 3,
    "managed": True,
    "safe": 3,
    "wrong": "",
    "sequence": "OOOss",
    "because": "its labels",
    "policy": "",
    "gives": "",
}
ANSWERS = {
    "/api/v1/queue": QUEUE,
    "/api/v1/frame": {"head": HEAD, "tables": {"stores": {"rows": {"a": STORE, "b": {**STORE, "id": "tidb/demo/5"}}}}},
    "/api/v1/why/cluster/tidb/demo": WHY,
    "/api/v1/handoff": {
        "on": True,
        "leading": True,
        "clusters": [{"cluster": "tidb/demo", "pd": "up", "members": [MEMBER]}],
    },
    "/api/v1/mix": {"on": True, "leading": True, "nodes": [], "policies": [], "worth": {}, "workloads": [WORKLOAD]},
    "/api/v1/home": {"on": True, "members": [], "reservations": []},
    "/api/v1/mix/Deployment/shop/web": {"on": True, "leading": True, "words": ["web is stable"], "pods": []},
    "/api/v1/find?q=nope/": {"found": ["pod/shop/nope"]},
    "/api/v1/find?q=shop/": {"found": ["pod/shop/web-0", "workload/shop/Deployment/web"]},
}


@contextmanager
def running(answers=ANSWERS):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            found = answers.get(self.path)
            self.send_response(200 if found is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found or {"error": f"{self.path} not found"}).encode())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def ask():
    with running() as url:
        yield lambda *words: mooring(*words, "--server", url)


@pytest.mark.parametrize("words", [("queue",), ("why",), ("why", "cluster/tidb/demo"), ("balance", "status")])
def test_yaml_says_what_json_says(ask, words):
    """The same answer in both spellings."""
    assert yaml.safe_load(ask(*words, "-o", "yaml").stdout) == json.loads(ask(*words, "-o", "json").stdout)


def test_names_are_what_why_takes(ask):
    """`mooring queue -o name | xargs -n1 mooring why` works."""
    assert ask("queue", "-o", "name").stdout == "operator/41\n"
    assert ask("handoff", "status", "--all", "-o", "name").stdout == "pod/tidb/demo-tikv-0\n"
    assert ask("balance", "status", "-o", "name").stdout == "cluster/tidb/demo\n"
    assert ask("mix", "status", "-n", "shop", "-o", "name").stdout == "workload/shop/Deployment/web\n"
    assert ask("why", "cluster/tidb/demo", "-o", "json").returncode == 0


def test_mooring_alone_may_be_told_whom_to_ask(ask):
    """As with every command: `mooring --server URL` says how the cluster is; nobody there is exit 4."""
    assert ask().stdout.splitlines()[0] == "✓ Safe"
    assert mooring("--server", "http://127.0.0.1:1").returncode == 4


def test_wide_has_every_column(ask):
    assert "DEADLINE" not in ask("queue").stdout
    assert "DEADLINE" in ask("queue", "-o", "wide").stdout
    assert "SLOTS" in ask("mix", "status", "-n", "shop", "-o", "wide").stdout


@pytest.mark.parametrize(
    "words", [("queue",), ("balance", "status"), ("handoff", "status"), ("home", "status"), ("mix", "status")]
)
def test_a_namespace_that_there_is_not_is_said(ask, words):
    """An empty list would read as "nothing to do"; a pod that is called so is no namespace."""
    done = ask(*words, "-n", "nope")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no namespace nope, or nothing in it that Mooring knows" in done.stderr
    assert ask(*words, "-n", "shop").returncode == 0


def test_minus_n_is_not_where_mooring_runs():
    """`mooring cleanup -n tidb` would look for Mooring in tidb, find none that leads, and undo what one has begun."""
    done = mooring("cleanup", "-n", "tidb", "--dry-run")
    assert done.returncode == 2 and "where Mooring runs is --mooring-namespace" in done.stderr


def test_one_namespace_and_all_of_them_is_a_mistake(ask):
    assert ask("queue", "-A").stdout == ask("queue").stdout
    assert ask("queue", "-n", "tidb", "-A").returncode == 2


def test_balance_status_has_a_line_per_cluster(ask):
    """Stores, leaders, the fullest store by its limit, what moves, and the cluster's own sentence."""
    head, line = ask("balance", "status").stdout.splitlines()
    assert head.split() == ["CLUSTER", "STORES", "LEADERS", "FULLEST", "RUNNING", "WAITING", "STATE"]
    assert line.split("  ")[0] == "tidb/demo"
    assert " ".join(line.split()) == "tidb/demo 2 44 to 44 store 4: 18/20 0 0 demo is stable."


def test_balance_status_counts_the_moves_of_regions_alone():
    """A hand-over on the same cluster is none."""
    with running({**ANSWERS, "/api/v1/queue": {**QUEUE, "rows": [*QUEUE["rows"], MOVE]}}) as url:
        told = json.loads(mooring("balance", "status", "-o", "json", "--server", url).stdout)["clusters"][0]
    assert (told["running"], told["waiting"]) == (1, 0)


def test_what_is_watched_is_printed_when_it_changes_and_not_when_time_passes():
    """-w: a row whose age alone grew is no news; Ctrl-C ends it in order."""
    answers = [("a", 1), ("a", 2), ("b", 3)]
    shown = []

    def look():
        if not answers:
            raise KeyboardInterrupt
        return answers.pop(0)

    from mooring.cli import server

    before, server.WATCH_S = server.WATCH_S, 0.0
    try:
        following(look, lambda answer: answer[0], shown.append, watch=True)
    finally:
        server.WATCH_S = before
    assert shown == [("a", 1), ("b", 3)]


def test_what_is_not_found_ends_a_watch():
    def look():
        raise UserError("pod/x not found")

    with pytest.raises(UserError):
        following(look, str, print, watch=True)
