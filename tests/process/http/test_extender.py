"""The extender over HTTP: routes, limits, bad input, and that it never drops a connection nor a candidate."""

import io
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from mooring.capabilities.home.capability import Home
from mooring.capabilities.home.policy import HomePolicy
from mooring.capabilities.home.verbs import VerbAnswer, Verbs
from mooring.core.model.events import Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import TidbCluster
from mooring.core.world.world import World
from mooring.process.extender import app_of
from mooring.process.http.intake import LISTEN

LABELS = {"app.kubernetes.io/component": "tidb", "app.kubernetes.io/instance": "demo"}
POD = {"metadata": {"name": "demo-tidb-0", "namespace": "tidb", "labels": LABELS}}
DEEP = b'{"Pod": {"metadata": {"name": "x"}, "spec": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
MEMBER = {"Pod": POD, "Nodes": None, "NodeNames": ["n0", "n1"]}


class Broken(Verbs):
    def filter(self, body: bytes) -> VerbAnswer:
        raise RuntimeError("a defect of ours")


class Served:
    def __init__(self, verbs: type[Verbs] = Verbs, policy: HomePolicy | None = None) -> None:
        world, policy = World(), policy or HomePolicy()
        for index in Home().indexes():
            world.register(index)
        homes = {"demo-tidb-0": "n1"}
        world.apply(Seen(Kind.TIDB_CLUSTER, TidbCluster("tidb", "demo", "u", "1", tidb_member_nodes=homes)))
        self.counted: list[tuple[str, str]] = []
        app = app_of(verbs(world, lambda: policy, lambda: True), lambda: policy, self._count)
        self.runner = web.AppRunner(app, **LISTEN)

    def _count(self, _: str, labels: dict[str, str]) -> None:
        self.counted.append((labels["verb"], str(labels["reason"])))

    async def __aenter__(self) -> "Served":
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"
        self.session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()
        await self.runner.cleanup()

    async def ask(self, body: Any, path: str = "/scheduler/filter", method: str = "POST") -> tuple[int, Any]:
        data = body if isinstance(body, bytes) or hasattr(body, "__aiter__") else json.dumps(body).encode()
        data = io.BytesIO(data) if isinstance(data, bytes) else data
        async with self.session.request(method, self.url + path, data=data) as answer:
            return answer.status, await answer.json()


async def test_the_three_verbs_answer():
    """H1, H7: filter, prioritize and preempt answer as extender/v1, and each is counted by its reason."""
    async with Served() as served:
        status, answer = await served.ask(MEMBER)
        assert (status, answer["NodeNames"]) == (200, ["n1"])
        assert set(answer) == {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
        status, answer = await served.ask(MEMBER, "/scheduler/prioritize")
        assert (status, answer) == (200, [{"Host": "n0", "Score": 0}, {"Host": "n1", "Score": 10}])
        victims = {"n0": {"Pods": [{"UID": "a"}], "NumPDBViolations": 0}}
        status, answer = await served.ask({"Pod": POD, "NodeNameToMetaVictims": victims}, "/scheduler/preempt")
        assert (status, answer) == (200, {"NodeNameToMetaVictims": victims})
        assert served.counted == [("filter", "home"), ("prioritize", "home"), ("preempt", "home-absent")]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"Pod":3}', b'{"NodeNames":3}', b"\xff\xfe", b"[" * 100_000, DEEP]
)
async def test_bad_input_is_a_400_with_a_sentence_on_a_connection_that_lives(body):
    """H7: a 4xx that says what would be right; the connection serves the next request."""
    async with Served() as served:
        for path in ("/scheduler/filter", "/scheduler/prioritize"):
            status, answer = await served.ask(body, path)
            assert status == 400
            assert "must be an ExtenderArgs" in answer["Error"]
        assert (await served.ask(MEMBER))[0] == 200
        assert len(served.session.connector._conns) == 1, "one connection served them all"


async def test_a_compressed_body_is_refused_and_not_unpacked():
    """H7: 64 KB may become 64 MiB: nothing is unpacked, and the sender hears what to send."""
    async with Served() as served:
        packed = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        async with served.session.post(f"{served.url}/scheduler/filter", data=b"{}", headers=packed) as answer:
            assert (answer.status, "gzip" in (await answer.json())["Error"]) == (415, True)


async def test_unknown_verbs_and_methods():
    """A 404 or 405 that names what there is."""
    async with Served() as served:
        status, answer = await served.ask(MEMBER, "/scheduler/bind")
        assert status == 404
        assert "/scheduler/filter, /scheduler/prioritize, /scheduler/preempt" in answer["Error"]
        status, answer = await served.ask(b"", method="GET")
        assert (status, answer["Error"]) == (405, "GET /scheduler/filter: write POST")


async def test_a_body_above_the_limit_is_read_to_its_end_and_then_refused():
    """H7: drained, then answered 413, with a length and in chunks; the connection serves the next request."""

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(48):
            yield b" " * 65536

    async with Served(policy=HomePolicy(body_limit_mb=1)) as served:
        for body in (b" " * (3 << 20), chunks()):
            status, answer = await served.ask(body)
            assert status == 413
            assert "home.body-limit-mb" in answer["Error"]
        assert (await served.ask(MEMBER))[0] == 200
        assert len(served.session.connector._conns) == 1
        assert served.counted[0] == ("filter", "too-large")


async def test_a_defect_of_ours_lets_everything_pass():
    """H2: fails open: whatever goes wrong inside, every candidate comes back."""
    async with Served(Broken) as served:
        status, answer = await served.ask(MEMBER)
        assert (status, answer["NodeNames"], answer["FailedNodes"]) == (200, ["n0", "n1"], {})
        assert served.counted == [("filter", "failed")]


async def test_five_thousand_full_nodes_pass_through_untouched():
    """H7: 36 MB of an unrelated pod's Nodes are within the limit and come back as they went."""
    filler = "x" * 7000
    nodes = ",".join(f'{{"metadata":{{"name":"n{i}"}},"spec":{{"x":"{filler}"}}}}' for i in range(5000))
    body = f'{{"Pod":{{"metadata":{{"name":"web"}}}},"Nodes":{{"metadata":{{}},"items":[{nodes}]}},"NodeNames":null}}'
    async with Served() as served:
        async with served.session.post(served.url + "/scheduler/filter", data=io.BytesIO(body.encode())) as answer:
            assert answer.status == 200
            back = await answer.read()
        assert f'"items":[{nodes}]'.encode() in back
