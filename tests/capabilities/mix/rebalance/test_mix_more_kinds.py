"""Rollouts of Argo and CloneSets of OpenKruise, by the chain of owners. M3, M5, M8, M10."""

import asyncio
import json
from typing import Any

import pytest

from mooring.capabilities.mix.labels import AFFINITY, CUSTOM
from mooring.clients.wire.kube import decode
from mooring.core.model.cluster import Workload
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.controllers import podstate
from mooring_lab.stage.scenarios.mix import NAMESPACE, left_behind, serving, slow_template, switched_on
from tests.capabilities.mix.rebalance.mix_stage import Stage
from tests.sim.scenarios.mix import relabel

HASH = "rollouts-pod-template-hash"
REVISIONS = {"currentRevision": "web-1", "updateRevision": "web-1", "observedGeneration": 1}


def workload(kind: Kind, replicas: int, labels: dict[str, str], **more: Any) -> dict[str, Any]:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, **more}
    return {"metadata": {"namespace": NAMESPACE, "name": "web", "labels": labels}, "spec": spec}


def owned_by(kind: str, api: str, obj: dict[str, Any]) -> list[dict[str, Any]]:
    meta = obj["metadata"]
    return [{"apiVersion": api, "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True}]


def a_rollout(stage: Stage, replicas: int, labels: dict[str, str], **template: Any) -> None:
    """As Argo's controller leaves it: one ReplicaSet, whose pods carry Argo's own hash."""
    store = stage.cluster.store
    made = store.create(Kind.ROLLOUT, workload(Kind.ROLLOUT, replicas, labels, strategy={"canary": {"maxSurge": 1}}))
    pods = slow_template("web", 3, grace_s=5, **template)
    pods["metadata"]["labels"][HASH] = "5d4c"
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web", HASH: "5d4c"}}, "template": pods}
    meta = {
        "namespace": NAMESPACE,
        "name": "web-5d4c",
        "ownerReferences": owned_by("Rollout", "argoproj.io/v1alpha1", made),
    }
    store.create(Kind.REPLICA_SET, {"metadata": {**meta, "labels": {HASH: "5d4c"}}, "spec": spec})


def active(stage: Stage) -> list[dict[str, Any]]:
    pods = stage.cluster.store.list(Kind.POD, NAMESPACE)
    return [p for p in pods if podstate.active(p) and podstate.labels_of(p).get("app") == "web"]


def classes(stage: Stage) -> list[str]:
    return sorted(podstate.labels_of(pod).get(AFFINITY, "-") for pod in active(stage))


async def fewest_for(stage: Stage, seconds: float) -> int:
    fewest = 99
    for _ in range(int(seconds * 4)):
        await stage.rig.sleep(0.25)
        fewest = min(fewest, serving(stage.rig, "web"))
    return fewest


def test_a_rollout_gets_its_split_and_keeps_it():
    """M3, M5: four of six become on-demand, one after the other, and the Rollout is not written."""

    async def scenario(stage: Stage) -> None:
        a_rollout(stage, 6, switched_on("custom", 2))
        await stage.rig.until(lambda: serving(stage.rig, "web") == 6)
        assert classes(stage) == ["on-demand"] * 2 + ["spot"] * 4
        await stage.rig.sleep(15.0)
        relabel(stage.rig, Kind.ROLLOUT, "web", {CUSTOM: "4"})
        assert await fewest_for(stage, 120.0) >= 5
        assert classes(stage) == ["on-demand"] * 4 + ["spot"] * 2
        assert len(stage.moves()) == 2
        assert left_behind(stage.rig) == []

    Stage().play(scenario)


def test_a_rollouts_only_replica_is_replaced_before_its_node_goes():
    """M8: detached by Argo's hash, so that its ReplicaSet makes another; and a notice that is taken back."""

    async def scenario(stage: Stage) -> None:
        a_rollout(stage, 1, switched_on("all-in-spot"))
        await stage.rig.until(lambda: serving(stage.rig, "web") == 1)
        before = active(stage)[0]["metadata"]["uid"]
        stage.cluster.cloud.notice(podstate.node_of(active(stage)[0]), after_s=120.0)
        assert await fewest_for(stage, 60.0) >= 1
        (pod,) = active(stage)
        assert pod["metadata"]["uid"] != before
        assert podstate.labels_of(pod)[HASH] == "5d4c"

    Stage(on_demand=2, spot=2).play(scenario)


def test_what_was_detached_of_a_rollout_is_given_back():
    """M8: the notice is withdrawn while the replacement starts."""

    async def scenario(stage: Stage) -> None:
        a_rollout(stage, 2, switched_on("all-in-spot"))
        await stage.rig.until(lambda: serving(stage.rig, "web") == 2)
        node = podstate.node_of(active(stage)[0])
        stage.cluster.cloud.notice(node, after_s=300.0)
        await stage.rig.until(lambda: any(podstate.labels_of(p)[HASH] != "5d4c" for p in active(stage)), 30.0)
        stage.cluster.cloud.withdraw(node)
        await stage.rig.until(lambda: all(podstate.labels_of(p)[HASH] == "5d4c" for p in active(stage)), 60.0)
        await stage.rig.until(lambda: len(active(stage)) == 2, 60.0)
        await stage.rig.sleep(30.0)
        assert left_behind(stage.rig) == []

    Stage(on_demand=2, spot=2).play(scenario)


class CloneSets:
    """As many pods as the CloneSet asks for: what OpenKruise's controller does without an update."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._made = 0

    async def run(self) -> None:
        while True:
            for one in self._stage.cluster.store.list(Kind.CLONE_SET):
                await self._keep(one)
            await self._stage.rig.sleep(0.5)

    async def _keep(self, one: dict[str, Any]) -> None:
        pods = [p for p in self._stage.cluster.store.pods_of(one["metadata"]["uid"]) if podstate.active(p)]
        for _ in range(one["spec"]["replicas"] - len(pods)):
            self._made += 1
            pod = slow_template("web", 3, grace_s=5)
            pod["metadata"] |= {
                "name": f"web-{self._made}",
                "namespace": NAMESPACE,
                "ownerReferences": owned_by("CloneSet", "apps.kruise.io/v1alpha1", one),
            }
            pod["metadata"]["labels"]["apps.kruise.io/cloneset-instance-id"] = str(self._made)
            await self._stage.rig.api.create(Kind.POD, pod)


def test_a_clone_set_gets_its_split_one_by_one():
    """M3, M5: it owns its pods itself; evicted one at a time, since it cannot have one beside its replicas."""

    async def scenario(stage: Stage) -> None:
        made = workload(Kind.CLONE_SET, 5, switched_on("custom", 2))
        stage.cluster.store.create(Kind.CLONE_SET, {**made, "status": REVISIONS})
        controller = asyncio.ensure_future(CloneSets(stage).run())
        await stage.rig.until(lambda: serving(stage.rig, "web") == 5)
        assert classes(stage) == ["on-demand"] * 2 + ["spot"] * 3
        await stage.rig.sleep(15.0)
        relabel(stage.rig, Kind.CLONE_SET, "web", {CUSTOM: "3"})
        assert await fewest_for(stage, 90.0) >= 4
        assert classes(stage) == ["on-demand"] * 3 + ["spot"] * 2
        assert len(stage.moves()) == 1
        assert left_behind(stage.rig) == []
        controller.cancel()

    Stage().play(scenario)


def read(kind: Kind, **parts: Any) -> Workload:
    found = decode(kind, json.dumps({"metadata": {"name": "web", "uid": "u", "generation": 4}, **parts}).encode())
    assert isinstance(found, Workload)
    return found


@pytest.mark.parametrize(
    ("strategy", "surge", "unavailable"),
    [
        ({"canary": {"maxSurge": "50%", "maxUnavailable": 0}}, 2, 0),
        ({"canary": {}}, 1, 1),
        ({"blueGreen": {"activeService": "web"}}, 0, 1),
        (None, 1, 1),
    ],
)
def test_what_a_rollout_may_surge(strategy: Any, surge: int, unavailable: int):
    """M6: a second set beside the first (blue-green) is no surge of the first."""
    found = read(Kind.ROLLOUT, spec={"replicas": 4, "strategy": strategy}, status={"observedGeneration": "4"})
    assert (found.max_surge, found.max_unavailable) == (surge, unavailable)
    assert found.observed_generation == found.generation


def test_a_rollout_of_before_1_0_says_a_hash_where_others_say_a_generation():
    """M5: it is no reason to wait for ever."""
    assert read(Kind.ROLLOUT, status={"observedGeneration": "6c5d8f"}).observed_generation == 4
    assert read(Kind.ROLLOUT, status={"observedGeneration": "3"}).observed_generation == 3


def test_what_a_clone_set_says():
    """M5: its limits stand beside the type, and its pause in the update strategy."""
    update = {"type": "InPlaceIfPossible", "maxUnavailable": "40%", "maxSurge": 1, "paused": True}
    found = read(Kind.CLONE_SET, spec={"replicas": 5, "updateStrategy": update}, status=REVISIONS)
    assert (found.max_surge, found.max_unavailable, found.paused) == (1, 2, True)
    assert (found.current_revision, found.update_revision) == ("web-1", "web-1")
