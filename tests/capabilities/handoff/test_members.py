"""E9: PD and TiDB pods leave gently: leadership first, one at a time, through the same queue."""

import pytest

from mooring.capabilities.drain.leaders import ALLOW_QUORUM_LOSS
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, Mark, read_mark, write_mark
from mooring.core.model.reasons import Reason, State
from mooring.core.model.times import rfc3339
from mooring_lab.cluster.apiserver.faults import FaultRates
from mooring_lab.cluster.pd.settings import PdSettings
from tests.capabilities.handoff.handoff_stage import NAME, NS, Stage

MEMBERS = tuple(f"{NAME}-pd-{i}" for i in range(3))


def stage(**how):
    return Stage(pd=3, tidb=2, settings=PdSettings(members=MEMBERS), **how)


def mark_of(s, name):
    return read_mark((s.pod(name)["metadata"].get("annotations") or {}).get(LEAVING, ""))


def evictions(s):
    return [w for w in s.rig.writes if w.startswith("evict")]


def test_pd_leader_hands_leadership_on_before_it_goes():
    """E9: `pd-transfer-leader=delete-pod` on the leader: moved and seen to have moved, marked, evicted, back."""
    s = stage()
    leader_when_it_went = []

    async def scenario(s):
        assert s.pd.leader == "demo-pd-0"
        s.annotate("demo-pd-0", pd_transfer_leader="delete-pod")
        await s.rig.until(lambda: bool(evictions(s)), every_s=0.01, limit_s=60)
        leader_when_it_went.append(s.pd.leader)
        await s.rig.until(lambda: s.renewed("demo-pd-0") and s.ready("pd") and not s.rig.unsettled(), limit_s=120)

    s.play(scenario)
    assert leader_when_it_went == ["demo-pd-1"]
    assert [w for w in s.rig.writes if not w.startswith("patch TidbCluster")] == [
        "pd transfer_pd_leader demo-pd-1",
        "patch Pod tidb/demo-pd-0",
        "evict Pod tidb/demo-pd-0",
    ]


def test_none_only_hands_leadership_on():
    """E9: `none` moves leadership and keeps the pod; and again if it comes back while the annotation is there."""
    s = stage()

    async def scenario(s):
        s.annotate("demo-pd-0", pd_transfer_leader="none")
        await s.rig.until(lambda: s.pd.leader != "demo-pd-0" and not s.rig.unsettled(), limit_s=60)
        s.pd.hand_over("demo-pd-0")
        await s.rig.until(lambda: s.pd.leader == "demo-pd-0", limit_s=60)
        await s.rig.until(lambda: s.pd.leader != "demo-pd-0" and not s.rig.unsettled(), limit_s=120)

    s.play(scenario)
    assert evictions(s) == []
    assert mark_of(s, "demo-pd-0") is None


def test_two_pd_members_are_never_away_together():
    """E9, O1: all three asked at once: one by one, each with the others Ready."""
    s = stage()
    away = []

    async def scenario(s):
        for name in MEMBERS:
            s.annotate(name, pd_transfer_leader="delete-pod")

        def look():
            away.append(3 - s.cluster.ready(NS, f"{NAME}-pd"))
            return all(map(s.renewed, MEMBERS)) and s.ready("pd") and not s.rig.unsettled()

        await s.rig.until(look, limit_s=600, every_s=0.1)

    s.play(scenario)
    assert max(away) == 1
    assert len(evictions(s)) == 3


def test_pd_dark_nothing_is_deleted():
    """E4, E9: PD cannot be asked who leads: waits with that reason; goes on when it answers."""
    s = stage()

    async def scenario(s):
        s.pd.go_dark(90.0)
        s.annotate("demo-pd-0", pd_transfer_leader="delete-pod")
        await s.rig.sleep(80)
        assert s.untouched("demo-pd-0")
        assert (
            s.verdict().reason == Reason.PD_UNREACHABLE
            or s.running("restart-member").waiting_on.reason == Reason.PD_UNREACHABLE
        )
        await s.rig.until(lambda: s.renewed("demo-pd-0") and s.ready("pd"), limit_s=300)

    s.play(scenario)


def test_the_only_pd_member_is_held():
    """E9: nobody else can lead: held, an Event says why, nothing is deleted."""
    s = Stage(pd=1, settings=PdSettings(members=("demo-pd-0",)))

    async def scenario(s):
        s.annotate("demo-pd-0", pd_transfer_leader="delete-pod")
        await s.rig.sleep(120)
        assert s.verdict().state == State.BLOCKED
        assert s.verdict().reason == Reason.QUORUM

    s.play(scenario)
    assert s.untouched("demo-pd-0")
    assert [e[:2] for e in s.events("demo-pd-0")] == [("Warning", "Quorum")]


def test_the_only_pd_member_restarts_where_a_person_accepts_to_be_without_pd():
    """E9, D5: what is blocked names the annotation, and with it the pod is restarted; leadership alone goes nowhere."""
    s = Stage(pd=1, settings=PdSettings(members=("demo-pd-0",)))

    async def scenario(s):
        s.annotate("demo-pd-0", restart="")
        await s.rig.until(lambda: (v := s.verdict()) is not None and v.state == State.BLOCKED, limit_s=60)
        assert s.verdict().remedy.endswith(f"annotate pod demo-pd-0 {ALLOW_QUORUM_LOSS}=true")
        s.cluster.annotate(Kind.POD, NS, "demo-pd-0", {ALLOW_QUORUM_LOSS: "true"})
        await s.rig.until(lambda: s.renewed("demo-pd-0") and s.ready("pd") and not s.rig.unsettled(), limit_s=300)

    s.play(scenario)
    assert evictions(s) == ["evict Pod tidb/demo-pd-0"]


def test_expired_request_is_taken_off():
    """E9: `pd-evict-leader-expiration-time` has passed: the annotations go, nothing is done."""
    s = stage()

    async def scenario(s):
        past = rfc3339(s.cluster.timeline.now() - 60)
        s.annotate("demo-pd-0", pd_transfer_leader="delete-pod", pd_evict_leader_expiration_time=past)
        await s.rig.sleep(30)

    s.play(scenario)
    assert s.untouched("demo-pd-0")
    assert not [k for k in s.pod("demo-pd-0")["metadata"].get("annotations", {}) if "pingcap" in k]


def test_request_withdrawn_under_a_budget_leaves_no_mark():
    """E9: held by a PodDisruptionBudget, visibly; withdrawn there, the pod stays and carries no mark."""
    s = stage()

    async def scenario(s):
        s.cluster.pdb(NS, "pd", {"app.kubernetes.io/component": "pd"}, maxUnavailable=0)
        await s.rig.sleep(5)
        s.annotate("demo-pd-1", pd_transfer_leader="delete-pod")
        await s.rig.until(
            lambda: (
                (r := s.running("restart-member")) is not None
                and r.waiting_on is not None
                and r.waiting_on.reason == Reason.PDB
            ),
            limit_s=60,
        )
        assert s.running("restart-member").waiting_on.state == State.BLOCKED
        s.annotate("demo-pd-1", pd_transfer_leader=None)
        await s.rig.until(lambda: not s.rig.unsettled(), limit_s=60)

    s.play(scenario)
    assert s.untouched("demo-pd-1")
    assert mark_of(s, "demo-pd-1") is None


def test_leaving_mark_of_another_capability_is_the_same_request():
    """E9, O2: fleet wants a PD pod and a TiKV pod gone: leadership and leaders leave first."""
    s = stage()

    async def scenario(s):
        for name in ("demo-pd-0", "demo-tikv-0"):
            mark = Mark(operator="9", source="fleet", reason="retiring", step="leaving", since=0.0, pod_uid=s.uid(name))
            s.cluster.annotate(Kind.POD, NS, name, {LEAVING: write_mark(mark)})
        await s.rig.until(
            lambda: s.renewed("demo-pd-0") and s.renewed(0) and s.ready("pd") and s.ready() and s.clean(), limit_s=600
        )

    s.play(scenario)
    assert s.pd.leader != "demo-pd-0"
    assert s.pd.interruptions == []


@pytest.mark.parametrize("value", ["delete-pod", "none", "whatever"])
def test_tidb_graceful_shutdown(value):
    """E9: `delete-pod` evicts and waits for the successor; `none` and unknown values do nothing, the latter with a Warning."""
    s = stage()

    async def scenario(s):
        s.annotate("demo-tidb-0", tidb_graceful_shutdown=value)
        await s.rig.sleep(60)
        await s.rig.until(lambda: s.ready("tidb") and not s.rig.unsettled(), limit_s=120)

    s.play(scenario)
    assert s.renewed("demo-tidb-0") == (value == "delete-pod")
    assert [e[1] for e in s.events("demo-tidb-0")] == (["Invalid"] if value == "whatever" else [])


@pytest.mark.parametrize("part", ["pd", "tidb"])
def test_restart_is_asked_of_every_component_by_one_annotation(part):
    """D5, E13: `tidb.pingcap.com/restart` on PD and TiDB pods, as on those of TiKV: one after another, all come back,
    and leadership of PD is handed on first."""
    s = stage()
    names, away = s.names(part), []

    async def scenario(s):
        for name in names:
            s.annotate(name, restart="")

        def look():
            away.append(len(names) - s.cluster.ready(NS, f"{NAME}-{part}"))
            return all(map(s.renewed, names)) and s.ready(part) and not s.rig.unsettled()

        await s.rig.until(look, limit_s=600, every_s=0.1)

    s.play(scenario)
    assert max(away) == 1
    assert s.pd.interruptions == []


def test_a_restart_that_a_template_hands_to_each_new_member_is_done_once():
    """D5: followed, the member would be restarted for ever. It is taken off the new pod, with a Warning that says where
    it comes from."""
    s = stage()

    async def scenario(s):
        def born_asking(sts):
            template = sts["spec"]["template"]
            meta = {**template["metadata"], "annotations": {"tidb.pingcap.com/restart": ""}}
            spec = {**sts["spec"], "template": {**template, "metadata": meta}, "updateStrategy": {"type": "OnDelete"}}
            return {**sts, "spec": spec}

        s.cluster.tidb_operator.stopped = True
        s.cluster.store.mutate(Kind.STATEFUL_SET, NS, f"{NAME}-tidb", born_asking)
        s.annotate("demo-tidb-0", restart="")
        await s.rig.until(lambda: s.renewed("demo-tidb-0") and s.ready("tidb"), limit_s=120)
        await s.rig.sleep(120)

    s.play(scenario)
    assert len(evictions(s)) == 1
    assert any("spec.tidb.annotations" in message for _, message in s.warnings("demo-tidb-0"))


def test_not_while_the_cluster_is_upgraded():
    """E9: while tidb-operator rolls something, TiDB pods are not taken away on top of it."""
    s = stage()

    async def scenario(s):
        s.cluster.tidb_operator.stopped = True

        def upgrading(tc):
            status = tc["status"]
            return {**tc, "status": {**status, "tikv": {**status["tikv"], "phase": "Upgrade"}}}

        s.cluster.store.mutate(Kind.TIDB_CLUSTER, NS, NAME, upgrading)
        s.annotate("demo-tidb-0", tidb_graceful_shutdown="delete-pod")
        await s.rig.sleep(60)
        assert s.untouched("demo-tidb-0")
        assert s.running("restart-member").waiting_on.reason == Reason.SETTLING
        s.cluster.tidb_operator.stopped = False
        s.cluster.tidb_operator.queue.add((NS, NAME))
        await s.rig.until(lambda: s.renewed("demo-tidb-0") and s.ready("tidb"), limit_s=120)

    s.play(scenario)


def test_killed_at_every_write():
    """E5, E9: kill -9 right before and right after each write of a PD restart: one eviction, nothing left."""
    for number in (1, 2, 3):
        for side in ("before", "after"):
            s = stage()

            async def scenario(s, number=number, side=side):
                s.rig.kill_at(len(s.rig.writes) + number, side)
                s.annotate("demo-pd-0", pd_transfer_leader="delete-pod")
                await s.rig.until(lambda: not s.rig.replicas, limit_s=60, every_s=0.05)
                await s.rig.sleep(1)
                s.rig.start()
                await s.rig.until(
                    lambda: s.renewed("demo-pd-0") and s.ready("pd") and not s.rig.unsettled(), limit_s=200
                )

            s.play(scenario)
            assert len(evictions(s)) == 1, (number, side)
            assert mark_of(s, "demo-pd-0") is None


@pytest.mark.parametrize("seed", range(6))
def test_everything_asked_at_once_while_everything_fails(seed):
    """O1, O5, E9: all PD and TiDB pods and a TiKV pod asked in the same second, calls lost, PD failing over and dark, a
    leader killed: of each component one is away at a time, nobody is interrupted, nothing is left."""
    s = stage(seed=seed)
    away = {"pd": 0, "tidb": 0}
    asked = (*MEMBERS, "demo-tidb-0", "demo-tidb-1", "demo-tikv-0")

    async def scenario(s):
        faults, draw, after = s.cluster.api.faults, s.rig.randomness.fork("trouble").uniform, s.cluster.timeline.after
        faults.rates = FaultRates(lost_request=draw(0, 0.15), lost_answer=draw(0, 0.15), conflict=draw(0, 0.15))
        faults.schedule(120.0, count=3)
        after(draw(0, 60), s.pd.lose_leader)
        after(draw(0, 90), lambda: s.pd.go_dark(15.0))
        after(draw(0, 90), lambda: s.rig.leader() and s.rig.kill(s.rig.leader().identity))
        after(150, lambda: setattr(faults, "rates", FaultRates()))
        for name in MEMBERS:
            s.annotate(name, pd_transfer_leader="delete-pod")
        for name in ("demo-tidb-0", "demo-tidb-1"):
            s.annotate(name, tidb_graceful_shutdown="delete-pod")
        s.annotate(0, restart="")

        def over():
            for part in away:
                away[part] = max(away[part], s.counts[part] - s.cluster.ready(NS, f"{NAME}-{part}"))
            return all(map(s.renewed, asked)) and all(map(s.ready, ("pd", "tidb", "tikv"))) and s.clean()

        await s.rig.until(over, limit_s=1800, every_s=0.5)

    s.play(scenario, replicas=2)
    assert away == {"pd": 1, "tidb": 1}
    assert s.most_away == 1
    assert s.pd.interruptions == []


def test_a_member_that_is_scaled_in_while_it_is_away_ends_its_restart():
    """E9: nobody waits for a pod that nobody wants any more; its place in the queue is free again."""
    s = stage()

    async def scenario(s):
        s.annotate("demo-tidb-1", tidb_graceful_shutdown="delete-pod")
        await s.rig.until(lambda: bool(evictions(s)), every_s=0.01, limit_s=60)
        s.cluster.store.patch(Kind.TIDB_CLUSTER, NS, NAME, {"spec": {"tidb": {"replicas": 1}}})
        await s.rig.until(lambda: s.pod("demo-tidb-1") is None and not s.rig.unsettled(), limit_s=120)

    s.play(scenario)
    assert len(evictions(s)) == 1
