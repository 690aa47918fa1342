"""A sandbox with on-demand and spot nodes and one replica of Mooring that admits pods."""

from collections.abc import Awaitable, Callable
from typing import Any

from mooring.capabilities.mix.policy import MixPolicy
from mooring.core.model.kinds import WORKLOADS
from mooring.process.settings.config import Config
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.mix import NAMESPACE, admitting, switched_on


class Stage:
    def __init__(
        self,
        policy: MixPolicy | None = None,
        *,
        on_demand: int = 4,
        spot: int = 4,
        features: dict[str, bool] | None = None,
        **node: Any,
    ) -> None:
        config = Config(features=features or {"mix": True, "handoff": True}, policies=(policy or MixPolicy(),))
        self.rig = Rig(seed=1, config=config)
        self.cluster = self.rig.cluster
        self.cluster.add_nodes(on_demand, "n", capacity="on-demand", **node)
        self.cluster.add_nodes(spot, "s", capacity="spot", **node)

    def play(self, scenario: Callable[["Stage"], Awaitable[None]], *, begin: bool = True) -> None:
        async def whole(rig: Rig) -> None:
            if begin:
                await self.begin()
            await scenario(self)
            self._check()

        self.rig.play(whole)

    def _check(self) -> None:
        """True of every scenario: no replica fell over, and nothing of the user's was written (M3, M9)."""
        for one in self.rig.replicas.values():
            assert not one.task.done(), f"{one.replica.identity} ended: {one.task}"
        theirs = {w for w in self.rig.writes if w.split()[1] in {*WORKLOADS, "ReplicaSet"}}
        assert not theirs

    async def begin(self) -> None:
        self.rig.start()
        await admitting(self.rig)

    async def deployed(
        self, name: str, replicas: int, mode: str = "", custom: int | str | None = None, **how: Any
    ) -> None:
        """A Deployment, all Ready, and long enough for everything to settle."""
        labels = switched_on(mode, custom) if mode != "off" else {}
        self.cluster.deployment(NAMESPACE, name, replicas, labels=labels, **how)
        await self.rig.until(lambda: self.cluster.ready(NAMESPACE, name) == replicas)
        await self.rig.sleep(15.0)

    async def until_quiet(self, limit_s: float = 600.0) -> None:
        await self.rig.until(lambda: not self.rig.unsettled() and self.cluster.stable(), limit_s)

    def moves(self, since: int = 0) -> list[str]:
        """Pods taken away by us since a number of writes."""
        return [w.rpartition("/")[2] for w in self.rig.writes[since:] if w.startswith(("evict Pod", "delete Pod"))]

    def verdict(self, name: str, kind: str = "Deployment") -> Any:
        leader = self.rig.leader()
        assert leader is not None
        return leader.engine.verdicts.get(("mix", f"workload/{kind}/{NAMESPACE}/{name}"))
