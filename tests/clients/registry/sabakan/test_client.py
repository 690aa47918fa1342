"""The client against a server that plays a recorded sabakan, and one that misbehaves."""

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from graphql import build_schema, graphql_sync

from mooring.clients.ports import NotFoundError, PortError, RefusedError, UnansweredError
from mooring.clients.registry.sabakan.client import QUERY, InvalidVariablesError, Sabakan, check_variables, graphql_url

RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text())
SCHEMA = build_schema(
    """
    scalar IPAddress
    scalar DateTime
    enum MachineState { UNINITIALIZED HEALTHY UNHEALTHY UNREACHABLE UPDATING RETIRING RETIRED }
    input LabelInput { name: String! value: String! }
    input MachineParams {
      labels: [LabelInput!] = null, racks: [Int!] = null, roles: [String!] = null,
      states: [MachineState!] = null, minDaysBeforeRetire: Int = null
    }
    type Label { name: String! value: String! }
    type BMC { bmcType: String! ipv4: IPAddress! }
    type MachineSpec {
      serial: ID! labels: [Label!] rack: Int! indexInRack: Int! role: String! ipv4: [IPAddress!]!
      registerDate: DateTime! retireDate: DateTime! bmc: BMC!
    }
    type MachineStatus { state: MachineState! timestamp: DateTime! duration: Float! }
    type Machine { spec: MachineSpec! status: MachineStatus! }
    type Query { searchMachines(having: MachineParams = null, notHaving: MachineParams = null): [Machine!]! }
    """
)


class Registry:
    """Answers as told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answer = (200, json.dumps(RECORDED["all"]).encode())
        self.asked: list[dict] = []
        self.broken = ""
        self.released = asyncio.Event()

    async def post(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        if self.broken == "silent":
            await self.released.wait()
        status, body = self.answer
        if self.broken == "cut":
            response = web.StreamResponse(status=200, headers={"Content-Length": str(len(body))})
            await response.prepare(request)
            await response.write(body[: len(body) // 2])
            assert request.transport is not None
            request.transport.close()
            return response
        return web.Response(status=status, body=body, content_type="application/json")


@pytest.fixture
async def registry():
    made = Registry()
    app = web.Application()
    app.router.add_post("/graphql", made.post)
    server = TestServer(app)
    await server.start_server()
    made.client = Sabakan(str(server.make_url("/")), timeout_s=5, now=lambda: 1_794_772_690.0)
    yield made
    made.released.set()
    await made.client.close()
    await server.close()


async def test_an_answer_without_news_is_the_last_one(registry):
    """F9: the same machines are the very same list, so that a minute without news costs next to nothing."""
    first = await registry.client.machines()
    assert await registry.client.machines() is first


async def test_a_recorded_sabakan_is_read(registry):
    """F1: sabakan 3.1.9's own words: null dates filled in, states, labels, three addresses each."""
    machines = await registry.client.machines()
    assert [(x.serial, x.address, x.state.value, x.role) for x in machines] == [
        ("m0", "10.69.0.3", "UNINITIALIZED", "boot"),
        ("m1", "10.69.0.4", "RETIRED", "cs"),
        ("m2", "10.69.0.196", "HEALTHY", "ss"),
    ]
    assert machines[2].retire_at == machines[2].registered_at
    assert "variables" not in registry.asked[0]
    assert registry.asked[0]["query"] == QUERY


@pytest.mark.parametrize(
    ("variables", "effective"),
    [
        (None, (None, {"roles": ["boot"], "states": ["RETIRED"]})),
        ({}, (None, {"roles": ["boot"], "states": ["RETIRED"]})),
        ({"having": {"roles": ["cs"]}}, ({"roles": ["cs"]}, {"roles": ["boot"], "states": ["RETIRED"]})),
        ({"notHaving": None}, (None, None)),
        ({"notHaving": {"states": ["RETIRED"]}}, (None, {"states": ["RETIRED"]})),
    ],
)
async def test_a_key_left_out_keeps_its_default(registry, variables, effective):
    """F1: what a GraphQL server makes of our request, by the defaults written in the query."""
    await registry.client.machines(variables)
    asked = registry.asked[0]
    seen = []

    def search(_, **arguments):
        seen.append(arguments)
        return []

    result = graphql_sync(
        SCHEMA,
        asked["query"],
        {"searchMachines": lambda info, **a: search(info, **a)},
        variable_values=asked.get("variables"),
    )
    assert result.errors is None

    def given(params):
        return params and {k: v for k, v in params.items() if v is not None}

    assert (given(seen[0]["having"]), given(seen[0]["notHaving"])) == effective


@pytest.mark.parametrize("name", ["bad enum", "bad field", "bad json"])
async def test_recorded_refusals(registry, name):
    """F1: 422 and 400 with GraphQL errors: refused, with sabakan's own sentence."""
    recorded = RECORDED[name]
    registry.answer = (recorded["status"], json.dumps(recorded["body"]).encode())
    with pytest.raises(RefusedError) as caught:
        await registry.client.machines()
    assert recorded["body"]["errors"][0]["message"] in str(caught.value)
    assert caught.value.code == recorded["status"]


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (
            200,
            {"errors": [{"message": "etcd away", "extensions": {"type": "INTERNAL_SERVER_ERROR"}}], "data": None},
            UnansweredError,
        ),
        (200, {"data": RECORDED["all"]["data"], "errors": [{"message": "half of it"}]}, UnansweredError),
        (200, {"data": {"searchMachines": []}}, NotFoundError),
        (200, {"data": None}, UnansweredError),
        (200, {"data": {"searchMachines": [{"spec": {}}]}}, UnansweredError),
        (500, {"error": "boom", "status": 500}, UnansweredError),
        (503, "down", UnansweredError),
        (404, {"error": "requested resource is not found", "status": 404}, NotFoundError),
        (403, "no", RefusedError),
        (302, "", PortError),
    ],
)
async def test_everything_else_is_an_error_and_never_a_shorter_list(registry, status, body, error):
    """F1: GraphQL errors with status 200, an empty list, HTTP errors, unreadable machines."""
    registry.answer = (status, (body if isinstance(body, str) else json.dumps(body)).encode())
    with pytest.raises(error):
        await registry.client.machines()


async def test_half_a_page(registry):
    """F1: a body that breaks off is no answer, whether the connection says so or the JSON does."""
    registry.broken = "cut"
    with pytest.raises(UnansweredError):
        await registry.client.machines()
    registry.broken = ""
    registry.answer = (200, registry.answer[1][:400])
    with pytest.raises(UnansweredError, match="not a complete JSON document"):
        await registry.client.machines()


async def test_silence_times_out(registry):
    """F1: bounded waiting."""
    registry.broken = "silent"
    registry.client._requests._timeout_s = 0.05
    with pytest.raises(UnansweredError, match=r"within 0\.05 s"):
        await registry.client.machines()


async def test_nobody_listens():
    """F1: a refused connection is an answer of the port, too."""
    client = Sabakan("http://127.0.0.1:9")
    with pytest.raises(UnansweredError):
        await client.machines()
    await client.close()


@pytest.mark.parametrize(
    ("url", "full"),
    [
        ("http://10.0.0.1:10080", "http://10.0.0.1:10080/graphql"),
        ("http://10.0.0.1:10080/", "http://10.0.0.1:10080/graphql"),
        ("https://s.example/x/graphql", "https://s.example/x/graphql"),
    ],
)
def test_the_url_is_completed(url, full):
    """F1: as CKE does."""
    assert graphql_url(url) == full


@pytest.mark.parametrize("url", ["", "10.0.0.1:10080", "/graphql", "ftp://x/y"])
def test_a_url_must_be_absolute(url):
    """F1: said at once, not at the first query."""
    with pytest.raises(ValueError, match="is not an absolute"):
        graphql_url(url)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "an object such as"),
        ({"nothaving": None}, "nothaving: unknown; notHaving is meant?"),
        ({"having": []}, "having: must be an object or null"),
        ({"having": {"role": ["x"]}}, "having.role: unknown; roles is meant?"),
        ({"having": {"states": ["healthy"]}}, "having.states[0]: must be one of UNINITIALIZED, HEALTHY"),
        ({"having": {"racks": ["1"]}}, "having.racks[0]: must be a whole number"),
        ({"having": {"roles": "cs"}}, "having.roles: must be a list"),
        ({"having": {"labels": [{"name": "x"}]}}, "having.labels[0]: must be an object such as"),
        ({"having": {"minDaysBeforeRetire": "90"}}, "minDaysBeforeRetire: must be a whole number of days"),
    ],
)
async def test_bad_variables_are_refused_before_they_are_sent(registry, document, said):
    """F1: a mistyped condition would fetch the wrong machines without a word."""
    with pytest.raises(InvalidVariablesError) as caught:
        check_variables(document)
    assert said in str(caught.value)
    if isinstance(document, dict):
        with pytest.raises(RefusedError):
            await registry.client.machines(document)
        assert registry.asked == []
