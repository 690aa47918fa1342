"""A rolling restart of all members of a real system with leaders, while a client writes: with Mooring and without.

    python -m bench leaders

etcd, and PostgreSQL under Patroni where both are installed, are real and run on loopback. Their pods are
the sandbox's, on wall time: a pod that is deleted ends its process (SIGTERM, or SIGKILL), a new one starts it again.
TiKV is the sandbox's stand-in, in virtual time: 60 regions, of which the client writes one after the other.
Without Mooring each pod is deleted in turn, the next when the last is Ready, as a rolling update does. With Mooring all
three are asked for at once, and Mooring decides.
"""

import asyncio
import contextlib
import logging
import signal
import time
from typing import Any

import structlog

from bench._led import MEMBERS, SYSTEMS, RealMembers, UnansweredError

#: Between two writes of the client.
EVERY_S = 0.05
Row = tuple[str, str, int, int, float, float]


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    print(f"{'system, restart of all three':34}{'ended by':10}{'writes':>8}{'failed':>8}{'longest gap':>13}{'took':>8}")
    for name, made in SYSTEMS.items():
        if missing := made.missing():
            print(f"{name}: not tried, {missing}")
            continue
        for how in (signal.SIGTERM, signal.SIGKILL):
            for mooring in (False, True):
                what = f"{name} {'with Mooring' if mooring else 'pods deleted one by one'}"
                writes, failed, gap_s, took_s = asyncio.run(rolled(made(), how, mooring=mooring))
                print(f"{what:34}{how.name:10}{writes:>8}{failed:>8}{gap_s:>11.2f} s{took_s:>6.0f} s", flush=True)
    for how in (signal.SIGTERM, signal.SIGKILL):
        for mooring in (False, True):
            what = f"TiKV (stand-in) {'with Mooring' if mooring else 'deleted'}"
            writes, failed, gap_s, took_s = TikvStage(how, mooring=mooring).rolled()
            print(f"{what:34}{how.name:10}{writes:>8}{failed:>8}{gap_s:>11.2f} s{took_s:>6.0f} s", flush=True)


async def rolled(system: RealMembers, how: signal.Signals, *, mooring: bool) -> tuple[int, int, float, float]:
    stage = Stage(system, how)
    try:
        await stage.begin(mooring=mooring)
        client = Client(system)
        writing = asyncio.ensure_future(client.run())
        await asyncio.sleep(2.0)
        began = time.monotonic()
        await (stage.with_mooring() if mooring else stage.without())
        took_s = time.monotonic() - began
        await asyncio.sleep(2.0)
        client.stop = True
        await writing
        return client.writes, client.failed, client.gap_s, took_s
    finally:
        await stage.end()


class TikvStage:
    """Three stores of the sandbox. Told to end (SIGTERM), a store of TiKV 8.5.5 and later waits 20 s for its leaders to
    be taken off; killed it ends with them, and regions wait for an election."""

    def __init__(self, how: signal.Signals, *, mooring: bool) -> None:
        from mooring.capabilities.handoff.policy import HandoffPolicy
        from mooring.process.settings.config import Config
        from mooring_lab.cluster.pd import SandboxPd
        from mooring_lab.cluster.pd.settings import PdSettings
        from mooring_lab.stage.rig import Rig

        self.rig = Rig(seed=1, config=Config(features={"handoff": True}, policies=(HandoffPolicy(idle_s=5.0),)))
        settings = PdSettings(graceful_s=20.0 if how is signal.SIGTERM else 0.0)
        self.pd = SandboxPd(self.rig.cluster.timeline, seed=1, cluster="demo", namespace="tidb", settings=settings)
        self._mooring, self._names = mooring, [f"demo-tikv-{i}" for i in (2, 1, 0)]
        self._writes = self._failed = 0
        self._gap_s = self._took_s = 0.0
        self._since: dict[int, float] = {}

    def rolled(self) -> tuple[int, int, float, float]:
        self.rig.play(self._whole)
        return self._writes, self._failed, self._gap_s, self._took_s

    async def _whole(self, rig: Any) -> None:
        from mooring.core.model.kinds import Kind

        rig.cluster.add_nodes(5)
        rig.cluster.pd["tidb", "demo"] = self.pd
        rig.cluster.tidb_cluster("tidb", "demo", tikv=3, pd=0, tidb=0)
        await rig.sleep(1.0)
        await rig.until(lambda: rig.cluster.ready("tidb", "demo-tikv") == 3)
        self.pd.load(60)
        if self._mooring:
            rig.start()
            await rig.until(rig.leads)
        await rig.sleep(60.0)
        rig.cluster.timeline.after(EVERY_S, self._write)
        began, uids = rig.clock.monotonic(), {name: self._uid(name) for name in self._names}
        for name in self._names:
            if self._mooring:
                rig.cluster.annotate(Kind.POD, "tidb", name, {"tidb.pingcap.com/restart": ""})
            else:
                rig.cluster.store.delete(Kind.POD, "tidb", name)
                await rig.until(lambda name=name: self._uid(name) not in {"", uids[name]} and self._ready())  # type: ignore[misc]
        await rig.until(lambda: all(self._uid(n) not in {"", u} for n, u in uids.items()) and self._ready())
        self._took_s = rig.clock.monotonic() - began
        await rig.sleep(30.0)

    def _write(self) -> None:
        """The next region; and every region without a leader is noted, so that its gap is known."""
        tikv, now = self.pd.server.tikv, self.rig.clock.monotonic()
        led = {region for regions in tikv.led.values() for region in regions}
        for region in tikv.groups:
            if region not in led:
                self._gap_s = max(self._gap_s, now - self._since.setdefault(region, now))
            else:
                self._since.pop(region, None)
        regions = sorted(tikv.groups)
        self._failed += regions[self._writes % len(regions)] not in led
        self._writes += 1
        self.rig.cluster.timeline.after(EVERY_S, self._write)

    def _uid(self, name: str) -> str:
        pod = self.rig.pod("tidb", name)
        return "" if pod is None else str(pod["metadata"]["uid"])

    def _ready(self) -> bool:
        return int(self.rig.cluster.ready("tidb", "demo-tikv")) == 3


class Client:
    def __init__(self, system: RealMembers) -> None:
        self._system = system
        self.stop = False
        self.writes = self.failed = 0
        self.gap_s = 0.0

    async def run(self) -> None:
        last = time.monotonic()
        while not self.stop:
            self.writes += 1
            if await self._system.write(self.writes):
                self.gap_s, last = max(self.gap_s, time.monotonic() - last), time.monotonic()
            else:
                self.failed += 1
            await asyncio.sleep(EVERY_S)


class Stage:
    """A sandbox cluster on wall time whose pods are the system's processes, and a replica of Mooring."""

    def __init__(self, system: RealMembers, how: signal.Signals) -> None:
        from mooring_lab.cluster.clock import Timeline, WallDriver
        from mooring_lab.cluster.cluster import Cluster

        self.system, self._how = system, how
        self._timeline = Timeline(epoch=time.time())
        self.cluster = Cluster(seed=1, timeline=self._timeline)
        self._driver = WallDriver(self._timeline)
        self._locks = {name: asyncio.Lock() for name in MEMBERS}
        self._tasks: set[asyncio.Future[Any]] = set()
        self._leaving: set[str] = set()

    async def begin(self, *, mooring: bool) -> None:
        from mooring.capabilities.handoff.policy import HandoffPolicy
        from mooring.clients.leaders import DRIVERS
        from mooring.clients.leaders.ask import HttpAsk
        from mooring.core.model.kinds import Kind
        from mooring.core.model.leaders import LEADERS, LEADERS_ENDPOINT
        from mooring.process.assemble import capabilities
        from mooring.process.clock import SystemRandomness, WallClock
        from mooring.process.replica import Replica
        from mooring.process.settings.config import Config

        self._run(self._driver.run())
        self.cluster.store.subscribe(Kind.POD, self._on_pod)
        self.cluster.add_nodes(4)
        urls = ",".join(self.system.addresses[name] for name in MEMBERS)
        annotations = {LEADERS: self.system.driver_name, LEADERS_ENDPOINT: urls}
        self.cluster.stateful_set("data", "db", 3, annotations=annotations, podManagementPolicy="Parallel")
        self._ask = HttpAsk()
        if mooring:
            config = Config(
                features={"handoff": True}, leader_hosts=("127.0.0.1:*",), policies=(HandoffPolicy(idle_s=5.0),)
            )
            self.cluster.store.create(Kind.NAMESPACE, {"metadata": {"name": config.namespace}})
            replica = Replica(
                config,
                self.cluster.api.as_client("mooring"),
                lambda *_: None,  # type: ignore[arg-type, return-value]
                WallClock(),
                SystemRandomness(),
                identity="mooring",
                capabilities=capabilities(config),
                make_leaders=lambda driver, addresses, _: DRIVERS[driver](self._ask, addresses),
            )
            self._run(replica.run())
        await self.system.until(lambda v: not v.busy and len(v.members) == 3 and all(m.is_well for m in v.members))
        # The first member to go leads, in every run alike.
        view = await self.system.driver.read()
        leader = next(m.pod for m in view.members if m.leaders)
        if leader != "db-2":
            with contextlib.suppress(UnansweredError):  # on a busy machine it takes longer than a request may
                await self.system.driver.move_off(leader, "db-2")
            await self.system.until(lambda v: all(m.is_well for m in v.members) and v.leader == "db-2")
        await asyncio.sleep(3.0)

    async def without(self) -> None:
        for name in reversed(MEMBERS):
            uid = self._uid(name)
            self._delete(name)
            await self._until(lambda name=name, uid=uid: self._uid(name) not in {"", uid} and self._ready() == 3)  # type: ignore[misc]
            await asyncio.sleep(1.0)

    async def with_mooring(self) -> None:
        from mooring.core.model.kinds import Kind
        from mooring.core.model.times import rfc3339

        uids = {name: self._uid(name) for name in MEMBERS}
        for name in MEMBERS:
            value = f'{{"by":"bench","since":"{rfc3339(time.time())}"}}'
            self.cluster.annotate(Kind.POD, "data", name, {"mooring.dev/restart": value})
        await self._until(lambda: all(self._uid(n) not in {"", u} for n, u in uids.items()) and self._ready() == 3)

    async def end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._ask.close()
        await self.system.close()

    # ── Pods are processes ────────────────────────────────────────────────────────────────────────────────────────

    def _on_pod(self, kind: str, old: Any, new: Any) -> None:
        from mooring_lab.cluster.controllers import podstate

        pod = new or old
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if name not in MEMBERS:
            return
        if (kind == "DELETED" or podstate.terminating(pod)) and uid not in self._leaving:
            self._leaving.add(uid)
            self._run(self._ended(name))
        elif (
            new is not None
            and podstate.phase_of(pod) == "Running"
            and (old is None or podstate.phase_of(old) != "Running")
        ):
            self._run(self._started(name))

    async def _started(self, name: str) -> None:
        async with self._locks[name]:
            await self.system.start(name)

    async def _ended(self, name: str) -> None:
        async with self._locks[name]:
            await self.system.stop(name, self._how)

    def _run(self, what: Any) -> None:
        task = asyncio.ensure_future(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ── Looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _delete(self, name: str) -> None:
        from mooring_lab.cluster.apiserver import eviction

        with contextlib.suppress(Exception):
            eviction.evict(self.cluster.store, "data", name)

    def _uid(self, name: str) -> str:
        from mooring.core.model.kinds import Kind

        pod = self.cluster.store.find(Kind.POD, "data", name)
        return "" if pod is None else str(pod["metadata"]["uid"])

    def _ready(self) -> int:
        return int(self.cluster.ready("data", "db"))

    async def _until(self, holds: Any, within_s: float = 600.0) -> None:
        end = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > end:
                raise AssertionError(f"not within {within_s:.0f} s\n{self.system.logs()}")
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    main()
