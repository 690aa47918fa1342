"""Rebalance: planning 8,000 workloads from scratch, as a new leader does it, in the slices that admission shares.

5,000 nodes (3,000 on-demand), 40,000 pods; every tenth workload is off its target, every twentieth has a pod that is
not Ready. CPU time of one thread, best of a few runs. A slice is what the live loop decides between two turns.
"""

import gc
from time import process_time

from mooring.capabilities.mix.capability import Mix
from mooring.capabilities.mix.labels import AFFINITY, CUSTOM, ENABLED, MODE, RESERVATION, SLOT
from mooring.core.engine.engine import SLICE
from mooring.core.model.cluster import Node, Owner, Pod, PodShape, ReplicaSet, Workload
from mooring.core.model.events import Listed
from mooring.core.model.kinds import Kind
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World

NOW = 1_790_000_000.0
NODES, ON_DEMAND, WORKLOADS, REPLICAS = 5_000, 3_000, 8_000, 5
TARGET_S = 1.0
RUNS = 3


def world() -> World:
    made = World()
    nodes = [
        Node(
            f"n{i}",
            f"node-{i}",
            "1",
            {"node.kubernetes.io/capacity": "on-demand" if i < ON_DEMAND else "spot"},
            ready="True",
            cpu_milli=16_000,
            memory_bytes=64 << 30,
        )
        for i in range(NODES)
    ]
    deployments, sets, pods = [], [], []
    for i in range(WORKLOADS):
        namespace, name = f"ns{i % 200}", f"app{i}"
        # Pods follow custom 2; every tenth workload now wants 3.
        labels = {ENABLED: "true", MODE: "custom", CUSTOM: "3" if i % 10 == 0 else "2"}
        deployments.append(
            Workload("Deployment", namespace, name, f"d{i}", "1", labels, replicas=REPLICAS, match_labels={"app": name})
        )
        owner = Owner("Deployment", name, f"d{i}")
        sets.append(ReplicaSet(namespace, f"{name}-x", f"r{i}", "1", owner, REPLICAS, "x"))
        shapes = {
            given: PodShape(
                {"app": name, "pod-template-hash": "x", AFFINITY: given},
                cpu_milli=100 + 50 * (i % 8),
                memory_bytes=1 << 28,
            )
            for given in ("on-demand", "spot")
        }
        for slot in range(REPLICAS):
            given = "on-demand" if slot < 2 else "spot"
            node = (i * 7 + slot) % ON_DEMAND if slot < 2 else ON_DEMAND + (i * 5 + slot) % (NODES - ON_DEMAND)
            ready = not (i % 20 == 1 and slot == 3)
            pods.append(
                Pod(
                    namespace,
                    f"{name}-x-{slot}",
                    f"p{i}-{slot}",
                    "1",
                    shapes[given],
                    Owner("ReplicaSet", f"{name}-x", f"r{i}"),
                    node=f"n{node}",
                    phase="Running",
                    ready=ready,
                    ready_since=NOW - 3600,
                    created_at=NOW - 3600,
                    annotations={SLOT: str(slot), RESERVATION: f"t{i}-{slot}"},
                )
            )
    for kind, rows in (
        (Kind.NODE, nodes),
        (Kind.DEPLOYMENT, deployments),
        (Kind.STATEFUL_SET, []),
        (Kind.REPLICA_SET, sets),
        (Kind.POD, pods),
    ):
        made.apply(Listed(kind, tuple(rows)))
    return made


def plan(seen: World) -> tuple[float, float, int, int]:
    """Seconds in all, the longest slice, and how many looks propose a move or state a fact."""
    mix, queue = Mix(), Queue(live_settings())
    for index in mix.indexes():
        seen.register(index)
    began = process_time()
    keys = list(mix.keys(seen))
    listing = process_time() - began
    longest, proposals, facts = 0.0, 0, 0
    for start in range(0, len(keys), SLICE):
        at = process_time()
        for key in keys[start : start + SLICE]:
            look = mix.evaluate(key, seen, queue, None, NOW)
            proposals += len(look.proposals)
            facts += len(look.facts)
        longest = max(longest, process_time() - at)
    total = process_time() - began
    assert listing <= total
    return total, longest, proposals, facts


def main() -> None:
    seen = world()
    gc.collect()
    gc.freeze()
    try:
        best = min(plan(seen) for _ in range(RUNS))
    finally:
        gc.unfreeze()
    total, longest, proposals, facts = best
    assert proposals == WORKLOADS // 10, f"{proposals} proposals"
    assert facts == WORKLOADS // 20, f"{facts} facts"
    verdict = "ok" if total <= TARGET_S else "TOO SLOW"
    print(f"planning {WORKLOADS} workloads from scratch   {total:6.2f} s   target {TARGET_S:g} s   {verdict}")
    print(f"   {total / WORKLOADS * 1e6:.0f} µs a workload; longest slice of {SLICE}: {longest * 1e3:.1f} ms")
    print(f"   {proposals} moves proposed, {facts} facts stated")


if __name__ == "__main__":
    main()
