"""`mooring handoff status`: what is asked of each member and how far it has come, in figures."""

import pytest

from mooring.capabilities.handoff.eviction import note_leaders, pace_of, span
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.capabilities.handoff.report import report
from mooring.cli.handoff import member_row
from mooring_lab.cluster.pd.settings import PdSettings
from tests.capabilities.handoff.handoff_stage import Stage


def members(s):
    replica = s.rig.leader()
    engine = replica.engine
    (cluster,) = report(engine.world, engine.queue, engine.running, s.policy, engine.now)["clusters"]
    return cluster, {m["pod"]: m for m in cluster["members"]}


def test_progress_in_figures_while_leaders_leave():
    """E9: leaders left and gone, their pace and an estimate for the rest; the next one waits, the third is placed."""
    stage = Stage(regions=240, settings=PdSettings(transfer_s=(1.0, 2.0)))
    seen = []

    async def scenario(s):
        s.annotate(0, restart="")
        s.annotate(1, restart="")
        await s.reach("evicting")
        await s.rig.sleep(12)
        seen.append(members(s))
        await s.rig.until(lambda: s.renewed(0) and s.renewed(1) and s.ready() and s.clean(), limit_s=900)
        seen.append(members(s))

    stage.play(scenario)
    cluster, during = seen[0]
    assert cluster["pd"] == "answers"
    assert cluster["evicting"] == [1]
    first = during["demo-tikv-0"]
    assert first["state"] == "moving"
    assert first["step"] == "1/3 EvictLeaders"
    assert first["leaders_gone"] > 0
    assert first["leaders_left"] > 0
    assert first["estimate_s"] > 0
    assert first["rate_per_s"] > 0
    assert first["asked"] == "annotation tidb.pingcap.com/restart"
    assert during["demo-tikv-1"]["state"] == "waiting"
    assert member_row("tidb/demo", during["demo-tikv-1"])[-1] == "demo-tikv-0 is ahead"
    assert during["demo-tikv-2"]["state"] == "stable"
    cells = member_row("tidb/demo", first)
    assert cells[0] == "● moving"
    assert "leaders gone" in cells[-1]
    _, after = seen[1]
    assert {m["state"] for m in after.values()} == {"stable"}
    assert {m["asked"] for m in after.values()} == {""}


def test_given_up_is_held_and_says_why():
    """E9: after a timeout the member is held, with the reason a person needs."""
    stage = Stage(
        settings=PdSettings(transfer_s=(9e4, 9e4)), policy=HandoffPolicy(recheck_s=5.0, idle_s=20.0, timeout_s=60.0)
    )
    seen = []

    async def scenario(s):
        s.annotate(0, restart="")
        await s.rig.sleep(180)
        seen.append(members(s)[1]["demo-tikv-0"])

    stage.play(scenario)
    assert seen[0]["state"] == "blocked"
    assert "did not leave within 60 s" in member_row("tidb/demo", seen[0])[-1]


def test_pd_leader_is_named():
    """E9: which PD member leads is on its row."""
    stage = Stage(pd=3, settings=PdSettings(members=tuple(f"demo-pd-{i}" for i in range(3))))
    seen = []

    async def scenario(s):
        await s.rig.sleep(5)
        seen.append(members(s)[1])

    stage.play(scenario)
    assert [m["pod"] for m in seen[0].values() if m.get("leads")] == ["demo-pd-0"]
    assert member_row("tidb/demo", seen[0]["demo-pd-0"])[5] == "leads PD"


def test_what_has_not_begun_says_why():
    """E4: held before anything began: no operator knows of it, and the row still has state, reason and remedy."""
    stage = Stage(storage="local-ssd")
    seen = []

    async def scenario(s):
        node = s.pod(0)["spec"]["nodeName"]
        s.cluster.cordon(node)
        s.annotate(0, restart="")
        await s.rig.sleep(20)
        seen.append((node, members(s)[1]["demo-tikv-0"]))

    stage.play(scenario)
    node, held = seen[0]
    assert (held["state"], held["reason"], held["operators"]) == ("blocked", "local-volume", [])
    assert member_row("tidb/demo", held)[-1].endswith(f"is bound to {node}, which is cordoned; kubectl uncordon {node}")


def test_lost_pd_is_a_wait_with_its_reason():
    """E4: PD is away when somebody asks: the member waits, not "placed" as if nobody had asked."""
    stage = Stage()
    seen = []

    async def scenario(s):
        s.pd.go_dark()
        await s.rig.sleep(60)
        s.annotate(0, restart="")
        await s.rig.sleep(20)
        seen.append(members(s)[1]["demo-tikv-0"])

    stage.play(scenario)
    assert (seen[0]["state"], seen[0]["reason"]) == ("waiting", "pd-unreachable")


def test_leaders_that_do_not_move_are_not_promised():
    """E9: after a minute without one leader less there is no estimate, but how long nothing has happened."""
    notes = {}
    for at, leaders in ((0.0, 100), (10.0, 60), (20.0, 20)):
        note_leaders(notes, leaders, at)
    going = pace_of(notes)
    assert (going.left, going.gone, going.rate_per_s, going.estimate_s) == (20, 80, 4.0, 5.0)
    assert going.words == "80 of 100 leaders gone, 4.0/s, about 5 s more"
    note_leaders(notes, 20, 380.0)
    still = pace_of(notes)
    assert (still.estimate_s, still.still_s) == (None, 360.0)
    assert still.words == "80 of 100 leaders gone"


def test_more_leaders_than_ever_begin_the_count_anew():
    """E9: leaders that came in meanwhile are not subtracted from those that left."""
    notes = {}
    for at, leaders in ((0.0, 10), (15.0, 40), (30.0, 10)):
        note_leaders(notes, leaders, at)
    assert pace_of(notes).words == "30 of 40 leaders gone, 2.0/s, about 5 s more"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(5, "5 s"), (119, "119 s"), (120, "2 min"), (600, "10 min"), (7_199, "120 min"), (7_200, "2 h"), (90_000, "25 h")],
)
def test_spans_as_people_say_them(seconds, words):
    """A day's wait is not told in seconds."""
    assert span(seconds) == words


def test_events_tell_the_whole_way():
    """E1: whoever only has kubectl reads who began, who deleted the pod and why, and that it ended."""
    stage = Stage()
    old = {}

    async def scenario(s):
        s.annotate(0, restart="")
        await s.rig.until(lambda: s.renewed(0) and s.ready() and s.clean(), limit_s=300)
        await s.rig.sleep(5)
        old["told"] = s.events(0)

    stage.play(scenario)
    assert sorted((kind, reason) for kind, reason, _ in old["told"]) == [
        ("Normal", "Asked"),
        ("Normal", "Asked"),
        ("Normal", "Done"),
    ]
    words = " | ".join(message for _, _, message in old["told"])
    assert "leaders leave store 1 (annotation tidb.pingcap.com/restart), then the pod is deleted" in words
    assert "deleted by Mooring" in words
    assert "leaders may return to store 1" in words


def test_members_of_other_systems_with_leaders_have_rows_of_their_own():
    """L1: `handoff status` names the leader of an etcd, who is in sync, what is asked and what it waits for."""
    from mooring.cli.handoff import remarks
    from tests.sim.scenarios.leaders import LeadersScenario

    scenario, seen = LeadersScenario("etcd", (0, 1)), []

    async def whole(rig):
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        await rig.sleep(30)
        await scenario.act(rig)
        await rig.until(lambda: bool(scenario.system(rig).moves))
        seen.append(told(rig))
        await rig.until(lambda: scenario.done(rig), limit_s=600)
        scenario.system(rig).silent = {"db-0", "db-1", "db-2"}
        await rig.sleep(90)
        seen.append(told(rig))

    def told(rig):
        engine = rig.leader().engine
        return report(engine.world, engine.queue, engine.running, HandoffPolicy(), engine.now)

    scenario.rig().play(whole)
    (system,) = seen[0]["systems"]
    assert (system["system"], system["driver"], system["state"]) == ("data/db", "etcd", "answers")
    first, second, third = (member_row(system["system"], member) for member in system["members"])
    assert first[:3] == ("● moving", "data/db", "db-0") and first[4] == "etcd, in sync"
    assert first[6] == "restart asked by test" and first[7].startswith("1/3 ")
    assert second[0] == "○ waiting" and second[-1] == "db-0 is ahead"
    assert third[0] == "  stable" and third[6:] == ("–", "–", "–")
    (remark,) = remarks(seen[1] | {"on": True, "leading": True})
    assert remark.startswith("data/db: etcd does not answer: ")
