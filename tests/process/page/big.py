"""The size we promise, 5,000 nodes and 150,000 pods, in a replica's world, and changes that never cease."""

import asyncio
import itertools
from typing import Any

import msgspec

from mooring.core.model.cluster import Node, Owner, Pod, PodShape
from mooring.core.model.events import Seen
from mooring.core.model.kinds import Kind

NODES, PODS = 5_000, 150_000
RACK = 40
#: Workloads, each with as many pods.
WORKLOADS = 500
#: Changes of one beat: about what 5,000 nodes bring in half a second.
CHANGES = 400


def node_name(number: int) -> str:
    return f"ip-10-{number // 250}-{number % 250}-7.ap-northeast-1.compute.internal"


def _node(number: int, version: int = 1, *, cordoned: bool = False) -> Node:
    labels = {
        "cke.cybozu.com/rack": str(100 + number // RACK),
        "node.kubernetes.io/capacity": "spot" if number % 5 < 2 else "on-demand",
    }
    name = node_name(number)
    return Node(
        name=name,
        uid=name,
        resource_version=str(version),
        ready="Unknown" if number % 997 == 5 else "True",
        labels=labels,
        annotations={"vacant.io/interrupt-at": "2099-01-01T00:00:00Z"} if number % 211 == 3 else {},
        unschedulable=cordoned,
        cpu_milli=16_000,
    )


def fill(world: Any, nodes: int = NODES, pods: int = PODS) -> None:
    """On top of what is there: so many nodes and pods in all."""
    for number in range(nodes - len(list(world.nodes()))):
        world.apply(Seen(Kind.NODE, _node(number, cordoned=number % 500 == 0)))
    kinds = ({"vacant.io/affinity": "on-demand"}, {"vacant.io/affinity": "spot"}, {})
    shapes = [PodShape(labels=kinds[k % 3], cpu_milli=300 + k) for k in range(WORKLOADS)]
    owners = [Owner("ReplicaSet", f"checkout-service-{k:03d}-6f7b9c{k % 97:02d}d4", f"rs{k}") for k in range(WORKLOADS)]
    missing = pods - len(list(world.pods()))
    for number in range(missing):
        k = number % WORKLOADS
        pod = Pod(
            namespace=f"team-{k % 50:02d}",
            name=f"{owners[k].name}-{number:06x}",
            uid=f"p{number}",
            resource_version="1",
            shape=shapes[k],
            owner=owners[k],
            node=node_name(number % max(1, nodes - 100)),
            phase="Running",
            ready=True,
        )
        world.apply(Seen(Kind.POD, pod))


class Churn:
    """Pods move and nodes are cordoned and let go, beat by beat, until stopped."""

    def __init__(self, world: Any, changes: int = CHANGES) -> None:
        self._world = world
        self._changes = changes
        self._pods = [pod for pod in world.pods() if pod.namespace.startswith("team-")]
        self._nodes = len(list(world.nodes()))
        self.beats = 0
        self._stopped = False

    def beat(self) -> None:
        self.beats += 1
        version = str(self.beats + 1)
        start = self.beats * self._changes
        for number in range(start, start + self._changes):
            old = self._pods[number % len(self._pods)]
            node = node_name((number * 7919) % max(1, self._nodes - 100))
            new = msgspec.structs.replace(old, node=node, resource_version=version)
            self._pods[number % len(self._pods)] = new
            self._world.apply(Seen(Kind.POD, new))
        for number in itertools.islice(range(self.beats % 97, self._nodes - 100, 97), 20):
            self._world.apply(Seen(Kind.NODE, _node(number, self.beats + 1, cordoned=self.beats % 2 == 0)))

    async def run(self, every_s: float) -> None:
        while not self._stopped:
            self.beat()
            await asyncio.sleep(every_s)

    def stop(self) -> None:
        self._stopped = True
