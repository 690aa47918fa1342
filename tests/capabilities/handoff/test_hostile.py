"""Hand-overs among others: persons, tidb-operator, other capabilities and a PD that all pull on the same member."""

import msgspec
import pytest

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, LEAVING, Mark, write_mark, write_marks
from mooring.core.model.reasons import Reason, State
from mooring.core.model.times import rfc3339
from mooring_lab.cluster.controllers.podstate import with_spec
from mooring_lab.cluster.pd import requests
from mooring_lab.cluster.pd.settings import PdSettings
from tests.capabilities.handoff.handoff_stage import NAME, NS, Stage

RESTART = "tidb.pingcap.com/restart"
EVICT = "tidb.pingcap.com/evict-leader"
EXPIRY = "tidb.pingcap.com/tikv-evict-leader-expiration-time"


def leave(stage, member, *, source="spot", deadline=None):
    """Another capability wants this pod gone."""
    mark = Mark(
        operator="9", source=source, reason="notice", step="leaving", since=0.0, pod_uid=stage.uid(member),
        deadline=deadline,
    )  # fmt: skip
    stage.cluster.annotate(Kind.POD, NS, stage.member(member), {LEAVING: write_mark(mark)})


def annotations(stage, member):
    return stage.pod(member)["metadata"].get("annotations", {})


# ── Whose scheduler is it? ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("phase", ["recorded", "empty", "held", "leaving", "away"])
def test_a_persons_scheduler_that_the_person_takes_away_midway(phase):
    """E5: it was there before us, so the mark says; taken away midway it is added by us, and then it is ours to end."""
    stage = Stage()

    async def scenario(s):
        requests.add_evict_leader(s.pd.server, 1)
        await s.rig.until(lambda: s.leaders(1) == 0)
        await s.rig.sleep(30)
        s.annotate(0, restart="")
        if phase == "recorded":
            await s.rig.until(lambda: bool(s.marks()), every_s=0.01)
        else:
            await s.reach(phase)
        requests.remove_evict_leader(s.pd.server, 1)
        await s.rig.until(lambda: s.renewed(0) and s.ready() and not s.marks(), limit_s=300)
        await s.rig.sleep(60)

    stage.play(scenario)
    assert stage.left_overs() == []
    assert stage.deletions() == ["tidb/demo-tikv-0"]


def test_a_scheduler_added_right_before_we_begin_is_a_persons():
    """E5: the last look at PD is older than a person's pd-ctl: what was there before us is asked of PD, not remembered."""
    stage = Stage(policy=HandoffPolicy(recheck_s=5.0, idle_s=300.0, young_pd_s=10.0))

    async def scenario(s):
        await s.rig.sleep(30)
        requests.add_evict_leader(s.pd.server, 1)
        s.annotate(0, restart="")
        await s.rig.until(lambda: s.renewed(0) and s.ready() and not s.marks(), limit_s=300)
        await s.rig.sleep(60)
        assert s.evicting() == (1,)

    stage.play(scenario)


def test_cluster_gone_before_anything_began_leaves_a_persons_scheduler():
    """E5: nothing of ours is in that PD, so nothing of it is ours to end."""
    stage = Stage()

    async def scenario(s):
        requests.add_evict_leader(s.pd.server, 1)
        await s.rig.sleep(30)
        s.annotate(0, restart="")
        await s.rig.until(lambda: bool(s.marks()), every_s=0.01)
        s.cluster.store.delete(Kind.TIDB_CLUSTER, NS, NAME)
        await s.rig.sleep(120)

    stage.play(scenario)
    assert stage.evicting() == (1,)


@pytest.mark.parametrize("after_s", [1.0, 30.0, 200.0])
def test_a_persons_scheduler_on_a_store_we_have_left_stays(after_s):
    """E3: not once is a scheduler removed that somebody else put there, however soon after the end of our own."""
    stage = Stage()

    async def scenario(s):
        s.annotate(0, evict_leader="none")
        await s.reach("empty")
        s.annotate(0, evict_leader=None)
        await s.rig.until(s.clean, limit_s=120)
        await s.rig.sleep(after_s)
        removed = s.rig.writes.count("pd remove_evict_leader 1")
        requests.add_evict_leader(s.pd.server, 1)
        for _ in range(60):
            await s.rig.sleep(10)
            assert s.evicting() == (1,)
        assert s.rig.writes.count("pd remove_evict_leader 1") == removed

    stage.play(scenario)


# ── Is everybody else there? ──────────────────────────────────────────────────────────────────────────────────────


def test_another_member_lost_between_the_proof_and_the_deletion():
    """E7: a person deletes demo-tikv-1 when demo-tikv-0 is about to go: it waits until demo-tikv-1 is back."""
    stage = Stage()

    async def scenario(s):
        s.annotate(0, restart="")
        await s.rig.until(lambda: s.running("restart-tikv") is not None, every_s=0.01)
        assert s.untouched(0)
        s.delete(1)
        await s.rig.until(lambda: s.renewed(0) and s.ready() and s.clean(), limit_s=600)

    stage.play(scenario)
    assert stage.most_away == 1
    assert stage.renewed(1)


def test_a_down_store_that_nobody_runs_any_more_still_has_regions():
    """E7: a store that is Down with regions on it, of no member that is wanted: a second one away would break them."""
    stage = Stage(tikv=4, nodes=6)

    async def scenario(s):
        s.cluster.change(
            Kind.TIDB_CLUSTER, NS, NAME, lambda tc: with_spec(tc, tikv={**tc["spec"]["tikv"], "replicas": 3})
        )
        await s.rig.until(lambda: s.pod(3) is None, limit_s=300)
        s.counts["tikv"] = 3
        await s.rig.sleep(60)  # Disconnected by now, and PD replaces its peers only after half an hour
        s.annotate(0, restart="")
        await s.rig.sleep(120)
        assert s.untouched(0)
        (waiting,) = s.rig.leader().engine.waiting.values()
        assert "store 4" in " ".join(f.detail for f in s.rig.leader().engine.queue.why(waiting.id).facts)

    stage.play(scenario)


def test_not_while_tidb_operator_rolls_tikv():
    """E7: during a rolling update tidb-operator takes members away by itself, whoever else is away: ours waits for it."""
    stage = Stage()

    async def scenario(s):
        s.cluster.tidb_operator.stopped = True

        def upgrading(tc):
            return {**tc, "status": {**tc["status"], "tikv": {**tc["status"]["tikv"], "phase": "Upgrade"}}}

        s.cluster.store.mutate(Kind.TIDB_CLUSTER, NS, NAME, upgrading)
        await s.rig.sleep(5)
        s.annotate(0, restart="")
        await s.rig.sleep(120)
        assert s.untouched(0)
        assert s.left_overs() == []
        assert s.verdict().reason == Reason.SETTLING
        s.cluster.tidb_operator.stopped = False
        s.cluster.tidb_operator.queue.add((NS, NAME))
        await s.rig.until(lambda: s.renewed(0) and s.ready() and s.clean(), limit_s=300)

    stage.play(scenario)


# ── Can the leaders go anywhere? ──────────────────────────────────────────────────────────────────────────────────


def test_tiflash_takes_no_leaders():
    """E7: one TiKV store beside a TiFlash store is the only one that can lead: nothing begun, an Event says why."""
    stage = Stage(tikv=1)

    async def scenario(s):
        s.pd.attach("demo-tiflash-0", labels={"engine": "tiflash"})
        await s.rig.sleep(30)
        s.annotate(0, restart="")
        await s.rig.sleep(120)

    stage.play(scenario)
    assert stage.untouched(0)
    assert stage.left_overs() == []
    assert [reason for reason, _ in stage.warnings(0)] == ["OneStore"]


def test_the_last_store_that_takes_leaders_keeps_them():
    """E7: two of three stores are kept empty by annotation; evicting the third, too, would move nothing for a day."""
    stage = Stage()

    async def scenario(s):
        for member in (0, 1):
            s.annotate(member, evict_leader="none")
        await s.rig.until(lambda: s.evicting() == (1, 2) and not s.leaders(1) and not s.leaders(2), limit_s=300)
        s.annotate(2, restart="")
        await s.rig.sleep(120)
        assert s.evicting() == (1, 2)
        assert s.verdict().reason == Reason.ONE_STORE
        assert s.verdict().state == State.BLOCKED
        s.annotate(0, evict_leader=None)
        await s.rig.until(lambda: s.renewed(2) and s.ready() and s.evicting() == (2,), limit_s=300)

    stage.play(scenario)
    assert stage.pd.interruptions == []


def test_leaders_that_do_not_move_name_what_keeps_them():
    """E9: after a minute without one leader less the wait says what to look at, in `why` and in `status`."""
    stage = Stage()

    async def scenario(s):
        s.pd.stick("demo-tikv-0", 3)
        s.annotate(0, restart="")
        await s.rig.sleep(180)
        waiting_on = s.running("evict-leaders").waiting_on
        assert waiting_on.reason == Reason.LEADERS_LEFT
        assert f"{s.leaders(1)} leaders left" in waiting_on.detail
        assert "healthy replica" in waiting_on.detail

    stage.play(scenario)


# ── Which store is it? ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_store_of_the_same_pod_name_in_another_namespace_is_not_ours():
    """E6: two clusters of one name share a PD: the store whose address has our namespace in it is the one to empty."""
    stage = Stage()

    async def scenario(s):
        s.pd.attach("demo-tikv-0", 7, address="demo-tikv-0.demo-tikv-peer.elsewhere.svc:20160")
        await s.rig.sleep(30)
        s.annotate(0, restart="")
        await s.reach("evicting")
        assert s.evicting() == (1,)
        assert s.marks()["demo-tikv-0"].store_id == 1

    stage.play(scenario)


# ── Odd requests ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", ["x" * 200_000, "nöne ☃ \x1b[31m\n", " none", "NONE"])
def test_odd_values_act_as_none_and_stay_small(value):
    """E2: whatever is written there, mark and Event stay readable, and no terminal is written to by it."""
    stage = Stage()

    async def scenario(s):
        s.annotate(0, evict_leader=value)
        await s.reach("empty")
        (mark,) = s.marks().values()
        assert len(mark.detail) < 200
        assert mark.detail.isprintable()
        ((_, message),) = [w for w in s.warnings(0) if w[0] == "Invalid"]
        assert len(message) < 400
        assert message.isprintable()
        assert "none, delete-pod" in message
        s.annotate(0, evict_leader=None)
        await s.rig.until(s.clean, limit_s=120)

    stage.play(scenario)
    assert stage.untouched(0)


def test_expiry_takes_every_request_away():
    """E9: both annotations and an expiry: what remained without it would take leaders off for ever."""
    stage = Stage()

    async def scenario(s):
        soon = rfc3339(s.cluster.timeline.now() + 20)
        s.pd.stick("demo-tikv-0", 3)
        s.annotate(0, restart="", evict_leader="none", tikv_evict_leader_expiration_time=soon)
        await s.rig.sleep(240)

    stage.play(scenario)
    assert stage.left_overs() == []
    assert not {RESTART, EVICT, EXPIRY} & annotations(stage, 0).keys()


def test_a_request_that_expired_before_it_began_is_taken_off():
    """E9: it waited behind another; whoever looks at the pod must not think that something is still to come."""
    stage = Stage()

    async def scenario(s):
        s.pd.stick("demo-tikv-0", 3)
        s.annotate(0, restart="")
        await s.reach("evicting")
        soon = rfc3339(s.cluster.timeline.now() + 20)
        s.annotate(1, restart="", tikv_evict_leader_expiration_time=soon)
        await s.rig.sleep(120)
        assert not {RESTART, EXPIRY} & annotations(s, 1).keys()
        assert s.untouched(1)

    stage.play(scenario)


def test_an_annotation_in_the_template_does_not_restart_for_ever():
    """E1: every new pod comes with the request again: one restart, then held, with a Warning that says where it comes from."""
    stage = Stage()

    async def scenario(s):
        def annotated(sts):
            template = sts["spec"]["template"]
            meta = {**template["metadata"], "annotations": {RESTART: ""}}
            return with_spec(sts, template={**template, "metadata": meta}, updateStrategy={"type": "OnDelete"})

        s.cluster.tidb_operator.stopped = True
        s.cluster.change(Kind.STATEFUL_SET, NS, f"{NAME}-tikv", annotated)
        await s.rig.sleep(2)
        s.annotate(0, restart="")
        await s.rig.until(lambda: s.renewed(0) and s.ready(), limit_s=300)
        await s.rig.sleep(300)
        assert s.deletions() == ["tidb/demo-tikv-0"]
        assert s.evicting() == ()
        assert s.status() == {}
        assert s.verdict().state == State.BLOCKED
        assert any("template" in message for _, message in s.warnings(0))
        s.annotate(0, restart=None)
        await s.rig.until(s.clean, limit_s=120)

    stage.play(scenario)


def test_asked_again_as_soon_as_it_is_ready_it_goes_again():
    """E1: a person who asks for a second restart of the same member gets it."""
    stage = Stage()

    async def scenario(s):
        s.annotate(0, restart="")
        await s.reach("back")
        first = s.uid(0)
        s.annotate(0, restart="again")
        await s.rig.until(lambda: s.uid(0) not in {"", first} and s.ready() and s.clean(), limit_s=300)

    stage.play(scenario)
    assert stage.deletions() == ["tidb/demo-tikv-0"] * 2


# ── Other capabilities on the same member ─────────────────────────────────────────────────────────────────────────


def test_a_notice_overtakes_a_restart_that_waits_its_turn():
    """One queue: annotated, behind another, then its node gets a notice: its leaders leave at once, not in its turn."""
    stage = Stage(tikv=4, nodes=6)

    async def scenario(s):
        s.pd.stick("demo-tikv-0", 3)
        s.annotate(0, restart="")
        await s.reach("evicting")
        s.annotate(1, restart="")
        await s.rig.sleep(5)
        assert s.evicting() == (1,)
        leave(s, 1, deadline=s.cluster.timeline.now() + 300)
        await s.rig.until(lambda: s.evicting() == (1, 2), limit_s=30)
        assert s.marks()["demo-tikv-1"].deadline is not None

    stage.play(scenario)


def test_a_notice_ends_the_memory_of_what_was_given_up():
    """One queue: given up after the timeout, and now the node goes: as many leaders as will go leave, mark first."""
    stage = Stage(policy=HandoffPolicy(recheck_s=5.0, idle_s=20.0, young_pd_s=10.0, timeout_s=60.0))

    async def scenario(s):
        s.pd.stick("demo-tikv-0", 3)
        s.annotate(0, restart="")
        await s.rig.until(lambda: bool(s.marks()) and s.marks()["demo-tikv-0"].step == "GaveUp", limit_s=200)
        await s.rig.until(lambda: not s.rig.unsettled(), limit_s=60)
        leave(s, 0, deadline=s.cluster.timeline.now() + 300)
        await s.rig.until(lambda: s.evicting() == (1,), limit_s=30, every_s=0.01)
        assert s.marks()["demo-tikv-0"].step == "EvictLeaders"

    stage.play(scenario)


def test_given_up_and_recreated_is_marked_before_leaders_leave():
    """E3: the memory of the old pod's timeout is not the new pod's mark."""
    stage = Stage(
        policy=HandoffPolicy(recheck_s=5.0, idle_s=20.0, young_pd_s=10.0, timeout_s=60.0),
        settings=PdSettings(transfer_s=(0.5, 1.5)),
    )
    seen = []

    async def scenario(s):
        s.pd.stick("demo-tikv-0", 3)
        s.annotate(0, restart="")
        await s.rig.until(lambda: bool(s.marks()) and s.marks()["demo-tikv-0"].step == "GaveUp", limit_s=200)
        await s.rig.until(lambda: not s.rig.unsettled(), limit_s=60)
        s.pd.stick("demo-tikv-0", 0)
        s.delete(0)
        await s.rig.until(lambda: s.renewed(0) and s.pod(0)["spec"].get("nodeName"), every_s=0.01)
        s.annotate(0, restart="")

        def begun():
            if s.evicting():
                seen.append(s.marks().get("demo-tikv-0"))
            return s.uid(0) != "" and s.ready() and s.clean() and len(s.deletions()) == 1

        await s.rig.until(begun, limit_s=300, every_s=0.05)

    stage.play(scenario)
    assert all(m is not None and m.step != "GaveUp" for m in seen[:1])


@pytest.mark.parametrize("phase", ["evicting", "held"])
def test_mark_and_request_taken_away_together(phase):
    """E5: a person clears both by hand: no scheduler stays, nothing is deleted, and nobody stumbles over it."""
    stage = Stage()

    async def scenario(s):
        s.annotate(0, restart="")
        await s.reach(phase)
        s.cluster.annotate(Kind.TIDB_CLUSTER, NS, NAME, {HANDOFF: None})
        s.annotate(0, restart=None)
        await s.rig.until(lambda: not s.evicting() and not s.marks() and not s.rig.unsettled(), limit_s=120)

    stage.play(scenario)
    assert stage.untouched(0)


def test_two_marks_for_one_store():
    """E5: a mark copied by hand under another pod's name: the new leader takes one up, and all of it goes in the end."""
    stage = Stage()

    async def scenario(s):
        s.annotate(0, evict_leader="none")
        await s.reach("empty")
        mark = s.marks()["demo-tikv-0"]
        s.rig.kill()
        twice = write_marks({"demo-tikv-0": mark, "demo-tikv-1": mark})
        s.cluster.annotate(Kind.TIDB_CLUSTER, NS, NAME, {HANDOFF: twice})
        s.rig.start()
        await s.rig.until(s.rig.leads)
        await s.rig.sleep(60)
        s.annotate(0, evict_leader=None)
        await s.rig.until(s.clean, limit_s=300)

    stage.play(scenario)


def test_cluster_recreated_under_the_same_name_midway():
    """E5: deleted and created again while leaders leave: its PD keeps no scheduler of ours, the new one carries no mark."""
    stage = Stage()

    async def scenario(s):
        s.annotate(0, restart="")
        await s.reach("evicting")
        before = s.cluster.store.get(Kind.TIDB_CLUSTER, NS, NAME)
        s.cluster.store.delete(Kind.TIDB_CLUSTER, NS, NAME)
        await s.rig.sleep(1)
        s.cluster.tidb_cluster(NS, NAME, **s.counts)
        assert s.cluster.store.get(Kind.TIDB_CLUSTER, NS, NAME)["metadata"]["uid"] != before["metadata"]["uid"]
        await s.rig.sleep(120)
        await s.rig.until(s.clean, limit_s=300)

    stage.play(scenario)


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_pd_whose_clock_is_an_hour_off_costs_time_only(jump_s):
    """E4: a PD an hour ahead or behind proves nothing by its clock: waits with a reason, nothing deleted with leaders."""
    stage = Stage()

    async def scenario(s):
        s.annotate(0, restart="")
        await s.reach("evicting")
        s.pd._started = {name: int(at + jump_s) for name, at in s.pd._started.items()}
        await s.rig.sleep(180)

    stage.play(scenario)
    assert stage.pd.interruptions == []


@pytest.mark.parametrize("name", ["demo-tikv-" + "9" * 5000, "demo-tikv-²", "", "x"])
def test_a_mark_under_a_name_that_no_pod_has(name):
    """E5: edited by hand: it is swept like any mark without cause, and nobody stumbles over the name."""
    stage = Stage()

    async def scenario(s):
        mark = Mark(
            operator="77", source="handoff", reason="asked", step="EvictLeaders", since=0.0, store_id=2, value="none"
        )
        s.cluster.annotate(Kind.TIDB_CLUSTER, NS, NAME, {HANDOFF: write_marks({name: mark})})
        await s.rig.sleep(5)
        await s.rig.until(s.clean, limit_s=120)

    stage.play(scenario)


@pytest.mark.parametrize(
    "subject", ["store/tidb/demo/²", "store/tidb/demo/" + "9" * 5000, "store/tidb/demo/", "store//"]
)
def test_why_of_a_store_that_is_none(subject):
    """O3: what a person mistypes is not found, and nothing else happens."""
    stage = Stage()
    said = []

    async def scenario(s):
        engine = s.rig.leader().engine
        said.extend(engine.capabilities["handoff"].explain(subject, engine.world, engine.queue, engine.now))

    stage.play(scenario)
    assert said == []


def test_an_entry_that_tidb_operator_has_left_behind_does_not_hold_for_ever():
    """E3: its status entry leaks when a pod never came back; nobody asks it, PD evicts nothing: ours goes on."""
    stage = Stage()

    async def scenario(s):
        s.cluster.tidb_operator.stopped = True

        def leaked(tc):
            entry = {"demo-tikv-0": {"value": "none", "podCreateTime": "2020-01-01T00:00:00Z"}}
            return {**tc, "status": {**tc["status"], "tikv": {**tc["status"]["tikv"], "evictLeader": entry}}}

        s.cluster.store.mutate(Kind.TIDB_CLUSTER, NS, NAME, leaked)
        await s.rig.sleep(5)
        s.annotate(0, restart="")
        await s.rig.until(lambda: s.renewed(0) and s.ready() and s.clean(), limit_s=300)

    stage.play(scenario)


# ── What a person reads while it waits ────────────────────────────────────────────────────────────────────────────


def test_a_pod_that_finds_no_node_says_where_to_look():
    """E4: every node is closed when it comes back: the wait names the Pending pod and the command that says why."""
    stage = Stage()

    async def scenario(s):
        s.annotate(0, restart="")
        await s.reach("held")
        for node in [n["metadata"]["name"] for n in s.cluster.store.list(Kind.NODE)]:
            s.cluster.cordon(node)
        await s.reach("away")
        await s.rig.sleep(30)
        for kind in ("evict-leaders", "restart-tikv"):
            waiting_on = s.running(kind).waiting_on
            assert waiting_on.detail == "the new demo-tikv-0 has no node yet"
            assert waiting_on.remedy == "kubectl -n tidb describe pod demo-tikv-0"
        assert s.evicting() == (1,)
        for node in [n["metadata"]["name"] for n in s.cluster.store.list(Kind.NODE)]:
            s.cluster.cordon(node, on=False)
        await s.rig.until(lambda: s.ready() and s.clean(), limit_s=300)

    stage.play(scenario)


def test_a_pod_that_hangs_on_a_dead_node_says_what_ends_it():
    """E4: told to end, and its node died: nobody ends it but a person who knows that the machine is off."""
    stage = Stage()

    async def scenario(s):
        s.annotate(0, restart="")
        await s.reach("held")
        node = s.pod(0)["spec"]["nodeName"]
        s.cluster.kubelets.silence(node)
        await s.rig.until(lambda: s.running("restart-tikv") is not None and s.running("restart-tikv").step == 1)
        await s.rig.sleep(90)
        waiting_on = s.running("restart-tikv").waiting_on
        assert f"{node} is not there to end it" in waiting_on.detail
        assert "delete pod demo-tikv-0 --force" in waiting_on.remedy

    stage.play(scenario)


@pytest.mark.parametrize("ahead_s", [7200.0, -7200.0])
def test_an_api_server_whose_clock_is_hours_off(ahead_s):
    """E6: when the new pod became Ready is judged by our own clock, so a hand-over does not wait for two to agree."""
    stage = Stage()

    async def scenario(s):
        s.annotate(0, restart="")
        await s.reach("away")
        engine = s.rig.leader().engine
        ask = engine.world.pod

        def pod(key):
            found = ask(key)
            if found is None or found.ready_since is None:
                return found
            return msgspec.structs.replace(found, ready_since=found.ready_since + ahead_s)

        engine.world.pod = pod
        await s.rig.until(lambda: s.renewed(0) and s.ready() and s.clean(), limit_s=120)

    stage.play(scenario)
