"""`mooring fleet set-… get-… status history …` against an API server (the sandbox's): checked before it is written."""

import asyncio
import json
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import yaml
from aiohttp import web

from mooring.capabilities.fleet.live import ledger
from mooring.capabilities.fleet.live.explain import history_row
from mooring.cli import main
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.http.facade import Facade
from mooring_lab.cluster.sabakan import SandboxSabakan
from mooring_lab.cluster.sabakan.http import sabakan_app
from mooring_lab.cluster.sabakan.registry import Ipam
from tests.capabilities.fleet.fleet_making import template_document

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")
OWN = "mooring-system"


class Desk:
    """A command line, a cluster and a registry behind HTTP; the servers live in a thread of their own."""

    def __init__(self, where, monkeypatch, capsys):
        self.where, self._monkeypatch, self._capsys = where, monkeypatch, capsys
        self.cluster = Cluster(seed=1)
        self.cluster.store.create(Kind.NAMESPACE, {"metadata": {"name": OWN}})
        self.registry = SandboxSabakan(self.cluster.timeline, ipam=Ipam())
        self.addresses = []
        for n in range(4):
            self.addresses.append(self.registry.register(f"m{n}", rack=n, state=MachineState.HEALTHY).ipv4[0])

    def __enter__(self):
        ready, self._loop = threading.Event(), asyncio.new_event_loop()

        async def serve():
            runner = web.AppRunner(sabakan_app(self.registry), access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = site.name
            async with Facade(self.cluster.api.server) as facade:
                facade.write_kubeconfig(self.where / "kubeconfig")
                self._stop = asyncio.Event()
                ready.set()
                await self._stop.wait()
            await runner.cleanup()

        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(serve()))
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._loop.close()

    def file(self, name, content):
        path = self.where / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return str(path)

    def fleet(self, *args):
        """Exit code, stdout, stderr."""
        where = ["--kubeconfig", str(self.where / "kubeconfig")]
        self._monkeypatch.setattr(sys, "argv", ["mooring", "fleet", *args, *where])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        return int(ended.value.code or 0), out, err

    def ok(self, *args):
        code, out, err = self.fleet(*args)
        assert code == 0, err
        return out

    def set_up(self):
        self.ok("set", "template", self.file("t.yml", template_document()))
        self.ok("set", "constraints", self.file("c.yml", {"control-plane-count": 1, "minimum-workers": 2}))
        self.ok("set", "url", self.url)
        self.ok("enable")

    def cluster_of(self, *planes):
        nodes = [
            {
                "address": a,
                "user": "x",
                "control_plane": i in planes,
                "annotations": {},
                "labels": {"cke.cybozu.com/rack": str(i), "cke.cybozu.com/role": "cs"},
            }
            for i, a in enumerate(self.addresses)
        ]
        return self.file("cluster.yml", {**template_document(), "nodes": nodes})


@pytest.fixture
def desk(tmp_path, monkeypatch, capsys):
    with Desk(tmp_path, monkeypatch, capsys) as made:
        yield made


def test_what_is_set_is_what_is_got(desk):
    """F9: text in, the same text out; what is not set says so with exit 1."""
    assert desk.fleet("get", "template")[0] == 1
    desk.set_up()
    assert yaml.safe_load(desk.ok("get", "template")) == template_document()
    assert desk.ok("get", "url") == f"{desk.url}\n"
    desk.ok("set", "variables", desk.file("v.json", '{"having": {"roles": ["cs"]}}'))
    assert json.loads(desk.ok("get", "variables")) == {"having": {"roles": ["cs"]}}
    for name, said in (
        ("template", template_document()),
        ("constraints", {"control-plane-count": 1, "minimum-workers": 2}),
        ("url", desk.url),
        ("variables", {"having": {"roles": ["cs"]}}),
    ):
        assert json.loads(desk.ok("get", name, "-o", "json")) == said
    desk.ok("disable")
    assert json.loads(desk.ok("status", "-o", "json"))["enabled"] is False


@pytest.mark.parametrize(
    ("key", "content", "said"),
    [
        ("template", "nodes: []", "exactly one"),
        ("constraints", "control-plane-count: 0", "at least 1"),
        ("variables", '{"having": {"states": ["BOGUS"]}}', "BOGUS"),
        ("variables", "{", "not JSON"),
    ],
)
def test_bad_files_are_refused_before_anything_is_written(desk, key, content, said):
    """F2: exit 2, the file is named, and the settings are as before."""
    code, _, err = desk.fleet("set", key, desk.file("bad", content))
    assert code == 2
    assert said in err
    assert desk.cluster.store.find(Kind.CONFIG_MAP, OWN, "mooring-fleet") is None


def test_former_spellings_are_understood_for_one_release(desk):
    """`fleet set-url` and its like work, and say how they are spelled now."""
    code, _, err = desk.fleet("set-url", desk.url)
    assert (code, "fleet set url" in err) == (0, True)
    code, out, err = desk.fleet("get-url")
    assert (code, out, "fleet get url" in err) == (0, f"{desk.url}\n", True)


def test_enable_wants_a_template(desk):
    """F9: what cannot be planned from is not switched on."""
    code, _, err = desk.fleet("enable")
    assert code == 3
    assert "set template" in err


def test_set_cluster_is_checked_against_constraints_and_quorum(desk):
    """F3, F9: by hand, but not against the rules; the last way out is named."""
    desk.set_up()
    code, _, err = desk.fleet("set", "cluster", desk.cluster_of())
    assert code == 3
    assert "control-plane-count" in err
    desk.ok("set", "cluster", desk.cluster_of(0))
    code, _, err = desk.fleet("set", "cluster", desk.cluster_of(1))
    assert code == 3
    assert "quorum" in err
    desk.ok("set", "cluster", desk.cluster_of(1), "--quorum-is-lost")
    history = json.loads(desk.ok("history", "-o", "json"))
    assert [e["action"] for e in history] == ["set-by-hand", "set-by-hand"]
    assert "set-by-hand" in desk.ok("history")


def test_a_silent_registry_does_not_matter_to_what_is_stored(desk):
    """F13: cluster.yml is written from what is stored."""
    desk.set_up()
    desk.ok("set", "cluster", desk.cluster_of(0))
    desk.ok("set", "url", "http://127.0.0.1:9")
    assert desk.addresses[0] in desk.ok("get", "cluster")


def test_get_cluster_writes_cluster_yml_unless_cke_generates_itself(desk):
    """F9: labels as they are stored; refused with a finding while CKE's own integration is on."""
    desk.set_up()
    assert desk.fleet("get", "cluster")[0] == 1
    desk.ok("set", "cluster", desk.cluster_of(0))
    document = yaml.safe_load(desk.ok("get", "cluster"))
    assert [n["address"] for n in document["nodes"]] == desk.addresses
    assert document["nodes"][1]["labels"]["cke.cybozu.com/rack"] == "1"
    assert document["service_subnet"] == "10.68.0.0/16"
    desk.ok("cke-integration", "on")
    assert desk.fleet("get", "cluster")[0] == 3
    code, _, err = desk.fleet("status")
    assert code == 1
    assert "ckecli sabakan disable" in err


GENERATES = (
    "# TYPE cke_sabakan_integration_timestamp_seconds gauge\ncke_sabakan_integration_timestamp_seconds 1.7e+09\n"
)


@pytest.mark.parametrize(
    ("status", "body", "code", "said"),
    [
        (200, "cke_leader 1\n" + GENERATES, 3, "ckecli sabakan disable"),
        (200, GENERATES.partition("\n")[2], 3, "ckecli sabakan disable"),
        (200, "cke_leader 1\n# cke_sabakan_integration_timestamp_seconds\n", 0, ""),
        (500, "broken", 4, "500"),
    ],
    ids=["on", "on, first line", "off", "cannot look"],
)
def test_cke_itself_is_asked_whether_it_generates(desk, status, body, code, said):
    """F9: CKE shows the metric only while its integration is on: then nothing is written out."""
    desk.set_up()
    desk.ok("set", "cluster", desk.cluster_of(0))
    with page(status, body) as url:
        ended, out, err = desk.fleet("get", "cluster", "--cke-metrics", url)
    assert ended == code
    assert said in err
    assert bool(out) == (code == 0)


@pytest.mark.parametrize(
    ("url", "code"), [("ftp://x/metrics", 2), ("http://[::1/metrics", 2), ("http://127.0.0.1:9", 4)]
)
def test_a_cke_that_cannot_be_asked_is_not_taken_for_one_that_is_off(desk, url, code):
    """Contract: a bad address is bad usage, a closed port is 'could not look'; cluster.yml is written in neither case."""
    ended, out, err = desk.fleet("get", "cluster", "--cke-metrics", url)
    assert (ended, out) == (code, "")
    assert "--cke-metrics" in err


@contextmanager
def page(status, body):
    """A server with one page."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/metrics"
        finally:
            server.shutdown()
            thread.join(10)


def test_confirm_removal_names_only_what_is_held(desk):
    """F5: a confirmation is for addresses, not for ever."""
    desk.set_up()
    desk.ok("set", "cluster", desk.cluster_of(0))
    assert desk.fleet("confirm-removal")[0] == 3
    gone = desk.addresses[1:3]
    desk.cluster.store.patch(Kind.CONFIG_MAP, OWN, ledger.NAME, {"data": {ledger.HELD: json.dumps(gone)}})
    assert desk.fleet("confirm-removal", desk.addresses[3])[0] == 2
    code, _, err = desk.fleet("status")
    assert code == 1
    assert gone[0] in err
    desk.ok("confirm-removal", gone[0])
    data = desk.cluster.store.get(Kind.CONFIG_MAP, OWN, "mooring-fleet")["data"]
    assert json.loads(data["confirmed-removals"]) == [gone[0]]


def test_a_cluster_that_cannot_be_asked_is_exit_4(desk):
    """Contract: could not look."""
    config = yaml.safe_load((desk.where / "kubeconfig").read_text())
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    (desk.where / "kubeconfig").write_text(yaml.safe_dump(config))
    assert desk.fleet("status")[0] == 4


MACHINES = """\
machines:
- {serial: S1, address: 10.0.0.11, role: cs, rack: 1}
- {serial: S2, address: 10.0.0.12, role: cs, rack: 2}
- {serial: S3, address: 10.0.0.12, role: cs, rack: 3}
"""


def test_a_list_of_machines_takes_the_place_of_a_registry(desk):
    """F12: checked before it is stored, bad rows by name; the URL goes, and comes back in its place."""
    desk.set_up()
    code, _, err = desk.fleet("set", "machines", desk.file("m.yml", MACHINES))
    assert code == 0 and "S3" in err and "several machines" in err
    assert desk.ok("get", "machines") == MACHINES and desk.fleet("get", "url")[0] == 1
    assert desk.fleet("set", "machines", desk.file("n.yml", "machines: []"))[0] == 2
    assert desk.fleet("set", "machines", desk.file("n.yml", "machines: [{rack: 1}]"))[0] == 2
    desk.ok("set", "url", "netbox+https://netbox.example.com")
    assert desk.fleet("get", "machines")[0] == 1
    assert desk.fleet("set", "variables", desk.file("v.json", '{"limit": 3}'))[0] == 2
    desk.ok("set", "variables", desk.file("v.json", '{"role": "server"}'))


def test_history_is_a_line_a_revision():
    """F9: how many of a kind; `--all` for every change in words."""
    entry = ledger.StoredChange(
        3, 0.0, "increase-workers", 3, 9, tuple(f"add 10.0.0.{n}: score 1" for n in range(8)), 4
    )
    assert history_row(entry)[-1] == "add 8 and 4 more"
    assert "10.0.0.7: score 1" in history_row(entry, every=True)[-1]


def test_status_asks_the_running_mooring_and_shows_what_is_stored_without_it(desk):
    """F10, F15: plan, registry, rows that were left out and the repair queue come from it; what needs a person is a
    finding, exit 1. Where nobody answers, what is stored is shown; a --server that does not answer is exit 4."""
    answer = {
        "on": True,
        "leading": True,
        "plan": {"state": "blocked", "reason": "unmet", "detail": "minimum-workers wants 9, has 4"},
        "registry": {"asked_at": "2026-01-01T00:00:00Z", "error": "no route"},
        "left_out": ["M7: two machines have 10.0.0.7"],
        "repairs": [
            {"address": "10.0.0.4", "serial": "M4", "state": "failed", "why": "exit 3"},
            {"address": "10.0.0.5", "serial": "M5", "state": "queued", "why": "1 of 1 under repair"},
        ],
    }
    with page(200, json.dumps(answer)) as url:
        code, out, err = desk.fleet("status", "--server", url.removesuffix("/metrics"))
    assert code == 1
    assert "repair             M5 (10.0.0.5): queued, 1 of 1 under repair" in out
    for finding in ("wants 9, has 4", "no route", "two machines have 10.0.0.7", "machine M4"):
        assert finding in err
    code, out, _ = desk.fleet("status", "-o", "json")
    assert (code, json.loads(out)["running"]) == (1, None)
    assert "no template.yml" in json.loads(out)["findings"][0]
    desk.set_up()
    code, out, err = desk.fleet("status", "-o", "json")
    assert (code, json.loads(out)["running"]) == (0, None)
    assert "what is stored alone" in err
    assert desk.fleet("status", "--server", "http://127.0.0.1:1")[0] == 4
