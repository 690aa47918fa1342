"""09:06: every spot node gets notice at once; two minutes later they are gone, and no pod was cut off."""

from mooring.capabilities.handoff.requests import RESTART
from mooring.capabilities.mix.labels import CUSTOM
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, RESERVED_TAINT
from mooring_lab.cluster.controllers import podstate
from mooring_lab.demo.stage import DEMO, SHOP, TIDB, Check, DemoStage
from mooring_lab.stage.scenarios.mix import NAMESPACE, given, left_behind, physical, serving, uids

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# 09:45: a TiKV pod is restarted by annotation; it goes only after its leaders have gone.


POD = f"{DEMO}-tikv-2"


def uid_of(stage: DemoStage, name: str) -> str:
    pod = stage.rig.pod(TIDB, name)
    return pod["metadata"]["uid"] if pod is not None else ""


def nothing_left(stage: DemoStage) -> list[str]:
    """Marks and evict-leader schedulers that are still there."""
    tc = stage.cluster.store.get(Kind.TIDB_CLUSTER, TIDB, DEMO)
    left = []
    if HANDOFF in tc["metadata"].get("annotations", {}):
        left.append("a mark")
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


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# 09:00: TiDB is rolled over; every member comes back to the node it had, though eleven others have room.


#: How often the act looks.
EVERY_S = 0.25
SET = f"{DEMO}-tidb"


class RollingUpdateAct:
    at = "09:00"
    speed = 2.0
    title = "TiDB rolling update"
    #: tidb-operator's own way to restart a component.
    command = (
        f"kubectl -n {TIDB} patch tc {DEMO} --type merge "
        """-p '{"spec":{"tidb":{"annotations":{"tidb.pingcap.com/restartedAt":"09:00"}}}}'"""
    )

    async def play(self, stage: DemoStage) -> list[Check]:
        cluster = stage.cluster
        homes = cluster.nodes_of(TIDB, SET)
        behind = cluster.ready_nodes(TIDB, SET)
        before = {name: uid_of(stage, name) for name in homes}
        fewest, reserved = len(homes), dict[str, float]()
        await stage.kubectl(self.command)

        def done() -> bool:
            nonlocal fewest
            fewest = min(fewest, cluster.ready(TIDB, SET))
            for node in reservations(stage):
                reserved[node] = reserved.get(node, 0.0) + EVERY_S
            return cluster.ready(TIDB, SET) == len(homes) and all(
                uid_of(stage, name) not in {"", uid} for name, uid in before.items()
            )

        await stage.rig.until(done, every_s=EVERY_S)
        await stage.rig.until(lambda: not reservations(stage), limit_s=60.0)
        after = cluster.nodes_of(TIDB, SET)
        await stage.rig.until(lambda: cluster.ready_nodes(TIDB, SET) == behind, limit_s=30.0)
        last = max(homes)
        for_s = reserved.get(homes[last], 0.0)
        stage.say(
            f"{last} left {homes[last]}, reserved for {for_s:.0f} s, came back to {after[last]}; 11 others had room"
        )
        same = sum(after.get(name) == node for name, node in homes.items())
        recorded = _recorded(stage)
        return [
            Check("H1", same == len(homes), f"{len(before)} new UIDs, {same} same nodes"),
            Check(
                "H5", cluster.ready_nodes(TIDB, SET) == behind, f"the load balancer's {len(behind)} nodes are the same"
            ),
            Check(
                "H8",
                set(reserved) == set(homes.values()),
                f"{len(reserved)} nodes were reserved meanwhile, none is now",
            ),
            Check("H3", recorded == homes, "each member's node is recorded"),
            Check("H5", fewest >= len(homes) - 1, f"never fewer than {fewest} Ready"),
        ]


def reservations(stage: DemoStage) -> list[str]:
    """Nodes that are kept free for a member just now."""
    nodes = stage.cluster.store.list(Kind.NODE)
    return [n["metadata"]["name"] for n in nodes if RESERVED_TAINT in n["metadata"].get("annotations", {})]


def _recorded(stage: DemoStage) -> dict[str, str]:
    status = stage.cluster.store.get(Kind.TIDB_CLUSTER, TIDB, DEMO).get("status") or {}
    members = (status.get("tidb") or {}).get("members") or {}
    return {name: str(member.get("node", "")) for name, member in sorted(members.items())}


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# 09:03: a mode is changed; exactly one pod moves.


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
            Check("M5", moved == 1, f"exactly one pod moved, 4 of 5 Ready for {away_s:.0f} s"),
            Check("M1", physical(rig, "web").count("on-demand") == WANTED, f"{WANTED} of 5 on on-demand nodes"),
            Check("M9", fewest >= 4 and rig.clock.monotonic() > began, f"never fewer than {fewest} Ready"),
        ]


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
