"""Situations of the other capabilities: mix on a shop, a machine that retires, members with homes, regions in a queue."""

from typing import Any

from mooring.capabilities.mix.labels import AFFINITY, CUSTOM
from mooring.core.model.kinds import Kind
from mooring.process.settings.config import Config
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import podstate
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.fleet import serial_of
from mooring_lab.stage.scenarios.mix import NAMESPACE, admitting, slow_template, switched_on
from tests.core.why.situations import TEN, Environment
from tests.sim.scenarios.fleet import SHOP, RetireScenario
from tests.sim.scenarios.mix import relabel


class Shop(Environment):
    """Eight nodes, half of them spot; a web Deployment of five, two of them on-demand."""

    def __init__(self, *, features: tuple[str, ...] = ("mix",)) -> None:
        super().__init__()
        cluster = Cluster(seed=1, timeline=Timeline(TEN))
        self.rig = Rig(seed=1, config=Config(features=dict.fromkeys(features, True)), cluster=cluster)
        self.cluster = cluster

    async def build(self, *, replicas: int = 1) -> None:
        self.cluster.add_nodes(4, "n", capacity="on-demand")
        self.cluster.add_nodes(4, "s", capacity="spot")
        for _ in range(replicas):
            self.rig.start()
        if self.rig.config.features.get("mix"):
            await admitting(self.rig)
        else:
            await self.until(self.rig.leads)
        labels, template = switched_on("custom", 2), slow_template("web", 8.0)
        self.cluster.deployment(NAMESPACE, "web", 5, labels=labels, template=template)
        await self.until(lambda: self.cluster.ready(NAMESPACE, "web") == 5)
        await self.rig.sleep(30.0)

    def pod_of(self, node_class: str) -> str:
        pods = self.cluster.pods(NAMESPACE, "web")
        found = [p["metadata"]["name"] for p in pods if podstate.labels_of(p).get(AFFINITY) == node_class]
        return min(found)


async def a_mode_change_moves_one_pod(g: Shop) -> None:
    await g.build()
    relabel(g.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "3"})
    await g.until(lambda: bool(g.engine.running))
    await g.rig.sleep(3.0)
    g.ask("workload/shop/web")
    g.ask(f"operator/{next(iter(g.engine.running))}")


async def a_move_is_parked_on_a_pod_that_is_not_ready(g: Shop) -> None:
    await g.build()
    broken = g.pod_of("on-demand")
    g.cluster.annotate(Kind.POD, NAMESPACE, broken, {"lab.mooring.dev/fail": "ready"})
    await g.until(lambda: g.cluster.ready(NAMESPACE, "web") == 4)
    relabel(g.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "3"})
    await g.until(lambda: bool(g.engine.waiting))
    await g.rig.sleep(10.0)
    g.ask("workload/shop/Deployment/web")
    (waiting,) = g.engine.waiting.values()
    g.ask(waiting.subject)


async def a_move_is_held_by_a_budget(g: Shop) -> None:
    await g.build()
    g.cluster.pdb(NAMESPACE, "web", {"app": "web"}, min_available=5)
    await g.rig.sleep(2.0)
    relabel(g.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "3"})
    await g.until(
        lambda: any(r.waiting_on is not None and r.waiting_on.state == "blocked" for r in g.engine.running.values())
    )
    await g.rig.sleep(20.0)
    g.ask("workload/shop/web")


async def mix_is_off_and_wanted(g: Shop) -> None:
    await g.build()
    g.ask("workload/shop/web")


async def a_spot_node_gets_notice(g: Shop) -> None:
    await g.build()
    interrupted = sorted({n for n in g.cluster.nodes_of(NAMESPACE, "web").values() if n.startswith("s")})
    g.cluster.cloud.notice_all_spot(after_s=120.0)
    await g.until(lambda: bool(g.engine.running))
    await g.rig.sleep(2.0)
    g.ask(f"node/{interrupted[0]}")
    running = next(r for r in g.engine.running.values() if r.operator.deadline is not None)
    g.ask(f"operator/{running.operator.id}")


class Guarded(RetireScenario):
    async def also(self, rig: Rig) -> None:
        rig.cluster.stateful_set(SHOP, "lock", 1)
        rig.cluster.pdb(SHOP, "lock", {"app": "lock"}, min_available=1)
        await rig.until(lambda: rig.cluster.ready(SHOP, "lock") == 1)


class Racks(Environment):
    """Worked example 3: a node with a TiKV pod, web pods, an agent, and one pod under a budget that allows none."""

    def __init__(self, scenario: RetireScenario | None = None) -> None:
        super().__init__()
        self.scenario = scenario or Guarded()
        cluster = Cluster(seed=1, timeline=Timeline(TEN))
        self.rig = Rig(seed=1, config=self.scenario.rig().config, cluster=cluster)
        self.cluster = cluster

    async def build(self, *, replicas: int = 1) -> None:
        await self.scenario.build(self.rig)
        self.rig.start()
        await self.until(self.rig.leads)
        await self.scenario.act(self.rig)


async def a_machine_retires_and_a_budget_holds_it(g: Racks) -> None:
    await g.build()
    await g.until(lambda: bool(g.engine.running))
    await g.rig.sleep(420.0)
    g.ask(f"machine/{serial_of(g.rig, g.scenario.n7)}")
    lock = g.cluster.pods(SHOP, "lock")[0]["metadata"]["name"]
    g.ask(f"pod/{SHOP}/{lock}")
    g.ask(f"node/{g.scenario.n7}")


SITUATIONS: dict[str, tuple[Any, Any]] = {
    "mode-change": (a_mode_change_moves_one_pod, Shop),
    "move-parked": (a_move_is_parked_on_a_pod_that_is_not_ready, Shop),
    "move-held-by-a-budget": (a_move_is_held_by_a_budget, Shop),
    "mix-off": (mix_is_off_and_wanted, lambda: Shop(features=("handoff",))),
    "spot-notice": (a_spot_node_gets_notice, Shop),
    "machine-held-by-a-budget": (a_machine_retires_and_a_budget_holds_it, Racks),
}


def play(name: str) -> dict[str, tuple[str, dict[str, Any] | None]]:
    scenario, make = SITUATIONS[name]
    environment = make()
    environment.rig.play(lambda _: scenario(environment))
    return environment.asked
