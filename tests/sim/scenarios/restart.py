"""A TiKV pod (or two) restarted by annotation: seed 003's scenario."""

from collections.abc import Sequence
from typing import Any

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.requests import RESTART
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF
from mooring.process.settings.config import Config
from mooring_lab.cluster.pd import SandboxPd
from mooring_lab.stage.rig import Rig

NAMESPACE, NAME = "tidb", "demo"


class RestartScenario:
    """Annotate `members` in the same second; over when all are new, Ready, and nothing of ours is left."""

    name = "restart"
    once = ("delete Pod", "pd add_evict_leader")

    def __init__(self, members: Sequence[int] = (0,), seed: int = 1, regions: int = 60) -> None:
        self.members = tuple(members)
        self.seed = seed
        self.regions = regions
        self.uids: dict[str, str] = {}
        #: The most members that were away (not Ready) at any one moment.
        self.most_away = 0

    def rig(self) -> Rig:
        return Rig(
            seed=self.seed,
            config=Config(features={"handoff": True}, policies=(HandoffPolicy(recheck_s=5.0, young_pd_s=10.0),)),
        )

    async def build(self, rig: Rig) -> None:
        cluster = rig.cluster
        cluster.add_nodes(5)
        cluster.tidb_cluster(NAMESPACE, NAME, tidb=0, tikv=3, pd=0, with_pd=True)
        await rig.sleep(1.0)
        await rig.until(lambda: cluster.ready(NAMESPACE, f"{NAME}-tikv") == 3)
        self.pd(rig).load(self.regions)
        self.uids = {name: self._uid(rig, name) for name in self._names()}
        self.most_away = 0

    async def act(self, rig: Rig) -> None:
        for name in self._names():
            rig.cluster.annotate(Kind.POD, NAMESPACE, name, {RESTART: ""})

    def done(self, rig: Rig) -> bool:
        self.most_away = max(self.most_away, 3 - rig.cluster.ready(NAMESPACE, f"{NAME}-tikv"))
        new = all(self._uid(rig, name) not in {"", self.uids[name]} for name in self._names())
        return new and rig.cluster.ready(NAMESPACE, f"{NAME}-tikv") == 3 and not self.left_overs(rig)

    def end_state(self, rig: Rig) -> Any:
        return {
            "new": sorted(name for name in self._names() if self._uid(rig, name) != self.uids[name]),
            "ready": rig.cluster.ready(NAMESPACE, f"{NAME}-tikv"),
            "deleted with leaders": len(self.pd(rig).interruptions),
        }

    def left_overs(self, rig: Rig) -> list[str]:
        """Marks and evict-leader schedulers that should be gone."""
        tc = rig.cluster.store.get(Kind.TIDB_CLUSTER, NAMESPACE, NAME)
        found = []
        if HANDOFF in tc["metadata"].get("annotations", {}):
            found.append(f"mark {tc['metadata']['annotations'][HANDOFF]}")
        if self.pd(rig).server.evict_list():
            found.append(f"evict-leader schedulers {self.pd(rig).server.evict_list()}")
        return found

    def pd(self, rig: Rig) -> SandboxPd:
        return rig.cluster.pd[NAMESPACE, NAME]

    def _names(self) -> list[str]:
        return [f"{NAME}-tikv-{ordinal}" for ordinal in self.members]

    def _uid(self, rig: Rig, name: str) -> str:
        pod = rig.pod(NAMESPACE, name)
        return pod["metadata"]["uid"] if pod is not None else ""
