"""09:06: every spot node gets notice at once; two minutes later they are gone, and no pod was cut off."""

from mooring.core.model.kinds import Kind
from mooring.demo.stage import SHOP, Check, DemoStage
from mooring.sandbox.controllers import podstate
from mooring.sim.scenarios.mix import NAMESPACE, left_behind, serving

NOTICE_S = 120.0


class NoticeAct:
    at = "09:06"
    speed = 2.5
    title = "all 12 spot nodes get notice"
    command = "kubectl annotate node s1 … s12 vacant.io/interrupt-at=09:08:00Z"

    async def play(self, stage: DemoStage) -> list[Check]:
        rig, cluster = stage.rig, stage.cluster
        interrupted = set(cluster.cloud.spot_nodes())
        pods = {
            p["metadata"]["uid"]
            for name in SHOP
            for p in cluster.pods(NAMESPACE, name)
            if podstate.active(p) and podstate.node_of(p) in interrupted
        }
        floors = {name: _on_demand(stage, name) for name in SHOP}
        wanted = {name: int(cluster.workload(NAMESPACE, name)["spec"]["replicas"]) for name in SHOP}
        writes = len(rig.writes)
        began = rig.clock.monotonic()
        cluster.cloud.notice_all_spot(after_s=NOTICE_S)
        fewest, floor_held, moved_by = dict(wanted), True, 0.0
        while rig.clock.monotonic() < began + NOTICE_S - 1.0:
            await rig.sleep(0.5)
            for name in SHOP:
                fewest[name] = min(fewest[name], serving(rig, name))
                floor_held = floor_held and _on_demand(stage, name) >= floors[name]
            if not moved_by and not _left_on(stage, interrupted):
                moved_by = rig.clock.monotonic() - began
        cut_off = sorted(name for name in _left_on(stage, interrupted))
        await rig.until(lambda: not cluster.cloud.spot_nodes() and not left_behind(rig))
        made = rig.writes[writes:]
        first = next((i for i, w in enumerate(made) if w.startswith(stage.figures.first_move)), len(made))
        cordons = sum(w.startswith("patch Node") for w in made[:first])
        stage.say(f"{len(pods)} pods left 12 nodes in {moved_by:.0f} s, each after its replacement was Ready")
        for node in sorted(interrupted):
            cluster.cloud.give_back(node)
        return [
            Check("M8", not cut_off and fewest == wanted, f"12 cordons, then {len(pods)} pods moved; none cut off"),
            Check("O1", cordons == len(interrupted), f"{cordons} cordons before the first move"),
            Check("M8", floor_held, "every workload kept its on-demand replicas throughout"),
        ]


def _on_demand(stage: DemoStage, name: str) -> int:
    pods = stage.cluster.pods(NAMESPACE, name)
    return sum(podstate.ready(p) and podstate.active(p) and podstate.node_of(p).startswith("n") for p in pods)


def _left_on(stage: DemoStage, nodes: set[str]) -> list[str]:
    pods = stage.cluster.store.list(Kind.POD, NAMESPACE)
    return [p["metadata"]["name"] for p in pods if podstate.active(p) and podstate.node_of(p) in nodes]
