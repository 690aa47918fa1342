"""What every machine registry promises, whichever it is (F12): the whole list or an error, bad rows by name."""

import json
import os

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from mooring.clients.ports import NotFoundError, PortError, RefusedError
from mooring.clients.registry.file import MachineList
from mooring.clients.registry.netbox import Netbox, NetboxSettings
from mooring.clients.registry.sabakan.client import Sabakan
from mooring.core.model.machine import MachineState
from tests.clients.registry.netbox_server import NetboxServer, device

NOW = 1_800_000_000.0
#: serial, address, role, rack, state
TWO = [("S1", "10.0.0.11", "cs", 1, "HEALTHY"), ("S2", "10.0.0.12", "ss", 2, "UNHEALTHY")]


class OnSabakan:
    refused = {"having": {"states": ["BOGUS"]}}
    query = None

    def __init__(self, *_):
        self.rows, self.down = list(TWO), False

    async def open(self):
        app = web.Application()
        app.router.add_post("/graphql", self._post)
        self.server = TestServer(app)
        await self.server.start_server()
        return Sabakan(str(self.server.make_url("/")), timeout_s=5, now=lambda: NOW)

    async def _post(self, _):
        if self.down:
            return web.Response(status=502)
        found = [
            {
                "spec": {
                    "serial": serial,
                    "rack": rack,
                    "indexInRack": 4,
                    "role": role,
                    "ipv4": [address],
                    "labels": [{"name": "site", "value": "tokyo"}],
                    "registerDate": "2024-01-10T09:00:00Z",
                    "retireDate": "2031-06-01T00:00:00Z",
                },
                "status": {"state": state, "duration": 10.0},
            }
            for serial, address, role, rack, state in self.rows
        ]
        return web.json_response({"data": {"searchMachines": found}})

    async def close(self):
        await self.server.close()


class OnFile:
    refused = {"role": "cs"}
    query = None

    def __init__(self, directory):
        self.path, self.rows, self.down, self.writes = directory / "machines.json", list(TWO), False, 0

    async def open(self):
        return MachineList(f"file://{self.path}", now=lambda: NOW)

    def text(self):
        found = [
            {
                "serial": serial,
                "address": address,
                "role": role,
                "rack": rack,
                "state": state.lower(),
                "index-in-rack": 4,
                "labels": {"site": "tokyo"},
                "retire-date": "2031-06-01",
                "register-date": "2024-01-10T09:00:00Z",
            }
            for serial, address, role, rack, state in self.rows
        ]
        return json.dumps({"machines": found})

    def publish(self):
        """As a careful writer does: another file under the same name, a while ago."""
        self.writes += 1
        if self.down:
            self.path.unlink(missing_ok=True)
        else:
            self.path.write_text(self.text())
            os.utime(self.path, (NOW - 100, NOW - 100 + self.writes))

    async def close(self):
        pass


class OnUrl(OnFile):
    async def open(self):
        app = web.Application()
        app.router.add_get("/machines.json", self._get)
        self.server, self.sent = TestServer(app), 0
        await self.server.start_server()
        return MachineList(str(self.server.make_url("/machines.json")), timeout_s=5, now=lambda: NOW)

    async def _get(self, request):
        if self.down:
            return web.Response(status=502)
        etag = f'"{hash(self.text())}"'
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304)
        self.sent += 1
        return web.Response(text=self.text(), headers={"ETag": etag})

    def publish(self):
        pass

    async def close(self):
        await self.server.close()


class OnNetbox:
    refused = {"limit": 3}
    query = {"role": ["cs", "ss"]}

    def __init__(self, directory):
        self.netbox = NetboxServer(token="hush", page_limit=1)
        self.token = directory / "token"
        self.token.write_text("hush\n")
        self.rows, self.down = list(TWO), False

    async def open(self):
        self.server = TestServer(self.netbox.app())
        await self.server.start_server()
        settings = NetboxSettings(token_file=str(self.token))
        return Netbox(f"netbox+{self.server.make_url('/')}", settings, timeout_s=5, now=lambda: NOW)

    def publish(self):
        status = {"HEALTHY": "active", "UNHEALTHY": "failed", "RETIRING": "decommissioning"}
        self.netbox.down = self.down
        self.netbox.devices = [
            device(i, serial, address, role=role, rack=rack, status=status[state])
            for i, (serial, address, role, rack, state) in enumerate(self.rows)
        ]

    async def close(self):
        await self.server.close()


class Scene:
    def __init__(self, kind, port):
        self.kind, self.port = kind, port

    async def ask(self, **change):
        vars(self.kind).update(change)
        getattr(self.kind, "publish", lambda: None)()
        return await self.port.machines(self.kind.query)


@pytest.fixture(params=[OnSabakan, OnFile, OnUrl, OnNetbox], ids=["sabakan", "file", "url", "netbox"])
async def scene(request, tmp_path):
    kind = request.param(tmp_path)
    port = await kind.open()
    yield Scene(kind, port)
    await port.close()
    await kind.close()


async def test_a_machine_is_read_whole(scene):
    """F12: the same machine, from whichever registry."""
    one, two = await scene.ask()
    assert (one.serial, one.address, one.role, one.rack, one.index_in_rack) == ("S1", "10.0.0.11", "cs", 1, 4)
    assert (one.labels, one.register_date[:10], one.retire_date[:10]) == ({"site": "tokyo"}, "2024-01-10", "2031-06-01")
    assert (one.state, two.state, one.problem) == (MachineState.HEALTHY, MachineState.UNHEALTHY, "")


async def test_without_news_it_is_the_same_list(scene):
    """F9: a minute without news costs next to nothing, so the very same tuple says so."""
    first = await scene.ask()
    assert await scene.ask() is first


async def test_a_change_of_state_is_seen_and_dated(scene):
    """F12: one machine changes, the other is the same object; a state has a beginning."""
    first = await scene.ask()
    second = await scene.ask(rows=[TWO[0], (*TWO[1][:4], "RETIRING")])
    assert second[0] is first[0] and second[1].state is MachineState.RETIRING
    assert 0 < second[1].state_since <= NOW


@pytest.mark.parametrize(
    "row",
    [
        ("S3", "10.0.0.11", "cs", 1, "HEALTHY"),
        ("S3", "fe80::1", "cs", 1, "HEALTHY"),
        ("S3", "10.0.0.13", "a b", 1, "HEALTHY"),
    ],
)
async def test_one_bad_row_is_left_out_by_name(scene, row):
    """F10: a duplicate address, IPv6, a role that is none: the others are read as without it."""
    if row[2] == "a b" and scene.kind.query:
        scene.kind.query = {"site": "tokyo"}
    found = {m.serial: m for m in await scene.ask(rows=[*TWO, row])}
    assert found["S3"].problem and not found["S2"].problem
    assert bool(found["S1"].problem) == (row[1] == "10.0.0.11")


async def test_no_list_is_never_an_empty_list(scene):
    """F12: what is not listed is removed. Nothing found, a registry that is away, a query that is none: an error."""
    await scene.ask()
    with pytest.raises(NotFoundError):
        await scene.ask(rows=[])
    with pytest.raises(RefusedError):
        await scene.port.machines(scene.kind.refused)
    with pytest.raises(PortError):
        await scene.ask(rows=list(TWO), down=True)
    assert len(await scene.ask(down=False)) == 2
