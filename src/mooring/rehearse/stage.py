"""The stage of the demo: one cluster, one day, acts that do what a person would do and check what was promised.

A stage is a rig with a larger cluster on it. An act gets it, does its scene in virtual time, tells what moved and why,
and answers with checks, each naming a promise. Nothing here prints: the narrator does.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from mooring.handoff.policy import HandoffPolicy
from mooring.home.roster import HOLD_SEAT
from mooring.model.kinds import Kind
from mooring.rehearse.rig import Rig
from mooring.rehearse.scenes.fleet import register_nodes
from mooring.rehearse.scenes.home import TOLERATION, ask_mooring
from mooring.rehearse.scenes.mix import NAMESPACE, admitting, slow_template, switched_on
from mooring.run.config import Config
from mooring.sandbox.clock import Timeline
from mooring.sandbox.cluster import Cluster
from mooring.sandbox.nodes import CAPACITY_LABEL

TIDB, DEMO = "tidb", "demo"
#: Workloads of the shop: replicas, and the labels that say where they belong.
SHOP = {
    "web": (5, switched_on("custom", 2)),
    "api": (12, switched_on()),
    "cart": (10, switched_on("custom", "30pct")),
    "pay": (6, switched_on("majority-in-on-demand")),
}
MIDNIGHT = 1_767_225_600.0  # 2026-01-01T00:00:00Z


class Check(msgspec.Struct, frozen=True):
    """One promise, looked at. `seen` says what was seen, also when it held."""

    promise: str
    held: bool
    seen: str


class Act(Protocol):
    #: "09:00"
    at: str
    title: str
    #: The user's real command.
    command: str
    #: In one line, what would have happened without us; "" when nothing to say.
    without: str

    async def play(self, stage: "Stage") -> list[Check]: ...


class Stage:
    def __init__(self, seed: int = 1, say: Callable[[str], None] | None = None) -> None:
        self.cluster = Cluster(seed=seed, timeline=Timeline(MIDNIGHT + 8.5 * 3600))
        self.config = Config(
            features={"handoff": True, "home": True, "mix": True},
            handoff=HandoffPolicy(recheck_s=5.0),
            # Thirteen hours of renewals every two seconds would be most of the day's work.
            lease_s=60,
            renew_s=40.0,
            retry_s=15.0,
        )
        self.rig = Rig(seed=seed, config=self.config, cluster=self.cluster)
        self._say = say or (lambda _: None)

    def switch_on(self, feature: str) -> None:
        """As an administrator does in the settings of a running Mooring."""
        features = {**self.config.features, feature: True}
        self.config = self.rig.config = msgspec.structs.replace(self.config, features=features)
        for one in self.rig.replicas.values():
            one.replica.apply(self.config)

    def say(self, line: str) -> None:
        """A line of narration: what moved, and why."""
        self._say(line)

    async def build(self) -> None:
        """24 nodes in three racks, half of them spot; a TidbCluster with its PD on on-demand nodes; a shop on both."""
        cluster = self.cluster
        for number in range(6):
            cluster.add_node(f"n{number + 1}", capacity="on-demand", rack=number // 4 + 1)
        ask_mooring(self.rig)
        cluster.tidb_cluster(TIDB, DEMO, tidb=3, tikv=3, pd=3, with_pd=True)
        bought = {"nodeSelector": {CAPACITY_LABEL: "on-demand"}}
        members = {
            # While a member of TiDB is away, its seat is held.
            "metadata": {"labels": {HOLD_SEAT: "true"}},
            "spec": {"tidb": {**bought, "tolerations": [TOLERATION]}, "tikv": bought, "pd": bought},
        }
        cluster.store.patch(Kind.TIDB_CLUSTER, TIDB, DEMO, members)
        await self.rig.sleep(2.0)
        for name in (f"{DEMO}-tikv", f"{DEMO}-tidb", f"{DEMO}-pd"):
            await self.rig.until(lambda name=name: cluster.ready(TIDB, name) == 3)  # type: ignore[misc]
        # The other nodes come later and are roomier: by itself a scheduler would rather take these.
        for number in range(6, 12):
            cluster.add_node(f"n{number + 1}", capacity="on-demand", rack=number // 4 + 1, cpu="16", memory="64Gi")
        for number in range(12):
            cluster.add_node(f"s{number + 1}", capacity="spot", rack=number // 4 + 1)
        register_nodes(self.rig, [f"n{number + 1}" for number in range(12)])
        cluster.pd[TIDB, DEMO].load(300)
        self.rig.start()
        await admitting(self.rig)
        for name, (replicas, labels) in SHOP.items():
            template = slow_template(name, 8.0)
            cluster.deployment(NAMESPACE, name, replicas, labels=labels, template=template)
        for name, (replicas, _) in SHOP.items():
            await self.rig.until(lambda name=name, n=replicas: cluster.ready(NAMESPACE, name) == n)  # type: ignore[misc]

    async def wait_for(self, at: str) -> None:
        """Until this time of the day, at once when it has passed."""
        hours, _, minutes = at.partition(":")
        goal = MIDNIGHT + int(hours) * 3600 + int(minutes) * 60
        left = goal - self.cluster.timeline.now()
        if left > 0:
            await self.rig.sleep(left)
