"""Ready means available: for minReadySeconds."""

from mooring.capabilities.drain.readiness import is_ready, missing_facts, ready_pods
from mooring.core.queue import Queue, live_settings

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
