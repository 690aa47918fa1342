"""E12: clusters of tidb-operator v2. It takes the leaders off a pod that is being deleted, and ends every eviction that
it did not begin: Mooring adds none, and sees to it that one goes at a time, and that it may go."""

import asyncio
from types import SimpleNamespace

import pytest

from mooring.capabilities.handoff.descriptor import report_of
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.clients.kube.listing import tidb_clusters
from mooring.clients.ports import ThrottledError
from mooring.core.engine.invariants import broken
from mooring.core.engine.why import explain
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, HOME, read_marks
from mooring.core.model.reasons import Reason
from mooring.install.cleanup.remove import traces
from mooring.process.settings.config import Config
from mooring_lab.cluster.controllers.podstate import with_spec
from mooring_lab.cluster.controllers.tidb import operator_v2
from mooring_lab.cluster.controllers.tidb.operator_v2 import instances, pod_name
from mooring_lab.cluster.pd import SandboxPd, requests
from mooring_lab.cluster.pd.settings import PdSettings
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.drain import Drain

NS, NAME = "tidb", "demo"
RESTART = {"tidb.pingcap.com/restart": ""}
TIKV = [pod_name(name, "tikv") for name in instances("basic", "tikv", 3)]
PD = [pod_name(name, "pd") for name in instances("basic", "pd", 3)]
TIDB = [pod_name(name, "tidb") for name in instances("basic", "tidb", 2)]


class V2:
    def __init__(self, *, tikv=3, pd=0, tidb=0, nodes=5, settings=None, features=("handoff",), **policy):
        own = HandoffPolicy(**{"recheck_s": 5.0, "idle_s": 20.0, "young_pd_s": 10.0, **policy})
        self.rig = Rig(seed=1, config=Config(features=dict.fromkeys(features, True), policies=(own,)))
        self.cluster, self.counts = self.rig.cluster, {"tikv": tikv, "pd": pd, "tidb": tidb}
        members = tuple(instances("basic", "pd", 3))
        settings = settings or PdSettings(transfer_s=(0.5, 1.5), members=members)
        self.pd = SandboxPd(self.cluster.timeline, seed=1, cluster=NAME, namespace=NS, settings=settings)
        self.broken, self.most_away, self.nodes = [], 0, nodes

    def play(self, scenario):
        async def whole(rig):
            self.cluster.add_nodes(self.nodes)
            self.cluster.pd[NS, NAME] = self.pd
            self.cluster.tidb_cluster_v2(NS, NAME, **self.counts)
            await rig.sleep(1.0)
            await rig.until(lambda: self.ready() == sum(self.counts.values()))
            self.pd.load(60)
            rig.start()
            await rig.until(rig.leads)
            await rig.sleep(30.0)
            self._look()
            self.uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.pods()}
            await scenario(self)

        self.rig.play(whole)
        assert self.broken == []
        return self

    def _look(self):
        for one in self.rig.replicas.values():
            self.broken += [text for text in broken(one.replica.engine) if text not in self.broken]
        self.most_away = max(self.most_away, self.counts["tikv"] - sum("-tikv-" in n for n in self.ready_names()))
        self.cluster.timeline.after(1.0, self._look)

    def pods(self):
        return self.cluster.store.list(Kind.POD, NS)

    def ready_names(self):
        said = (
            (p["metadata"], {c["type"]: c["status"] for c in p["status"].get("conditions", ())}) for p in self.pods()
        )
        return [m["name"] for m, c in said if c.get("Ready") == "True" and "deletionTimestamp" not in m]

    def ready(self):
        return len(self.ready_names())

    def annotate(self, name, annotations):
        self.cluster.annotate(Kind.POD, NS, name, annotations)

    def renewed(self, name):
        pod = self.cluster.store.find(Kind.POD, NS, name)
        return pod is not None and pod["metadata"]["uid"] != self.uids[name] and name in self.ready_names()

    def marks(self):
        found = self.cluster.store.get(Kind.TIDB_V2, NS, NAME)
        return read_marks(found["metadata"].get("annotations", {}).get(HANDOFF, "")) or {}

    def clean(self):
        return not self.marks() and not self.pd.server.evict_list() and self.pd.server.lock is None

    def settled(self):
        return self.clean() and not self.rig.unsettled()

    def warnings(self, name):
        events = self.cluster.store.list(Kind.EVENT, NS)
        return [e["message"] for e in events if e["involvedObject"]["name"] == name and e["type"] == "Warning"]

    def writes(self, begin):
        return [w for w in self.rig.writes if w.startswith(begin)]


def test_a_restart_goes_without_an_eviction_of_ours():
    """E12, E7: both are asked at once: one after the other, no leader is cut off, and nothing is added to PD by us."""

    async def scenario(s):
        for name in TIKV[:2]:
            s.annotate(name, RESTART)
        await s.rig.until(lambda: all(map(s.renewed, TIKV[:2])) and s.settled(), limit_s=900)

    s = V2().play(scenario)
    assert s.pd.interruptions == [] and s.most_away == 1
    assert s.writes("pd add_evict") == s.writes("pd remove_evict") == []
    assert s.writes("delete Pod") == [f"delete Pod {NS}/{name}" for name in sorted(TIKV[:2])]


def test_another_cluster_on_its_pd_leaves_what_waits_alone():
    """E7, E12: a TidbCluster of the same namespace on the same PD knows none of its pods, and took what was asked of
    them for requests whose pods are gone; and the member of its that PD lists was missed as one of v2's."""

    async def scenario(s):
        s.cluster.pd[NS, "old"] = s.pd
        s.cluster.tidb_cluster(NS, "old", tikv=1, pd=0, tidb=0)
        s.cluster.change(Kind.TIDB_CLUSTER, NS, "old", lambda tc: with_spec(tc, pdAddresses=["http://basic-pd:2379"]))
        await s.rig.until(lambda: "old-tikv-0" in s.ready_names())
        await s.rig.sleep(60.0)
        for name in TIKV[:2]:
            s.annotate(name, RESTART)
        await s.rig.until(lambda: all(map(s.renewed, TIKV[:2])) and s.settled(), limit_s=900)
        timeline = s.rig.leader().engine.history.timeline
        assert [one.text for one in timeline if one.reason == Reason.SUBJECT_GONE] == []

    assert V2().play(scenario).pd.interruptions == []


def test_a_scheduler_of_ours_would_not_last():
    """E12: why none is added: the operator ends an eviction that it did not begin."""

    async def scenario(s):
        requests.add_evict_leader(s.pd.server, 1)
        await s.rig.until(lambda: not s.pd.server.evict_list(), limit_s=30)

    V2().play(scenario)


def test_evict_leader_alone_is_refused():
    """E12: `evict-leader` cannot be kept up there: a person is told what can be asked for."""

    async def scenario(s):
        s.annotate(TIKV[0], {"tidb.pingcap.com/evict-leader": "none"})
        await s.rig.until(lambda: bool(s.warnings(TIKV[0])), limit_s=120)

    s = V2().play(scenario)
    assert "ends every eviction" in s.warnings(TIKV[0])[0] and s.clean()


@pytest.mark.parametrize("spec", [{"paused": True}, {"suspendAction": {"suspendCompute": True}}])
def test_a_cluster_that_the_operator_leaves_alone_is_left_alone(spec):
    """E12: paused or suspended, nobody would take leaders off or create the pod again: nothing is deleted."""

    async def scenario(s):
        s.cluster.change(Kind.TIDB_V2, NS, NAME, lambda one: with_spec(one, **spec))
        for name in (TIKV[0], PD[0], TIDB[0]):
            s.annotate(name, RESTART)
        await s.rig.until(lambda: all(map(s.warnings, (TIKV[0], PD[0], TIDB[0]))), limit_s=120)
        await s.rig.sleep(60)

    s = V2(pd=3, tidb=2).play(scenario)
    assert s.writes("delete") == s.writes("evict") == [] and "does not look after" in s.warnings(TIKV[0])[0]


def test_two_peers_stay():
    """E12, E7: a region that would lose its quorum keeps the pod, as with v1."""

    async def scenario(s):
        s.annotate(TIKV[0], RESTART)
        await s.rig.until(lambda: bool(s.warnings(TIKV[0])), limit_s=120)

    s = V2(settings=PdSettings(transfer_s=(0.5, 1.5), replicas=2)).play(scenario)
    assert "quorum" in s.warnings(TIKV[0])[0] and s.writes("delete") == []


def test_a_pod_that_others_deleted_is_waited_for():
    """E12, E7: somebody deletes another member: its leaving, its absence and its start take the room."""

    async def scenario(s):
        s.cluster.store.delete(Kind.POD, NS, TIKV[2])
        s.annotate(TIKV[0], RESTART)
        await s.rig.until(lambda: all(map(s.renewed, (TIKV[0], TIKV[2]))) and s.settled(), limit_s=900)

    s = V2().play(scenario)
    assert s.most_away == 1 and s.pd.interruptions == []


def test_pd_and_tidb_restart_one_by_one():
    """E12, E9: PD's leadership moves first, by the name of the instance; TiDB has no workload and goes one by one."""
    away = []

    async def scenario(s):
        s.pd.leader = instances("basic", "pd", 3)[0]
        for name in (*PD, *TIDB):
            s.annotate(name, RESTART)

        def done():
            away.append(
                (3 - sum("-pd-" in n for n in s.ready_names()), 2 - sum("-tidb-" in n for n in s.ready_names()))
            )
            return all(map(s.renewed, (*PD, *TIDB))) and s.settled()

        await s.rig.until(done, limit_s=900, every_s=0.1)

    s = V2(pd=3, tidb=2).play(scenario)
    assert max(pd for pd, _ in away) == 1 and max(tidb for _, tidb in away) == 1
    assert s.writes("pd transfer_pd_leader")


@pytest.mark.parametrize("phase", ["marked", "leaving", "away"])
def test_a_crash_resumes(phase):
    """E12, E5: killed with the mark written, with the pod leaving, with the pod away: it ends, and leaves nothing."""

    def reached(s):
        pod = s.cluster.store.find(Kind.POD, NS, TIKV[0])
        leaving = pod is not None and "deletionTimestamp" in pod["metadata"]
        away = pod is None or pod["metadata"]["uid"] != s.uids[TIKV[0]]
        return {"marked": bool(s.marks()), "leaving": leaving, "away": away}[phase]

    async def scenario(s):
        s.annotate(TIKV[0], RESTART)
        await s.rig.until(lambda: reached(s), every_s=0.01, limit_s=300)
        s.rig.kill()
        s.rig.start()
        await s.rig.until(lambda: s.renewed(TIKV[0]) and s.settled(), limit_s=900)

    s = V2().play(scenario)
    assert s.pd.interruptions == [] and s.most_away == 1


def test_drains_of_every_node_at_once():
    """E12, D1, E7: each drain ends by itself; members of a component go one by one, each by its drain, none by us."""
    least = {"tikv": 3, "pd": 3, "tidb": 2}

    async def scenario(s):
        await s.rig.until(lambda: bool(s.cluster.store.list(Kind.VALIDATING_WEBHOOK)))
        nodes = sorted({pod["spec"]["nodeName"] for pod in s.pods()})
        drains = [asyncio.ensure_future(Drain(s.rig, node).run()) for node in nodes]

        def done():
            for part in least:
                least[part] = min(least[part], sum(f"-{part}-" in name for name in s.ready_names()))
            return all(one.done() for one in drains)

        await s.rig.until(done, limit_s=3600)
        for one in drains:
            one.result()
        await s.rig.until(lambda: s.ready() == 8 and s.settled(), limit_s=600)

    s = V2(pd=3, tidb=2, nodes=12, features=("handoff", "drain")).play(scenario)
    assert least == {"tikv": 2, "pd": 2, "tidb": 1} and s.pd.interruptions == []
    assert s.writes("delete Pod") == s.writes("evict Pod") == []


def test_an_eviction_that_is_not_repeated_is_undone():
    """E12, D2: prepared for nothing: the mark and PD's lock go again, and the pod stays."""

    async def scenario(s):
        await s.rig.until(lambda: bool(s.cluster.store.list(Kind.VALIDATING_WEBHOOK)))
        with pytest.raises(ThrottledError):
            await s.rig.api.as_client("kubectl").evict(NS, TIKV[0])
        await s.rig.until(lambda: s.pd.server.lock is not None and bool(s.marks()), limit_s=60)
        await s.rig.until(s.settled, limit_s=1200)

    s = V2(features=("handoff", "drain")).play(scenario)
    assert s.pd.server.lock is None and not any(map(s.renewed, TIKV))


def test_a_request_in_the_template_does_not_restart_for_ever():
    """E12, E5: the new pod comes with the annotation again: given up, with a Warning, after one restart."""

    async def scenario(s):
        made = operator_v2.pod_of

        def asking(cluster, component, instance):
            pod = made(cluster, component, instance)
            pod["metadata"]["annotations"] = dict(RESTART)
            return pod

        operator_v2.pod_of = asking
        try:
            s.annotate(TIKV[0], RESTART)
            await s.rig.until(lambda: bool(s.warnings(TIKV[0])), limit_s=300)
            await s.rig.sleep(300)
        finally:
            operator_v2.pod_of = made

    s = V2().play(scenario)
    assert len(s.writes("delete Pod")) == 1 and "template" in s.warnings(TIKV[0])[0]


def test_why_and_status_name_the_member():
    """E12, W1: what a person asks about a pod of v2: its store, what it waits for, and who moves the leaders."""
    said = {}

    async def scenario(s):
        for name in TIKV[:2]:
            s.annotate(name, RESTART)
        await s.rig.until(lambda: len(s.marks()) == 1, limit_s=60)
        await s.rig.sleep(4.0)
        engine = s.rig.leader().engine
        first, second = (next(iter(s.marks())), next(n for n in TIKV[:2] if n not in s.marks()))
        for name in (first, second):
            said[name] = explain(engine, f"pod/{NS}/{name}")
        said["first"], said["second"], said["report"] = first, second, report_of(engine, s.rig.config)

    V2().play(scenario)
    first = said[said["first"]]
    assert first is not None and "tidb-operator takes its leaders off" in str(first)
    assert said["first"] in str(said[said["second"]])
    rows = {row["pod"]: row for row in said["report"]["clusters"][0]["members"]}
    assert rows[said["first"]]["state"] == "moving" and rows[said["first"]]["store"] in {1, 2}


def test_cleanup_takes_back_what_a_killed_one_began():
    """E12, E6: the mark on the Cluster, PD's lock and the memory of nodes go; no scheduler was ever ours there."""

    async def scenario(s):
        s.annotate(TIKV[0], RESTART)
        await s.rig.until(lambda: s.pd.server.lock is not None, limit_s=60, every_s=0.1)
        s.rig.kill()
        s.cluster.annotate(Kind.TIDB_V2, NS, NAME, {HOME: "{}"})
        found = tuple(await tidb_clusters(s.rig.api))
        pds = SimpleNamespace(pd=s.rig.pd, given=s.rig.given, sharing=lambda _: found)
        for trace in await traces(s.rig.api, pds, "mooring-system"):
            assert trace.undo is None or await trace.undo() == ""
        assert not s.marks() and s.pd.server.lock is None
        assert HOME not in s.cluster.store.get(Kind.TIDB_V2, NS, NAME)["metadata"].get("annotations", {})

    assert V2().play(scenario).writes("pd remove_evict") == []


def test_the_only_store_stays():
    """E12, E7: one TiKV: the leaders have nowhere to go; nothing is deleted, and `why` says what to look at."""
    said = []

    async def scenario(s):
        s.annotate(TIKV[0], RESTART)
        await s.rig.until(lambda: bool(s.warnings(TIKV[0])), limit_s=120)
        said.append(str(explain(s.rig.leader().engine, f"pod/{NS}/{TIKV[0]}")))

    s = V2(tikv=1).play(scenario)
    assert s.writes("delete") == [] and "tikvgroups.core.pingcap.com" in said[0]


def test_a_notice_reaches_a_member():
    """E12, M8: its node is interrupted: handoff takes the TiKV pod away in time, and the leaders with it."""

    async def scenario(s):
        node = s.cluster.store.get(Kind.POD, NS, TIKV[1])["spec"]["nodeName"]
        s.cluster.cloud.notice(node)
        await s.rig.until(lambda: s.renewed(TIKV[1]) and not s.marks(), limit_s=300)
        assert s.cluster.store.get(Kind.POD, NS, TIKV[1])["spec"]["nodeName"] != node

    assert V2(nodes=6, features=("handoff", "mix")).play(scenario).pd.interruptions == []


def test_a_drain_hears_of_the_quorum():
    """E12, D1: two members of a cluster with two voters are evicted: each refusal says what a person has to do."""
    said = []

    async def scenario(s):
        await s.rig.until(lambda: bool(s.cluster.store.list(Kind.VALIDATING_WEBHOOK)))
        for _ in range(4):
            for name in TIKV[:2]:
                with pytest.raises(ThrottledError) as refusal:
                    await s.rig.api.as_client("kubectl").evict(NS, name)
                said.append(str(refusal.value))
            await s.rig.sleep(10.0)

    settings = PdSettings(transfer_s=(0.5, 1.5), replicas=2)
    V2(settings=settings, features=("handoff", "drain")).play(scenario)
    assert all("quorum" in words and "by itself" not in words for words in said[-2:])
