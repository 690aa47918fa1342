"""Scenarios of Mix: a mode is changed, spot nodes get notice.

Both are kill scenarios (`tests/sim/kill.py`): played undisturbed, then with the replica ended at every write.
"""

from collections.abc import Mapping
from typing import Any

from mooring.capabilities.mix.labels import CUSTOM, REBALANCE
from mooring.core.model.kinds import Kind
from mooring.process.settings.config import Config
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.mix import (
    NAMESPACE,
    admitting,
    given,
    left_behind,
    physical,
    serving,
    slow_template,
    switched_on,
    uids,
)


def relabel(rig: Rig, kind: Kind, name: str, labels: Mapping[str, str | None]) -> None:
    """`kubectl label … --overwrite`."""
    rig.cluster.store.patch(kind, NAMESPACE, name, {"metadata": {"labels": dict(labels)}})


class ModeChangeScenario:
    """Three spot and two on-demand replicas become two and three: seed 004's example."""

    name = "mode-change"
    once = ("evict Pod", "delete Pod")
    annotations: Mapping[str, str] = {}

    def __init__(self, seed: int = 1, replicas: int = 5, before: int = 2, after: int = 3) -> None:
        self.seed, self.replicas, self.before, self.after = seed, replicas, before, after
        self.uids: set[str] = set()

    def rig(self) -> Rig:
        return Rig(seed=self.seed, config=Config(features={"mix": True}))

    async def build(self, rig: Rig) -> None:
        # Roomier: a pod that is created while no replica answers the webhook is there by itself, and need not move again.
        rig.cluster.add_nodes(4, "n", capacity="on-demand", cpu="64", memory="256Gi")
        rig.cluster.add_nodes(4, "s", capacity="spot")
        first = rig.start("first")
        await admitting(rig)
        labels = switched_on("custom", self.before)
        template = slow_template("web", 3.0)
        rig.cluster.deployment(
            NAMESPACE, "web", self.replicas, labels=labels, template=template, annotations=self.annotations
        )
        await rig.until(lambda: rig.cluster.ready(NAMESPACE, "web") == self.replicas)
        await rig.sleep(30.0)
        await rig.stop(first.identity)
        self.uids = uids(rig, "web")

    async def act(self, rig: Rig) -> None:
        relabel(rig, Kind.DEPLOYMENT, "web", {CUSTOM: str(self.after)})

    def done(self, rig: Rig) -> bool:
        return given(rig, "web").count("on-demand") == self.after and self._quiet(rig)

    def _quiet(self, rig: Rig) -> bool:
        return rig.cluster.ready(NAMESPACE, "web") == self.replicas and not left_behind(rig)

    def end_state(self, rig: Rig) -> Any:
        return {"classes": given(rig, "web"), "new": len(uids(rig, "web") - self.uids)}

    def left_overs(self, rig: Rig) -> list[str]:
        return left_behind(rig)


class QuickScenario(ModeChangeScenario):
    """The same in the quicker way: replacements first, as many at once as the workload may surge."""

    name = "quicker-way"
    annotations: Mapping[str, str] = {REBALANCE: "fast"}


class NoticeScenario:
    """All spot nodes get notice: every pod on them is replaced before it goes."""

    name = "notice"
    once = ("evict Pod", "delete Pod")

    def __init__(self, seed: int = 1, spots: int = 2, replicas: int = 3, start_s: float = 20.0) -> None:
        self.seed, self.spots, self.replicas, self.start_s = seed, spots, replicas, start_s
        #: The fewest endpoints that were Ready at any one moment.
        self.fewest = replicas

    def rig(self) -> Rig:
        return Rig(seed=self.seed, config=Config(features={"mix": True}))

    async def build(self, rig: Rig) -> None:
        rig.cluster.add_nodes(3, "n", capacity="on-demand")
        rig.cluster.add_nodes(self.spots, "s", capacity="spot")
        first = rig.start("first")
        await admitting(rig)
        template = slow_template("web", self.start_s)
        rig.cluster.deployment(NAMESPACE, "web", self.replicas, labels=switched_on(), template=template)
        await rig.until(lambda: rig.cluster.ready(NAMESPACE, "web") == self.replicas)
        await rig.sleep(20.0)
        await rig.stop(first.identity)
        self.fewest = self.replicas

    async def act(self, rig: Rig) -> None:
        rig.cluster.cloud.notice_all_spot()

    def done(self, rig: Rig) -> bool:
        self.fewest = min(self.fewest, serving(rig, "web"))
        gone = not rig.cluster.cloud.spot_nodes()
        return gone and rig.cluster.ready(NAMESPACE, "web") == self.replicas and not left_behind(rig)

    def end_state(self, rig: Rig) -> Any:
        return {"on": physical(rig, "web"), "ready": rig.cluster.ready(NAMESPACE, "web"), "fewest": self.fewest}

    def left_overs(self, rig: Rig) -> list[str]:
        found = left_behind(rig)
        owned = {p["metadata"]["name"] for p in rig.cluster.pods(NAMESPACE, "web")}
        every = {p["metadata"]["name"] for p in rig.cluster.store.list(Kind.POD, NAMESPACE)}
        return found + [f"pod {name} without an owner" for name in sorted(every - owned)]
