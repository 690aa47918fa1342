"""09:45: a TiKV pod is restarted by annotation; it goes only after its leaders have gone."""

from mooring.capabilities.handoff.requests import RESTART
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF
from mooring.demo.stage import DEMO, TIDB, Check, DemoStage

POD = f"{DEMO}-tikv-2"


def uid_of(stage: DemoStage, name: str) -> str:
    pod = stage.rig.pod(TIDB, name)
    return pod["metadata"]["uid"] if pod is not None else ""


def nothing_left(stage: DemoStage) -> list[str]:
    """Marks, status entries and evict-leader schedulers that are still there."""
    tc = stage.cluster.store.get(Kind.TIDB_CLUSTER, TIDB, DEMO)
    left = []
    if HANDOFF in tc["metadata"].get("annotations", {}):
        left.append("a mark")
    if tc.get("status", {}).get("tikv", {}).get("evictLeaderStatus"):
        left.append("a status entry")
    if stage.cluster.pd[TIDB, DEMO].server.evict_list():
        left.append("an evict-leader scheduler")
    return left


class Restart:
    at = "09:45"
    speed = 4.0
    title = "a TiKV pod is restarted"
    command = f'kubectl -n {TIDB} annotate pod {POD} {RESTART}=""'

    async def play(self, stage: DemoStage) -> list[Check]:
        pd = stage.cluster.pd[TIDB, DEMO]
        store = pd.store_of(POD)
        leaders = len(pd.server.led_by(store.id)) if store is not None else 0
        before, interrupted = uid_of(stage, POD), len(pd.interruptions)
        began = stage.rig.clock.monotonic()
        await stage.kubectl(self.command)
        await stage.rig.until(
            lambda: (
                uid_of(stage, POD) not in {"", before}
                and stage.cluster.ready(TIDB, f"{DEMO}-tikv") == 3
                and not nothing_left(stage)
            )
        )
        took = stage.rig.clock.monotonic() - began
        cut_off = len(pd.interruptions) - interrupted
        stage.say(f"{leaders} leaders left {POD}, then it was deleted; back and Up after {took:.0f} s")
        return [
            Check("E1", uid_of(stage, POD) != before, "a new pod, Ready, its store Up"),
            Check("E6", cut_off == 0, f"{cut_off} leaders were on it when it went"),
            Check("E5", not nothing_left(stage), "no mark, no status entry, no scheduler left"),
        ]
