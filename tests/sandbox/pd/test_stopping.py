"""The TiKV of today (8.5.5 and later) in the sandbox: told to end, it asks PD to take its leaders off first (E11)."""

import pytest

from mooring.core.model.kinds import Kind
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.pd import PdSettings, SandboxPd

NS = "tidb"


def leaders_cut(*deleted, graceful_s, grace_s=30, transfer_s=(0.05, 0.2)):
    """How many leaders were cut off when these pods were deleted together."""
    cluster = Cluster(1, Timeline(0.0))
    cluster.add_nodes(5)
    settings = PdSettings(graceful_s=graceful_s, transfer_s=transfer_s)
    pd = cluster.pd[NS, "demo"] = SandboxPd(cluster.timeline, cluster="demo", namespace=NS, settings=settings)
    cluster.tidb_cluster(NS, "demo", tikv=4, pd=1, tidb=0)
    pd.load(regions=120, when_stores=4)
    assert cluster.run_until_stable()
    old = {name: cluster.store.get(Kind.POD, NS, name)["metadata"]["uid"] for name in deleted}
    for name in deleted:
        cluster.store.delete(Kind.POD, NS, name, grace_s=grace_s)

    def is_there(name):
        pod = cluster.store.find(Kind.POD, NS, name)
        return pod is not None and pod["metadata"]["uid"] == old[name]

    assert cluster.run_until(lambda: not any(map(is_there, deleted)), 100.0)
    return sum(one.leaders for one in pd.interruptions)


ONE, TWO = ("demo-tikv-0",), ("demo-tikv-0", "demo-tikv-1")


@pytest.mark.parametrize(
    ("deleted", "how", "cut"),
    [
        (ONE, {"graceful_s": 0.0}, 30),
        (ONE, {"graceful_s": 20.0}, 0),
        (TWO, {"graceful_s": 20.0}, 60),
        (ONE, {"graceful_s": 20.0, "grace_s": 0}, 30),
    ],
    ids=["before 8.5.5", "one", "two at once", "killed"],
)
def test_leaders_that_go_with_a_deleted_pod(deleted, how, cut):
    """One store at a time loses none. With two at once PD begins with neither, and a kill leaves it no time."""
    assert leaders_cut(*deleted, **how) == cut


def test_more_leaders_than_fit_into_its_time_go_with_it():
    """After 20 s it ends with what is left."""
    assert 0 < leaders_cut(*ONE, graceful_s=20.0, transfer_s=(5.0, 6.0)) < 30
