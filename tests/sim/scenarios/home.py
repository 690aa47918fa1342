"""Seed 000's scenario: a rolling update of TiDB behind local endpoints, with others waiting for the room."""

from typing import Any

from mooring.capabilities.home.members import RESERVE_NODE
from mooring.capabilities.home.reserve import has_reservation_taint
from mooring.clients.wire.kube import project
from mooring.core.model.cluster import Node
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import RESERVED_TAINT
from mooring.process.settings.config import Config
from mooring_lab.cluster.controllers.manifests import pod_template
from mooring_lab.cluster.controllers.tidb.manifests import tidb_cluster
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.home import TOLERATION, ask_mooring

NAMESPACE, NAME = "tidb", "demo"


class HomeScenario:
    """Roll `demo` over while pods of another scheduler wait for room; over when all members are new and Ready.

    `reservations` False: the seed's own scenario, in which no other pods compete for the nodes.
    """

    name = "home"
    #: A second write is allowed only where the first was not made; none disturbs anything.
    once = ("patch Node",)

    def __init__(self, *, reservations: bool = True, operator: bool = True, seed: int = 1) -> None:
        self.reservations = reservations
        #: Whether a tidb-operator keeps the status; without one, Mooring does.
        self.operator = operator
        self.seed = seed
        self.uids: dict[str, str] = {}
        self.homes: dict[str, str] = {}
        self.endpoints: set[str] = set()

    def rig(self) -> Rig:
        return Rig(seed=self.seed, config=Config(features={"home": True}))

    async def build(self, rig: Rig) -> None:
        cluster = rig.cluster
        cluster.add_nodes(3, cpu="4", memory="8Gi")
        tidb = {
            "replicas": 3,
            "requests": {"cpu": "3", "memory": "2Gi"},
            "tolerations": [TOLERATION],
            "annotations": {"lab.mooring.dev/grace-seconds": "20"},
        }
        tc = tidb_cluster(NAMESPACE, NAME, tidb=tidb)
        if self.reservations:
            tc["metadata"]["labels"] = {RESERVE_NODE: "true"}
        cluster.store.create(Kind.TIDB_CLUSTER, tc)
        ask_mooring(rig)
        await rig.sleep(1.0)
        await rig.until(lambda: cluster.ready(NAMESPACE, f"{NAME}-tidb") == 3)
        if not self.operator:
            cluster.tidb_operator.stopped = True
            cluster.store.patch(Kind.TIDB_CLUSTER, NAMESPACE, NAME, {"status": None})
        # Roomier, so that a scheduler by itself would rather take these.
        cluster.add_nodes(3, prefix="big-", cpu="5", memory="16Gi")
        if self.reservations:
            # Five that fit beside no member: three run on the big nodes, two wait for the moment another is free.
            greedy = pod_template({"app": "greedy"}, cpu="3")
            cluster.deployment("shop", "greedy", 5, template=greedy)
            await rig.until(lambda: cluster.ready("shop", "greedy") == 3)
        self.homes = cluster.nodes_of(NAMESPACE, f"{NAME}-tidb")
        self.uids = {name: self._uid(rig, name) for name in self.homes}
        await rig.sleep(5.0)
        self.endpoints = cluster.ready_nodes(NAMESPACE, f"{NAME}-tidb")

    async def act(self, rig: Rig) -> None:
        await rig.sleep(2.0)
        if self.operator:
            rig.cluster.change(
                Kind.TIDB_CLUSTER, NAMESPACE, NAME, lambda tc: {**tc, "spec": {**tc["spec"], "version": "v8.5.1"}}
            )
        else:
            # Only Mooring writes it: what it wrote is lost, and must be written again before the members come back.
            rig.cluster.store.patch(Kind.TIDB_CLUSTER, NAMESPACE, NAME, {"status": None})
            rig.cluster.set_image(Kind.STATEFUL_SET, NAMESPACE, f"{NAME}-tidb", "pingcap/tidb:v8.5.1")

    def done(self, rig: Rig) -> bool:
        new = all(self._uid(rig, name) not in {"", uid} for name, uid in self.uids.items())
        return new and rig.cluster.ready(NAMESPACE, f"{NAME}-tidb") == 3 and not self.left_overs(rig)

    def end_state(self, rig: Rig) -> Any:
        return {
            "new": sorted(name for name, uid in self.uids.items() if self._uid(rig, name) != uid),
            "home": rig.cluster.nodes_of(NAMESPACE, f"{NAME}-tidb") == self.homes,
            "endpoints": rig.cluster.ready_nodes(NAMESPACE, f"{NAME}-tidb") == self.endpoints,
            "recorded": self.recorded(rig) == self.homes,
        }

    def recorded(self, rig: Rig) -> dict[str, str]:
        """What the TidbCluster's status says."""
        status = rig.cluster.store.get(Kind.TIDB_CLUSTER, NAMESPACE, NAME).get("status") or {}
        members = (status.get("tidb") or {}).get("members") or {}
        return {name: member.get("node", "") for name, member in sorted(members.items())}

    def left_overs(self, rig: Rig) -> list[str]:
        """Reservations that are still there."""
        found = []
        for obj in rig.cluster.store.list(Kind.NODE):
            node = project(Kind.NODE, obj)
            assert isinstance(node, Node)
            if has_reservation_taint(node) or RESERVED_TAINT in node.annotations:
                found.append(f"a reservation on {node.name}")
        return found

    def _uid(self, rig: Rig, name: str) -> str:
        pod = rig.pod(NAMESPACE, name)
        return pod["metadata"]["uid"] if pod is not None else ""
