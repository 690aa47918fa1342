"""10:05: a TiKV store is added, regions and leaders spread over it under the cost limit, and it is taken out again."""

from mooring.capabilities.balance import BalancePolicy, foreign
from mooring.capabilities.balance.summary import Summary
from mooring.core.queue import live_settings
from mooring.demo.stage import DEMO, TIDB, Check, DemoStage
from mooring.sandbox.pd import SandboxPd
from mooring.sandbox.pd.requests import take_offline

LIMIT = 20
POD = f"{DEMO}-tikv-3"
BALANCER = "balance-region-scheduler"


def scaled(members: int) -> str:
    """What one types for so many TiKV members."""
    return f'kubectl -n {TIDB} patch tc {DEMO} --type merge -p \'{{"spec":{{"tikv":{{"replicas":{members}}}}}}}\''


class ScaleOut:
    at = "10:05"
    speed = 55.0
    title = "a TiKV store is added"
    command = scaled(4)

    async def play(self, stage: DemoStage) -> list[Check]:
        leader = stage.rig.leader()
        assert leader is not None, "no replica leads"
        before = leader.engine.on
        leader.shell.switch(before | {"balance"})
        gauge = Gauge(stage)
        try:
            took, spread, paused = await self._grow(stage, gauge)
            gone = await self._shrink(stage, gauge)
        finally:
            leader.shell.switch(before)
        stage.say(
            f"{spread[0]} to {spread[1]} regions on each of 4 stores after {took:.0f} s, {gauge.moves} moves; "
            f"off the store again after {gone:.0f} s"
        )
        return [
            Check("T12", spread[1] - spread[0] <= 6, f"the new store filled: {spread[0]} to {spread[1]} regions each"),
            Check("T3", 0 < gauge.peak <= LIMIT, f"no store was ever above {gauge.peak} of {LIMIT}"),
            Check("T12", paused, "PD's own schedulers were paused, a minute at a time"),
        ]

    async def _grow(self, stage: DemoStage, gauge: "Gauge") -> tuple[float, tuple[int, int], bool]:
        await _members(stage, 4)
        began, pd = stage.rig.clock.monotonic(), gauge.pd
        await stage.rig.until(lambda: gauge.read() and gauge.moves > 0)
        paused = pd.server.is_paused(BALANCER)
        await stage.rig.until(lambda: gauge.read() and gauge.quiet() and gauge.spread(4) <= 6, limit_s=1800)
        return stage.rig.clock.monotonic() - began, gauge.bounds(4), paused

    async def _shrink(self, stage: DemoStage, gauge: "Gauge") -> float:
        """As tidb-operator scales in: the store is Offline first, and its pod goes when nothing is left on it."""
        pd, began = gauge.pd, stage.rig.clock.monotonic()
        store = pd.store_of(POD)
        assert store is not None, f"{POD} has no store"
        take_offline(pd.server, store.id)
        await stage.rig.until(lambda: gauge.read() and not pd.server.held_by(store.id) and gauge.quiet(), limit_s=1800)
        await _members(stage, 3)
        return stage.rig.clock.monotonic() - began


async def _members(stage: DemoStage, wanted: int) -> None:
    await stage.kubectl(scaled(wanted))
    await stage.rig.until(lambda: stage.cluster.ready(TIDB, f"{DEMO}-tikv") == wanted)


class Gauge:
    """What of ours runs in PD, priced by its own steps, and how even the stores are."""

    def __init__(self, stage: DemoStage) -> None:
        self._stage = stage
        self.pd: SandboxPd = stage.cluster.pd[TIDB, DEMO]
        self.peak = 0
        self._moved: set[tuple[int, float]] = set()

    @property
    def moves(self) -> int:
        return len(self._moved)

    def read(self) -> bool:
        server, summary, load = self.pd.server, Summary(BalancePolicy()), dict[int, int]()
        for running in server.operators.running.values():
            if running.region_id in server.cache:
                summary.put(server.cache[running.region_id])
            if running.desc not in foreign.OURS:
                continue  # PD's own checkers move replicas off a store that is Offline, by their own limits
            self._moved.add((running.region_id, running.created_at))
            for store, cost in foreign.costs(running.view(), live_settings(), summary).items():
                load[store] = load.get(store, 0) + cost
        self.peak = max([self.peak, *load.values()])
        return True

    def quiet(self) -> bool:
        """Nothing under way in PD, and nothing of ours that we have not seen end."""
        leader = self._stage.rig.leader()
        return not self.pd.server.operators.running and leader is not None and not leader.engine.running

    def bounds(self, stores: int) -> tuple[int, int]:
        kept = sorted((len(h) for h in self.pd.server.tikv.held.values()), reverse=True)[:stores]
        return min(kept), max(kept)

    def spread(self, stores: int) -> int:
        low, high = self.bounds(stores)
        return high - low
