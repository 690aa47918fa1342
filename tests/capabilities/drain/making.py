"""Short ways to write down pods and workloads."""

from mooring.core.model.cluster import Owner, Pod, PodShape, Workload
from mooring.core.model.events import Seen
from mooring.core.model.kinds import Kind
from mooring.core.world.world import World

NOW = 1000.0
TIKV = {"app.kubernetes.io/component": "tikv", "app.kubernetes.io/instance": "demo"}


def pod(name="demo-tikv-0", *, labels=None, owner=None, ready=True, ready_since=0.0, **more):
    return Pod(
        namespace="tidb",
        name=name,
        uid=f"uid-{name}",
        resource_version="1",
        shape=PodShape(labels=labels or {}),
        owner=owner,
        node="n1",
        phase="Running",
        ready=ready,
        ready_since=ready_since if ready else None,
        **more,
    )


def stateful_set(name, *, owner=None, **more):
    return Workload(Kind.STATEFUL_SET, "tidb", name, f"uid-{name}", "1", owner=owner, **more)


def owned_by(workload):
    return Owner(workload.kind, workload.name, workload.uid)


def world_of(*rows):
    world = World()
    for row in rows:
        world.apply(Seen(Kind.POD if isinstance(row, Pod) else Kind(row.kind), row))
    return world
