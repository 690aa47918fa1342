"""What a change asks of the rebalancer: a look now, a look soon, or none. M5, M7."""

import msgspec
import pytest

from mooring.capabilities.drain.signals import INTERRUPT_AT
from mooring.capabilities.mix.capability import Mix
from mooring.capabilities.mix.labels import AFFINITY, ENABLED, RESERVATION
from mooring.core.model.cluster import Node, Owner, Pod, PodShape, ReplicaSet, Workload
from mooring.core.model.decision import Deferred
from mooring.core.model.events import Change, Listed, Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING
from mooring.core.world.world import World

WEB = Workload("Deployment", "shop", "web", "d1", "1", {ENABLED: "true"}, replicas=3)
KEY = "workload/Deployment/shop/web"
NEW = Pod(
    "shop",
    "web-x-1",
    "p1",
    "1",
    PodShape({AFFINITY: "spot"}),
    Owner("ReplicaSet", "web-x", "r1"),
    annotations={RESERVATION: "t1"},
)
Row = Pod | Workload | ReplicaSet
replace = msgspec.structs.replace
BOUND = replace(NEW, node="spot0")
READY = replace(BOUND, phase="Running", ready=True)


@pytest.fixture
def world() -> World:
    made = World()
    for index in Mix().indexes():
        made.register(index)
    rows = {
        Kind.NODE: [Node("spot0", "n0", "1", {"node.kubernetes.io/capacity": "spot"}, ready="True")],
        Kind.DEPLOYMENT: [WEB],
        Kind.REPLICA_SET: [ReplicaSet("shop", "web-x", "r1", "1", Owner("Deployment", "web", "d1"), 3, "x")],
        Kind.STATEFUL_SET: [],
        Kind.POD: [],
    }
    for kind, objects in rows.items():
        made.apply(Listed(kind, tuple(objects)))
    return made


KINDS = {Pod: Kind.POD, Workload: Kind.DEPLOYMENT, ReplicaSet: Kind.REPLICA_SET}


def affected_keys(world: World, old: Row | None, new: Row | None) -> list:
    row = new or old
    assert row is not None
    kind = KINDS[type(row)]
    return list(Mix().affected_keys(Change(kind, row.key, old, new), world))


@pytest.mark.parametrize(
    ("old", "new"),
    [(None, NEW), (NEW, BOUND), (BOUND, replace(BOUND, phase="Running"))],
    ids=["created", "bound", "started"],
)
def test_a_pod_on_its_way_may_wait(world, old, new):
    """Until an admitted pod is Ready it is missing whatever it does: one look soon is enough."""
    assert affected_keys(world, old, new) == [Deferred(KEY)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (BOUND, READY),
        (READY, replace(READY, ready=False)),
        (READY, replace(READY, deletion_at=9.0)),
        (BOUND, None),
        (BOUND, replace(BOUND, phase="Failed")),
        (NEW, replace(NEW, schedulable=False)),
        (replace(NEW, schedulable=False), BOUND),
        (BOUND, replace(BOUND, annotations={RESERVATION: "t1", LEAVING: "{}"})),
        (None, replace(BOUND, annotations={})),
    ],
    ids=["ready", "unready", "leaving", "gone", "failed", "no node", "a node at last", "marked", "not ours"],
)
def test_what_changes_a_workloads_health_is_looked_at_now(world, old, new):
    """Whoever may be moved next depends on it: no release may be based on what was true two seconds ago."""
    assert affected_keys(world, old, new) == [KEY]


def test_a_pod_bound_to_a_node_that_is_about_to_go(world):
    """Two minutes are short: neither its workload nor its node waits."""
    told = {INTERRUPT_AT: "2030-01-01T00:00:00Z"}
    world.apply(Seen(Kind.NODE, replace(world.node("spot0"), resource_version="2", annotations=told)))
    assert affected_keys(world, NEW, BOUND) == [KEY, "node/spot0"]


def test_a_replica_set_that_comes_to_light_after_its_pods_is_looked_at(world):
    """M4: kinds are watched apart, and after an outage the one may be minutes behind the other: only now is it known
    whose pods these are, or that a rollout is over."""
    (known,) = world.replica_sets_of("d1")
    empty = replace(known, resource_version="2", replicas=0)
    assert affected_keys(world, None, known) == [Deferred(KEY)]
    assert affected_keys(world, known, empty) == affected_keys(world, empty, known) == [Deferred(KEY)]
    assert affected_keys(world, known, None) == [Deferred(KEY)]
    assert affected_keys(world, known, replace(known, resource_version="2", replicas=9)) == []
    lone = replace(known, owner=None)
    assert affected_keys(world, None, lone) == []
    world.apply(Seen(Kind.DEPLOYMENT, replace(WEB, resource_version="2", labels={})))
    assert affected_keys(world, None, known) == [], "not switched on, and no pod of it is ours"
    world.apply(Seen(Kind.POD, READY))
    assert affected_keys(world, None, known) == [Deferred(KEY)]


def test_counts_of_a_workload_are_no_news(world):
    """They follow its pods, which have told us; everything else about it is looked at now."""
    counted = replace(WEB, resource_version="2", ready_replicas=2, available_replicas=2, status_replicas=3)
    assert affected_keys(world, WEB, counted) == []
    for change in ({"replicas": 4}, {"labels": {}}, {"observed_generation": 1}, {"paused": True}):
        assert affected_keys(world, WEB, replace(counted, **change)) == [KEY]
    assert affected_keys(world, WEB, None) == [KEY]
    assert affected_keys(world, None, WEB) == [KEY]
