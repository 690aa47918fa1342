"""One PD for several clusters: whose store is evicted, and who goes when (issue scenes of E6 and E7)."""

import pytest

from mooring.capabilities.drain.leaders import ALLOW_QUORUM_LOSS
from mooring.core.engine.why import explain
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, read_marks
from mooring.core.model.reasons import Reason, State
from mooring.core.model.tidb import Peer, Region, loses_quorum
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


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", ["pd add_evict_leader", "delete Pod", "pd remove_evict_leader"])
def test_a_cluster_that_is_deleted_while_nobody_leads_leaves_no_scheduler(what, when):
    """E5: Mooring is killed, the TidbCluster is deleted meanwhile, and the PD of another one lives on: the deleted one
    stays until the next leader has taken its scheduler out."""
    whole = Pair(nodes=8, regions=120)

    async def once(stage):
        stage.annotate("more-tikv-0", restart="")
        await stage.rig.until(lambda: stage.renewed("more-tikv-0") and stage.clean(), 900)
        assert more(stage)["metadata"].get("finalizers") in (None, [])

    whole.play(once)
    number = next(i for i, write in enumerate(whole.rig.writes, 1) if write.startswith(what))
    stage = Pair(nodes=8, regions=120)

    async def scenario(stage):
        stage.rig.kill_at(number, when)
        stage.annotate("more-tikv-0", restart="")
        await stage.rig.until(lambda: not stage.rig.killing(), 900)
        stage.cluster.store.delete(Kind.TIDB_CLUSTER, NS, "more")
        await stage.rig.sleep(30)
        stage.rig.start()
        await stage.rig.until(lambda: more(stage) is None and not stage.evicting() and not stage.rig.unsettled(), 900)
        assert stage.pd.server.lock is None

    stage.play(scenario)


def test_a_cluster_that_is_deleted_together_with_its_pd_does_not_hang():
    """E5: the namespace goes with everything in it, also the other cluster's PD: nothing is left to end."""
    stage = Pair(nodes=8, regions=120)

    async def scenario(stage):
        stage.annotate("more-tikv-0", restart="")
        await stage.rig.until(lambda: stage.evicting() != (), 60)
        stage.pd.go_dark()
        stage.cluster.store.delete(Kind.TIDB_CLUSTER, NS, "more")
        await stage.rig.sleep(60)
        assert more(stage) is not None
        await stage.rig.until(lambda: more(stage) is None and not stage.rig.unsettled(), 900)

    stage.play(scenario)


@pytest.mark.parametrize("left", [None, "{"])
def test_marks_that_a_person_takes_away_hold_no_cluster(left):
    """E5: marks removed by hand, or mangled, while the cluster is deleted: it goes."""
    stage = Pair(nodes=8, regions=120)

    async def scenario(stage):
        stage.annotate("more-tikv-0", restart="")
        await stage.rig.until(lambda: stage.evicting() != (), 60)
        stage.cluster.annotate(Kind.TIDB_CLUSTER, NS, "more", {HANDOFF: left})
        stage.cluster.store.delete(Kind.TIDB_CLUSTER, NS, "more")
        await stage.rig.until(lambda: more(stage) is None, 900)

    stage.play(scenario)


def test_a_cluster_with_a_pd_of_its_own_gets_no_finalizer():
    """E5: its PD goes with it."""
    stage = Stage()

    async def scenario(stage):
        stage.annotate(0, restart="")
        await stage.reach("evicting")
        tc = stage.cluster.store.get(Kind.TIDB_CLUSTER, NS, NAME)
        assert "finalizers" not in tc["metadata"]

    stage.play(scenario)
