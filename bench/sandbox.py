"""The sandbox's two figures: how much a large cluster weighs, and how fast an hour of churn passes.

- 5,000 nodes with 150,000 pods, loaded and running: at most 1 GB.
- One virtual hour over 1,000 nodes with 20 pod changes a second (ten pods go, ten come): at most 30 s.
"""

import gc
import os
import sys
import time
from pathlib import Path

from mooring.core.model.kinds import Kind
from mooring.core.model.times import rfc3339
from mooring_lab.cluster.clock import quiet_collector
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import manifests
from mooring_lab.cluster.controllers.podstate import make_condition, with_spec
from mooring_lab.cluster.controllers.workloads.ownership import controller_of
from mooring_lab.cluster.controllers.workloads.rollout import owner_reference, pod_from
from mooring_lab.cluster.kubelet import KubeletPace


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def build(nodes: int, deployments: int, replicas: int, *, log: bool = False) -> Cluster:
    cluster = Cluster(seed=1, pace=KubeletPace(start_s=2, ready_s=1, end_s=1), log=log)
    cluster.add_nodes(nodes)
    for i in range(deployments):
        template = manifests.pod_template({"app": f"web-{i:04d}"}, cpu="100m", memory="128Mi")
        cluster.deployment("bench", f"web-{i:04d}", replicas, template=template)
    return cluster


def load(nodes: int = 5000, pods: int = 150_000) -> None:
    """A cluster as it stands (nodes, Deployments, ReplicaSets, running pods), then a minute in which nothing moves."""
    before, began = resident_mb(), time.process_time()
    cluster = build(nodes, 500, 0)
    cluster.run_for(1)
    store, now = cluster.store, cluster.timeline.now()
    names = [name for _, name in store.keys(Kind.NODE)]
    sets = store.list(Kind.REPLICA_SET)
    each = pods // len(sets)
    for owner in sets:  # wanted before they are there, or the controllers would take them for surplus
        name = controller_of(owner)["name"]
        store.mutate(Kind.REPLICA_SET, "bench", owner["metadata"]["name"], lambda one: with_spec(one, replicas=each))
        cluster.scale(Kind.DEPLOYMENT, "bench", name, each)
    index = 0
    for owner in sets:
        template = owner["spec"]["template"]
        reference = owner_reference(owner, "apps/v1", "ReplicaSet")
        for _ in range(each):
            pod = pod_from(template, "bench", reference)
            pod["metadata"]["generateName"] = owner["metadata"]["name"] + "-"
            pod["spec"] = {**pod["spec"], "nodeName": names[index % nodes]}
            pod["status"] = running_status(index, now)
            index += 1
            store.create(Kind.POD, pod)
    cluster.run_for(60)
    gc.collect()
    ready = sum((d.get("status") or {}).get("readyReplicas", 0) for d in store.list(Kind.DEPLOYMENT))
    print(
        f"sandbox  load        {nodes:,} nodes, {ready:,} ready pods: {resident_mb() - before:,.0f} MB"
        f"  (target ≤ 1,000 MB)  in {time.process_time() - began:.1f} s of CPU"
    )


def running_status(index: int, now: float) -> dict:
    conditions = [
        make_condition(kind, "True", now) for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    address = f"10.{index // 65536}.{index // 256 % 256}.{index % 256}"
    return {
        "phase": "Running",
        "conditions": conditions,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": rfc3339(now),
        "containerStatuses": [{"name": "app", "ready": True, "started": True, "restartCount": 0}],
    }


def churn(nodes: int = 1000, pods: int = 5000, per_s: float = 10.0, hours: float = 1.0) -> None:
    deployments = 50
    cluster = build(nodes, deployments, pods // deployments)
    cluster.run_until_stable()
    gc.collect()
    gc.freeze()
    timeline, store = cluster.timeline, cluster.store
    turn = 0

    def one_goes() -> None:
        nonlocal turn
        keys = store.keys(Kind.POD)
        key = keys[turn * 7919 % len(keys)]
        turn += 1
        pod = store.find(Kind.POD, *key)
        if pod is not None and "deletionTimestamp" not in pod["metadata"]:
            store.delete(Kind.POD, *key)
        timeline.after(1 / per_s, one_goes)

    before, began = store.revision, time.process_time()
    one_goes()
    with quiet_collector():
        cluster.run_for(3600 * hours)
    took = time.process_time() - began
    gc.unfreeze()
    print(
        f"sandbox  churn       {hours:g} h over {nodes:,} nodes, {2 * per_s:g} pod changes/s ({turn:,} replaced, "
        f"{store.revision - before:,} writes): {took / hours:.1f} s of CPU per virtual hour  (target ≤ 30 s)"
    )


def main() -> None:
    churn(hours=0.5)
    load()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        {"load": load, "churn": churn}[sys.argv[1]]()
    else:
        main()
