"""`mooring mix explain` and `status` as commands, against the API of a replica in the sandbox."""

import asyncio
import json

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from mooring.capabilities.mix.explain import NodeReport, PodReport, WorkloadReport
from mooring.cli.mix import explain, status
from mooring.cli.output import Format
from mooring.cli.server import Reach
from mooring.core.model.exits import Exit, UserError
from mooring.core.model.kinds import Kind
from mooring.process.http.status import status_app
from mooring_lab.stage.scenarios.mix import NAMESPACE, switched_on
from tests.capabilities.mix.rebalance.mix_stage import Stage


def _answers(stage: Stage) -> dict[str, str]:
    """What the API says just now: taken on the sandbox's clock, served again on the real one."""
    app = status_app(stage.rig.leader)
    return {route.resource.canonical: route.handler for route in app.router.routes() if route.resource is not None}


@pytest.fixture(scope="module")
def told() -> dict[str, bytes]:
    """The bodies of the API's answers, by path, of a small cluster with one of each."""
    found: dict[str, bytes] = {}

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 3, "custom", 1)
        stage.cluster.stateful_set(NAMESPACE, "db", 2, labels=switched_on())
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "db") == 2)
        stage.cluster.annotate(Kind.NODE, "", "s3", {"vacant.io/interrupt-at": "soon"})
        await stage.rig.sleep(15.0)
        handlers = _answers(stage)
        listed = await handlers["/api/v1/mix"](None)
        found["/api/v1/mix"] = listed.body
        for name in (f"Deployment/{NAMESPACE}/web", f"StatefulSet/{NAMESPACE}/db"):
            one = await handlers["/api/v1/mix/{object}"](_Asked(name))
            found[f"/api/v1/mix/{name}"] = one.body

    Stage().play(scenario)
    return found


class _Asked:
    def __init__(self, workload: str) -> None:
        self.match_info = {"object": workload}


def _with_server(told: dict[str, bytes], command) -> None:
    """Run a command, which asks over HTTP, beside a server that gives these answers."""

    async def answer(request: web.Request) -> web.Response:
        body = told.get(request.path)
        if body is None:
            return web.json_response({"error": f"there is no {request.path}"}, status=404)
        return web.Response(body=body, content_type="application/json")

    async def whole() -> None:
        app = web.Application()
        app.router.add_get("/{tail:.*}", answer)
        async with TestServer(app) as server:
            await asyncio.to_thread(command, str(server.make_url("/")).rstrip("/"))

    asyncio.run(whole())


@pytest.mark.parametrize("name", ["web", "Deployment/web", "deploy/web", "deployment/web"])
def test_a_workload_is_found_however_kubectl_would_name_it(told, capsys, name):
    """M10: a bare name, the kind, or kubectl's short form; line one is the answer, then a row for each pod."""
    _with_server(told, lambda url: explain(name, namespace=NAMESPACE, reach=Reach(server=url)))
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "Deployment/web is stable: 1 of 3 on on-demand, as custom 1 wants"
    assert sum("web-" in line for line in shown) == 3


def test_what_is_not_there_is_said_once_with_what_to_try(told):
    """M10: each kind was tried; exit 1, and the command that lists what there is."""
    with pytest.raises(UserError, match="no workload none in namespace shop; `mooring mix status` lists them") as e:
        _with_server(told, lambda url: explain("none", namespace=NAMESPACE, reach=Reach(server=url)))
    assert e.value.code is Exit.CHECK_FAILED
    with pytest.raises(UserError, match="write NAME, Deployment/NAME, StatefulSet/NAME") as e:
        _with_server(told, lambda url: explain("pod/web", namespace=NAMESPACE, reach=Reach(server=url)))
    assert e.value.code is Exit.USAGE


def test_json_carries_everything_that_is_known(told, capsysbinary):
    """M10: -o json has every field of the report, for each workload, pod and interrupted node; nothing else is on stdout."""
    _with_server(told, lambda url: status(reach=Reach(server=url), output=Format.JSON))
    answer = json.loads(capsysbinary.readouterr().out)
    rows = {row["name"]: row for row in answer["workloads"]}
    assert set(rows) == {"web", "db"} and answer["on"] and answer["leading"]
    assert set(rows["web"]) == set(WorkloadReport.__struct_fields__)
    assert set(rows["web"]["pods"][0]) == set(PodReport.__struct_fields__)
    assert set(answer["nodes"][0]) == set(NodeReport.__struct_fields__)
    assert msgspec.convert(rows["db"], WorkloadReport).sequence == "OO"


def test_status_lists_all_and_tells_of_nodes_on_the_side(told, capsys):
    """M10: the table is data and stands on stdout; what is said about nodes stands beside it."""
    _with_server(told, lambda url: status(reach=Reach(server=url)))
    shown = capsys.readouterr()
    assert "Deployment/web" in shown.out and "StatefulSet/db" in shown.out
    assert "s3 is not emptied" in shown.err and "s3" not in shown.out
