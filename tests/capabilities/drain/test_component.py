"""A member of a TidbCluster is known by its owner; labels decide only where no owner is known."""

from mooring.capabilities.drain.leaders import Component, component_of, is_handed_over
from mooring.core.model.cluster import Key, Owner
from mooring.core.model.kinds import Kind

from .making import TIKV, owned_by, pod, stateful_set, world_of

CLUSTER = Owner(Kind.TIDB_CLUSTER, "demo", "uid-demo", "pingcap.com/v1alpha1")


def test_a_member_is_known_by_its_owner_without_any_label():
    """O2: whoever is TiKV is handed over, also where somebody took its labels away."""
    tikv = stateful_set("demo-tikv", owner=CLUSTER)
    one = pod(owner=owned_by(tikv))
    assert component_of(one, world_of(tikv, one)) == Component(Key("tidb", "demo"), "tikv")


def test_a_label_makes_no_member_of_somebody_elses_pod():
    """A chart that writes component=tikv on its own StatefulSet or Deployment is drained like any other."""
    other = stateful_set("cache", owner=Owner("Redis", "cache", "u", "example.com/v1"))
    mine = pod("cache-0", labels=TIKV, owner=owned_by(other))
    assert component_of(mine, world_of(other, mine)) is None
    web = pod("web-0", labels=TIKV, owner=Owner(Kind.REPLICA_SET, "web", "rs"))
    assert not is_handed_over(web, world_of(web))


def test_without_a_known_owner_the_labels_decide_for_tidb_operators_own():
    """A StatefulSet of a kind that is not watched: better too careful than leaders cut off."""
    managed = {**TIKV, "app.kubernetes.io/managed-by": "tidb-operator"}
    unseen = Owner(Kind.STATEFUL_SET, "demo-tikv", "never-seen", "apps.pingcap.com/v1")
    assert is_handed_over(pod(labels=managed, owner=unseen), world_of())
    assert not is_handed_over(pod(labels=TIKV, owner=unseen), world_of()), "and no TidbCluster of that name"


def test_tidb_is_a_component_and_not_handed_over():
    tidb = stateful_set("demo-tidb", owner=CLUSTER)
    one = pod("demo-tidb-0", owner=owned_by(tidb))
    world = world_of(tidb, one)
    assert component_of(one, world) == Component(Key("tidb", "demo"), "tidb")
    assert not is_handed_over(one, world)
