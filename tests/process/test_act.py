"""Act: one call, one outcome; what happened is found out by looking, and nothing is claimed that was not seen."""

import msgspec
import pytest

from mooring.core.model.cluster import Key, Taint
from mooring.core.model.events import Gone
from mooring.core.model.instructions import (
    AddEvictLeader,
    AddPdOperator,
    CancelPdOperator,
    Create,
    CutOff,
    DeleteNode,
    DeletePod,
    EditTaints,
    Patch,
    RemoveEvictLeader,
)
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, Mark, write_marks
from mooring.core.model.reasons import Reason
from mooring.process.act import Actor
from mooring_lab.cluster.apiserver.faults import Fault
from mooring_lab.cluster.clock import run_virtual
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers.tidb.manifests import tidb_cluster
from mooring_lab.cluster.pd import SandboxPd

NS = "shop"


class Bench:
    """A sandbox cluster with one StatefulSet pod, and an Act whose fence can be closed."""

    def __init__(self):
        self.cluster = Cluster(seed=4)
        self.cluster.add_nodes(2)
        self.cluster.stateful_set(NS, "db", 2)
        assert self.cluster.run_until_stable()
        self.open = True
        self.pds = {}
        self.act = Actor(self.cluster.api, self, self)

    def may_write(self):
        return self.open

    def pd(self, cluster):
        return self.pds[cluster]

    def given(self, cluster):
        return False

    def sharing(self, cluster):
        return ()

    def do(self, write):
        return run_virtual(lambda: self.act.carry_out(write), self.cluster.timeline)

    def pod(self, name="db-0"):
        return self.cluster.store.find(Kind.POD, NS, name)

    def patch(self, value="x", **how):
        pod = self.pod()
        version = how.get("resource_version", pod["metadata"]["resourceVersion"])
        return Patch(
            id="i1",
            kind=Kind.POD,
            key=Key(NS, "db-0"),
            uid=how.get("uid", pod["metadata"]["uid"]),
            resource_version=version,
            patch={"metadata": {"annotations": {"mooring.dev/leaving": value}}},
        )

    def delete(self, **how):
        return DeletePod(id="i2", key=Key(NS, "db-0"), uid=how.pop("uid", self.pod()["metadata"]["uid"]), **how)

    def mark(self, *stores):
        """A TidbCluster whose marks name these stores."""
        if self.cluster.store.find(Kind.TIDB_CLUSTER, "tidb", "demo") is None:
            self.cluster.store.create(Kind.TIDB_CLUSTER, tidb_cluster("tidb", "demo"))
        how = {"source": "handoff", "reason": "asked", "step": "EvictLeaders", "since": 0.0}
        marks = {f"demo-tikv-{i}": Mark(operator=str(i), store_id=i, **how) for i in stores}
        self.cluster.annotate(Kind.TIDB_CLUSTER, "tidb", "demo", {HANDOFF: write_marks(marks)})

    def annotation(self):
        return (self.pod()["metadata"].get("annotations") or {}).get("mooring.dev/leaving")


@pytest.fixture
def bench():
    return Bench()


def test_closed_fence_sends_nothing(bench):
    """Who may not lead any more does not write, whatever it had decided."""
    bench.open = False
    outcome = bench.do(bench.patch())
    assert outcome.reason is Reason.NOT_LEADER
    assert bench.annotation() is None


def test_patch_whose_answer_is_lost_is_seen_to_be_written(bench):
    """Lost answer: it happened, and looking says so."""
    bench.cluster.api.faults.arm(Fault.LOST_ANSWER, verb="patch")
    outcome = bench.do(bench.patch())
    assert outcome.reason is None
    assert outcome.object.annotations["mooring.dev/leaving"] == "x"
    assert bench.annotation() == "x"


def test_patch_that_never_arrived_is_not_claimed(bench):
    """Lost request: it did not happen; the outcome says so and brings the object as it is."""
    bench.cluster.api.faults.arm(Fault.LOST_REQUEST, verb="patch")
    outcome = bench.do(bench.patch())
    assert outcome.reason is Reason.CONFLICT
    assert "mooring.dev/leaving" not in outcome.object.annotations
    assert bench.annotation() is None


@pytest.mark.parametrize("guard", [{"resource_version": "1"}, {"uid": "another"}])
def test_patch_on_something_else_changes_nothing(bench, guard):
    """Another version, another pod under the same name: refused by the server, told as a conflict."""
    outcome = bench.do(bench.patch(**guard))
    assert outcome.reason is Reason.CONFLICT
    assert bench.annotation() is None


def test_repeated_patch_that_holds_already_is_done(bench):
    """The second try of one that did happen is no conflict."""
    first = bench.patch()
    assert bench.do(first).reason is None
    assert bench.do(first).reason is None


def test_deletion_whose_answer_is_lost(bench):
    """The pod is leaving or another one: done. It is not deleted a second time by us."""
    bench.cluster.api.faults.arm(Fault.LOST_ANSWER, verb="delete")
    write = bench.delete(evict=False)
    assert bench.do(write).reason is None
    bench.cluster.run_until_stable()
    new = bench.pod()["metadata"]["uid"]
    assert new != write.uid
    assert bench.do(write).reason is None, "the one that was meant is gone"
    assert bench.pod()["metadata"]["uid"] == new
    assert "deletionTimestamp" not in bench.pod()["metadata"]


def test_a_removal_that_did_not_happen_is_not_taken_for_done(bench):
    """ "Did my write happen?" is answered by looking: a mark that is still there has not been removed."""
    assert bench.do(bench.patch()).reason is None
    bench.cluster.api.faults.arm(Fault.CONFLICT, verb="patch")
    removal = bench.patch(None)
    assert bench.do(removal).reason is Reason.CONFLICT
    assert bench.do(removal).reason is None
    assert "mooring.dev/leaving" not in (bench.pod()["metadata"].get("annotations") or {})
    assert bench.do(removal).detail == "seen to be written"


@pytest.mark.parametrize("evict", [True, False], ids=["eviction", "deletion"])
def test_a_successor_under_the_same_name_is_left_alone(bench, evict):
    """Every write has a precondition: the pod that was meant has been replaced meanwhile, and the new one stays."""
    write = bench.delete(evict=evict)
    bench.cluster.store.delete(Kind.POD, NS, "db-0", grace_s=0)
    bench.cluster.run_until_stable()
    new = bench.pod()["metadata"]["uid"]
    assert new != write.uid
    bench.do(write)
    bench.cluster.run_until_stable()
    assert bench.pod()["metadata"]["uid"] == new


def test_a_pod_seen_to_be_gone_is_named_by_its_uid(bench):
    """Its successor may stand under its name before the outcome is read: only the uid says who is gone."""
    write = bench.delete(evict=False, grace_s=0)
    assert bench.do(write).gone == Gone(Kind.POD, write.key, write.uid)


def test_deletion_that_never_arrived(bench):
    """The pod is still there and untouched: asked again later."""
    bench.cluster.api.faults.arm(Fault.LOST_REQUEST, verb="delete")
    assert bench.do(bench.delete(evict=False)).reason is Reason.UNKNOWN
    assert "deletionTimestamp" not in bench.pod()["metadata"]


def test_eviction_refused_by_a_budget(bench):
    """A PodDisruptionBudget's no is a reason, with a time to try again."""
    bench.cluster.pdb(NS, "db", {"app": "db"}, maxUnavailable=0)
    bench.cluster.run_for(5)
    outcome = bench.do(bench.delete())
    assert outcome.reason is Reason.PDB
    assert outcome.retry_after_s > 0
    assert "deletionTimestamp" not in bench.pod()["metadata"]


def test_throttled_says_how_long(bench):
    """429 by flow control: nothing changed, the server's wish is passed on."""
    bench.cluster.api.faults.arm(Fault.THROTTLED, verb="patch")
    outcome = bench.do(bench.patch())
    assert (outcome.reason, outcome.retry_after_s) == (Reason.BACK_OFF, 1.0)


def test_creation_that_is_there_already_is_done(bench):
    """Created by a predecessor, or by ourselves with the answer lost: the same."""
    config_map = {"metadata": {"namespace": NS, "name": "memory"}, "data": {"a": "b"}}
    bench.cluster.api.faults.arm(Fault.LOST_ANSWER, verb="create")
    assert bench.do(Create(id="i3", kind=Kind.CONFIG_MAP, object=config_map)).reason is None
    assert bench.do(Create(id="i4", kind=Kind.CONFIG_MAP, object=config_map)).reason is None
    bench.cluster.api.faults.arm(Fault.LOST_REQUEST, verb="create")
    other = {"metadata": {"namespace": NS, "name": "other"}}
    assert bench.do(Create(id="i5", kind=Kind.CONFIG_MAP, object=other)).reason is Reason.UNKNOWN


def test_pd_that_does_not_answer_is_said_to_be_so(bench):
    """PD away: a reason; a store it does not know: another; both change nothing."""
    cluster = Key("tidb", "demo")
    pd = bench.pds[cluster] = SandboxPd(bench.cluster.timeline, seed=1, cluster="demo", namespace="tidb")
    for i in range(3):
        pd.attach(f"demo-tikv-{i}")
    pd.load(regions=9)
    bench.mark(1, 9)
    assert bench.do(AddEvictLeader(id="i6", cluster=cluster, store_id=9)).reason is Reason.STORE_UNKNOWN
    assert bench.do(AddEvictLeader(id="i7", cluster=cluster, store_id=1)).reason is None
    pd.go_dark()
    assert bench.do(RemoveEvictLeader(id="i8", cluster=cluster, store_id=1)).reason is Reason.PD_UNREACHABLE
    pd.lighten()
    assert bench.do(RemoveEvictLeader(id="i9", cluster=cluster, store_id=1)).reason is None
    assert bench.do(RemoveEvictLeader(id="i10", cluster=cluster, store_id=1)).reason is None


def test_only_what_a_mark_names_is_evicted(bench):
    """E3: without a mark nothing is added; what was there already is not taken back with a mark that vanishes."""
    cluster = Key("tidb", "demo")
    pd = bench.pds[cluster] = SandboxPd(bench.cluster.timeline, seed=1, namespace="tidb")
    for i in range(3):
        pd.attach(f"demo-tikv-{i}")
    pd.load(regions=9)
    bench.mark(2)
    assert bench.do(AddEvictLeader(id="i1", cluster=cluster, store_id=1)).reason is Reason.CONFLICT
    assert not pd.server.evict_list()
    bench.mark(1)
    assert bench.do(AddEvictLeader(id="i2", cluster=cluster, store_id=1)).reason is None
    is_marked, seen = bench.act._is_marked, []

    async def gone_in_between(write):
        seen.append(await is_marked(write))
        bench.mark()
        return seen[-1]

    bench.act._is_marked = gone_in_between
    assert bench.do(AddEvictLeader(id="i3", cluster=cluster, store_id=1)).reason is None
    assert tuple(pd.server.evict_list()) == (1,)
    bench.mark(2)
    assert bench.do(AddEvictLeader(id="i4", cluster=cluster, store_id=2)).reason is Reason.CONFLICT
    assert tuple(pd.server.evict_list()) == (1,)


def test_only_the_operator_that_was_meant_is_canceled(bench):
    """PD cancels by region alone: another operator there is left alone, and one that is gone counts as canceled."""
    key = Key("tidb", "demo")
    pd = bench.pds[key] = SandboxPd(bench.cluster.timeline, seed=1, cluster="demo", namespace="tidb")
    stores = [pd.attach(f"demo-tikv-{n}") for n in range(4)]
    pd.load(regions=12)
    region = run_virtual(pd.regions, bench.cluster.timeline)[0]
    source, (target,) = region.peers[-1].store_id, set(stores) - {p.store_id for p in region.peers}
    ask = {"name": "transfer-peer", "region_id": region.id, "from_store_id": source, "to_store_id": target}
    run_virtual(lambda: pd.add_operator(ask), bench.cluster.timeline)
    there = pd.server.operators.running[region.id]

    def cancel(brief):
        return bench.do(CancelPdOperator(cluster=key, region_id=region.id, desc=there.desc, brief=brief))

    assert cancel("mv peer: store [7] to [8]").reason is None
    assert region.id in pd.server.operators.running
    assert cancel(there.brief).reason is None
    assert region.id not in pd.server.operators.running and there.status == "CANCEL"
    assert cancel(there.brief).reason is None


class _Slow:
    """An API (or PD) whose reads take so long that the lease is lost meanwhile; everything else is the real one's."""

    def __init__(self, real, bench, *reads):
        self._real, self._bench, self._reads = real, bench, reads

    def __getattr__(self, name):
        call = getattr(self._real, name)
        if name not in self._reads:
            return call

        async def slowly(*args, **more):
            answer = await call(*args, **more)
            self._bench.open = False
            return answer

        return slowly


def test_a_lease_lost_while_looking_before_a_write_stops_the_write(bench):
    """One-queue: every write checks the lease, also the one that first reads the taints it edits."""
    node = bench.cluster.store.list(Kind.NODE)[0]["metadata"]
    edit = EditTaints(id="i1", node=node["name"], uid=node["uid"], add=(Taint("a", "NoSchedule"),))
    bench.act = Actor(_Slow(bench.cluster.api, bench, "get"), bench, bench)
    outcome = bench.do(edit)
    assert outcome.reason is Reason.NOT_LEADER
    assert not bench.cluster.store.get(Kind.NODE, "", node["name"])["spec"].get("taints")
    bench.open, bench.act = True, Actor(bench.cluster.api, bench, bench)
    assert bench.do(edit).reason is None


def test_a_lease_lost_while_pd_is_asked_first_stops_the_write(bench):
    """One-queue: PD is asked whose stores these are and who is there; who no longer leads then adds and cancels nothing."""
    key = Key("tidb", "demo")
    pd = SandboxPd(bench.cluster.timeline, seed=1, cluster="demo", namespace="tidb")
    bench.pds[key] = _Slow(pd, bench, "operator", "stores")
    stores = [pd.attach(f"demo-tikv-{n}") for n in range(4)]
    pd.load(regions=12)
    region = run_virtual(pd.regions, bench.cluster.timeline)[0]
    source, (target,) = region.peers[-1].store_id, set(stores) - {p.store_id for p in region.peers}
    ask = {"name": "transfer-peer", "region_id": region.id, "from_store_id": source, "to_store_id": target}
    assert bench.do(AddPdOperator(cluster=key, region_id=region.id, body=ask)).reason is Reason.NOT_LEADER
    assert region.id not in pd.server.operators.running
    run_virtual(lambda: pd.add_operator(ask), bench.cluster.timeline)
    there = pd.server.operators.running[region.id]
    bench.open = True
    write = CancelPdOperator(cluster=key, region_id=region.id, desc=there.desc, brief=there.brief)
    assert bench.do(write).reason is Reason.NOT_LEADER
    assert region.id in pd.server.operators.running


def test_editing_our_taint_leaves_the_taints_of_others(bench):
    """O2: only what is named comes and goes; a taint of the same key with another effect is another taint."""
    (node, *_) = bench.cluster.store.list(Kind.NODE)
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    theirs = [{"key": "gpu", "effect": "NoSchedule"}, {"key": "a", "effect": "PreferNoSchedule"}]
    bench.cluster.store.patch(Kind.NODE, "", name, {"spec": {"taints": theirs}})
    ours, taints = Taint("a", "NoSchedule"), lambda: bench.cluster.store.get(Kind.NODE, "", name)["spec"]["taints"]
    assert bench.do(EditTaints(id="i1", node=name, uid=uid, add=(ours,))).reason is None
    assert taints() == [*theirs, {"key": "a", "effect": "NoSchedule"}]
    assert bench.do(EditTaints(id="i2", node=name, uid=uid, remove=(ours,))).reason is None
    assert taints() == theirs


def test_an_answer_that_is_no_object_is_not_taken_in(bench):
    """A proxy's `{}` with 200: it is not known whether it was written, and the world is not told of a nameless object."""

    class Empty:
        async def patch(self, *_, **__):
            return {}

    bench.act = Actor(Empty(), bench, bench)
    outcome = bench.do(bench.patch())
    assert (outcome.reason, outcome.object) == (Reason.UNKNOWN, None)


def test_no_execute_is_set_only_on_a_node_that_a_live_list_shows_empty():
    """O2, worked example 3: "empty" is a live list of the node's pods; what was named beforehand may be cut off."""
    bench = Bench()
    pod = bench.pod()
    node = bench.cluster.store.get(Kind.NODE, "", pod["spec"]["nodeName"])["metadata"]
    edit = CutOff(id="i1", node=node["name"], uid=node["uid"], add=(Taint("a", "NoExecute"),))
    refused = bench.do(edit)
    assert refused.reason is Reason.NO_EXECUTE
    assert f"{NS}/db-" in refused.detail
    assert not bench.cluster.store.get(Kind.NODE, "", node["name"])["spec"].get("taints")
    here = [p for p in bench.cluster.store.list(Kind.POD) if p["spec"].get("nodeName") == node["name"]]
    named = msgspec.structs.replace(edit, may_cut_off=tuple(p["metadata"]["uid"] for p in here))
    assert bench.do(named).reason is None
    assert bench.cluster.store.get(Kind.NODE, "", node["name"])["spec"]["taints"][0]["effect"] == "NoExecute"


def test_a_node_is_deleted_only_where_a_live_read_shows_it_silent_and_empty():
    """F13: a Ready node stays, and so does one with a pod on it that has no other place; then it goes, by its uid."""
    bench = Bench()
    pod = bench.pod()
    name = pod["spec"]["nodeName"]
    uid = bench.cluster.store.get(Kind.NODE, "", name)["metadata"]["uid"]
    bench.cluster.add_node("spare")
    other = bench.cluster.store.get(Kind.NODE, "", "spare")["metadata"]
    ready = bench.do(DeleteNode(id="i1", node=other["name"], uid=other["uid"]))
    assert (ready.reason, "it is Ready" in ready.detail) == (Reason.CONFLICT, True)
    for one in (name, other["name"]):
        bench.cluster.kubelets.silence(one)
    bench.cluster.run_for(90.0)
    assert f"pod {NS}/db-" in bench.do(DeleteNode(id="i2", node=name, uid=uid)).detail
    bench.do(DeleteNode(id="i3", node=other["name"], uid="another"))
    assert bench.cluster.store.find(Kind.NODE, "", other["name"]) is not None
    assert bench.do(DeleteNode(id="i4", node=other["name"], uid=other["uid"])).gone is not None
    assert bench.cluster.store.find(Kind.NODE, "", other["name"]) is None
