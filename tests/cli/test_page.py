"""`mooring page`: several clusters on one page; one that is silent or answers nonsense is a line of its own."""

import json
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from mooring.cli.page import Clusters, serve
from mooring.cli.server import Reach
from tests.program import mooring


def frame(cluster, state, words, needs=0):
    head = {"cluster": cluster, "verdict": {"state": state, "words": words}, "waiting": 2, "running": 1, "moved": 40}
    return {"head": {**head, "needs": needs, "needs_do": "kubectl get pods"}}


@contextmanager
def answering(body):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def two():
    with (
        answering(frame("prod-eu", "safe", "✓ Safe: no pending changes")) as safe,
        answering(frame("prod-us", "needs-you", "▲ Needs you: shop/pay-0 blocked 41 min", needs=1)) as needs,
    ):
        yield safe, needs


def test_each_cluster_is_a_line_and_those_that_need_somebody_come_first(two):
    """O3: the verdict of each, and exit 1 because one needs a person."""
    done = mooring("page", "--once", "--server", two[0], "--server", two[1])
    lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stderr
    assert lines[1].startswith("prod-us") and "▲ Needs you: shop/pay-0 blocked 41 min" in lines[1]
    assert lines[2].startswith("prod-eu") and "✓ Safe: no pending changes" in lines[2]


def test_a_silent_cluster_is_unknown_and_hides_no_other(two, unused_tcp_port):
    """O3: exit 4, and the others are there all the same."""
    silent = f"http://127.0.0.1:{unused_tcp_port}"
    done = mooring("page", "--once", "--server", two[0], "--server", silent, "-o", "json")
    assert done.returncode == 4
    assert [(c["name"], c["state"]) for c in json.loads(done.stdout)["clusters"]] == [
        (silent, "unknown"),
        ("prod-eu", "safe"),
    ]


def test_what_is_no_mooring_is_said():
    with answering({"hello": "world"}) as other:
        done = mooring("page", "--once", "--server", other)
    assert done.returncode == 4
    assert "no Mooring of this version" in done.stdout


def test_the_page_has_the_lines_and_answers_only_to_this_machine(two):
    """A page of another site, or another name for this address, reads nothing."""
    clusters = Clusters([(url, Reach(server=url)) for url in two])
    clusters.once()
    server = serve(clusters, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        base = f"http://127.0.0.1:{server.server_port}"
        with urllib.request.urlopen(f"{base}/api/clusters", timeout=10) as answer:
            told = json.load(answer)
        assert [(c["name"], c["link"], c["waiting"]) for c in told["clusters"]] == [
            ("prod-us", two[1], 2),
            ("prod-eu", two[0], 2),
        ]
        with urllib.request.urlopen(base, timeout=10) as page:
            assert "script-src 'self'" in page.headers["Content-Security-Policy"]
            assert b"clusters.js" in page.read()
        for headers in ({"Host": "evil.example:80"}, {"Sec-Fetch-Site": "cross-site"}):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(urllib.request.Request(f"{base}/api/clusters", headers=headers), timeout=10)
            with refused.value as answer:
                assert answer.code == 403
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("port", ["0", "99999"])
def test_a_port_that_there_is_not_is_refused(port):
    done = mooring("page", "--port", port)
    assert (done.returncode, "between 1 and 65535" in done.stderr) == (2, True)
