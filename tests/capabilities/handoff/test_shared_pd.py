"""One PD for several clusters: whose store is evicted, and who goes when (issue scenes of E6 and E7)."""

import msgspec
import pytest

from mooring.capabilities.drain.leaders import ALLOW_QUORUM_LOSS
from mooring.capabilities.handoff import outlived
from mooring.core.engine.why import explain
from mooring.core.model.cluster import ConfigMap, Key
from mooring.core.model.descriptor import Marked
from mooring.core.model.instructions import ReleasePdLock, RemoveEvictLeader
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, read_marks
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import Peer, Region, TidbCluster, loses_quorum
from mooring_lab.cluster.controllers.podstate import with_spec
from mooring_lab.cluster.pd import requests
from mooring_lab.cluster.pd.settings import PdSettings
from tests.capabilities.handoff.handoff_stage import NAME, NS, Stage

EAST = "demo-tikv-0.demo-tikv-peer.tidb.svc.east.local:20160"


def test_a_store_of_the_same_name_in_another_kubernetes_cluster_is_left_alone():
    """E6: two Kubernetes clusters with the same TidbCluster and namespace share a PD. The remote store has the higher id;
    the local pod's own store is emptied before it goes."""
    stage = Stage(regions=60)

    async def scenario(stage):
        stage.pd.attach("demo-tikv-0", 244, address=EAST)
        evicted = set()
        stage.rig.on_write = lambda text: evicted.update(text.split()[-1:] if "add_evict_leader" in text else ())
        stage.annotate(0, restart="")
        await stage.rig.until(lambda: stage.renewed(0) and stage.clean(), 600)
        assert evicted == {"1"}, evicted

    stage.play(scenario)
    assert stage.pd.interruptions == []


def test_in_doubt_which_store_it_is_nothing_is_evicted_or_deleted():
    """E6: the spec names a domain that no store of this pod has yet, and the status names another store."""
    stage = Stage()

    async def scenario(stage):
        stage.pd.attach("demo-tikv-0", 244, address=EAST)
        stage.cluster.change(Kind.TIDB_CLUSTER, NS, NAME, lambda tc: with_spec(tc, clusterDomain="east.local"))
        await stage.rig.sleep(25)
        stage.annotate(0, restart="")
        await stage.rig.until(lambda: stage.verdict() is not None and stage.verdict().state == State.BLOCKED)
        assert stage.verdict().reason == Reason.STORE_UNKNOWN
        await stage.rig.sleep(120)
        assert stage.untouched(0) and stage.evicting() == () and stage.warnings(0)

    stage.play(scenario)


# ── Two TidbClusters on one PD ────────────────────────────────────────────────────────────────────────────────────


class Pair(Stage):
    """`demo` with PD and three TiKV pods, `more` with three TiKV pods in the same PD (`spec.cluster`)."""

    async def build(self):
        load, self.pd.load = self.pd.load, lambda _: None
        await super().build()
        self.cluster.pd[NS, "more"] = self.pd
        self.cluster.tidb_cluster(NS, "more", tikv=3, pd=0, tidb=0)
        spec = {"cluster": {"name": NAME, "namespace": NS}}
        self.cluster.change(Kind.TIDB_CLUSTER, NS, "more", lambda tc: with_spec(tc, **spec))
        await self.rig.sleep(1.0)
        await self.rig.until(lambda: self.cluster.ready(NS, "more-tikv") == 3)
        load(self.regions)
        self.uids |= {n: self.uid(n) for n in ("more-tikv-0", "more-tikv-1", "more-tikv-2")}

    def marks(self):
        found = super().marks()
        tc = self.cluster.store.find(Kind.TIDB_CLUSTER, NS, "more") or {"metadata": {}}
        return found | (read_marks(tc["metadata"].get("annotations", {}).get(HANDOFF, "")) or {})

    def away(self):
        return 6 - self.cluster.ready(NS, "demo-tikv") - self.cluster.ready(NS, "more-tikv")


def test_two_clusters_on_one_pd_restart_one_member_at_a_time():
    """E7: one restart in each, asked for in the same second: never two stores of that PD away, and `why` says who is
    ahead."""
    stage = Pair(nodes=8, regions=120)
    most = []

    async def scenario(stage):
        def look():
            most.append(stage.away())
            stage.cluster.timeline.after(0.2, look)

        look()
        stage.annotate(0, restart="")
        stage.annotate("more-tikv-0", restart="")
        await stage.rig.until(lambda: len(stage.marks()) == 1, 60)
        engine = stage.rig.leader().engine
        waits = [explain(engine, f"pod/{NS}/{name}") for name in ("demo-tikv-0", "more-tikv-0")]
        assert sorted(a.state for a in waits) == ["moving", "waiting"]
        held = next(a for a in waits if a.state == "waiting")
        assert held.waiting_on.target == f"evicting/{NS}/demo+{NS}/more"
        await stage.rig.until(lambda: stage.renewed(0) and stage.renewed("more-tikv-0") and stage.clean(), 900)

    stage.play(scenario)
    assert max(most) == 1
    assert stage.pd.interruptions == [] and stage.pd.server.lock is None


# ── PD's maintenance lock ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_lock_is_held_while_the_pod_is_away_and_given_back():
    """E7: another Kubernetes cluster on the same PD sees that a member is away."""
    stage = Stage()
    held = set()

    async def scenario(stage):
        def look():
            if stage.cluster.ready(NS, f"{NAME}-tikv") != 3:
                held.add(stage.pd.server.lock and stage.pd.server.lock[1])
            stage.cluster.timeline.after(0.1, look)

        stage.annotate(0, restart="")
        look()
        await stage.rig.until(lambda: stage.renewed(0) and stage.clean(), 600)
        assert held == {f"mooring.{NS}.demo-tikv-0.{stage.uids['demo-tikv-0']}"}
        assert stage.pd.server.lock is None

    stage.play(scenario)


def test_somebody_elses_lock_keeps_the_pod_and_why_names_it():
    """E7: a person (or another Mooring) holds the lock: nothing is deleted; it is released: the restart goes on."""
    stage = Stage()

    async def scenario(stage):
        assert requests.hold_lock(stage.pd.server, "tikv_restart", "op-57", "by hand").status == 200
        await stage.rig.sleep(25)
        stage.annotate(0, restart="")
        await stage.reach("held")
        await stage.rig.sleep(60)
        assert stage.untouched(0) and stage.pd.server.lock[1] == "op-57"
        assert "tikv_restart/op-57" in explain(stage.rig.leader().engine, f"pod/{NS}/demo-tikv-0").answer
        requests.release_lock(stage.pd.server, "tikv_restart", "op-57")
        await stage.rig.until(lambda: stage.renewed(0) and stage.clean(), 600)
        assert stage.pd.server.lock is None

    stage.play(scenario)


def test_a_pd_without_the_lock_works_as_before():
    """E7: PD before 8.5.7 answers 404."""
    stage = Stage(settings=PdSettings(transfer_s=(0.5, 1.5), lockable=False))

    async def scenario(stage):
        stage.annotate(0, restart="")
        await stage.rig.until(lambda: stage.renewed(0) and stage.clean(), 600)
        assert not any("lock" in write for write in stage.rig.writes)

    stage.play(scenario)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", ["hold_lock", "release_lock"])
def test_the_lock_is_given_back_after_a_crash(what, when):
    """E7, E5: kill -9 right before and right after the lock is taken or given back: the next leader ends it."""
    whole = Stage()

    async def once(stage):
        stage.annotate(0, restart="")
        await stage.rig.until(lambda: stage.renewed(0) and stage.clean(), 600)

    whole.play(once)
    number = next(i for i, write in enumerate(whole.rig.writes, 1) if write.startswith(f"pd {what}"))
    stage = Stage()

    async def scenario(stage):
        stage.rig.kill_at(number, when)
        stage.annotate(0, restart="")
        await stage.rig.until(lambda: not stage.rig.killing(), 600)
        stage.rig.start()
        await stage.rig.until(lambda: stage.renewed(0) and stage.clean(), 600)
        assert stage.pd.server.lock is None

    stage.play(scenario)


def test_a_request_withdrawn_with_the_lock_in_hand_gives_it_back():
    """E7: every exit gives it back, also the one in which nothing was deleted."""
    stage = Stage()

    async def scenario(stage):
        stage.annotate(0, restart="")
        await stage.rig.until(lambda: stage.pd.server.lock is not None, 600, every_s=0.001)
        if stage.untouched(0):
            stage.annotate(0, restart=None)
        await stage.rig.until(stage.clean, 600)
        assert stage.pd.server.lock is None

    stage.play(scenario)


# ── No region loses its quorum by our deletion ────────────────────────────────────────────────────────────────────


def test_the_second_of_two_stores_is_not_deleted():
    """E7: with two stores every region has two voters: 60 of 60 would lose their quorum. A person may allow it."""
    stage = Stage(tikv=2, regions=60)

    async def scenario(stage):
        stage.annotate(0, restart="")
        await stage.rig.until(lambda: stage.verdict() is not None and stage.verdict().state == State.BLOCKED, 60)
        assert stage.verdict().reason == Reason.QUORUM and "60 regions" in stage.verdict().detail
        await stage.rig.sleep(120)
        assert stage.untouched(0) and stage.evicting() == () and not stage.marks()
        assert [reason for reason, _ in stage.warnings(0)] == ["Quorum"]
        stage.cluster.annotate(Kind.POD, NS, "demo-tikv-0", {ALLOW_QUORUM_LOSS: "true"})
        await stage.rig.until(lambda: stage.renewed(0) and stage.clean(), 600)

    stage.play(scenario)
    assert stage.pd.interruptions == []


def test_regions_that_miss_a_peer_keep_the_pod_until_they_have_it_again():
    """E7: four stores, five regions with two of three peers, one of them here: nothing goes until PD has restored it."""
    stage = Stage(tikv=4, nodes=6)

    async def scenario(stage):
        tikv = stage.pd.server.tikv
        hurt = [g for g in tikv.groups.values() if 1 in {p.store_id for p in g.region().peers}][:5]
        for group in hurt:
            other = next(p.store_id for p in group.region().peers if p.store_id not in {1, group.leader})
            tikv.remove_peer(group, other)
        await stage.rig.sleep(30)
        stage.annotate(0, restart="")
        await stage.rig.until(lambda: stage.verdict() is not None and stage.verdict().state == State.BLOCKED, 60)
        assert "5 regions" in stage.verdict().detail
        await stage.rig.sleep(60)
        assert stage.untouched(0)
        stage.pd.server.placement.checked = True
        stage.pd.server.heard.to_check.update(dict.fromkeys(g.id for g in hurt))
        stage.pd.server.kick()
        await stage.rig.until(lambda: stage.renewed(0) and stage.clean(), 600)

    stage.play(scenario)
    assert stage.pd.interruptions == []


@pytest.mark.parametrize(
    ("roles", "down", "lost"),
    [
        ({1: "Voter", 2: "Voter", 3: "Voter"}, (), False),
        ({1: "Voter", 2: "Voter", 3: "Voter"}, (2,), True),
        ({1: "Voter", 2: "Voter"}, (), True),
        ({1: "Voter", 2: "Voter", 3: "Learner"}, (), True),
        ({1: "Learner", 2: "Voter", 3: "Voter"}, (2,), False),
        ({1: "Voter", 2: "Voter", 3: "Voter", 4: "Voter", 5: "Voter"}, (2,), False),
        # A change of members under way: both configurations need their quorum.
        ({1: "Voter", 2: "Voter", 3: "DemotingVoter", 4: "IncomingVoter"}, (), False),
        ({1: "Voter", 2: "Voter", 3: "DemotingVoter", 4: "IncomingVoter"}, (4,), True),
    ],
)
def test_which_regions_lose_their_quorum(roles, down, lost):
    """E7: voters that are down or behind do not count; learners never do."""
    peers = tuple(Peer(100 + s, s, role) for s, role in roles.items())
    region = Region(7, peers=peers, leader_store=2, down_peers=tuple(100 + s for s in down))
    assert loses_quorum(region, 1) is lost


# ── A PD that outlives the cluster ────────────────────────────────────────────────────────────────────────────────


def more(stage):
    return stage.cluster.store.find(Kind.TIDB_CLUSTER, NS, "more")


def noted(stage):
    memory = stage.cluster.store.find(Kind.CONFIG_MAP, "mooring-system", outlived.NAME)
    return sorted((memory or {}).get("data") or {})


def delete_more(stage):
    """With all that it owns."""
    stage.cluster.store.delete(Kind.TIDB_CLUSTER, NS, "more")


DISTURBING = ["pd add_evict_leader", "pd hold_lock", "delete Pod", "pd remove_evict_leader"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", DISTURBING)
def test_a_cluster_that_is_deleted_while_nobody_leads_goes_and_leaves_no_scheduler(what, when):
    """E5: Mooring is killed, the TidbCluster is deleted meanwhile and is gone at once, and the PD of another one lives
    on: the next leader takes the scheduler and the lock out through that one."""
    whole = Pair(nodes=8, regions=120)

    async def once(stage):
        stage.annotate("more-tikv-0", restart="")
        await stage.rig.until(lambda: stage.renewed("more-tikv-0") and stage.clean() and not noted(stage), 900)
        assert "finalizers" not in more(stage)["metadata"]

    whole.play(once)
    number = next(i for i, write in enumerate(whole.rig.writes, 1) if write.startswith(what))
    stage = Pair(nodes=8, regions=120)

    async def scenario(stage):
        stage.rig.kill_at(number, when)
        stage.annotate("more-tikv-0", restart="")
        await stage.rig.until(lambda: not stage.rig.killing(), 900)
        delete_more(stage)
        await stage.rig.until(lambda: more(stage) is None, 5)
        await stage.rig.sleep(30)
        stage.rig.start()
        await stage.rig.until(lambda: not stage.evicting() and not noted(stage) and not stage.rig.unsettled(), 900)
        assert stage.pd.server.lock is None

    stage.play(scenario)


def test_a_cluster_made_anew_while_nobody_leads_leaves_no_scheduler():
    """E5: under the same name, with the same stores: what was begun for the one before is swept."""
    stage = Pair(nodes=8, regions=120)

    async def scenario(stage):
        stage.annotate("more-tikv-0", restart="")
        await stage.rig.until(lambda: stage.evicting() != (), 60)
        for name in list(stage.rig.replicas):
            stage.rig.kill(name)
        old = more(stage)
        delete_more(stage)
        await stage.rig.until(lambda: more(stage) is None, 5)
        stage.cluster.store.create(
            Kind.TIDB_CLUSTER, {**old, "metadata": {"namespace": NS, "name": "more"}, "status": {}}
        )
        await stage.rig.sleep(30)
        stage.rig.start()
        await stage.rig.until(lambda: not stage.evicting() and not noted(stage) and not stage.rig.unsettled(), 900)

    stage.play(scenario)


def test_a_persons_scheduler_outlives_the_cluster_that_was_restarted_beside_it():
    """E3, E5: the lock alone was ours, and goes; their scheduler stays."""
    stage = Pair(nodes=8, regions=120)

    async def scenario(stage):
        requests.add_evict_leader(stage.pd.server, 4)
        await stage.rig.sleep(60)
        stage.annotate("more-tikv-0", restart="")
        await stage.rig.until(lambda: stage.pd.server.lock is not None, 600, every_s=0.001)
        for name in list(stage.rig.replicas):
            stage.rig.kill(name)
        delete_more(stage)
        await stage.rig.sleep(30)
        stage.rig.start()
        await stage.rig.until(lambda: stage.pd.server.lock is None and not noted(stage), 900)
        assert stage.evicting() == (4,)

    stage.play(scenario)


def test_what_nobody_here_can_end_any_more_is_told_with_the_command():
    """E5: both clusters are gone, and with them the way to their PD: it is said for a day, and forgotten."""
    stage = Pair(nodes=8, regions=120)

    async def scenario(stage):
        stage.annotate("more-tikv-0", restart="")
        await stage.rig.until(lambda: stage.evicting() != (), 60)
        for name in list(stage.rig.replicas):
            stage.rig.kill(name)
        delete_more(stage)
        stage.cluster.store.delete(Kind.TIDB_CLUSTER, NS, NAME)
        await stage.rig.sleep(30)
        stage.rig.start()
        verdicts = lambda: stage.rig.leader() and stage.rig.leader().engine.verdicts
        await stage.rig.until(lambda: verdicts() and verdicts().get(("handoff", "tidb/more")), 60)
        assert verdicts()["handoff", "tidb/more"].remedy.endswith(": pd-ctl scheduler remove evict-leader-scheduler-4")
        await stage.rig.until(lambda: not noted(stage), 26 * 3600, every_s=600)

    stage.play(scenario)


def test_a_cleanup_ends_what_a_cluster_that_is_gone_has_left():
    """E5: with Mooring uninstalled nobody else would."""
    note = outlived.Note(cluster="more", uid="u1", pod_uid="p1", store_id=4, pd="7", evicts=True, at=1.0)
    memory = ConfigMap(NS, outlived.NAME, "c1", "1", data={"tidb.more-tikv-0": msgspec.json.encode(note).decode()})
    there = TidbCluster(NS, NAME, "t1", "1", pd_id=7)
    (left,) = outlived.leftovers(Marked(clusters=(there,), memories=(memory,)))
    assert left.what == f"PD of {NS}/{NAME}: let store 4 (more-tikv-0, whose TidbCluster is gone) have leaders again"
    assert [(type(w), w.cluster, w.via) for w in left.writes] == [
        (ReleasePdLock, Key(NS, "more"), there.key),
        (RemoveEvictLeader, Key(NS, "more"), there.key),
    ]
    assert not list(outlived.leftovers(Marked(memories=(memory,))))


def test_of_a_cluster_with_a_pd_of_its_own_nothing_is_noted():
    """E5: its PD goes with it."""
    stage = Stage()

    async def scenario(stage):
        stage.annotate(0, restart="")
        await stage.reach("evicting")
        assert noted(stage) == []

    stage.play(scenario)
