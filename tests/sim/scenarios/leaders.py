"""A member (or two) of a system with leaders restarted by annotation: issue 39's scenario, for each driver."""

from collections.abc import Sequence
from typing import Any

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import LEADERS, LEADERS_ENDPOINT
from mooring.core.model.marks import HANDOFF
from mooring.core.model.times import rfc3339
from mooring.process.settings.config import Config
from mooring_lab.cluster.leaders import LedSystem
from mooring_lab.stage.rig import Rig

NAMESPACE, NAME = "data", "db"


class LeadersScenario:
    """Annotate `members` in the same second; over when all are new, Ready, in sync, and nothing of ours is left."""

    name = "leaders"
    once = ("evict",)

    def __init__(self, driver: str = "etcd", members: Sequence[int] = (0,), seed: int = 1, replicas: int = 3) -> None:
        self.driver, self.members, self.seed, self.replicas = driver, tuple(members), seed, replicas
        self.uids: dict[str, str] = {}
        #: The most members that were away or not in sync at any one moment.
        self.most_away = 0

    def rig(self) -> Rig:
        config = Config(features={"handoff": True, "drain": True}, policies=(HandoffPolicy(),))
        return Rig(seed=self.seed, config=config)

    async def build(self, rig: Rig) -> None:
        rig.cluster.add_nodes(5)
        annotations = {LEADERS: self.driver}
        if self.driver == "hook":
            annotations[LEADERS_ENDPOINT] = f"http://hook.{NAMESPACE}.svc:8080/"
        rig.cluster.stateful_set(NAMESPACE, NAME, self.replicas, annotations=annotations)
        await rig.until(lambda: rig.cluster.ready(NAMESPACE, NAME) == self.replicas)
        assert self.system(rig).leader == f"{NAME}-0"
        self.uids = {name: self.uid(rig, name) for name in self.names()}
        self.most_away = 0

    async def act(self, rig: Rig) -> None:
        for name in self.names():
            self.restart(rig, name)

    @staticmethod
    def restart(rig: Rig, name: str) -> None:
        """As `mooring restart` does."""
        value = f'{{"by":"test","since":"{rfc3339(rig.clock.now())}"}}'
        rig.cluster.annotate(Kind.POD, NAMESPACE, name, {"mooring.dev/restart": value})

    def done(self, rig: Rig) -> bool:
        system = self.system(rig)
        well = sum(system.lag(name) == 0 for name in system.members)
        self.most_away = max(self.most_away, self.replicas - well)
        return well == self.replicas and self.renewed(rig) == self.names() and not self.left_overs(rig)

    def renewed(self, rig: Rig) -> list[str]:
        return [name for name in self.names() if self.uid(rig, name) not in {"", self.uids[name]}]

    def end_state(self, rig: Rig) -> Any:
        system = self.system(rig)
        return {"new": self.renewed(rig), "led by somebody": bool(system.leader), "cut": len(system.interruptions)}

    def left_overs(self, rig: Rig) -> list[str]:
        parent = rig.cluster.store.get(Kind.STATEFUL_SET, NAMESPACE, NAME)
        mark = parent["metadata"].get("annotations", {}).get(HANDOFF)
        return [f"mark {mark}"] if mark else []

    def system(self, rig: Rig) -> LedSystem:
        return rig.cluster.led[NAMESPACE, NAME]

    def names(self) -> list[str]:
        return [f"{NAME}-{ordinal}" for ordinal in self.members]

    @staticmethod
    def uid(rig: Rig, name: str) -> str:
        pod = rig.pod(NAMESPACE, name)
        return pod["metadata"]["uid"] if pod is not None else ""
