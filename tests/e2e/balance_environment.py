"""What the proofs of balancing stand on: a PD with five stores and three hundred regions, and `mooring run` driving it.

Two environments of one shape. The sandbox's PD is served over HTTP from this process; the real one is a `pd-server` whose
stores are those of the fake TiKV. Both can be given a store, lose one, and be restarted.
"""

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
import time
from urllib.parse import quote

import aiohttp
import yaml
from yarl import URL

from mooring.capabilities.balance import BalancePolicy, Summary, foreign
from mooring.clients.kube import HttpKubeApi, load
from mooring.clients.pd import PdClient, answers
from mooring.clients.ports import AlreadyExistsError, PortError
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import Peer, Region
from mooring.core.queue import live_settings
from mooring.process.clock import SystemRandomness, WallClock
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.pd import PdSettings, SandboxPd
from mooring_lab.control.loopback import free_ports
from mooring_lab.demo.onlab.rig import PATIENT_S
from tests.e2e.spine_environment import ServedPd
from tests.e2e.waiting import eventually

STORES, REGIONS, LIMIT = 5, 300, 20
ASIDE = {"balance-leader-scheduler", "balance-region-scheduler"}
#: A store that is silent for so long is Down; half an hour by default.
DOWN_AFTER_S = 8
SETTINGS = {
    "lease-s": 5,
    "renew-s": 2.0,
    "retry-s": 0.5,
    "balance": {
        "clusters": ["*"],
        "recheck-s": 0.3,
        "idle-s": 2.0,
        "regions-at-most-every-s": 1.0,
        "pause-s": 10,
        "renew-s": 3.0,
    },
}
#: What a PD asks of a region that a keyspace ends in; it touches no other store.
SPLIT = "labeler-split-region"
_CREATED = re.compile(r"createAt:(\S+ \S+)")
#: In so many of our looks an operator of PD's was there before one of ours began: then Mooring, which looks every 0.3 s,
#: has seen it. Looks and not seconds: a busy machine slows both down.
KNOWN_LOOKS = 5


class SandboxStores(ServedPd):
    async def start(self, _):
        timeline = Timeline(epoch=time.time())
        settings = PdSettings(
            store_heartbeat_s=1.0,
            snapshot_mib_per_s=1000.0,
            transfer_s=(0.02, 0.05),
            conf_change_s=(0.02, 0.05),
            report_s=(0.01, 0.02),
            reconnect_s=(0.3, 0.6),
            election_s=(0.2, 0.4),
            collect_every_s=0.5,
            disconnected_after_s=DOWN_AFTER_S / 2,
            down_after_s=DOWN_AFTER_S,
        )
        pd = SandboxPd(timeline, seed=3, settings=settings)
        for number in range(STORES):
            pd.attach(f"demo-tikv-{number}", address=f"demo-tikv-{number}:20160")
        pd.load(regions=REGIONS)
        return await self.serve(pd, timeline)

    def add_store(self):
        self.pd.attach("demo-tikv-9", address="demo-tikv-9:20160")

    async def deny(self, start_key, _):
        self.pd.server.placement.deny(start_key, "")

    def lose_store(self):
        self.pd.pod_gone("demo-tikv-1")

    async def restart_pd(self):
        self.pd.restart(down_s=1.5)
        await eventually(self._back)

    async def _back(self):
        return not self.pd.away

    def alive(self):
        return [s.id for s in self.pd.server.tikv.stores.values() if s.alive]

    def regions(self):
        return [group.region() for group in self.pd.server.tikv.groups.values()]


class RealStores:
    """Six stores of the fake TiKV, the last of them silent and empty until it is added."""

    async def start(self, lab):
        from tests.faketikv import FakeTikv
        from tests.faketikv.cluster import LEARNER, VOTER

        class Tikv(FakeTikv):
            def _layout(self, count):
                last = self.stores.pop(STORES + 1)
                yield from super()._layout(count)
                self.stores[STORES + 1] = last
                last.alive = False

        self._lab, self._roles = lab, {VOTER: "Voter", LEARNER: "Learner"}
        before = set(lab.processes.names())
        urls = await asyncio.to_thread(lab.start_pd)
        (self._name,) = set(lab.processes.names()) - before
        self.tikv = Tikv(urls, stores=STORES + 1, regions=REGIONS, transfer_s=0.05)
        await self.tikv.start()
        async with aiohttp.ClientSession(urls[0], raise_for_status=True) as session:
            # PD lets fifteen peers a minute into a store: that limit is PD's own, and would hide ours.
            async with session.post("/pd/api/v1/stores/limit", json={"rate": 100_000}):
                pass
            async with session.post("/pd/api/v1/config", json={"max-store-down-time": f"{DOWN_AFTER_S}s"}):
                pass
            # The fake TiKV does not split, so PD would ask one region to split at its keyspace's keys for ever.
            async with session.get("/pd/api/v1/config/region-label/rules") as rules:
                ids = [rule["id"] for rule in await rules.json(content_type=None)]
            for rule in ids:
                url = URL(f"{urls[0]}/pd/api/v1/config/region-label/rule/{quote(rule, safe='')}", encoded=True)
                async with session.request("DELETE", url):
                    pass
        return urls[0]

    def add_store(self):
        self.tikv.start_store(STORES + 1)

    async def deny(self, start_key, say):
        labels, ranges = [{"key": "schedule", "value": "deny"}], [{"start_key": start_key, "end_key": ""}]
        await say(
            "/config/region-label/rule", {"id": "deny", "labels": labels, "rule_type": "key-range", "data": ranges}
        )

    def lose_store(self):
        self.tikv.stop_store(2)

    async def restart_pd(self):
        await asyncio.to_thread(self._lab.restart, self._name)

    def alive(self):
        return [s.id for s in self.tikv.stores.values() if s.alive]

    def regions(self):
        for r in self.tikv.regions.values():
            peers = tuple(Peer(p, s, self._roles.get(role, "Joint")) for s, (p, role) in r.peers.items())
            yield Region(r.id, peers=peers, leader_store=r.leader, size_mib=96)

    async def close(self):
        await self.tikv.close()
        await asyncio.to_thread(self._lab.stop, self._name)


class Environment:
    """One cluster and whoever balances it, looked at ten times a second."""

    def __init__(self, lab, directory, *, real_pd):
        self._lab, self._directory = lab, directory
        self.namespace, self._own = lab.namespace("tidb"), lab.namespace("mooring")
        self.stores = RealStores() if real_pd else SandboxStores()
        self.neighbours = ()
        self._processes = []
        #: The most that ran on one store at one moment: of ours, and with everybody else's.
        self.peak = self.peak_of_all = 0
        #: Ours that began where there was no room, and everybody else's.
        self.pushed, self.others = set(), {}
        #: Schedulers of PD that were paused besides those whose work we do.
        self.paused_too = set()
        #: Ours that PD was seen to run, and how often it was looked at.
        self._ours, self.looks = set(), 0
        #: What each operator costs where, as of its beginning: its region may get another leader meanwhile. And which
        #: look showed it first.
        self._prices, self._first_look = {}, {}
        #: What stood on a store that had more of ours than it may, for whoever reads a failure.
        self.above = {}

    async def __aenter__(self):
        async with contextlib.AsyncExitStack() as stack:
            api = await stack.enter_async_context(HttpKubeApi(load(self._lab.kubeconfig), write_timeout_s=PATIENT_S))
            stack.push_async_callback(self._leave)
            await eventually(lambda: self._created(api))
            self.url = await self.stores.start(self._lab)
            stack.push_async_callback(self.stores.close)
            self.pd = PdClient([self.url], clock=WallClock(), randomness=SystemRandomness())
            stack.push_async_callback(self.pd.close)
            self._session = await stack.enter_async_context(aiohttp.ClientSession(self.url))
            await eventually(self._settled)
            watching = asyncio.ensure_future(self._watch())
            stack.push_async_callback(asyncio.gather, watching, return_exceptions=True)
            stack.callback(watching.cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *how):
        self.kill()
        await self._stack.__aexit__(*how)

    async def _created(self, api):
        demo = {"namespace": self.namespace, "name": "demo"}
        try:
            await api.create(Kind.TIDB_CLUSTER, {"metadata": demo, "spec": {"tikv": {"replicas": STORES}}})
        except AlreadyExistsError:
            return True
        except PortError:
            return False
        return True

    async def _leave(self):
        for name in (self.namespace, self._own):
            self._lab.kubectl("delete", "namespace", name, "--wait=false")

    async def _settled(self):
        try:
            view = await self.pd.observe()
        except PortError:
            return False
        return view.evicting == () and sum(s.leader_count for s in view.stores) >= REGIONS

    # ── Mooring ───────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self):
        config = self._directory / f"{self.namespace}.yaml"
        config.write_text(yaml.safe_dump(SETTINGS))
        http, extender, webhook = free_ports(3)
        self._page = f"http://127.0.0.1:{http}"
        argv = [
            *(sys.executable, "-m", "mooring", "run", "--kubeconfig", str(self._lab.kubeconfig)),
            *("--config", str(config), "--features", "balance=true", "--namespace", self._own),
            *("--listen-http", f"127.0.0.1:{http}", "--listen-extender", f"127.0.0.1:{extender}"),
            *("--listen-webhook", f"127.0.0.1:{webhook}", "--pd", f"{self.namespace}/demo={self.url}"),
        ]
        for other in self.neighbours:  # theirs is somebody else's to drive: no answer
            argv += ["--pd", f"{other}/demo=http://127.0.0.1:1"]
        log = self._directory / f"{self.namespace}-{len(self._processes)}.log"
        with log.open("wb") as file:
            self._processes.append((subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=file), log))

    def kill(self):
        """kill -9."""
        for process, _ in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait(120)

    async def release(self):
        argv = [sys.executable, "-m", "mooring", "balance", "release", f"{self.namespace}/demo"]
        argv += ["--kubeconfig", str(self._lab.kubeconfig), "--pd", self.url]
        done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr

    def tell(self):
        log = self._processes[-1][1].read_text()[-3000:] if self._processes else ""
        return f"held {self.held()}, led {self.led()}\n{log}"

    # ── Looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def held(self):
        held = [p.store_id for r in self.stores.regions() for p in r.peers]
        return {s: held.count(s) for s in sorted({*held, *self.stores.alive()})}

    def led(self):
        led = [r.leader_store for r in self.stores.regions()]
        return {s: led.count(s) for s in self.stores.alive()}

    async def say(self, path, body):
        async with self._session.post(f"/pd/api/v1{path}", json=body, raise_for_status=True):
            pass

    async def why(self):
        try:
            async with aiohttp.request("GET", f"{self._page}/api/v1/why/cluster/{self.namespace}/demo") as answer:
                return await answer.text()
        except aiohttp.ClientError as error:
            return str(error)

    async def pauses(self):
        """Scheduler → when its pause ends."""
        async with self._session.get("/pd/api/v1/schedulers?status=paused&timestamp=true") as answer:
            return {one["name"]: one["resume_at"] for one in await answer.json(content_type=None)}

    def begun(self):
        """How many operators of ours PD has been seen to run."""
        return len(self._ours)

    async def deny(self, first):
        """Regions from this number on are not to be moved; where they are."""
        await self.stores.deny(f"k{first:08d}".encode().hex().upper(), self.say)
        return {r.id: sorted(p.store_id for p in r.peers) for r in list(self.stores.regions())[first:]}

    async def paused(self):
        return set(await self.pd.schedulers(paused=True))

    async def stands_aside(self):
        try:
            paused = await self.paused()
        except PortError:
            return False
        self.paused_too |= paused - ASIDE
        return paused >= ASIDE

    async def filled(self, regions):
        """Has the new store so many?"""
        return min(self.held().values()) >= regions

    async def balanced(self):
        """Every store that lives within twice the tolerance of every other, nothing on a dead one, nothing half done."""
        held, led, alive = self.held(), self.led(), self.stores.alive()
        if {s for s, count in held.items() if count} - set(alive):
            return False
        even = all(max(counts.values()) - min(counts.values()) <= 6 for counts in (held, led))
        whole = all([p.role for p in r.peers] == ["Voter"] * 3 for r in self.stores.regions())
        return even and whole and not any(op.desc in foreign.OURS for _, op in await self._operators())

    async def _operators(self):
        """What PD runs now, in the order of its beginning; a PD that is away runs nothing."""
        try:
            async with self._session.get("/pd/api/v1/operators") as answer:
                body = await answer.read()
        except (aiohttp.ClientError, OSError):
            return []
        if answer.status != 200:
            return []
        lines = [(_CREATED.search(line)[1], line) for line in answers.names(body, "operators")]
        return [(began, answers.operator(line)) for began, line in sorted(lines)]

    async def _watch(self):
        while True:
            self._count(await self._operators())
            self.looks += 1
            await asyncio.sleep(0.1)

    def _count(self, running):
        """Each operator that PD runs, priced by its own steps, on top of those that began before it."""
        new = [(began, op) for began, op in running if (began, op.region_id) not in self._prices]
        summary, settings = Summary(BalancePolicy()), live_settings()
        for region in self.stores.regions() if new else ():
            summary.put(region)
        for began, operator in new:
            self._prices[began, operator.region_id] = foreign.costs(operator, settings, summary)
            self._first_look[began, operator.region_id] = self.looks
        load, ours = {}, {}
        for place, (began, operator) in enumerate(running):
            mine = operator.desc in foreign.OURS
            self._ours |= {(began, operator.region_id)} if mine else set()
            if not mine and operator.desc != SPLIT:
                self.others[began, operator.region_id] = operator.desc
            for store, cost in self._prices[began, operator.region_id].items():
                load[store] = load.get(store, 0) + cost
                ours[store] = ours.get(store, 0) + mine * cost
                known = cost + self._known_before(running[:place], (began, operator.region_id), store)
                if mine and known > LIMIT:
                    self.pushed.add((began, operator.region_id, operator.brief, known))
        for store in [store for store, cost in ours.items() if cost > LIMIT]:
            on_it = [(b, op.desc, op.region_id, op.brief, self._prices[b, op.region_id]) for b, op in running]
            self.above.setdefault(store, [entry for entry in on_it if store in entry[-1]])
        self.peak = max([self.peak, *ours.values()])
        self.peak_of_all = max([self.peak_of_all, *load.values()])

    def _known_before(self, earlier, operator, store):
        """What ran on a store when one of ours began, and Mooring knew of: ours, and what PD had begun long enough
        before."""
        until = self._first_look[operator] - KNOWN_LOOKS
        keys = [(began, op.region_id, op.desc in foreign.OURS) for began, op in earlier]
        known = [(began, region) for began, region, mine in keys if mine or self._first_look[began, region] <= until]
        return sum(self._prices[one].get(store, 0) for one in known)
