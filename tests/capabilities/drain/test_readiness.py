"""Ready means available: for minReadySeconds."""

import msgspec

from mooring.capabilities.drain.readiness import active_pods, is_ready, missing_facts, ready_pods
from mooring.capabilities.drain.room import copies
from mooring.core.model.cluster import Node, PodShape
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World

from .making import NOW, owned_by, pod, stateful_set, world_of


def test_ready_for_less_than_min_ready_seconds_is_missing():
    """M6, O2: a replica that became Ready a moment ago does not count yet, for whoever asks."""
    db = stateful_set("db", replicas=2, min_ready_s=30)
    old, young = pod("db-0", owner=owned_by(db)), pod("db-1", owner=owned_by(db), ready_since=NOW - 10)
    world = world_of(db, old, young)
    assert is_ready(old, db, NOW)
    assert not is_ready(young, db, NOW)
    assert ready_pods(db, world, NOW) == 1
    (fact,) = missing_facts(db, (old, young), Queue(live_settings()), NOW)
    assert (fact.target, fact.subject, fact.amount) == ("workload/tidb/StatefulSet/db", "pod/tidb/db-1", 1)
    assert not list(missing_facts(db, (old, young), Queue(live_settings()), NOW + 20))


def test_what_has_no_pod_is_charged_to_the_workload():
    db = stateful_set("db", replicas=3)
    one = pod("db-0", owner=owned_by(db))
    (fact,) = missing_facts(db, (one,), Queue(live_settings()), NOW)
    assert (fact.subject, fact.amount) == ("missing/workload/tidb/StatefulSet/db", 2)


def test_one_that_ended_or_leaves_is_no_replica_any_more():
    """M6: Ready or not, it does not serve."""
    db = stateful_set("db", replicas=3)
    here, leaves = pod("db-0", owner=owned_by(db)), pod("db-1", owner=owned_by(db), deletion_at=NOW)
    ended = msgspec.structs.replace(pod("db-2", owner=owned_by(db)), phase="Failed")
    world = world_of(db, here, leaves, ended)
    assert active_pods(db, world) == [here]
    assert ready_pods(db, world, NOW) == 1


def test_pods_that_may_not_share_a_node_find_one_place_on_it():
    """M10: room for a hundred is room for one of those that keep apart."""
    node = Node("n1", "uid-n1", "1")
    assert copies(node, PodShape(), World()) == node.pods_limit
    assert copies(node, PodShape(anti_affinity_keys=("kubernetes.io/hostname",)), World()) == 1
