"""Situations that a person on call meets, each driven on the sandbox until it is there, then asked about.

A situation is an async function of a rig; it yields nothing but leaves the cluster in the state to be explained and
answers with the subjects to ask about. The texts of the answers are the golden files.
"""

from typing import Any

import msgspec

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.core.engine.why import explain, render, unknown
from mooring.core.model.kinds import Kind
from mooring.process.http.frames import silent_s
from mooring.process.settings.config import Config
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers.podstate import with_spec
from mooring_lab.cluster.pd import SandboxPd
from mooring_lab.cluster.pd.settings import PdSettings
from mooring_lab.stage.rig import Rig

NS, NAME = "tidb", "demo"
#: 2026-01-01T10:00:00Z, so that the golden files show a time that people believe.
TEN = 1_767_261_600.0
POLICY = HandoffPolicy(recheck_s=5.0, idle_s=20.0, young_pd_s=10.0)


class Environment:
    """Six nodes in three racks, three of them spot; one TidbCluster whose leaders take a second or so to move."""

    def __init__(
        self,
        *,
        features: tuple[str, ...] = ("handoff",),
        policy: HandoffPolicy = POLICY,
        tikv: int = 3,
        storage: str = "",
        queue: dict[str, Any] | None = None,
    ) -> None:
        cluster = Cluster(seed=1, timeline=Timeline(TEN))
        switches = dict.fromkeys(features, True)
        config = Config(features=switches, policies=(policy,), queue=queue or {})
        self.rig = Rig(seed=1, config=config, cluster=cluster)
        self.cluster, self.tikv, self.storage = cluster, tikv, storage
        self.pd = SandboxPd(
            cluster.timeline, seed=1, cluster=NAME, namespace=NS, settings=PdSettings(transfer_s=(1.0, 2.0))
        )
        self.asked: dict[str, tuple[str, dict[str, Any] | None]] = {}

    async def build(self, *, replicas: int = 1) -> None:
        for number in range(6):
            how = "spot" if number % 2 else "on-demand"
            self.cluster.add_node(f"n{number + 1}", capacity=how, rack=number // 2 + 1)
        self.cluster.pd[NS, NAME] = self.pd
        self.cluster.tidb_cluster(NS, NAME, tidb=0, tikv=self.tikv, pd=0)
        if self.storage:
            self.cluster.change(
                Kind.TIDB_CLUSTER,
                NS,
                NAME,
                lambda tc: with_spec(tc, tikv={**tc["spec"]["tikv"], "storageClassName": self.storage}),
            )
        self.cluster.deployment("shop", "web", 3)
        await self.rig.sleep(1.0)
        await self.until(lambda: self.cluster.ready(NS, f"{NAME}-tikv") == self.tikv)
        await self.until(lambda: self.cluster.ready("shop", "web") == 3)
        self.pd.load(240)
        for _ in range(replicas):
            self.rig.start()
        await self.until(self.rig.leads)
        await self.rig.sleep(30.0)

    async def until(self, holds: Any, limit_s: float = 900.0) -> None:
        await self.rig.until(holds, limit_s=limit_s)

    def annotate(self, ordinal: int, **annotations: str | None) -> None:
        keys = {f"tidb.pingcap.com/{k.replace('_', '-')}": v for k, v in annotations.items()}
        self.cluster.annotate(Kind.POD, NS, self.member(ordinal), keys)

    @staticmethod
    def member(ordinal: int) -> str:
        return f"{NAME}-tikv-{ordinal}"

    @property
    def engine(self) -> Any:
        leader = self.rig.leader()
        assert leader is not None
        return leader.engine

    def running(self, ordinal: int, step: int = 0) -> bool:
        pod = f"{NS}/{self.member(ordinal)}"
        return any(r.operator.payload.pod == pod and r.step >= step for r in self.engine.running.values())

    def ask(self, subject: str, *, follower: bool = False) -> None:
        """Ask now, and keep the answer."""
        replicas = [one.replica for one in self.rig.replicas.values()]
        replica = next(r for r in replicas if r.engine.leading != follower)
        found = explain(
            replica.engine,
            subject,
            now=replica.shell.now(),
            leader=replica.elector.holder or "",
            data_age_s=silent_s(replica),
        )
        if found is None:
            self.asked[subject] = (unknown(replica.engine, subject), None)
            return
        # By way of JSON, as the command gets it.
        value = msgspec.json.decode(msgspec.json.encode(found))
        self.asked[subject] = ("\n".join(render(value)), value)


# ── The situations ────────────────────────────────────────────────────────────────────────────────────────────────


async def waiting_behind_another_hand_over(g: Environment) -> None:
    await g.build()
    g.annotate(0, restart="")
    g.annotate(1, restart="")
    await g.until(lambda: g.running(0) and "leaders gone" in next(iter(g.engine.running.values())).progress)
    await g.rig.sleep(6.0)
    g.ask("pod/tidb/demo-tikv-1")
    g.ask("operator/2")


async def evicting_with_progress(g: Environment) -> None:
    await g.build()
    g.annotate(0, restart="")
    await g.until(lambda: g.running(0))
    await g.rig.sleep(8.0)
    g.ask("pod/tidb/demo-tikv-0")
    g.ask("operator/1")
    store = g.pd.store_of("demo-tikv-0")
    g.ask(f"store/tidb/demo/{store.id}")
    g.ask("cluster/tidb/demo")


async def away_and_coming_back(g: Environment) -> None:
    await g.build()
    g.annotate(0, restart="")
    await g.until(lambda: g.cluster.ready(NS, "demo-tikv") == 2)
    await g.rig.sleep(2.0)
    g.ask("pod/tidb/demo-tikv-0")


async def stalled(g: Environment) -> None:
    await g.build()
    g.pd.stick("demo-tikv-0", 3)
    g.annotate(0, restart="")
    await g.rig.sleep(720.0)
    g.ask("pod/tidb/demo-tikv-0")


async def behind_a_stalled_one(g: Environment) -> None:
    await g.build()
    g.pd.stick("demo-tikv-0", 3)
    g.annotate(0, restart="")
    g.annotate(1, restart="")
    await g.rig.sleep(720.0)
    g.ask("pod/tidb/demo-tikv-1")


async def held_by_one_store(g: Environment) -> None:
    await g.build()
    g.annotate(0, restart="")
    await g.rig.sleep(5.0)
    g.ask("pod/tidb/demo-tikv-0")


async def pd_down_while_leaders_leave(g: Environment) -> None:
    await g.build()
    g.annotate(0, restart="")
    await g.until(lambda: g.running(0))
    await g.rig.sleep(6.0)
    g.pd.go_dark()
    await g.rig.sleep(30.0)
    g.ask("pod/tidb/demo-tikv-0")


async def pd_down_before_anything_begins(g: Environment) -> None:
    await g.build()
    g.pd.go_dark()
    await g.rig.sleep(60.0)
    g.annotate(0, restart="")
    await g.rig.sleep(5.0)
    g.ask("pod/tidb/demo-tikv-0")


async def parked_on_a_fact(g: Environment) -> None:
    await g.build()
    g.pd.silence("demo-tikv-2")
    await g.rig.sleep(60.0)
    g.annotate(0, restart="")
    await g.until(lambda: any(o.kind == "restart-tikv" for o in g.engine.waiting.values()), 3600.0)
    g.ask("pod/tidb/demo-tikv-0")


async def feature_off(g: Environment) -> None:
    await g.build()
    g.annotate(0, restart="")
    await g.rig.sleep(5.0)
    g.ask("pod/tidb/demo-tikv-0")


async def never_fits(g: Environment) -> None:
    await g.build()
    g.annotate(0, restart="")
    await g.rig.sleep(5.0)
    g.ask("pod/tidb/demo-tikv-0")


async def given_up(g: Environment) -> None:
    await g.build()
    g.pd.stick("demo-tikv-0", 3)
    g.annotate(0, restart="")
    await g.rig.sleep(400.0)
    g.ask("pod/tidb/demo-tikv-0")


async def local_volume_held(g: Environment) -> None:
    await g.build()
    pod = g.rig.pod(NS, "demo-tikv-0")
    g.cluster.cordon(pod["spec"]["nodeName"])
    g.annotate(0, restart="")
    await g.until(lambda: any(v.state == "blocked" for v in g.engine.verdicts.values()))
    g.ask("pod/tidb/demo-tikv-0")
    g.ask(f"node/{pod['spec']['nodeName']}")


async def placed_and_content(g: Environment) -> None:
    await g.build()
    g.ask("pod/tidb/demo-tikv-0")
    g.ask("node/n1")
    g.ask("cluster/tidb/demo")
    g.ask("workload/shop/web")
    g.ask("pod/tidb/demo-tikv-9")
    g.ask("operator/77")


async def after_a_restart(g: Environment) -> None:
    await g.build()
    g.annotate(0, restart="")
    await g.until(lambda: g.running(0))
    await g.until(lambda: not g.rig.unsettled())
    await g.rig.sleep(5.0)
    g.ask("pod/tidb/demo-tikv-0")
    g.ask("operator/1")


async def follower_answering(g: Environment) -> None:
    await g.build(replicas=2)
    g.annotate(0, restart="")
    await g.until(lambda: g.running(0))
    await g.rig.sleep(8.0)
    g.ask("pod/tidb/demo-tikv-0", follower=True)


async def leaders_kept_off(g: Environment) -> None:
    await g.build()
    g.annotate(0, evict_leader="none")
    await g.until(lambda: g.running(0, 1))
    await g.rig.sleep(3600.0)
    g.ask("pod/tidb/demo-tikv-0")


async def somebody_else_evicts(g: Environment) -> None:
    await g.build()
    store = g.pd.store_of("demo-tikv-2")
    await g.pd.add_evict_leader(store.id)
    await g.rig.sleep(40.0)
    g.annotate(0, restart="")
    await g.rig.sleep(10.0)
    g.ask("pod/tidb/demo-tikv-0")


SITUATIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "waiting-behind-another-hand-over": (waiting_behind_another_hand_over, {}),
    "evicting-with-progress": (evicting_with_progress, {}),
    "away-and-coming-back": (away_and_coming_back, {}),
    "stalled": (stalled, {}),
    "behind-a-stalled-one": (behind_a_stalled_one, {}),
    "held-by-one-store": (held_by_one_store, {"tikv": 1}),
    "pd-down-while-leaders-leave": (pd_down_while_leaders_leave, {}),
    "pd-down-before-anything-begins": (pd_down_before_anything_begins, {}),
    "parked-on-a-fact": (parked_on_a_fact, {}),
    "feature-off": (feature_off, {"features": ("home",)}),
    "never-fits": (never_fits, {"queue": {"MaxScheduleCost": 5}}),
    "given-up": (given_up, {"policy": msgspec.structs.replace(POLICY, timeout_s=300.0)}),
    "local-volume-held": (local_volume_held, {"storage": "local-storage"}),
    "placed-and-content": (placed_and_content, {}),
    "after-a-restart": (after_a_restart, {}),
    "follower-answering": (follower_answering, {}),
    "leaders-kept-off": (leaders_kept_off, {}),
    "somebody-else-evicts": (somebody_else_evicts, {}),
}


def play(name: str) -> dict[str, tuple[str, dict[str, Any] | None]]:
    """Texts and values by subject."""
    scenario, how = SITUATIONS[name]
    environment = Environment(**how)
    environment.rig.play(lambda _: scenario(environment))
    return environment.asked
