"""The stage on the real control plane: a lab of its own in a temporary directory, gone when the day is over.

etcd, kube-apiserver, kube-controller-manager, two kube-schedulers and kwok are real, kubectl is typed as it is printed,
and Mooring is `mooring run`. PD and the machine registry are the sandbox's, over HTTP on the wall clock. The same 24
nodes and the same workloads; fewer regions and shorter starts, so that a day takes minutes.
"""

import asyncio
import contextlib
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from aiohttp import web

import mooring_lab.control
from mooring.capabilities.balance import BalancePolicy
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.mix.labels import ENABLED
from mooring.clients.kube import load
from mooring.clients.ports import PortError, RefusedError
from mooring.core.model.kinds import Kind
from mooring.install.scheduler import PROFILE, scheduler_config
from mooring.process.http.page import Page
from mooring.process.settings.config import Config
from mooring_lab.cluster.clock import Timeline, WallDriver
from mooring_lab.cluster.controllers import manifests, podstate
from mooring_lab.cluster.kubelet import GRACE, READY, START
from mooring_lab.cluster.nodes import node_object
from mooring_lab.cluster.pd import PdSettings, SandboxPd
from mooring_lab.cluster.pd.http import pd_app
from mooring_lab.cluster.sabakan.http import sabakan_app
from mooring_lab.control import loopback
from mooring_lab.control.binaries import Binaries
from mooring_lab.control.cluster import Lab
from mooring_lab.demo.onlab.rig import LabRig
from mooring_lab.demo.stage import DEMO, TIDB, DemoFigures, DemoStage, rack_of

CRD: Final = Path(mooring_lab.control.__file__).parent / "crds" / "tidbcluster.yaml"
FIGURES: Final = DemoFigures(
    regions=48,
    shop_start_s=3.0,
    member_times={START: "1", READY: "1", GRACE: "2"},
    quiet_s=15.0,
    first_move=("evict Pod",),
)
PD: Final = PdSettings(store_heartbeat_s=1.0, reconnect_s=(0.5, 1.0), collect_every_s=0.5, snapshot_mib_per_s=200.0)
#: Between two acts: nothing waits or runs for this long, or we have waited that long.
QUIET_S, QUIET_AT_MOST_S = 3.0, 180.0
TICK_S: Final = 15.0


class LabStage(DemoStage):
    def __init__(self, binaries: Binaries, *, http: str, progress: Callable[[str], None]) -> None:
        """`http`: where the page answers, HOST:PORT. `progress` hears what happens between the lines of the day."""
        super().__init__(FIGURES)
        self._binaries = binaries
        self._http = http
        self._progress = progress
        self._lab: Lab | None = None
        self._rig: LabRig | None = None
        self._beside = contextlib.AsyncExitStack()
        self._urls: dict[str, str] = {}
        self._nodes = 0
        self._then: list[Callable[[], object]] = []
        self._opened: Callable[[Page], None] = lambda _: None
        self._began = time.monotonic()

    # ── Coming and going ──────────────────────────────────────────────────────────────────────────────────────────

    def run(self, whole: Callable[[], Awaitable[None]]) -> None:
        directory = Path(tempfile.mkdtemp(prefix="mooring-demo-"))

        async def main() -> None:
            await whole()

        try:
            self._lab = Lab.up(directory / "lab", self._binaries, foreground=True, say=self._progress)
            extender, webhook = loopback.free_ports(2)
            self._rig = LabRig(load(self._lab.kubeconfig), self._config(extender, webhook), Timeline(time.time()))
            self._rig.process.opened = self._opened
            asyncio.run(main())
        finally:
            # A second Ctrl-C would only leave files behind: this takes seconds.
            impatient = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                if self._lab is not None:
                    self._lab.down()
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                signal.signal(signal.SIGINT, impatient)

    def _config(self, extender: int, webhook: int) -> Config:
        return Config(
            cluster_name="demo on the lab",
            features={"handoff": True, "home": True, "mix": True},
            listen_http=self._http,
            listen_extender=f"127.0.0.1:{extender}",
            listen_webhook=f"127.0.0.1:{webhook}",
            webhook_url=f"https://127.0.0.1:{webhook}",
            policies=(
                HandoffPolicy(recheck_s=1.0, young_pd_s=10.0),
                FleetPolicy(query_s=2.0, recheck_s=1.0),
                BalancePolicy(clusters=("*",)),
            ),
        )

    async def build(self) -> None:
        self._progress("building a cluster of 24 nodes on it")
        rig = self.rig
        driving = asyncio.ensure_future(WallDriver(rig.cluster.timeline).run())
        self._beside.push_async_callback(_ended, driving)
        await asyncio.to_thread(self.lab.kubectl, "apply", "-f", str(CRD))
        await asyncio.to_thread(
            self.lab.kubectl, "wait", "--for=condition=Established", "crd/tidbclusters.pingcap.com", "--timeout=60s"
        )
        await rig.api.create(Kind.NAMESPACE, {"metadata": {"name": rig.config.namespace}})
        rig.mirror.follow()
        await rig.mirror.synced()
        await super().build()
        ticking = asyncio.ensure_future(self._tick())
        self._beside.push_async_callback(_ended, ticking)

    async def close(self) -> None:
        rig = self.rig
        await rig.process.stop()
        await self._beside.aclose()
        await rig.mirror.close()
        await rig.api.close()

    @property
    def version(self) -> str:
        return self._binaries.release.version

    @property
    def lab(self) -> Lab:
        assert self._lab is not None, "the lab is not up yet"
        return self._lab

    @property
    def rig(self) -> LabRig:
        assert self._rig is not None, "the lab is not up yet"
        return self._rig

    def when_opened(self, then: Callable[[Page], None]) -> None:
        """Once its page is there."""
        self._opened = then

    @property
    def viewers(self) -> int:
        """Who watches the page."""
        page = self.rig.process.page
        return page.hub.viewers if page is not None else 0

    def when_up(self, then: Callable[[], object]) -> None:
        """Once Mooring answers."""
        self._then.append(then)

    # ── The words of a stage ──────────────────────────────────────────────────────────────────────────────────────

    async def kubectl(self, command: str) -> None:
        await asyncio.to_thread(self.lab.kubectl, *shlex.split(command)[1:])

    async def add_nodes(self, names: list[str], **how: Any) -> None:
        for name in names:
            obj = node_object(name, self._nodes, time.time(), rack=rack_of(name), **how)
            self._nodes += 1
            await self.rig.api.create(Kind.NODE, obj)
        await self.rig.until(lambda: all(self._usable(name) for name in names), limit_s=120.0)

    def _usable(self, name: str) -> bool:
        found = self.rig.mirror.find(Kind.NODE, "", name)
        return found is not None and podstate.ready(found) and not found["spec"].get("taints")

    async def open_scheduler(self) -> None:
        self._progress("starting a second kube-scheduler that asks Mooring")
        url = f"http://{self.rig.config.listen_extender}/scheduler"
        document = scheduler_config(self.lab.state.release.version, url=url)
        document["leaderElection"] = {"leaderElect": False}
        path = self.lab.dir / "conf" / "asks-mooring.yaml"
        path.write_text(yaml.safe_dump(document))
        await asyncio.to_thread(self.lab.second_scheduler, path, PROFILE)

    async def place_pd(self) -> None:
        cluster = self.rig.cluster
        pd = SandboxPd(cluster.timeline, seed=1, cluster=DEMO, namespace=TIDB, settings=PD)
        url = await self._serve(pd_app(pd))
        pd.urls = dict.fromkeys(pd.urls, url)
        cluster.pd[TIDB, DEMO] = pd
        process = self.rig.process
        process.use_pd(f"{TIDB}/{DEMO}", url)

    async def start(self) -> None:
        self._progress("starting Mooring and a shop of 33 pods")
        self._urls["sabakan"] = await self._serve(sabakan_app(self.rig.cluster.sabakan))
        self.rig.process.start()
        await self.rig.until(self.rig.leads, limit_s=120.0)
        await self._asked()
        for then in self._then:
            then()

    async def _asked(self) -> None:
        """Until the API server asks us about new workloads: one that would be refused is tried, and nothing written."""
        wrong = manifests.deployment("default", "probe", 1, manifests.pod_template({"app": "probe"}))
        wrong["metadata"]["labels"] = {ENABLED: "x"}
        end = time.monotonic() + 120.0
        while time.monotonic() < end:
            with contextlib.suppress(PortError):
                try:
                    await self.rig.api.create(Kind.DEPLOYMENT, wrong, dry_run=True)
                except RefusedError as refused:
                    if ENABLED in str(refused):
                        return
            await asyncio.sleep(0.25)
        raise AssertionError("the API server does not ask Mooring about workloads")

    async def _serve(self, app: web.Application) -> str:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        self._beside.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return site.name

    def switch_on(self, feature: str) -> None:
        self.rig.process.switch_on(feature)

    @property
    def registry_url(self) -> str:
        return self._urls["sabakan"]

    # ── Time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def wait_for(self, at: str) -> None:
        """Until the act before has ended."""
        began = quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < QUIET_S and time.monotonic() - began < QUIET_AT_MOST_S:
            await asyncio.sleep(0.25)
            if self.rig.unsettled():
                quiet_since = time.monotonic()

    @contextlib.contextmanager
    def hurry(self) -> Iterator[None]:
        yield

    def clock_word(self, at: str) -> str:
        passed = int(time.monotonic() - self._began)
        return f"{passed // 60:2d}:{passed % 60:02d}"

    async def _tick(self) -> None:
        """A person watches a terminal: print now and then what the queue holds."""
        while True:
            await asyncio.sleep(TICK_S)
            leader = self.rig.leader()
            if leader is not None:
                queue = leader.engine.queue
                self._progress(f"{self.clock_word('').strip()}  {len(queue.running)} run, {len(queue.waiting)} wait")


async def _ended(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
