"""Scenarios of Mix: a mode is changed, spot nodes get notice.

Both are kill scenarios (`sim/kill.py`): played undisturbed, then with the replica ended at every write.
"""

from collections.abc import Mapping
from typing import Any

from mooring.capabilities.mix.labels import AFFINITY, CUSTOM, ENABLED, MODE, REBALANCE
from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import CORDONED_BY, LEAVING
from mooring.process.settings.config import Config
from mooring.sandbox.controllers import manifests, podstate
from mooring.sandbox.kubelet import READY, START
from mooring.sim.environment import Environment
from mooring.sim.rig import Rig

NAMESPACE = "shop"


def switched_on(mode: str = "", custom: int | str | None = None) -> dict[str, str]:
    """The labels of a workload that wants this mode."""
    labels = {ENABLED: "true"}
    if mode:
        labels[MODE] = mode
    if custom is not None:
        labels[CUSTOM] = str(custom)
    return labels


def slow_template(name: str, start_s: float, *, grace_s: int = 30, **how: Any) -> Json:
    """Pods that need this long from their node to Ready."""
    times = {START: f"{start_s - 1:g}", READY: "1"}
    return manifests.pod_template({"app": name}, annotations=times, terminationGracePeriodSeconds=grace_s, **how)


def relabel(rig: Rig, kind: Kind, name: str, labels: Mapping[str, str | None]) -> None:
    """`kubectl label … --overwrite`."""
    rig.cluster.store.patch(kind, NAMESPACE, name, {"metadata": {"labels": dict(labels)}})


def given(rig: Environment, name: str) -> list[str]:
    """The classes that the active pods of a workload were given, sorted."""
    pods = [p for p in rig.cluster.pods(NAMESPACE, name) if podstate.active(p)]
    return sorted(p["metadata"]["labels"].get(AFFINITY, "-") for p in pods)


def physical(rig: Environment, name: str) -> list[str]:
    """The classes of the nodes they are on, sorted; by the names of the scenario's nodes."""
    return sorted(
        "spot" if node.startswith("s") else "on-demand" for node in rig.cluster.nodes_of(NAMESPACE, name).values()
    )


def uids(rig: Environment, name: str) -> set[str]:
    return {p["metadata"]["uid"] for p in rig.cluster.pods(NAMESPACE, name) if podstate.active(p)}


def left_behind(rig: Environment) -> list[str]:
    """Marks of ours on pods and nodes."""
    store = rig.cluster.store
    found = [
        f"a mark on pod {p['metadata']['name']}" for p in store.list(Kind.POD) if LEAVING in podstate.annotations_of(p)
    ]
    found += [
        f"a cordon on {n['metadata']['name']}"
        for n in store.list(Kind.NODE)
        if CORDONED_BY in podstate.annotations_of(n)
    ]
    return found


async def admitting(rig: Environment) -> None:
    """Until a replica leads and the API server asks it about new pods."""
    await rig.until(rig.leads)
    await rig.until(lambda: bool(rig.cluster.store.list(Kind.MUTATING_WEBHOOK)))


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
        rig.cluster.add_nodes(4, "n", capacity="on-demand")
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


def serving(rig: Environment, name: str) -> int:
    """Ready pods behind the application's own label, attached or not: what a Service sends to."""
    pods = rig.cluster.store.list(Kind.POD, NAMESPACE)
    return sum(podstate.ready(p) and podstate.active(p) and podstate.labels_of(p).get("app") == name for p in pods)
