"""Five stores and three hundred regions, and one store more: regions and leaders spread over it under the limit."""

from collections.abc import Mapping

import msgspec

from mooring.capabilities.balance import BalancePolicy, foreign
from mooring.capabilities.balance.summary import Summary
from mooring.core.model.kinds import Kind
from mooring.core.queue import live_settings
from mooring.process.settings.config import Config
from mooring_lab.cluster.pd import SandboxPd
from mooring_lab.stage.rig import Rig

NAMESPACE, NAME = "tidb", "demo"
#: What may be under way on one store.
LIMIT = 20


async def add_store(rig: Rig, wanted: int) -> None:
    """tidb-operator is asked for so many TiKV members; returns when all are Ready."""
    part = {"spec": {"tikv": {"replicas": wanted}}}
    await rig.api.patch(Kind.TIDB_CLUSTER, NAMESPACE, NAME, part)
    await rig.until(lambda: rig.cluster.ready(NAMESPACE, f"{NAME}-tikv") == wanted)


class ScaleOutScenario:
    """`build` makes the cluster, `act` adds the store, `balanced` says when it is over; `watch` looks on meanwhile."""

    name = "scale-out"
    #: Which regions go is chosen again after a crash, from what is then seen: no single write has to come again.
    once: tuple[str, ...] = ()

    def __init__(self, stores: int = 5, regions: int = 300, seed: int = 1, policy: BalancePolicy | None = None) -> None:
        self.stores = stores
        self.regions = regions
        self.seed = seed
        self.policy = msgspec.structs.replace(policy or BalancePolicy(), clusters=("*",))
        #: The most that was under way on one store at any one moment, by the steps that PD was running: of ours, and
        #: with all others. A PD that restarts has forgotten its pauses and balances by itself until paused again.
        self.peak = self.peak_of_all = 0
        #: What PD's own balancers ran while ours had them paused.
        self.intruders: list[str] = []

    def rig(self) -> Rig:
        return Rig(seed=self.seed, config=Config(features={"balance": True}, policies=(self.policy,)))

    async def build(self, rig: Rig) -> None:
        self.peak = self.peak_of_all = 0
        self.intruders = []
        cluster = rig.cluster
        cluster.add_nodes(self.stores + 2)
        cluster.tidb_cluster(NAMESPACE, NAME, tidb=0, tikv=self.stores, pd=0, with_pd=True)
        await rig.sleep(1.0)
        await rig.until(lambda: cluster.ready(NAMESPACE, f"{NAME}-tikv") == self.stores)
        self.pd(rig).load(self.regions)

    async def act(self, rig: Rig) -> None:
        await add_store(rig, self.stores + 1)

    def pd(self, rig: Rig) -> SandboxPd:
        return rig.cluster.pd[NAMESPACE, NAME]

    def counts(self, rig: Rig) -> Mapping[str, list[int]]:
        """As TiKV really is, on the stores that live."""
        tikv = self.pd(rig).server.tikv
        alive = [s.id for s in tikv.stores.values() if s.alive]
        return {"regions": [len(tikv.held[s]) for s in alive], "leaders": [len(tikv.led[s]) for s in alive]}

    def watch(self, rig: Rig) -> None:
        """What runs in PD at this moment, priced by its own steps."""
        server = self.pd(rig).server
        summary, settings = Summary(self.policy), live_settings()
        load: dict[int, int] = {}
        ours: dict[int, int] = {}
        for running in server.operators.running.values():
            region = server.cache.get(running.region_id)
            if region is not None:
                summary.put(region)
            for store, cost in foreign.costs(running.view(), settings, summary).items():
                load[store] = load.get(store, 0) + cost
                if running.desc in foreign.OURS:
                    ours[store] = ours.get(store, 0) + cost
            if server.is_paused(running.desc) and running.created_at > server.paused[running.desc][0]:
                self.intruders.append(running.line())
        self.peak = max([self.peak, *ours.values()])
        self.peak_of_all = max([self.peak_of_all, *load.values()])

    def balanced(self, rig: Rig) -> bool:
        """Every live store within the tolerance of every other, nothing on dead ones, and nothing under way."""
        self.watch(rig)
        if rig.unsettled() or self.pd(rig).server.operators.running:
            return False
        tikv = self.pd(rig).server.tikv
        if any(tikv.held[s.id] for s in tikv.stores.values() if not s.alive):
            return False
        counts = self.counts(rig)
        spread = max(counts["regions"]) - min(counts["regions"])
        return (
            len(counts["regions"]) >= self.stores
            and spread <= 2 * self.policy.region_tolerance
            and max(counts["leaders"]) - min(counts["leaders"]) <= 2 * self.policy.leader_tolerance
        )

    # ── For the kill harness ──────────────────────────────────────────────────────────────────────────────────────

    def done(self, rig: Rig) -> bool:
        return self.balanced(rig)

    def end_state(self, rig: Rig) -> Mapping[str, object]:
        """Whole regions, and nothing that went to the new store was taken off it again. Even it is when it is done."""
        tikv = self.pd(rig).server.tikv
        new = max(tikv.stores)
        back = [w for w in rig.writes if f"'from_store_id': {new}" in w]
        roles = {tuple(sorted(p.role for p in group.peers)) for group in tikv.groups.values()}
        return {"regions": roles, "taken back": back}

    def left_overs(self, rig: Rig) -> list[str]:
        running = [f"still runs: {op.line()}" for op in self.pd(rig).server.operators.running.values()]
        above = [f"a store had {self.peak} of {LIMIT}"] if self.peak > LIMIT else []
        return running + above + [f"PD's own ran while paused: {line}" for line in self.intruders]
