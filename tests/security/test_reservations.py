"""mooring.dev/home on a StatefulSet: a namespace user writes it, so it taints no node by itself."""

import json
from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace as change

from mooring.capabilities.home.capability import Home
from mooring.capabilities.home.members import LABEL, RESERVE_NODE
from mooring.capabilities.home.policy import HomePolicy
from mooring.core.model.cluster import Node, Owner, Pod, PodShape, Taint, Toleration, Workload
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
    phase = "Running" if node else "Pending"
    return Pod(namespace, name, f"{name}-{node}{uid}", "1", SHAPE, owner=owner, node=node, phase=phase, created_at=NOW)


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
    assert only.payload.node == "n0"


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
    assert only.payload.until == NOW + 3600.0 + HomePolicy().hold_s


@pytest.mark.parametrize(
    ("node", "shape", "reserved"),
    [
        (Node("n0", "u", "2", ready="True", taints=(Taint("dedicated", "NoSchedule", "bank"),)), SHAPE, 0),
        (Node("n0", "u", "2", ready="True", taints=(Taint("dedicated", "NoExecute", "bank"),)), SHAPE, 0),
        (Node("n0", "u", "2", ready="True"), change(SHAPE, node_selector={"pool": "mine"}), 0),
        (Node("n0", "u", "2", ready="True", labels={"pool": "mine"}), change(SHAPE, node_selector={"pool": "mine"}), 1),
    ],
)
def test_a_node_that_a_pod_named_for_itself_is_not_reserved(node, shape, reserved):
    """M3: with `spec.nodeName` and a long grace a tenant reserved others' dedicated nodes: only where kube-scheduler could
    have put it, by its taints and the pod's own rules."""
    world, home = stage({}), Home()
    world.apply(Seen(Kind.NODE, node))
    world.apply(Seen(Kind.POD, change(pod(0, "n0"), shape=shape, deletion_at=NOW + 600)))
    assert len(home.evaluate("set/shop/db", world, Queue(live_settings()), None, NOW).proposals) == reserved


@pytest.mark.parametrize("phase", ["Pending", "Failed"])
def test_a_node_where_a_pod_never_ran_is_not_reserved(phase):
    """M3: a pod that names a full node itself is refused by the kubelet, where kube-scheduler would not have put it."""
    world, home = stage({}), Home()
    world.apply(Seen(Kind.POD, change(pod(0, "n0"), phase=phase, deletion_at=NOW + 600)))
    assert home.evaluate("set/shop/db", world, Queue(live_settings()), None, NOW).proposals == ()
