"""One contract, three placement drivers: the sandbox's in process, the same over HTTP through our client, a real one.

A `Rig` is a settled cluster of three stores and thirty regions with the strings a test needs: look, wait, restart PD.
"""

import asyncio
import socket
import time

import pytest
from aiohttp import web

from mooring.clients.pd import PdClient
from mooring.clients.ports import PortError
from mooring.process.clock import WallClock
from mooring_lab.cluster.clock import Timeline, WallDriver
from mooring_lab.cluster.pd import PdSettings, SandboxPd
from mooring_lab.cluster.pd.http import pd_app
from mooring_lab.control.binaries import optional
from mooring_lab.control.processes import Processes
from mooring_lab.control.servers import NO_PD, pd_servers, pd_url


class Rig:
    """What the contract asks of each kind of PD."""

    patience_s = 180.0

    def __init__(self, pd):
        self.pd = pd

    async def until(self, condition, within_s=None):
        """Wait until `condition(view)` holds; looks that PD does not answer do not count."""
        deadline = time.monotonic() + (within_s or self.patience_s)
        view = None
        while time.monotonic() < deadline:
            try:
                view = await self.pd.observe()
                if condition(view):
                    return view
            except PortError:
                pass
            await asyncio.sleep(0.02)
        raise AssertionError(f"not within {within_s or self.patience_s} s: {view}")


class SandboxRig(Rig):
    def __init__(self, pd, sandbox):
        super().__init__(pd)
        self.sandbox = sandbox

    def truth(self):
        return {s: len(led) for s, led in self.sandbox.server.tikv.led.items()}

    async def restart(self):
        self.sandbox.restart()

    async def a_second(self):
        """Thirty of the sandbox's."""
        end = self.sandbox.timeline.now() + 30
        while self.sandbox.timeline.now() < end:
            await asyncio.sleep(0.02)

    async def stores_return(self):
        """They do by themselves, ten seconds of the sandbox's time later."""


class RealRig(Rig):
    def __init__(self, pd, tikv, processes, servers):
        super().__init__(pd)
        self.tikv = tikv
        self._processes = processes
        self._servers = servers

    def truth(self):
        return self.tikv.leaders()

    async def restart(self):
        """As a power cut would, once PD has had the time to store its regions."""
        await asyncio.sleep(6)
        self.tikv.may_connect.clear()
        for server in self._servers:
            self._processes.kill(server.name)
        for server in self._servers:
            self._processes.start(server)

    async def a_second(self):
        await asyncio.sleep(1)

    async def stores_return(self):
        self.tikv.may_connect.set()

    def kill(self, member):
        self._processes.kill(member)


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    try:
        for s in held:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in held]
    finally:
        for s in held:
            s.close()


@pytest.fixture
def wall_clock():
    return WallClock()


async def _sandbox():
    timeline = Timeline()
    # As slow in wall time as a real one is: thirty times quicker, with steps thirty times longer.
    settings = PdSettings(transfer_s=(2.0, 6.0), collect_every_s=6.0, reconnect_s=(12.0, 15.0))
    pd = SandboxPd(timeline, seed=3, settings=settings)
    for i in range(3):
        pd.attach(f"demo-tikv-{i}")
    pd.load(regions=30)
    return pd, asyncio.ensure_future(WallDriver(timeline, speed=30).run())


@pytest.fixture(params=["in-process", "http", pytest.param("real", marks=pytest.mark.e2e)])
async def rig(request, tmp_path, wall_clock):
    if request.param == "real":
        async for found in real_rig(tmp_path, wall_clock, members=1):
            yield found
        return
    sandbox, driving = await _sandbox()
    try:
        if request.param == "in-process":
            yield SandboxRig(sandbox, sandbox)
            return
        runner = web.AppRunner(pd_app(sandbox))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = site.name
        sandbox.urls = dict.fromkeys(sandbox.urls, url)
        client = PdClient([url], clock=wall_clock)
        try:
            yield SandboxRig(client, sandbox)
        finally:
            await client.close()
            await runner.cleanup()
    finally:
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)


async def real_rig(tmp_path, wall_clock, members):
    from tests.faketikv import FakeTikv

    program = optional("pd-server")
    if program is None:
        pytest.skip(NO_PD)
    ports = free_ports(2 * members)
    processes = Processes(tmp_path, foreground=True)
    servers = pd_servers(program, tmp_path, ports)
    urls = [pd_url(p) for p in ports[::2]]
    client, tikv = PdClient(urls, clock=wall_clock), FakeTikv(urls, transfer_s=0.15, reconnect_s=1.5)
    try:
        for server in servers:
            processes.start(server)
        processes.wait_ready(servers)
        await tikv.start()
        found = RealRig(client, tikv, processes, servers)
        await found.until(lambda v: v.evicting == () and sum(s.leader_count for s in v.stores) == 30)
        yield found
    finally:
        await client.close()
        await tikv.close()
        for server in servers:
            processes.kill(server.name)
