"""What a TiKV cluster misses already, as facts: which member or store, and when it no longer counts."""

import msgspec
import pytest

from mooring.capabilities.handoff.facts import members_away
from mooring.clients.wire.annotations import kept
from mooring.core.model.cluster import Pod, PodShape
from mooring.core.model.tidb import PdView, Store, TidbCluster

NOW = 10_000.0


def store(id_, pod, **how):
    how = {"region_count": 90, "last_heartbeat_at": NOW - 1.0, **how}
    return Store(id_, f"{pod}.demo-tikv-peer.tidb.svc:20160", **how)


def pod(name, *, ready=True):
    return Pod("tidb", name, f"{name}-uid", "1", PodShape(), node="n1", ready=ready)


def away(pods, stores, *, replicas=3, annotations=None):
    tc = TidbCluster("tidb", "demo", "tc", "1", tikv_replicas=replicas, annotations=annotations or {})
    view = PdView(tuple(stores), (), 90, start_timestamp=1)
    there = {name: pod(name, ready=ready) for name, ready in pods.items()}
    facts = list(members_away(tc, there, view, NOW, 60.0))
    assert {(fact.target, fact.amount) for fact in facts} <= {("tikv/tidb/demo", 1)}, "each counts as one"
    return [fact.detail for fact in facts]


def whole(*ordinals):
    return dict.fromkeys((f"demo-tikv-{i}" for i in ordinals), True)


def test_a_whole_cluster_misses_nobody():
    """E7: three members, Ready, Up."""
    assert away(whole(0, 1, 2), [store(i + 1, f"demo-tikv-{i}") for i in range(3)]) == []


def test_slots_that_are_left_out_are_nobodys():
    """E7: an advanced StatefulSet without ordinal 1 has members 0, 2 and 3; `delete-slots` reaches us from the wire."""
    key = "tikv.tidb.pingcap.com/delete-slots"
    annotations = kept("TidbCluster", {key: "[1]", "other.example/x": "y"})
    assert annotations == {key: "[1]"}
    stores = [store(i + 1, f"demo-tikv-{i}") for i in (0, 2, 3)]
    assert away(whole(0, 2, 3), stores, annotations=annotations) == []
    assert away(whole(0, 2), stores[:2], annotations=annotations) == ["demo-tikv-3 is missing"]


@pytest.mark.parametrize("text", ["", "none", "{}", "[1.5]", '["1"]', "[" * 5000, "[-1, 7]"])
def test_slots_that_cannot_be_read_leave_nobody_out(text):
    """Never guessed at: the first three are the members; one that is beyond them changes nothing."""
    tc = TidbCluster("tidb", "demo", "tc", "1", tikv_replicas=3)
    tc = msgspec.structs.replace(tc, annotations={"tikv.tidb.pingcap.com/delete-slots": text})
    assert tc.ordinals("tikv") == (0, 1, 2)


def test_a_failover_member_stands_in_once_the_regions_of_the_lost_one_are_gone():
    """E7: tidb-operator added demo-tikv-3 for demo-tikv-1, whose node died: not whole before, whole after."""
    pods = {**whole(0, 2, 3), "demo-tikv-1": False}
    stores = [store(1, "demo-tikv-0"), store(3, "demo-tikv-2"), store(4, "demo-tikv-3")]
    lost = store(2, "demo-tikv-1", state="Down", last_heartbeat_at=1.0)
    assert away(pods, [*stores, lost]) == ["demo-tikv-1 is not Ready"]
    assert away(pods, [*stores, msgspec.structs.replace(lost, region_count=0)]) == []
    assert away({**pods, "demo-tikv-3": False}, stores) == ["demo-tikv-1 is not Ready"]


@pytest.mark.parametrize(
    ("state", "heard_s", "labels", "counts"),
    [
        ("Disconnected", 30.0, {}, True),
        ("Down", 4000.0, {}, True),
        ("Offline", 4000.0, {}, True),
        ("Offline", 5.0, {}, False),
        ("Up", 5.0, {}, False),
        ("Tombstone", 4000.0, {}, False),
        ("Down", 4000.0, {"engine": "tiflash"}, False),
    ],
)
def test_stores_of_no_member_count_while_they_are_silent_with_regions(state, heard_s, labels, counts):
    """E7: a store that is being emptied serves on while it is heard from, TiFlash has no votes, the rest is missed."""
    stores = [store(i + 1, f"demo-tikv-{i}") for i in range(3)]
    other = store(9, "other-tikv-0", state=state, last_heartbeat_at=NOW - heard_s, labels=labels)
    found = away(whole(0, 1, 2), [*stores, other])
    assert bool(found) is counts
    if counts:
        assert "store 9 (other-tikv-0)" in found[0]
        assert "pd-ctl store delete 9" in found[0]
        assert away(whole(0, 1, 2), [*stores, msgspec.structs.replace(other, region_count=0)]) == []


@pytest.mark.parametrize(
    ("address", "ours"),
    [
        ("demo-tikv-0.demo-tikv-peer.tidb.svc:20160", True),
        ("demo-tikv-0.demo-tikv-peer.tidb.svc.cluster.local:20160", False),
        ("demo-tikv-0.demo-tikv-peer.elsewhere.svc:20160", False),
        ("demo-tikv-0.demo-tikv-peer:20160", True),
        ("demo-tikv-0", True),
        ("[fd00::1]:20160", False),
        ("10.0.0.1:20160", False),
        ("", False),
    ],
)
def test_whose_store_is_it(address, ours):
    """E6: by the whole address, with or without a port; one that names another namespace or another cluster domain is not
    ours, an IP address is nobody's."""
    view = PdView((Store(1, address),), (), 1, start_timestamp=1)
    tc = TidbCluster("tidb", "demo", "u", "1")
    assert (view.store_of(tc, "demo-tikv-0") is not None) is ours


@pytest.mark.parametrize(
    ("domain", "named", "stores", "claimants"),
    [
        # Without a domain in the spec its own stores have none: the other one is another Kubernetes cluster's.
        ("", None, {1: "", 244: ".east.local"}, [1]),
        ("west.local", None, {1: ".west.local", 244: ".east.local"}, [1]),
        # The domain is new in the spec, and this store registered before: only tidb-operator's status can tell.
        ("west.local", None, {1: ""}, []),
        ("west.local", 1, {1: ""}, [1]),
        # Two that may be it, and nobody says which.
        ("west.local", 1, {1: "", 244: ".west.local"}, [1, 244]),
    ],
)
def test_one_pod_name_in_two_kubernetes_clusters(domain, named, stores, claimants):
    """E6: the cluster domain and tidb-operator's own status decide; where they differ nothing may be done."""
    addresses = {i: f"demo-tikv-0.demo-tikv-peer.tidb.svc{end}:20160" for i, end in stores.items()}
    view = PdView(tuple(Store(i, address) for i, address in addresses.items()), (), 1, start_timestamp=1)
    ids = {} if named is None else {"demo-tikv-0": named}
    tc = TidbCluster("tidb", "demo", "u", "1", cluster_domain=domain, tikv_store_ids=ids)
    assert sorted(s.id for s in view.claimants(tc, "demo-tikv-0")) == claimants
    only = view.store_of(tc, "demo-tikv-0")
    assert [only.id] == claimants if len(claimants) == 1 else only is None
    assert ("demo-tikv-0" in view.stores_by_pod(tc)) is (len(claimants) == 1)


def test_a_count_that_nobody_means_is_not_counted_out():
    """A typo in spec.tikv.replicas must not cost the control plane its memory: those that are there are the members."""
    stores = [store(i + 1, f"demo-tikv-{i}") for i in range(3)]
    assert away(whole(0, 1, 2), stores, replicas=2_000_000_000) == []
    assert away(whole(0, 1, 2), stores, replicas=-3) == []


def test_a_store_that_is_down_under_a_ready_pod_is_away():
    """E7: the pod is Ready and PD has not heard of its store; one that has no regions left is nobody's loss."""
    stores = [store(1, "demo-tikv-0"), store(2, "demo-tikv-1", state="Down"), store(3, "demo-tikv-2")]
    assert away(whole(0, 1, 2), stores) == ["store 2 of demo-tikv-1 is Down"]
    stores[1] = store(2, "demo-tikv-1", state="Down", region_count=0)
    assert away(whole(0, 1, 2), stores) == []
