"""What every machine registry does: the sandbox's in process, and the same over HTTP through our client."""

import pytest
from aiohttp import web

from mooring.clients.ports import NotFoundError, PortError, RefusedError
from mooring.clients.registry.sabakan.client import Sabakan
from mooring.core.model.machine import MachineState as S
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.sabakan import SandboxSabakan
from mooring_lab.cluster.sabakan.http import sabakan_app
from mooring_lab.cluster.sabakan.registry import Ipam


def sandbox():
    timeline = Timeline()
    registry = SandboxSabakan(timeline, ipam=Ipam())
    registry.register("b", role="boot")
    registry.register("c", role="cs", labels={"product": "R640"}, state=S.HEALTHY)
    registry.register("d", role="ss", rack=1, state=S.RETIRED)
    registry.register("e", role="ss", rack=1, labels={"product": "R740"}, retire_at=timeline.now() + 100 * 86400)
    timeline.run_for(60)
    return registry


@pytest.fixture(params=["in-process", "http"])
async def found(request):
    """(the sandbox's registry, the port to it)"""
    registry = sandbox()
    if request.param == "in-process":
        yield registry, registry
        return
    runner = web.AppRunner(sabakan_app(registry))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    client = Sabakan(site.name, now=registry.timeline.now)
    try:
        yield registry, client
    finally:
        await client.close()
        await runner.cleanup()


async def test_without_variables_the_query_decides(found):
    """Nothing sent: boot servers and retired machines are left out, as the query's defaults say."""
    _, port = found
    assert [m.serial for m in await port.machines()] == ["c", "e"]


async def test_a_variable_sent_replaces_its_default(found):
    """What the user sends counts instead of the default, also when it is nothing at all."""
    _, port = found
    assert [m.serial for m in await port.machines({"notHaving": {}})] == ["b", "c", "d", "e"]
    assert [m.serial for m in await port.machines({"having": {"racks": [1]}})] == ["e"]
    labels = [{"name": "product", "value": "R740"}]
    assert [m.serial for m in await port.machines({"having": {"labels": labels}, "notHaving": {}})] == ["e"]
    assert [m.serial for m in await port.machines({"having": {"minDaysBeforeRetire": 90}})] == ["e"]


async def test_machine_with_all_it_says(found):
    """Address, rack, role, labels and dates come through; the state's age is told to the second."""
    registry, port = found
    machine = next(m for m in await port.machines() if m.serial == "e")
    assert (machine.address, machine.rack, machine.index_in_rack, machine.role) == ("10.69.0.197", 1, 5, "ss")
    assert (machine.state, dict(machine.labels)) == (S.UNINITIALIZED, {"product": "R740"})
    assert machine.state_since == pytest.approx(registry.timeline.now() - 60, abs=0.01)
    assert machine.retire_at == pytest.approx(registry.entry("e").retire_at, abs=0.01)


async def test_no_list_is_no_empty_list(found):
    """Nothing found, a misspelt wish, a registry that is away: an error each time, never a shorter list."""
    registry, port = found
    with pytest.raises(NotFoundError):
        await port.machines({"having": {"racks": [7]}})
    with pytest.raises(RefusedError):
        await port.machines({"having": {"states": ["BOGUS"]}})
    registry.go_dark()
    with pytest.raises(PortError):
        await port.machines()
