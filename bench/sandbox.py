"""The sandbox's two figures: how much a large cluster weighs, and how fast an hour of churn passes.

- 5,000 nodes with 150,000 pods, loaded and running: at most 1 GB.
- One virtual hour over 1,000 nodes with 20 pod changes a second (ten pods go, ten come): at most 30 s.
"""

import gc
import os
import sys
import time
from pathlib import Path

from mooring.model.kinds import Kind
from mooring.sandbox.cluster import Cluster
from mooring.sandbox.controllers import manifests
from mooring.sandbox.kubelet import Pace


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def build(nodes: int, deployments: int, replicas: int, *, log: bool = False) -> Cluster:
    cluster = Cluster(seed=1, pace=Pace(start_s=2, ready_s=1, end_s=1), log=log)
    cluster.add_nodes(nodes)
    for i in range(deployments):
        template = manifests.pod_template({"app": f"web-{i:04d}"}, cpu="100m", memory="128Mi")
        cluster.deployment("bench", f"web-{i:04d}", replicas, template=template)
    return cluster


def load(nodes: int = 5000, pods: int = 150_000) -> None:
    before, began = resident_mb(), time.process_time()
    deployments = 500
    cluster = build(nodes, deployments, pods // deployments)
    wanted = pods
    while sum(1 for p in cluster.store.list(Kind.POD) if p["status"]["phase"] == "Running") < wanted:
        cluster.run_for(5)
    cluster.run_for(5)
    gc.collect()
    ready = sum((d.get("status") or {}).get("readyReplicas", 0) for d in cluster.store.list(Kind.DEPLOYMENT))
    print(
        f"sandbox  load        {nodes:,} nodes, {ready:,} ready pods: {resident_mb() - before:,.0f} MB"
        f"  (target ≤ 1,000 MB)  in {time.process_time() - began:.1f} s of CPU"
    )


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
    cluster.run_for(3600 * hours)
    took = time.process_time() - began
    gc.unfreeze()
    print(
        f"sandbox  churn       {hours:g} h over {nodes:,} nodes, {2 * per_s:g} pod changes/s ({turn:,} replaced, "
        f"{store.revision - before:,} writes): {took / hours:.1f} s of CPU per virtual hour  (target ≤ 30 s)"
    )


def main() -> None:
    churn()
    load()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        {"load": load, "churn": churn}[sys.argv[1]]()
    else:
        main()
