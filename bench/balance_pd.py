"""What following many regions costs a real PD: CPU of the pd-server process per rotation and per look.

Needs pd-server (`mooring lab add`, or MOORING_BIN_DIR). A fake TiKV brings the regions in by heartbeats; PD is told
to schedule nothing, so that what it uses meanwhile is little, and that is measured for as long and taken off.
`MOORING_PD_REGIONS=300000` brings more in (100,000 by default); 1,000,000 is reckoned from it, since the cost is per
region.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.balance import resident_mib
from mooring.capabilities.balance.book import PACE_S, RANGE
from mooring.capabilities.balance.policy import BalancePolicy
from mooring.clients.pd import PdClient
from mooring.clients.ports import PortError
from mooring.process.clock import WallClock
from mooring_lab.control.binaries import optional
from mooring_lab.control.loopback import free_ports
from mooring_lab.control.processes import Processes
from mooring_lab.control.servers import NO_PD, pd_servers, pd_url

STORES, MANY, LOOKS = 100, 1_000_000, 100

#: PD stores what it was told; then it is quiet, and that is measured too.
QUIET_S = 15.0


def main() -> None:
    program = optional("pd-server")
    if program is None:
        print(f"  not run: {NO_PD}")
        return
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_measure(program, Path(directory), int(os.environ.get("MOORING_PD_REGIONS", "100000"))))


async def _measure(program: Path, directory: Path, count: int) -> None:
    from tests.faketikv import FakeTikv

    ports = free_ports(2)
    processes, servers = Processes(directory, foreground=True), pd_servers(program, directory, ports)
    url = pd_url(ports[0])
    client = PdClient([url], clock=WallClock(), timeout_s=60.0)
    # Nothing moves, so nobody has to count.
    still = type("Still", (FakeTikv,), {"held": lambda self: dict.fromkeys(self.stores, 3 * count // STORES)})
    tikv = still([url], stores=STORES, regions=count, heartbeat_s=3600.0)
    try:
        for server in servers:
            processes.start(server)
        processes.wait_ready(servers)
        await tikv.start()
        said = await client._transport.ask("POST", "/pd/api/v1/config", {"halt-scheduling": "true"})
        assert said.ok, said.words
        pd = Cpu(processes.pid(servers[0].name) or 0)
        await _brought_in(client, count)
        await _report(client, pd, count)
    finally:
        await tikv.close()
        await client.close()
        for server in servers:
            processes.kill(server.name)


async def _brought_in(client: PdClient, count: int) -> None:
    while True:
        try:
            view = await client.observe()
        except PortError:
            view = None
        if view is not None and sum(s.leader_count for s in view.stores) >= count:
            return
        await asyncio.sleep(1)


class Cpu:
    """Seconds of CPU that a process has used, and its memory."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def used_s(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def of(self, work: Callable[[], Awaitable[object]], times: int) -> tuple[float, float]:
        """What the work costs the process beyond what it uses anyway, and what it costs us, in seconds."""
        before, ours, began = self.used_s(), time.process_time(), time.monotonic()
        for _ in range(times):
            await work()
        spent, own, took = self.used_s() - before, time.process_time() - ours, time.monotonic() - began
        before = self.used_s()
        await asyncio.sleep(QUIET_S)
        anyway = (self.used_s() - before) / QUIET_S * took
        return (spent - anyway) / times, own / times


async def _report(client: PdClient, pd: Cpu, count: int) -> None:
    async def rotate() -> None:
        key, seen = "", 0
        while not seen or key:
            found = await client.regions(key, RANGE)
            seen, key = seen + len(found), found[-1].end_key
        assert seen >= count

    await asyncio.sleep(QUIET_S)
    rotation, ours = await pd.of(rotate, max(3, MANY // count))
    one, _ = await pd.of(client.observe, LOOKS)
    asked, own = await pd.of(lambda: client.stores(1, 2), LOOKS * 5)
    each = rotation / count
    print(f"a real PD with {STORES} stores and {count:,} regions, scheduling halted:")
    print(f"  a rotation by {RANGE:,}: {rotation:.2f} s of PD's CPU, {each * 1e6:.1f} µs a region")
    print(f"  the client's own share: {ours / count * 1e6:.1f} µs a region (its memory {resident_mib():.0f} MiB)")
    print(f"  a look (stores, schedulers, operators, rules): {one * 1000:.1f} ms of PD's CPU")
    print(f"  before a write, whose two stores: {asked * 1000:.2f} ms of PD's CPU, {own * 1000:.2f} ms of ours")
    lasts = MANY * PACE_S
    share = 100 * (each * MANY / lasts + one / BalancePolicy().idle_s)
    print(f"  reckoned for {MANY:,} regions, a rotation in {lasts:.0f} s: {share:.1f} % of a core of PD's")


if __name__ == "__main__":
    main()
