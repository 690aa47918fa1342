"""mooring.dev/home on a StatefulSet: a namespace user writes it, so it taints no node by itself."""

import json
from collections.abc import Sequence

import msgspec

from mooring.capabilities.home.capability import Home
from mooring.capabilities.home.members import LABEL, RESERVE_NODE
from mooring.capabilities.home.policy import HomePolicy
from mooring.core.model.cluster import Node, Owner, Pod, PodShape, Toleration, Workload
from mooring.core.model.events import Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HOME, RESERVED_TAINT
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World

NOW = 1000.0
SHAPE = PodShape(tolerations=(Toleration(RESERVED_TAINT, "Exists", "", "NoSchedule"),))


def pod(ordinal: int, node: str = "", uid: str = "", namespace: str = "shop") -> Pod:
    owner = Owner("StatefulSet", "db", "db-uid")
    name = f"db-{ordinal}"
    return Pod(namespace, name, f"{name}-{node}{uid}", "1", SHAPE, owner=owner, node=node, created_at=NOW)


SIX = tuple(f"n{n}" for n in range(6))


def stage(homes: dict[str, str], namespace: str = "shop", nodes: Sequence[str] = SIX) -> World:
    world = World()
    for index in Home().indexes():
        world.register(index)
    for name in nodes:
        world.apply(Seen(Kind.NODE, Node(name, f"{name}-uid", "1", ready="True")))
    labels = {LABEL: "true", RESERVE_NODE: "true"}
    said = {HOME: json.dumps({name: {"node": node} for name, node in homes.items()})}
    sts = Workload(
        Kind.STATEFUL_SET, namespace, "db", "db-uid", "1", replicas=len(nodes), labels=labels, annotations=said
    )
    world.apply(Seen(Kind.STATEFUL_SET, sts))
    return world


def test_a_home_that_somebody_wrote_reserves_nothing():
    """Six pending replicas with six homes that we never saw made six nodes NoSchedule; what we saw counts."""
    homes = {f"db-{n}": f"n{n}" for n in range(6)}
    world, home, queue = stage(homes), Home(), Queue(live_settings())
    for n in range(6):
        world.apply(Seen(Kind.POD, pod(n)))
    assert home.evaluate("set/shop/db", world, queue, None, NOW).proposals == ()

    world.apply(Seen(Kind.POD, pod(0, "n0")))
    notes = home.evaluate("set/shop/db", world, queue, None, NOW).notes
    world.apply(Seen(Kind.POD, pod(0, uid="new")))
    (only,) = home.evaluate("set/shop/db", world, queue, notes, NOW).proposals
    assert only.args["node"] == "n0"


def test_reservations_are_counted_per_namespace_and_in_all():
    """Members that were really there: so many of one namespace at a time, the rest wait their turn."""
    homes = {f"db-{n}": f"n{n}" for n in range(6)}
    world, queue = stage(homes), Queue(live_settings())
    home = Home(HomePolicy(reserve_per_namespace=2, reserve_in_all=4))
    for n in range(6):
        world.apply(Seen(Kind.POD, pod(n, f"n{n}")))
    notes = home.evaluate("set/shop/db", world, queue, None, NOW).notes
    for n in range(6):
        world.apply(Seen(Kind.POD, pod(n)))
    found = home.evaluate("set/shop/db", world, queue, notes, NOW)
    assert len(found.proposals) == 2 and found.again_at is not None
    assert dict(found.limits) == {"reservations/shop": 2, "reservations": 3}, "half of six nodes"
    assert all(dict(o.cost) == {"reservations/shop": 1, "reservations": 1} for o in found.proposals)


def test_a_pod_that_takes_years_to_end_keeps_its_node_for_an_hour():
    """The grace is what its author wrote."""
    world, home = stage({}), Home()
    gone = msgspec.structs.replace(pod(0, "n0"), deletion_at=NOW + 1e9)
    world.apply(Seen(Kind.POD, gone))
    (only,) = home.evaluate("set/shop/db", world, Queue(live_settings()), None, NOW).proposals
    assert float(only.args["until"]) == NOW + 3600.0 + HomePolicy().hold_s
