"""A whole examination: it goes on after failures, and each finding that only a running Mooring can show is shown."""

import asyncio
import contextlib
import re
import sys

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from mooring.cli import app
from mooring.clients.ports import ListPage, NotFoundError, UnansweredError
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import TidbCluster
from mooring.install.doctor import DoctorTarget, Level, cluster, examine
from mooring.install.doctor import codes as known_codes
from mooring.process.clock import SystemRandomness, WallClock
from mooring.process.settings.config import Config

NOBODY = "http://127.0.0.1:9"


class Api:
    """A cluster in which nothing of ours is, and nobody may do anything."""

    may = False
    holder = ""

    async def raw(self, method, path, body=None):
        if path == "/version":
            return {"gitVersion": "v1.36.1"}
        if path.endswith("accessreviews"):
            return {"status": {"allowed": self.may}}
        raise NotFoundError(path) if method == "GET" else UnansweredError(path)

    async def get(self, kind, namespace, name):
        if kind is Kind.LEASE and self.holder:
            return {"spec": {"holderIdentity": self.holder, "leaseDurationSeconds": 10}}
        if kind is Kind.NAMESPACE and self.may:
            return {}
        raise NotFoundError(f"{kind} {name}")

    async def list(self, kind, *, limit=500, continue_token="", resource_version=None):
        return ListPage(items=[], resource_version="1")


def patient(api, config, server=NOBODY, **more):
    sources = {"features": "flag --features", **more.pop("sources", {})}
    return DoctorTarget(
        api=api, clock=WallClock(), randomness=SystemRandomness(), config=config, sources=sources, server=server, **more
    )


@contextlib.asynccontextmanager
async def running(status, ready=(200, "ok\n"), metrics="", extender=405, handoff=None):
    """What a Mooring that runs answers, on loopback."""

    whole = {"identity": "m-0", "leader": "m-0", "features": [], **status}
    answers = {
        "/api/v1/status": lambda: web.json_response(whole),
        "/api/v1/queue": lambda: web.json_response({"running": []}),
        "/api/v1/handoff": lambda: web.json_response(handoff or {"clusters": []}),
        "/readyz": lambda: web.Response(status=ready[0], text=ready[1]),
        "/metrics": lambda: web.Response(text=metrics),
        "/scheduler/filter": lambda: web.Response(status=extender, headers={"Allow": "POST"}),
    }

    async def answer(request):
        return answers[request.path]()

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


async def codes(*args, **more):
    return {f.code for f in await examine(patient(*args, **more)) if f.code}


async def test_it_goes_on_after_every_failure():
    """One look at a cluster in which everything is wrong names it all, group by group, each with a fix."""
    on = dict.fromkeys(("fleet", "handoff", "home", "mix"), True)
    config = Config(features=on, listen_http="0.0.0.0:8390", listen_extender="127.0.0.1:9")
    found = await examine(patient(Api(), config))
    wrong = [f for f in found if f.level in {Level.WARNING, Level.ERROR}]
    assert {f.code for f in wrong} == {
        *("MO104", "MO201", "MO202", "MO301", "MO302", "MO401", "MO501", "MO802", "MO803", "MO902"),
    }
    assert all(f.seen and f.fix for f in wrong)
    groups = list(dict.fromkeys(f.group for f in found))
    assert groups == ["cluster", "rights", "mooring", "webhooks", "extender", "pd", "fleet", "marks", "settings"]


class Silent(Api):
    """Nobody answers."""

    async def raw(self, method, path, body=None):
        raise UnansweredError(path)


async def test_it_goes_on_when_the_api_server_does_not_answer():
    """MO101 stops nothing that can be looked at without it: the running Mooring, a PD that was named, the settings."""
    config = Config(pd={"tidb/demo": ("http://127.0.0.1:9",)}, listen_http="0.0.0.0:8390")
    async with running({"leading": True, "deciding": False}) as server:
        found = await examine(patient(Silent(), config, server))
    assert {f.code for f in found if f.code} == {"MO101", "MO303", "MO601", "MO802", "MO803"}
    assert {f.group for f in found if f.level == Level.SKIPPED} == {"rights", "webhooks", "marks"}


class Sandbox(Api):
    """The kept demo: its clock is virtual, its scheduler and its PD are inside its process."""

    may = True
    holder = "m-0"

    async def raw(self, method, path, body=None):
        return (
            {"gitVersion": "v1.36.0-mooring-sandbox"} if path == "/version" else await super().raw(method, path, body)
        )

    async def get(self, kind, namespace, name):
        found = await super().get(kind, namespace, name)
        if kind is Kind.LEASE:
            found["spec"]["renewTime"] = "2026-01-01T09:00:00Z"
        return found

    async def list(self, kind, *, limit=500, continue_token="", resource_version=None):
        items = [TidbCluster("tidb", "demo", "u", "1")] if kind is Kind.TIDB_CLUSTER else []
        return ListPage(items=items, resource_version="1")


async def test_the_kept_demo_is_well():
    """A virtual clock, a scheduler without a network and a PD inside the process are no errors."""
    status = {"leading": True, "deciding": True, "features": ["home", "handoff"]}
    seen = {"clusters": [{"cluster": "tidb/demo", "pd": "answers"}]}
    async with running(status, handoff=seen) as server:
        found = await examine(patient(Sandbox(), Config(features={"home": True, "handoff": True}), server))
    assert {f.code for f in found if f.level == Level.ERROR} == set()
    assert "MO103" not in {f.code for f in found}


async def test_every_fix_is_for_this_installation_and_can_be_typed():
    """The namespace that was asked about, not the usual one; what is ours parses; the rights of all that is on are given
    back together, since whatever is not named would lose its own."""
    on = dict.fromkeys(("fleet", "handoff", "home", "mix"), True)
    config = Config(namespace="elsewhere", features=on, listen_extender="127.0.0.1:9")
    wrong = [f for f in await examine(patient(Api(), config)) if f.code]
    assert not [f.fix for f in wrong if "mooring-system" in f.fix]
    (fix,) = {f.fix for f in wrong if f.code == "MO202"}
    assert "--rights --namespace elsewhere --features fleet=true,handoff=true,home=true,mix=true | kubectl apply" in fix
    typed = [f.fix.partition("   ")[0].partition(" | ")[0] for f in wrong if f.fix.startswith("mooring ")]
    ours = [words for words in typed if not re.search(r"…|[A-Z]{4}", words)]
    assert len(ours) > 2
    for words in ours:
        app.parse_args(words.removeprefix("mooring "), exit_on_error=False, print_error=False)


async def test_before_an_installation_only_what_the_cluster_must_bring_is_looked_at():
    """--pre: nothing of ours is missed; whoever may not install is told what is refused."""
    found = await examine(patient(Api(), Config()), pre=True)
    assert {f.group for f in found} == {"cluster", "rights", "settings"}
    (refused,) = [f for f in found if f.code]
    assert refused.code == "MO203"
    assert {"deployments.apps", "clusterroles.rbac.authorization.k8s.io"} <= set(re.split(r"[ ,]+", refused.seen))


@pytest.mark.parametrize(
    ("status", "ready", "code"),
    [
        ({"leading": True, "deciding": True}, (200, "ok\n"), set()),
        ({"leading": True, "deciding": False}, (200, "ok\n"), {"MO303"}),
        ({"leading": False, "deciding": False}, (503, "not ready: not synced: Pod\n"), {"MO304"}),
        ({"leading": True, "deciding": True, "blackbox_stopped": "no space left"}, (200, "ok\n"), {"MO306"}),
        ({"leading": True, "deciding": True, "features": ["fleet"]}, (200, "ok\n"), {"MO305", "MO902"}),
    ],
)
async def test_what_a_running_one_says_of_itself(status, ready, code):
    """Does it decide, is it ready, is on what was asked about?"""
    api = Api()
    api.may, api.holder = True, "m-0"
    async with running({"features": ["handoff"], **status}, ready) as server:
        assert await codes(api, Config(features={"handoff": True}), server) - {"MO104"} == code


@pytest.mark.parametrize(
    ("metrics", "answer", "code"),
    [
        ('mooring_extender_requests_total{reason="home",verb="filter"} 3.0\n', 500, set()),
        ("", 405, {"MO502"}),
        ("", 401, {"MO502"}),
        ("", None, {"MO502"}),
        ("", 500, {"MO501"}),
    ],
)
async def test_the_extender_is_configured_and_answers(metrics, answer, code):
    """Asked by a scheduler: both are proved, wherever it listens. Never asked: said so, also where it asks for a token or
    is out of reach, as in a pod. Answering otherwise: an error."""
    api = Api()
    api.may, api.holder = True, "m-0"
    status = {"leading": True, "deciding": True, "features": ["home"]}
    async with running(status, metrics=metrics, extender=answer) as server:
        listens = server.removeprefix("http://") if answer else "127.0.0.1:1"
        assert await codes(api, Config(features={"home": True}, listen_extender=listens), server) == code


async def test_every_setting_is_shown_with_its_source_and_no_secret():
    """4.3: what is not a default, and where it came from; a token is only said to be set."""
    config = Config(namespace="own", http_token="hush")
    sources = {"features": "default", "namespace": "flag --namespace", "http-token": "environment MOORING_HTTP_TOKEN"}
    found = await examine(patient(Api(), config, sources=sources), pre=True)
    told = [f.what for f in found if f.group == "settings"]
    assert told == [
        "http-token = (set)   from environment MOORING_HTTP_TOKEN",
        "namespace = own   from flag --namespace",
    ]


async def test_without_the_kind_nothing_is_missed_unless_it_is_needed():
    """No TidbCluster in a cluster that has only mix on is no finding."""
    assert (await cluster.tidb_kind(Api(), frozenset({"mix"}))).code == ""
    assert (await cluster.tidb_kind(Api(), frozenset({"balance"}))).code == "MO104"


def test_codes_are_for_ever():
    """Scripts match on them: what was ever shipped is still there."""
    shipped = (
        "MO101 MO102 MO103 MO104 MO201 MO202 MO203 MO301 MO302 MO303 MO304 MO305 MO401 MO402 MO403 "
        "MO501 MO601 MO602 MO701 MO702 MO801 MO802 MO901 MO902"
    )
    assert set(shipped.split()) <= set(known_codes())


async def test_who_is_silent_is_asked_once(monkeypatch):
    """A cluster and a Mooring that take connections and say nothing: a person waits for each of them one time."""
    monkeypatch.setattr(cluster, "REACH_S", 0.05)
    monkeypatch.setattr(sys.modules["mooring.install.doctor.examine"], "TIMEOUT_S", 0.05)
    asked = []

    class Silent(Api):
        async def raw(self, method, path, body=None):
            asked.append(path)
            await asyncio.Event().wait()

    async def say_nothing(request):
        asked.append(request.path)
        await asyncio.Event().wait()

    app = web.Application()
    app.add_routes([web.get("/{tail:.*}", say_nothing)])
    looked: list[str] = []
    async with TestServer(app) as server:
        url = str(server.make_url(""))
        found = await examine(patient(Silent(), Config(), url), say=looked.append)
        assert asked == ["/version", "/api/v1/status"]
        assert {f.code for f in found} >= {"MO101", "MO301"}
        assert looked == ["the API server", f"Mooring at {url}", "PD"]
        asked.clear()
        await examine(patient(Api(), Config(), url))
        assert asked == ["/api/v1/status"]
