"""Ready means available: for minReadySeconds."""

import msgspec

from mooring.capabilities.drain.readiness import active_pods, is_ready, missing_facts, ready_pods
from mooring.capabilities.drain.room import copies
from mooring.capabilities.handoff.member_operators import missing_members
from mooring.core.model.cluster import Node, PodShape
from mooring.core.model.tidb import TidbCluster
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


def test_a_replica_of_a_deployment_without_a_pod_is_charged_to_the_workload():
    web = msgspec.structs.replace(stateful_set("web", replicas=3), kind="Deployment")
    one = pod("web-abc", owner=owned_by(web))
    (fact,) = missing_facts(web, (one,), Queue(live_settings()), NOW)
    assert (fact.subject, fact.amount) == ("missing/workload/tidb/Deployment/web", 2)


def test_a_missing_member_is_charged_once_whoever_states_it():
    """M6, E9: mix and handoff name the same absence alike, and of two facts with one name the larger counts."""
    pd = stateful_set("demo-pd", replicas=3)
    here = {f"demo-pd-{i}": pod(f"demo-pd-{i}", owner=owned_by(pd)) for i in (0, 2)}
    of_mix = set(missing_facts(pd, here.values(), Queue(live_settings()), NOW))
    spec = TidbCluster("tidb", "demo", "uid-demo", "1", pd_replicas=3)
    of_handoff = set(missing_members(spec, "pd", here, None, world_of(pd, *here.values()), NOW))
    assert {(f.target, f.subject) for f in of_mix} == {(f.target, f.subject) for f in of_handoff}
    assert [f.subject for f in of_mix] == ["pod/tidb/demo-pd-1"]


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
