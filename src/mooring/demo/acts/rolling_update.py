"""09:00: TiDB is rolled over; every member comes back to the node it had, though eleven others have room."""

from mooring.core.model.kinds import Kind
from mooring.core.model.marks import RESERVED_TAINT
from mooring.demo.acts.restart import uid_of
from mooring.demo.stage import DEMO, TIDB, Check, DemoStage

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
        """-p '{"spec":{"tidb":{"annotations":{"tidb.pingcap.com/restartedAt":"2026-01-01T09:00:00Z"}}}}'"""
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
