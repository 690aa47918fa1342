"""09:03: a mode is changed; exactly one pod moves."""

from mooring.capabilities.mix.labels import CUSTOM
from mooring.demo.stage import Check, DemoStage
from mooring.sim.scenarios.mix import NAMESPACE, given, left_behind, physical, uids

WANTED = 3


class ModeChange:
    at = "09:03"
    speed = 2.5
    title = f"web: 5 replicas, mode → custom {WANTED}"
    command = f"kubectl -n {NAMESPACE} label deploy/web {CUSTOM}={WANTED} --overwrite"

    async def play(self, stage: DemoStage) -> list[Check]:
        rig, cluster = stage.rig, stage.cluster
        before, had = uids(rig, "web"), given(rig, "web").count("on-demand")
        nodes = cluster.nodes_of(NAMESPACE, "web")
        began = rig.clock.monotonic()
        await stage.kubectl(self.command)
        fewest, away_since, away_s = 5, None, 0.0

        def done() -> bool:
            nonlocal fewest, away_since, away_s
            ready, now = cluster.ready(NAMESPACE, "web"), rig.clock.monotonic()
            fewest = min(fewest, ready)
            if ready < 5 and away_since is None:
                away_since = now
            if ready == 5 and away_since is not None:
                away_s, away_since = away_s + now - away_since, None
            return given(rig, "web").count("on-demand") == WANTED and ready == 5 and not left_behind(rig)

        await rig.until(done)
        # It stays so: nothing else moves afterwards.
        await rig.sleep(stage.figures.quiet_s)
        gone = sorted(set(nodes) - set(cluster.nodes_of(NAMESPACE, "web")))
        came = sorted(set(cluster.nodes_of(NAMESPACE, "web")) - set(nodes))
        for old, new in zip(gone, came, strict=False):
            where = cluster.nodes_of(NAMESPACE, "web")[new]
            stage.say(f"{old} left {nodes[old]}, {new} came to {where}: custom {WANTED} wants {WANTED} of 5, had {had}")
        moved = len(before - uids(rig, "web"))
        return [
            Check("M5", moved == 1, f"exactly one pod moved, 5 of 5 Ready but for {away_s:.0f} s"),
            Check("M1", physical(rig, "web").count("on-demand") == WANTED, f"{WANTED} of 5 on on-demand nodes"),
            Check("M9", fewest >= 4 and rig.clock.monotonic() > began, f"never fewer than {fewest} Ready"),
        ]
