"""T12 on the real control plane: `mooring run` drives a PD (a real one where there is one) over a store that is added."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parent))
import contextlib

from spine_ground import CRD, until

from mooring.balance import BalancePolicy, Summary, foreign
from mooring.kube import HttpKubeApi, load
from mooring.lab.loopback import free_ports
from mooring.model.kinds import Kind
from mooring.model.tidb import Peer, Region
from mooring.pd import PdClient
from mooring.ports import AlreadyExists, PortError
from mooring.run.wall import SystemChance, WallClock
from mooring.sandbox.clock import Timeline, WallDriver
from mooring.sandbox.pd import PdSettings, SandboxPd
from mooring.sandbox.pd.http import pd_app
from mooring.traffic import live_settings

pytestmark = pytest.mark.e2e
STORES, REGIONS, LIMIT = 5, 60, 20
SETTINGS = {
    "lease-s": 3,
    "renew-s": 2.0,
    "retry-s": 0.5,
    "balance": {"recheck_s": 0.3, "idle_s": 2.0, "regions_at_most_every_s": 1.0},
}


@pytest.fixture(params=["sandbox's PD", "real PD"])
def real_pd(request, lab):
    if request.param == "real PD" and lab.pd_server is None:
        pytest.skip("pd-server is not in MOORING_BIN_DIR: the sandbox's PD was asked instead")
    return request.param == "real PD"


class SandboxStores:
    async def start(self, _):
        timeline = Timeline(epoch=time.time())
        settings = PdSettings(store_heartbeat_s=1.0, snapshot_mib_per_s=500.0, collect_every_s=0.5)
        self.pd = SandboxPd(timeline, seed=3, settings=settings)
        for number in range(STORES):
            self.pd.attach(f"demo-tikv-{number}")
        self.pd.load(regions=REGIONS)
        self._driving = asyncio.ensure_future(WallDriver(timeline).run())
        self._runner = web.AppRunner(pd_app(self.pd), access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.pd.urls = dict.fromkeys(self.pd.urls, site.name)
        return site.name

    def add_store(self):
        self.pd.attach("demo-tikv-9")

    def held(self):
        return [len(held) for held in self.pd.server.tikv.held.values()]

    def regions(self):
        return [group.region() for group in self.pd.server.tikv.groups.values()]

    async def close(self):
        self._driving.cancel()
        await asyncio.gather(self._driving, return_exceptions=True)
        await self._runner.cleanup()


class RealStores:
    """Six stores of the fake TiKV, the last of them silent and empty until it is added."""

    async def start(self, lab):
        tests = str(Path(__file__).parents[1])
        if tests not in sys.path:
            sys.path.insert(0, tests)
        from faketikv import FakeTikv
        from faketikv.cluster import VOTER

        class Tikv(FakeTikv):
            def _layout(self, count):
                last = self.stores.pop(STORES + 1)
                yield from super()._layout(count)
                self.stores[STORES + 1] = last
                last.alive = False

        self._voter = VOTER
        urls = await asyncio.to_thread(lab.start_pd)
        self.tikv = Tikv(urls, stores=STORES + 1, regions=REGIONS, transfer_s=0.05)
        await self.tikv.start()
        return urls[0]

    def add_store(self):
        self.tikv.start_store(STORES + 1)

    def held(self):
        return [sum(s in r.peers for r in self.tikv.regions.values()) for s in self.tikv.stores]

    def regions(self):
        for r in self.tikv.regions.values():
            peers = tuple(Peer(p, s) for s, (p, _) in r.peers.items())
            yield Region(r.id, peers=peers, leader_store=r.leader, size_mib=96)

    async def close(self):
        await self.tikv.close()


class Ground:
    def __init__(self, lab, directory, *, real_pd):
        self._lab, self._directory = lab, directory
        self.namespace, self._own = lab.namespace("tidb"), lab.namespace("mooring")
        self.stores = RealStores() if real_pd else SandboxStores()
        self._processes = []
        self.peak = 0

    async def __aenter__(self):
        self._api = HttpKubeApi(load(self._lab.kubeconfig))
        api = await self._api.__aenter__()
        with contextlib.suppress(AlreadyExists):
            await api.create(Kind.CRD, CRD)

        async def created():
            demo = {"namespace": self.namespace, "name": "demo"}
            try:
                await api.create(Kind.TIDB_CLUSTER, {"metadata": demo, "spec": {"tikv": {"replicas": STORES}}})
            except AlreadyExists:
                return True
            except PortError:
                return False
            return True

        await until(created, 20)
        self.url = await self.stores.start(self._lab)
        self.pd = PdClient([self.url], clock=WallClock(), chance=SystemChance())
        await until(self._settled, 60)
        return self

    async def __aexit__(self, *_):
        self.kill()
        await self.pd.close()
        await self.stores.close()
        await self._api.__aexit__(None, None, None)
        for name in (self.namespace, self._own):
            self._lab.kubectl("delete", "namespace", name, "--wait=false")

    async def _settled(self):
        try:
            view = await self.pd.observe()
        except PortError:
            return False
        return view.evicting == () and sum(s.leader_count for s in view.stores) >= REGIONS

    def start(self):
        config = self._directory / "mooring.yaml"
        config.write_text(yaml.safe_dump(SETTINGS))
        http, extender, webhook = free_ports(3)
        argv = [
            *(sys.executable, "-m", "mooring", "run", "--kubeconfig", str(self._lab.kubeconfig)),
            *("--config", str(config), "--features", "traffic=true", "--namespace", self._own),
            *("--listen-http", f"127.0.0.1:{http}", "--listen-extender", f"127.0.0.1:{extender}"),
            *("--listen-webhook", f"127.0.0.1:{webhook}", "--pd", f"{self.namespace}/demo={self.url}"),
        ]
        log = self._directory / f"log-{len(self._processes)}"
        with log.open("wb") as file:
            self._processes.append((subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=file), log))

    def kill(self):
        """kill -9."""
        for process, _ in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait(10)

    def logs(self):
        return f"{self.stores.held()}\n" + self._processes[-1][1].read_text()[-3000:]

    async def paused(self):
        return set(await self.pd.schedulers(paused=True))

    async def watch(self):
        """What PD runs at this moment, priced by its own steps."""
        summary, load = Summary(BalancePolicy()), {}
        for region in self.stores.regions():
            summary.put(region)
        for running in await self.pd.operators():
            if running.desc in foreign.OURS:
                for store, cost in foreign.costs(running, live_settings(), summary).items():
                    load[store] = load.get(store, 0) + cost
        self.peak = max([self.peak, *load.values()])

    async def balanced(self):
        await self.watch()
        held = self.stores.held()
        return len(held) == STORES + 1 and max(held) - min(held) <= 6


async def test_a_store_is_added_and_fills_under_the_limit(lab, tmp_path, real_pd):
    """T12: PD's balancers stand aside, ours fill the new store by PD's operators API, killed -9 midway, never above the
    limit; released, PD's balancers are back at once."""
    async with Ground(lab, tmp_path, real_pd=real_pd) as ground:
        ground.start()

        async def stands_aside():
            return {"balance-leader-scheduler", "balance-region-scheduler"} <= await ground.paused()

        await until(stands_aside, 40, tell=ground.logs)
        ground.stores.add_store()

        async def begun():
            await ground.watch()
            return ground.stores.held()[-1] >= 8

        await until(begun, 60, tell=ground.logs)
        ground.kill()
        ground.start()
        await until(ground.balanced, 120, tell=ground.logs)
        assert 0 < ground.peak <= LIMIT
        assert sum(ground.stores.held()) <= 3 * REGIONS + 4
        argv = [sys.executable, "-m", "mooring", "traffic", "release", f"{ground.namespace}/demo"]
        argv += ["--kubeconfig", str(lab.kubeconfig), "--pd", ground.url]
        done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=False, timeout=30)
        assert done.returncode == 0, done.stderr
        await asyncio.sleep(3)
        assert await ground.paused() == set(), "a running Mooring keeps its hands off"
