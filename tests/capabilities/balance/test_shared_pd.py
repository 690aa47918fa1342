"""T12: one PD is balanced once, whoever shares it."""

import msgspec
import pytest

from mooring.capabilities.balance import BalancePolicy
from mooring.capabilities.balance.pause import left_to_pd
from mooring.core.engine.why import explain
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import TidbCluster
from mooring.process.settings.config import Config
from mooring_lab.cluster.controllers.podstate import with_spec
from mooring_lab.cluster.pd import SandboxPd
from mooring_lab.stage.rig import Rig

NS = "tidb"


async def two_on_one_pd(rig, regions=60):
    """`demo` has three stores with all regions on them; `more`, on the same PD, brings three empty ones."""
    cluster = rig.cluster
    pd = SandboxPd(cluster.timeline, seed=1, cluster="demo", namespace=NS)
    cluster.pd[NS, "demo"] = cluster.pd[NS, "more"] = pd
    cluster.add_nodes(8)
    cluster.tidb_cluster(NS, "demo", tikv=3, pd=0, tidb=0)
    await rig.sleep(1.0)
    await rig.until(lambda: cluster.ready(NS, "demo-tikv") == 3)
    pd.load(regions)
    rig.start()
    await rig.until(rig.leads)
    await rig.sleep(90)
    cluster.tidb_cluster(NS, "more", tikv=3, pd=0, tidb=0)
    spec = {"cluster": {"name": "demo", "namespace": NS}}
    cluster.change(Kind.TIDB_CLUSTER, NS, "more", lambda tc: with_spec(tc, **spec))
    return pd


def counts(pd):
    return [s.region_count for s in pd.server.stores()]


def added(rig):
    return len([w for w in rig.writes if "add_operator" in w])


def test_two_clusters_on_one_pd_are_balanced_once_and_it_ends():
    """T12: moves go between the clusters' stores, by one balancer; when it is even nothing more is proposed."""
    rig = Rig(seed=1, config=Config(features={"balance": True}, policies=(BalancePolicy(clusters=("*",)),)))

    async def scenario(rig):
        pd = await two_on_one_pd(rig)
        await rig.until(lambda: len(counts(pd)) == 6 and max(counts(pd)) - min(counts(pd)) <= 6, 3000)
        await rig.sleep(200)
        moved = added(rig)
        await rig.sleep(600)
        assert added(rig) == moved
        asked = {o.payload.cluster for o in rig.leader().engine.queue.operators()}
        assert asked <= {f"{NS}/demo"}

    rig.play(scenario)


@pytest.mark.parametrize("address", ["east-tikv-0.east-tikv-peer.other.svc:20160", "demo-tikv-0.d.tidb.svc.east:20160"])
def test_a_pd_with_stores_of_another_kubernetes_cluster_is_left_to_itself(address):
    """T12: who balances there cannot be seen from here: nothing is proposed, and PD's balancers are not paused."""
    rig = Rig(seed=1, config=Config(features={"balance": True}, policies=(BalancePolicy(clusters=("*",)),)))

    async def scenario(rig):
        cluster = rig.cluster
        pd = SandboxPd(cluster.timeline, seed=1, cluster="demo", namespace=NS)
        cluster.pd[NS, "demo"] = pd
        pd.attach(address.partition(".")[0], 100, address=address)
        cluster.add_nodes(8)
        cluster.tidb_cluster(NS, "demo", tikv=3, pd=0, tidb=0)
        await rig.sleep(1.0)
        await rig.until(lambda: cluster.ready(NS, "demo-tikv") == 3)
        pd.load(60)
        rig.start()
        await rig.until(rig.leads)
        await rig.sleep(200)
        assert rig.leader().engine.verdicts[("balance", f"{NS}/demo")].state == "refused"
        assert not [w for w in rig.writes if w.startswith("pd ")]

    rig.play(scenario)


# ── Named clusters (T12) and observing (D9) ───────────────────────────────────────────────────────────────────────


async def uneven(rig):
    """`demo` with three stores that hold everything, and a fourth, empty one."""
    cluster = rig.cluster
    cluster.pd[NS, "demo"] = pd = SandboxPd(cluster.timeline, seed=1, cluster="demo", namespace=NS)
    cluster.add_nodes(6)
    cluster.tidb_cluster(NS, "demo", tikv=3, pd=0, tidb=0)
    await rig.sleep(1.0)
    await rig.until(lambda: cluster.ready(NS, "demo-tikv") == 3)
    pd.load(60)
    rig.start()
    await rig.until(rig.leads)
    tikv = {"spec": {"tikv": {"replicas": 4}}}
    await rig.api.patch(Kind.TIDB_CLUSTER, NS, "demo", tikv)
    await rig.until(lambda: len(counts(pd)) == 4)
    return pd


def of_balance(rig):
    return [w for w in rig.writes if "add_operator" in w or "pause" in w]


def test_a_cluster_that_nobody_names_is_left_to_pd():
    """T12: balance is on, and moves nothing of a cluster until the annotation names it; `why` says what to type."""
    rig = Rig(seed=1, config=Config(features={"balance": True}))

    async def scenario(rig):
        pd = await uneven(rig)
        await rig.sleep(200)
        assert of_balance(rig) == [] and not rig.unsettled()
        said = explain(rig.leader().engine, f"cluster/{NS}/demo")
        assert "mooring.dev/balance=true" in str(said)
        rig.cluster.annotate(Kind.TIDB_CLUSTER, NS, "demo", {"mooring.dev/balance": "true"})
        await rig.until(lambda: added(rig) > 0)
        metrics = rig.leader().metrics
        metrics.look_at(rig.leader().engine, 0)
        await rig.until(lambda: len(counts(pd)) == 4 and max(counts(pd)) - min(counts(pd)) <= 6, 3000)

    rig.play(scenario)


@pytest.mark.parametrize(
    ("clusters", "named"),
    [((), False), (("*",), True), (("tidb/*",), True), (("tidb/demo",), True), (("a/demo",), False)],
)
def test_names_of_clusters(clusters, named):
    """T12: by whole name or pattern; a released cluster is PD's, whoever names it."""
    tc = TidbCluster(NS, "demo", "u", "1")
    policy = BalancePolicy(clusters=clusters)
    assert (left_to_pd(tc, policy, ()) == "") is named
    released = msgspec.structs.replace(tc, annotations={"mooring.dev/balance": "released"})
    assert left_to_pd(released, policy, ()) == "released to PD"
    with pytest.raises(ValueError, match="demo"):
        BalancePolicy(clusters=("demo",))


def test_balance_that_observes_leaves_pd_alone():
    """D9: what it would move is counted; no scheduler is paused, no operator added."""
    policy = BalancePolicy(clusters=("*",))
    rig = Rig(seed=1, config=Config(features={"balance": "observe"}, policies=(policy,)))

    async def scenario(rig):
        await uneven(rig)
        await rig.sleep(200)
        assert of_balance(rig) == [] and not rig.unsettled()

    rig.play(scenario)
