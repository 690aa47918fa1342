"""Handoff in somebody else's TiDB cluster: their schedulers, their volumes, their lost regions, their notices."""

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.tikv_evaluation import WITHOUT_FLUSH, checkpoint_of
from mooring.core.engine.why import explain
from mooring.core.model.cluster import Key
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, LOG_BACKUP_CHECKPOINT, Mark, read_mark, write_mark
from mooring.core.model.reasons import Reason, State
from mooring.core.model.times import rfc3339
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.pd import requests
from mooring_lab.cluster.pd.settings import PdSettings
from tests.capabilities.handoff.handoff_stage import NS, Stage


def ask_away(s, member, source="fleet", deadline=None):
    """What fleet, mix and a notice do to a TiKV pod."""
    mark = Mark(
        operator="9", source=source, reason="retiring", step="leaving", since=0.0, pod_uid=s.uid(member),
        deadline=deadline,
    )  # fmt: skip
    s.cluster.annotate(Kind.POD, NS, s.member(member), {LEAVING: write_mark(mark)})


def test_an_empty_store_that_somebody_keeps_evicted_keeps_nobody_waiting():
    """E7: a person's (or tidb-operator's) scheduler stays for days; its store is empty: the others' restarts go on."""
    stage = Stage(tikv=4, nodes=6)

    async def scenario(s):
        requests.add_evict_leader(s.pd.server, 2)
        await s.rig.until(lambda: s.leaders(2) == 0)
        await s.rig.sleep(30)
        s.annotate(0, restart="")
        await s.rig.until(lambda: s.renewed(0) and s.ready() and not s.marks(), limit_s=300)
        assert s.evicting() == (2,)

    stage.play(scenario)
    assert stage.pd.interruptions == []


def test_a_store_that_somebody_evicts_is_waited_for_while_it_has_leaders():
    """E7: two stores are not emptied at once, whoever began."""
    stage = Stage(tikv=4, nodes=6, settings=PdSettings(transfer_s=(30.0, 40.0)))

    async def scenario(s):
        requests.add_evict_leader(s.pd.server, 2)
        await s.rig.sleep(25)
        assert s.leaders(2) > 0
        s.annotate(0, restart="")
        await s.rig.until(lambda: s.leaders(2) == 0 or bool(s.marks()), limit_s=600)
        assert s.leaders(2) == 0
        await s.rig.until(lambda: s.renewed(0) and s.ready() and not s.marks(), limit_s=900)

    stage.play(scenario)


def test_members_that_wait_for_their_volumes_keep_nobody_waiting():
    """E7, O2: two retiring machines with local volumes: both are emptied of leaders, and a third member restarts."""
    stage = Stage(tikv=6, nodes=8, storage="local-ssd")

    async def scenario(s):
        for member in (0, 1):
            s.cluster.cordon(podstate.node_of(s.pod(member)))
            ask_away(s, member)
        s.annotate(3, restart="")
        await s.rig.until(lambda: s.leaders(1) == s.leaders(2) == 0, limit_s=300)
        await s.rig.until(lambda: s.renewed(3) and s.ready() and set(s.marks()) == {s.member(0), s.member(1)}, 300)
        s.rig.kill()  # the next leader gives nothing back that is given back already
        s.rig.start()
        await s.rig.until(s.rig.leads)
        s.annotate(4, restart="")
        await s.rig.until(lambda: s.renewed(4) and s.ready() and set(s.marks()) == {s.member(0), s.member(1)}, 300)
        assert set(s.evicting()) == {1, 2}
        assert s.untouched(0) and s.untouched(1)
        for member in (0, 1):
            s.cluster.cordon(podstate.node_of(s.pod(member)), on=False)
        await s.rig.until(lambda: s.renewed(0) and s.renewed(1) and s.ready() and s.clean(), limit_s=600)

    stage.play(scenario)
    assert stage.most_away == 1
    assert stage.pd.interruptions == []


def test_a_region_without_a_leader_is_no_doubt_about_this_store():
    """E6: one region is lost, of sixty; the restart is proven by the others, and the sentence before says how many."""
    stage = Stage(policy=HandoffPolicy(recheck_s=5.0, idle_s=20.0, young_pd_s=10.0))
    said = []

    async def scenario(s):
        s.pd.lose_region(s.member(1))
        s.pd.restart()
        await s.rig.sleep(20)
        s.annotate(0, restart="")
        await s.reach("empty")
        await s.rig.sleep(10)
        said.append(str(explain(s.rig.leader().engine, f"pod/{NS}/demo-tikv-0")))
        await s.rig.sleep(30)
        assert s.untouched(0)  # a PD this young may not have heard of every region that has a leader
        await s.rig.until(lambda: s.renewed(0) and s.ready() and not s.marks(), limit_s=300)

    stage.play(scenario)
    assert "PD counts 59 leaders for 60 regions" in said[0]


@pytest.mark.parametrize("phase", ["recorded", "evicting", "held"])
def test_the_earlier_deadline_wins(phase):
    """O1: a notice reaches a pod that mix has asked away already: mark and restart carry the deadline."""
    stage = Stage(settings=PdSettings(transfer_s=(1.0, 2.0)))
    seen = []

    async def scenario(s):
        ask_away(s, 0, "mix")
        await s.reach(phase)
        at = s.cluster.timeline.now() + 300.0
        ask_away(s, 0, "spot", at)
        await s.rig.until(lambda: s.marks()[s.member(0)].deadline == at or s.renewed(0), limit_s=30, every_s=0.1)
        seen.append(s.marks()[s.member(0)].deadline == at)
        await s.rig.until(lambda: s.renewed(0) and s.ready() and s.clean(), limit_s=300)

    stage.play(scenario)
    assert seen == [True] or phase == "held"
    assert stage.pd.interruptions == []


def test_leaders_that_have_nowhere_to_go_stay_until_the_other_evictions_end():
    """E7: everybody else's stores are being evicted: ours says by whom, lets its leaders stay, and goes on afterwards."""
    stage = Stage(settings=PdSettings(transfer_s=(1.0, 2.0)))

    async def scenario(s):
        s.annotate(0, restart="")
        await s.reach("evicting")
        for store in (2, 3):
            requests.add_evict_leader(s.pd.server, store)
        await s.rig.until(lambda: not s.marks() and 1 not in s.evicting(), limit_s=60)
        await s.rig.sleep(30)
        verdict = s.verdict()
        assert (verdict.state, verdict.reason) == (State.BLOCKED, Reason.ONE_STORE)
        assert "store 2 (demo-tikv-1)" in verdict.detail
        assert "pd-ctl scheduler remove evict-leader-scheduler-2" in verdict.remedy
        requests.remove_evict_leader(s.pd.server, 2)
        await s.rig.until(lambda: s.renewed(0) and s.ready() and not s.marks(), limit_s=300)
        assert s.evicting() == (3,)

    stage.play(scenario)
    assert stage.pd.interruptions == []


def test_of_two_evictions_beside_a_foreign_one_the_last_stands_back():
    """E7, O5: somebody evicts one store of three and a notice wants the other two: one hands over, the other keeps its
    leaders meanwhile. Neither begins and ends in turn."""
    stage, seen = Stage(settings=PdSettings(transfer_s=(1.0, 2.0))), []

    async def scenario(s):
        requests.add_evict_leader(s.pd.server, 1)
        await s.rig.until(lambda: not s.leaders(1), limit_s=120)
        at = s.cluster.timeline.now() + 900.0
        for member in (1, 2):
            ask_away(s, member, "spot", at)
        for _ in range(3000):
            seen.append(s.evicting())
            await s.rig.sleep(0.1)
        assert s.renewed(1)
        assert s.ready()

    stage.play(scenario)
    assert stage.pd.interruptions == []
    assert len([1 for before, after in pairwise(seen) if before != after]) <= 6


def test_members_are_found_by_owner_whatever_the_instance_label_says():
    """H3, E1: Argo CD has labelled the TidbCluster, so its pods say `my-release`: restarted and kept like any other."""
    stage = Stage(pd=3, tidb=2, nodes=8)
    whys = []

    async def scenario(s):
        engine = s.rig.leader().engine
        assert {p.labels["app.kubernetes.io/instance"] for p in engine.world.pods()} == {"my-release"}
        assert [len(engine.world.tidb_pods(Key(NS, "demo"), part)) for part in ("tikv", "pd", "tidb")] == [3, 3, 2]
        s.annotate(0, restart="")
        s.annotate("demo-tidb-0", tidb_graceful_shutdown="delete-pod")
        await s.reach("evicting")
        whys.extend(explain(engine, f"pod/{NS}/demo-tikv-0").lines)
        await s.rig.until(lambda: s.renewed(0) and s.renewed("demo-tidb-0") and s.ready() and s.clean(), limit_s=300)

    stage.label = "my-release"
    stage.play(scenario)
    assert any("store 1" in str(line) for line in whys)
    assert stage.pd.interruptions == []


def test_a_certificate_that_does_not_fit_is_blocked_with_what_to_do():
    """E10: PD takes our certificate no longer: the request is `blocked`, not waiting, `why` says what a person must
    do, and nothing is deleted; once they fit again the restart is made."""
    stage = Stage()
    whys = []

    async def scenario(s):
        s.pd.refuse_tls()
        engine = s.rig.leader().engine
        await s.rig.until(lambda: bool(engine.world.pd_lost(Key(NS, "demo"))), limit_s=120)
        s.annotate(0, restart="")
        await s.rig.until(lambda: explain(engine, f"pod/{NS}/demo-tikv-0").state is State.BLOCKED, limit_s=60)
        whys.append(explain(engine, f"pod/{NS}/demo-tikv-0"))
        assert not s.renewed(0)
        s.pd.lighten()
        await s.rig.until(lambda: s.renewed(0) and s.ready() and s.clean(), limit_s=300)

    stage.play(scenario)
    assert whys[0].reason is Reason.PD_TLS and any("renew the client Secret" in str(line) for line in whys[0].lines)
    assert stage.pd.interruptions == []


def test_a_recreated_cluster_does_not_inherit_a_lost_pd():
    """E4: what the old cluster's PD did not answer says nothing about the new one's: it is looked at anew."""
    stage = Stage()
    lost = []

    async def scenario(s):
        s.pd.go_dark()
        world = s.rig.leader().engine.world
        await s.rig.until(lambda: bool(world.pd_lost(Key(NS, "demo"))), limit_s=120)
        s.cluster.store.delete(Kind.TIDB_CLUSTER, NS, "demo")
        await s.rig.until(lambda: world.tidb_cluster(Key(NS, "demo")) is None)
        s.pd.lighten()
        s.cluster.tidb_cluster(NS, "demo", **s.counts)
        await s.rig.until(lambda: world.tidb_cluster(Key(NS, "demo")) is not None, every_s=0.01)
        lost.append(world.pd_lost(Key(NS, "demo")))

    stage.play(scenario)
    assert lost == [None]


@pytest.mark.parametrize("asked", [{"evict_leader": "none"}, {"pd_transfer_leader": "none"}])
def test_a_tidb_operator_gets_its_time_to_begin(asked):
    """E3: it keeps the cluster, so what it may act on is begun by us only when it has not; and then it is."""
    members = tuple(f"demo-pd-{i}" for i in range(3))
    stage = Stage(pd=3, nodes=8, settings=PdSettings(members=members))
    member = 0 if "evict_leader" in asked else stage.pd.leader
    began = []

    async def scenario(s):
        await s.rig.sleep(30)
        writes = len(s.rig.writes)
        at = s.cluster.timeline.now()
        s.annotate(member, **asked)
        await s.rig.until(lambda: len(s.rig.writes) > writes, limit_s=60, every_s=0.1)
        began.append(s.cluster.timeline.now() - at)

    stage.play(scenario)
    assert began[0] == pytest.approx(HandoffPolicy().yield_s, abs=3.0)


def test_a_notice_for_a_pd_member_that_waits_its_turn():
    """O1: fleet has asked two PD members away; a notice for the one that waits brings its deadline."""
    members = tuple(f"demo-pd-{i}" for i in range(3))
    stage = Stage(pd=3, nodes=8, settings=PdSettings(members=members))
    deadlines = []

    async def scenario(s):
        for member in ("demo-pd-1", "demo-pd-2"):
            ask_away(s, member)
        engine = s.rig.leader().engine
        await s.rig.until(lambda: bool(engine.waiting), limit_s=60, every_s=0.05)
        (waiting,) = engine.waiting.values()
        at = s.cluster.timeline.now() + 300.0
        ask_away(s, waiting.payload.pod.partition("/")[2], "spot", at)

        def sooner():
            operators = [*engine.waiting.values(), *(r.operator for r in engine.running.values())]
            return [o.deadline for o in operators if o.payload.pod == waiting.payload.pod] == [at]

        await s.rig.until(sooner, limit_s=30, every_s=0.02)
        deadlines.append(at)
        await s.rig.until(lambda: s.renewed("demo-pd-1") and s.renewed("demo-pd-2") and s.ready("pd"), limit_s=300)

    stage.play(scenario)
    assert deadlines


@pytest.mark.parametrize("source", ["mix", "fleet"])
def test_a_notice_brings_its_deadline_to_a_pod_that_was_asked_away(source):
    """O1: mix or fleet has asked for the pod; its node gets a notice: the request on the pod and the mark carry it."""
    stage = Stage(settings=PdSettings(transfer_s=(5.0, 9.0)))
    stage.rig.config = msgspec.structs.replace(stage.rig.config, features={"handoff": True, "mix": True})
    seen = []

    async def scenario(s):
        ask_away(s, 0, source)
        await s.reach("evicting")
        node, at = podstate.node_of(s.pod(0)), int(s.cluster.timeline.now()) + 120
        text = datetime.fromtimestamp(at, UTC).isoformat()
        s.cluster.annotate(Kind.NODE, "", node, {"vacant.io/interrupt-at": text})
        await s.rig.until(lambda: s.marks()[s.member(0)].deadline == at, limit_s=30)
        request = read_mark(s.pod(0)["metadata"]["annotations"][LEAVING])
        seen.append((request.source, request.deadline == at))

    stage.play(scenario)
    assert seen == [(source, True)]


@pytest.mark.parametrize("nobody_minds", [False, True])
def test_why_says_that_a_log_backup_is_not_flushed(nobody_minds):
    """E8: tidb-operator flushes it before a TiKV pod goes, Mooring does not: `why` says so while leaders leave for a
    restart, unless the TidbCluster says that nobody minds; docs/handoff.md says what to do."""
    stage = Stage()
    said = []

    async def scenario(s):
        if nobody_minds:
            s.cluster.annotate(Kind.TIDB_CLUSTER, NS, "demo", {WITHOUT_FLUSH: ""})
        s.annotate(0, restart="")
        await s.reach("evicting")
        said.extend(str(line) for line in explain(s.rig.leader().engine, f"pod/{NS}/demo-tikv-0").lines)

    stage.play(scenario)
    assert any("a log backup is not flushed before the pod is deleted" in line for line in said) != nobody_minds
    docs = (Path(__file__).parents[3] / "docs" / "handoff.md").read_text()
    assert WITHOUT_FLUSH in docs and "br log status" in docs


def test_what_a_person_adds_right_after_our_removal_stays():
    """E3: our scheduler is removed once. One that is listed 0.2 s later is a person's, and stays, not removed even once."""
    stage = Stage()
    theirs, ours = [], []

    def watch():
        if 1 in stage.evicting():
            ours.append(1)
        elif ours and not theirs:
            stage.cluster.timeline.after(0.2, lambda: theirs.append(requests.add_evict_leader(stage.pd.server, 1)))
            return
        stage.cluster.timeline.after(0.01, watch)

    async def scenario(stage):
        watch()
        stage.annotate(0, restart="")
        await stage.rig.until(lambda: bool(theirs), 600)
        gone = []

        def look():
            gone.extend([] if 1 in stage.evicting() else ["removed"])
            stage.cluster.timeline.after(0.05, look)

        look()
        await stage.rig.until(lambda: not stage.marks() and not stage.rig.unsettled(), 600)
        await stage.rig.sleep(60)
        assert gone == [] and stage.renewed(0)
        assert len([w for w in stage.rig.writes if "remove_evict_leader" in w]) == 1

    stage.play(scenario)


def test_handoff_that_observes_leaves_pod_and_pd_alone():
    """D9: the restart is decided and counted as what it would do; no mark, no scheduler, no deletion."""
    stage = Stage()
    stage.rig.config = msgspec.structs.replace(stage.rig.config, features={"handoff": "observe"})

    async def scenario(s):
        s.annotate(0, restart="")
        await s.rig.sleep(120)
        assert s.untouched(0) and s.left_overs() == [] and s.deletions() == []
        would = [op for found in s.rig.leader().engine.would.values() for op in found]
        assert [(op.kind, op.payload.pod) for op in would] == [("evict-leaders", "tidb/demo-tikv-0")]

    stage.play(scenario)


@pytest.mark.parametrize("accepted", [False, True])
def test_a_restart_waits_for_the_log_backup(accepted):
    """E13: with `log-backup-lag-s` nothing begins before the checkpoint is that young; `blocked` names the command, and
    tidb-operator's annotation accepts a lag."""
    stage = Stage(policy=HandoffPolicy(recheck_s=5.0, idle_s=20.0, young_pd_s=10.0, log_backup_lag_s=300.0))

    def checkpoint(s, age_s):
        said = {LOG_BACKUP_CHECKPOINT: rfc3339(s.cluster.timeline.now() - age_s)}
        s.cluster.annotate(Kind.TIDB_CLUSTER, NS, "demo", said)

    async def scenario(s):
        s.annotate(0, restart="")
        await s.rig.until(lambda: s.verdict() is not None and s.verdict().reason == Reason.LOG_BACKUP)
        assert s.verdict().state is State.BLOCKED and "br log status" in s.verdict().remedy
        checkpoint(s, 3600)
        await s.rig.sleep(60)
        assert s.untouched(0) and s.evicting() == ()
        if accepted:
            s.cluster.annotate(Kind.TIDB_CLUSTER, NS, "demo", {WITHOUT_FLUSH: ""})
        else:
            checkpoint(s, 10)
        await s.rig.until(lambda: s.renewed(0) and s.clean(), 600)

    stage.play(scenario)


def test_a_checkpoint_is_a_time_or_a_tso():
    """E13: what `br log status` prints can be written as it is."""
    assert checkpoint_of(str(1767225600_000 << 18 | 5)) == checkpoint_of("2026-01-01T00:00:00Z") == 1767225600.0
    assert checkpoint_of("") is checkpoint_of("soon") is checkpoint_of("1" * 30) is None
