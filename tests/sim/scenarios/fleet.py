"""A machine on the sandbox: registered, a member, retiring, retired; and faults of the registry.

Nodes are named by their machine's address, as CKE names them. `n7` of worked example 3 carries one TiKV pod, three web
pods, a DaemonSet pod, and one pod under a budget that allows none.
"""

from typing import Any

import msgspec

from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.core.model.marks import CORDONED_BY
from mooring.process.settings.config import Config
from mooring_lab.cluster.controllers import manifests
from mooring_lab.cluster.controllers.podstate import with_spec
from mooring_lab.cluster.sabakan import SandboxSabakan
from mooring_lab.cluster.sabakan.registry import Ipam
from mooring_lab.stage.environment import Environment
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.fleet import (
    cordoned,
    marks_left,
    pods_on,
    roles_by_address,
    set_settings,
    set_state,
    stored,
    taints_of,
)

TIDB, DEMO, SHOP = "tidb", "demo", "shop"


def fleet_config(**policy: Any) -> Config:
    return Config(
        features={"fleet": True, "handoff": True},
        policies=(FleetPolicy(**policy), HandoffPolicy(recheck_s=5.0, young_pd_s=10.0)),
    )


def annotations_of(rig: Environment, kind: Kind, namespace: str, name: str) -> dict[str, str]:
    found = rig.cluster.store.find(kind, namespace, name)
    return dict(found["metadata"].get("annotations") or {}) if found is not None else {}


def build_fleet(rig: Rig, machines: int = 8, racks: int = 4, planes: int = 3, workers: int = 4) -> list[str]:
    """Machines in racks, a Node for each, settings for them; answers with their addresses."""
    registry = rig.cluster.sabakan = SandboxSabakan(rig.cluster.timeline, ipam=Ipam())
    addresses = []
    for number in range(machines):
        entry = registry.register(f"M{number + 1}", rack=number % racks, state=MachineState.HEALTHY)
        address = entry.ipv4[0]
        addresses.append(address)
        rig.cluster.add_node(address, rack=number % racks)
    limits = f"control-plane-count: {planes}\nminimum-workers: {workers}\n"
    set_settings(rig, **{settings.CONSTRAINTS: limits, settings.URL: "http://sabakan.sandbox:10080"})
    return addresses


class RetireScenario:
    """Worked example 3 without its budget: n7's machine is set to retiring; over when n7 is empty and tainted."""

    name = "retire"
    once = ("evict Pod", "delete Pod", "pd add_evict_leader")

    def __init__(
        self, seed: int = 1, regions: int = 30, web: int = 3, copies: int = 3, storage: str = "", **policy: Any
    ) -> None:
        self.seed = seed
        self.regions = regions
        #: Replicas of a region, and the class of the members' volumes.
        self.copies = copies
        self.storage = storage
        self.web = web
        self.policy = policy
        #: The node that is to be emptied.
        self.n7 = ""
        #: The most web pods that were away at any one moment.
        self.most_away = 0

    def rig(self) -> Rig:
        return Rig(seed=self.seed, config=fleet_config(**self.policy))

    async def build(self, rig: Rig) -> None:
        cluster = rig.cluster
        addresses = build_fleet(rig, machines=9, racks=9, planes=1, workers=6)
        # The control plane is chosen by address, the lowest first: the others are workers or free.
        for address in addresses[:1]:
            cluster.cordon(address)
        cluster.tidb_cluster(TIDB, DEMO, tidb=0, tikv=3, pd=0, with_pd=True)
        if self.storage:
            cluster.change(Kind.TIDB_CLUSTER, TIDB, DEMO, self._with_storage)
        # As agents do, it tolerates everything: no taint drives it out.
        agent = manifests.pod_template({"app": "agent"}, tolerations=[{"operator": "Exists"}])
        cluster.daemon_set(SHOP, "agent", template=agent)
        await rig.sleep(1.0)
        await rig.until(lambda: cluster.ready(TIDB, f"{DEMO}-tikv") == 3)
        cluster.pd[TIDB, DEMO].load(self.regions, self.copies)
        self.n7 = cluster.nodes_of(TIDB, f"{DEMO}-tikv")[f"{DEMO}-tikv-1"]
        others = [a for a in addresses if a != self.n7]
        was = {a: cordoned(rig, a) for a in others}
        for address in others:
            cluster.cordon(address)
        if self.web:
            cluster.deployment(SHOP, "web", self.web)
            await rig.until(lambda: cluster.ready(SHOP, "web") == self.web)
        await self.also(rig)
        for address in others:
            cluster.cordon(address, on=was[address])
        self.most_away = 0

    def _with_storage(self, tc: dict[str, Any]) -> dict[str, Any]:
        return with_spec(tc, tikv={**tc["spec"]["tikv"], "storageClassName": self.storage})

    async def also(self, rig: Rig) -> None:
        """More pods for n7, while every other node is closed."""

    async def act(self, rig: Rig) -> None:
        await rig.until(lambda: len(stored(rig).members) == 7 and self.n7 in roles_by_address(rig))
        set_state(rig, self.n7, MachineState.RETIRING)

    def done(self, rig: Rig) -> bool:
        if self.web:
            self.most_away = max(self.most_away, self.web - rig.cluster.ready(SHOP, "web"))
        return keys.STATE_TAINT in taints_of(rig, self.n7) and not list(marks_left(rig))

    def end_state(self, rig: Rig) -> Any:
        return {
            "n7": roles_by_address(rig).get(self.n7),
            "taint": taints_of(rig, self.n7).get(keys.STATE_TAINT),
            "cordoned": cordoned(rig, self.n7),
            "pods on n7": [p.rpartition("-")[0] for p in pods_on(rig, self.n7)],
            "web": rig.cluster.ready(SHOP, "web") if self.web else 0,
            "tikv": rig.cluster.ready(TIDB, f"{DEMO}-tikv"),
            "leaders cut off": len(rig.cluster.pd[TIDB, DEMO].interruptions),
            "before": before_of(rig, self.n7),
        }

    def left_overs(self, rig: Rig) -> list[str]:
        return list(marks_left(rig))


def before_of(rig: Rig, node: str) -> Any:
    text = annotations_of(rig, Kind.NODE, "", node).get(CORDONED_BY)
    return msgspec.json.decode(text)["before"] if text else None
