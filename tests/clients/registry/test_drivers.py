"""What only one of the registries does: pages of NetBox, files that are being written, which URL names which."""

import asyncio
import os
import time

import pytest
from aiohttp.test_utils import TestServer

from mooring.clients.ports import RefusedError, UnansweredError
from mooring.clients.registry.choose import check_query, check_url, open_registry
from mooring.clients.registry.file import MachineList
from mooring.clients.registry.netbox import Netbox, NetboxSettings
from mooring.clients.registry.sabakan.client import Sabakan
from mooring.core.model.machine import MachineState
from tests.clients.registry.netbox_server import NetboxServer, device


@pytest.fixture
async def netbox():
    made = NetboxServer()
    server = TestServer(made.app())
    await server.start_server()
    made.url = f"netbox+{server.make_url('/')}"
    yield made
    await server.close()


async def test_ten_thousand_devices_are_read_in_pages_and_hold_nobody_up(netbox):
    """F12: within 30 s, and whoever shares the loop has a turn all the while. Time is the processor's, so that a busy
    machine makes no difference."""
    netbox.devices = [device(i, f"S{i}", f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}", rack=i % 40) for i in range(10_000)]
    client, longest, done = Netbox(netbox.url), 0.0, asyncio.Event()

    async def turns():
        nonlocal longest
        while not done.is_set():
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)

    turning, began = asyncio.create_task(turns()), time.process_time()
    found = await client.machines({"role": "cs"})
    took = time.process_time() - began
    done.set()
    await turning
    await client.close()
    assert len(found) == 10_000 and len(netbox.asked) == 10 and took < 30
    # The pages are made by this very loop, tens of milliseconds each.
    assert longest < 0.5


async def test_a_list_that_changes_between_pages_is_none(netbox):
    """F12: half of the old list and half of the new one would lack a machine."""
    netbox.page_limit = 2
    netbox.devices = [device(i, f"S{i}", f"10.0.0.{i + 1}") for i in range(6)]
    client, ask = Netbox(netbox.url), netbox.get

    async def shrinking(request):
        answer = await ask(request)
        del netbox.devices[:1]
        return answer

    app = TestServer(_app(shrinking))
    await app.start_server()
    client = Netbox(f"netbox+{app.make_url('/')}")
    with pytest.raises(UnansweredError, match="changed while it was read"):
        await client.machines({"role": "cs"})
    await client.close()
    await app.close()


def _app(handler):
    from aiohttp import web

    app = web.Application()
    app.router.add_get("/api/dcim/devices/", handler)
    return app


async def test_netbox_is_never_asked_for_everything(netbox):
    """Without a filter it lists switches too."""
    client = Netbox(netbox.url)
    with pytest.raises(RefusedError, match="filters"):
        await client.machines()
    await client.close()
    assert not netbox.asked


async def test_fields_and_states_of_netbox_are_settings(netbox):
    """F12: status, role, rack and custom fields are mapped; a status without a state leaves the device out."""
    netbox.devices = [
        device(1, "S1", "10.0.0.1", status="broken", custom_fields={"kind": "ss", "retire_date": None}),
        device(2, "S2", "10.0.0.2", status="staged", custom_fields={"kind": "cs", "retire_date": None}),
        device(3, "S3", "10.0.0.3", status="odd", custom_fields={"kind": "cs", "retire_date": None}),
    ]
    settings = NetboxSettings(
        role="custom_fields.kind", rack="rack.name", labels={}, states={"broken": MachineState.UNREACHABLE}
    )
    client = Netbox(netbox.url, settings)
    one, two, three = await client.machines({"site": "tokyo"})
    await client.close()
    assert (one.role, one.rack, one.state) == ("ss", 1, MachineState.UNREACHABLE)
    assert two.state is MachineState.UNINITIALIZED and "odd" in three.problem


async def test_a_file_that_is_being_written_is_not_read(tmp_path):
    """F12: half a list would remove the rest."""
    path = tmp_path / "machines.yaml"
    path.write_text("machines:\n- {serial: S1, address: 10.0.0.1, role: cs}\n")
    moment = os.stat(path).st_mtime
    client = MachineList(str(path), now=lambda: moment + 1)
    with pytest.raises(UnansweredError, match="a moment ago"):
        await client.machines()
    assert [m.serial for m in await MachineList(str(path), now=lambda: moment + 3).machines()] == ["S1"]


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://10.0.0.1:10080", Sabakan),
        ("netbox+https://netbox.example.com", Netbox),
        ("file:///etc/machines.yaml", MachineList),
        ("/etc/machines.yaml", MachineList),
        ("https://example.com/machines.json?x=1", MachineList),
    ],
)
def test_the_url_names_the_registry(url, kind):
    """F12: chosen by a setting."""
    assert isinstance(open_registry(url), kind)


@pytest.mark.parametrize("url", ["", "ftp://x/machines.yaml", "netbox+ftp://x", "file://host/x.yaml", "machines.yaml"])
def test_a_url_that_names_none_is_refused(url):
    """F12: before anything is stored."""
    with pytest.raises(ValueError, match="such as"):
        check_url(url)


@pytest.mark.parametrize(
    ("url", "query"),
    [("http://x", {"having": {"roles": 1}}), ("netbox+http://x", {"role": {}}), ("/x.yaml", {"role": "cs"})],
)
def test_a_query_is_checked_by_its_registry(url, query):
    """F12: each in its own words."""
    with pytest.raises(ValueError, match=r"must be|takes no query"):
        check_query(url, query)
