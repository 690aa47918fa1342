"""A snapshot in the sandbox: everything stands where it stood, and nobody finds anything to do."""

from collections.abc import Callable

import msgspec
import pytest

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.times import rfc3339
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import manifests, podstate
from mooring_lab.rehearse.snapshot.capture import gather
from mooring_lab.rehearse.snapshot.load import load
from mooring_lab.rehearse.snapshot.schema import KINDS, BadSnapshotError, PdShot, PlacementShot, Snapshot, StoreShot
from mooring_lab.rehearse.snapshot.stores import thinned, without_leader, without_quorum


def taken(cluster: Cluster) -> Snapshot:
    whole = {kind: cluster.store.list(kind) for kind in KINDS}
    return gather(whole, taken_at=rfc3339(cluster.timeline.now()), source="test", namespace="mooring-system")


def standing(cluster: Cluster, of: Callable[[Json], object] = podstate.node_of) -> dict[str, object]:
    return {pod["metadata"]["uid"]: of(pod) for pod in cluster.store.list(Kind.POD)}


def test_the_demo_stands_as_it_stood_and_nothing_moves(demo: Snapshot) -> None:
    """O4: ten minutes after loading, not one object has been written."""
    cluster = load(demo, 1).cluster
    before, revision = standing(cluster), cluster.store.revision
    assert before == {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in demo.of(Kind.POD)}
    cluster.run_for(600)
    assert standing(cluster) == before
    assert cluster.store.revision == revision


def test_controllers_of_every_kind_are_content() -> None:
    """O4: Deployments, StatefulSets, DaemonSets, budgets and volumes agree with what was loaded."""
    original = Cluster(seed=3)
    original.add_nodes(6)
    original.deployment("shop", "web", 5)
    template = manifests.pod_template({"app": "db"})
    claim = {"metadata": {"name": "data"}, "spec": {"storageClassName": "local-disk"}}
    original.stateful_set("shop", "db", 3, template=template, volumeClaimTemplates=[claim])
    original.daemon_set("shop", "agent")
    original.pdb("shop", "web", {"app": "web"}, minAvailable=4)
    original.run_until_stable()
    original.set_image(Kind.STATEFUL_SET, "shop", "db", "app:2")
    original.run_for(120)
    cluster = load(taken(original), 1).cluster
    before = standing(cluster)
    cluster.run_for(600)
    assert standing(cluster) == before
    assert cluster.store.get(Kind.PDB, "shop", "web")["status"]["disruptionsAllowed"] == 1


def test_a_rollout_under_way_goes_on() -> None:
    """O4: old and new pods are told apart although what differs in them was left behind."""
    original = Cluster(seed=3)
    original.add_nodes(4)
    original.deployment("shop", "web", 8)
    original.run_until_stable()
    original.set_image(Kind.DEPLOYMENT, "shop", "web", "app:2")
    original.run_for(1.0)
    assert len({p["metadata"]["ownerReferences"][0]["uid"] for p in original.pods("shop", "web")}) == 2
    cluster = load(taken(original), 1).cluster
    assert cluster.run_until_stable()
    owners = {p["metadata"]["ownerReferences"][0]["uid"] for p in cluster.pods("shop", "web")}
    newest = max(original.store.list(Kind.REPLICA_SET), key=lambda one: one["metadata"]["creationTimestamp"])
    assert owners == {newest["metadata"]["uid"]}


def test_what_was_broken_stays_broken() -> None:
    """O4: a node that was not Ready is silent, and a pod that was not Ready for long does not heal by being loaded."""
    original = Cluster(seed=3)
    original.add_nodes(4)
    sick = manifests.pod_template({"app": "sick"}, annotations={"lab.mooring.dev/fail": "ready"})
    original.deployment("shop", "sick", 2, template=sick)
    original.deployment("shop", "web", 4)
    original.run_for(700)
    original.kubelets.silence("node-0")
    original.run_for(60)
    snapshot = taken(original)
    for pod in snapshot.of(Kind.POD):  # as a real cluster has it: nothing says why
        pod["metadata"].get("annotations", {}).pop("lab.mooring.dev/fail", None)
    cluster = load(snapshot, 1).cluster
    cluster.run_for(30)
    assert cluster.ready("shop", "sick") == 0
    assert cluster.kubelets.silent_since("node-0") is not None


def test_a_lost_pods_owner_makes_another_and_ids_never_come_twice(demo: Snapshot) -> None:
    """O4: new objects have ids of their own, also when the snapshot came from a sandbox with the same seed."""
    cluster = load(demo, 1).cluster
    old = set(standing(cluster))
    name = cluster.pods("shop", "web")[0]["metadata"]["name"]
    cluster.store.delete(Kind.POD, "shop", name)
    assert cluster.run_until_stable()
    new = set(standing(cluster)) - old
    assert (len(new), cluster.ready("shop", "web")) == (1, 5)


def test_a_pod_on_its_way_out_goes_on_leaving() -> None:
    """O4: what was being deleted when the snapshot was taken ends, and is replaced."""
    original = Cluster(seed=3)
    original.add_nodes(2)
    slow = manifests.pod_template({"app": "web"}, annotations={"lab.mooring.dev/grace-seconds": "20"})
    original.deployment("shop", "web", 2, template=slow)
    original.run_until_stable()
    leaving = original.pods("shop", "web")[0]["metadata"]
    original.store.delete(Kind.POD, "shop", leaving["name"])
    original.run_for(0.5)
    cluster = load(taken(original), 1).cluster
    assert podstate.terminating(cluster.store.get(Kind.POD, "shop", leaving["name"]))
    assert cluster.run_until_stable()
    assert leaving["uid"] not in standing(cluster)
    assert cluster.ready("shop", "web") == 2


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (Kind.POD, {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "much"}}}]}),
        (Kind.POD, {"nodeName": "n1", "tolerations": "all"}),
        (Kind.NODE, {"taints": [{"effect": "NoSchedule"}]}),
    ],
)
def test_what_cannot_stand_is_named(kind: Kind, spec: dict[str, object], demo: Snapshot) -> None:
    """O4: a damaged object is an error with its name, never a traceback."""
    bad = {**demo.of(kind)[0], "spec": spec}
    broken = msgspec.structs.replace(demo, objects={**demo.objects, kind.value: [bad]})
    with pytest.raises(BadSnapshotError, match=bad["metadata"]["name"]):
        load(broken, 1)


def test_an_object_that_is_there_twice_is_refused(demo: Snapshot) -> None:
    """O4: two pods of one name are no cluster."""
    pods = demo.of(Kind.POD)
    broken = msgspec.structs.replace(demo, objects={**demo.objects, "Pod": [*pods, pods[0]]})
    with pytest.raises(BadSnapshotError, match="already exists"):
        load(broken, 1)


def test_regions_stand_where_pd_had_them(demo: Snapshot) -> None:
    """O4: stores keep their ids, regions their voters and leaders, so that a quorum lost is the real one."""
    shot = PdShot(
        namespace="tidb",
        cluster="demo",
        members=("demo-pd-0", "demo-pd-1", "demo-pd-2"),
        leader="demo-pd-1",
        started_at=1_700_000_000,
        stores=tuple(StoreShot(id=i, address=f"demo-tikv-{n}.peer:20160") for n, i in enumerate((4, 7, 9))),
        evicting=(9,),
        placements=(
            PlacementShot(peers=(4, 7, 9), leader=7, regions=20),
            PlacementShot(peers=(4, 7, 9), leader=4, regions=5),
        ),
    )
    loaded = load(msgspec.structs.replace(demo, pds=(shot,)), 1)
    pd = loaded.cluster.pd["tidb", "demo"]
    tikv = pd.server.tikv
    assert {store: len(led) for store, led in tikv.led.items()} == {4: 5, 7: 20, 9: 0}
    assert (pd.leader, pd.start_timestamp, pd.server.evict_list()) == ("demo-pd-1", 1_700_000_000, (9,))
    assert (without_leader(tikv), without_quorum(tikv)) == (0, 0)
    pd.pod_gone("demo-tikv-0")
    assert (without_leader(tikv), without_quorum(tikv)) == (5, 0)
    pd.pod_gone("demo-tikv-1")
    assert without_quorum(tikv) == 25
    assert loaded.scale == {("tidb", "demo"): 1.0}


def test_a_million_regions_are_played_by_their_share() -> None:
    """O4: every placement keeps at least one region, and the proportions stay."""
    many = [PlacementShot(peers=(1, 2, i), leader=1, regions=100_000 if i < 12 else 3) for i in range(3, 13)]
    few = thinned(many, 1000)
    assert len(few) == len(many)
    assert {p.regions for p in few[:-1]} == {111}
    assert few[-1].regions == 1
    assert thinned(few, 5000) == few


def test_a_pd_nobody_asked_is_assumed_and_said(demo: Snapshot) -> None:
    """O4: without PD, regions are spread evenly, and the outcome carries a remark."""
    loaded = load(msgspec.structs.replace(demo, pds=()), 1)
    assert [key.name for key in loaded.assumed_pds] == ["demo"]
    assert "is not in the snapshot" in loaded.remarks[0]
    assert {len(led) for led in loaded.cluster.pd["tidb", "demo"].server.tikv.led.values()} == {100}


def test_our_namespace_was_being_deleted(demo: Snapshot) -> None:
    """O4: no Lease can be made in a namespace that ends: Mooring would not come up, whatever is rehearsed."""
    ending = {"deletionTimestamp": demo.taken_at}
    spaces = [
        {**one, "metadata": {**one["metadata"], **(ending if one["metadata"]["name"] == demo.namespace else {})}}
        for one in demo.of(Kind.NAMESPACE)
    ]
    loaded = load(msgspec.structs.replace(demo, objects={**demo.objects, Kind.NAMESPACE: spaces}), 1)
    assert not any(podstate.terminating(one) for one in loaded.cluster.store.list(Kind.NAMESPACE))
    assert "was being deleted" in loaded.remarks[0]
