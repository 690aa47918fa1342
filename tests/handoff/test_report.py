"""`mooring handoff status`: what is asked of each member and how far it has come, in figures."""

from handoff_stage import Stage

from mooring.cli.handoff import row
from mooring.handoff.report import report
from mooring.sandbox.pd.settings import PdSettings


def members(s):
    replica = s.rig.leader()
    engine = replica.engine
    (cluster,) = report(engine.world, engine.queue, engine.running, s.policy, engine.now)["clusters"]
    return cluster, {m["pod"]: m for m in cluster["members"]}


def test_progress_in_figures_while_leaders_leave():
    """E9: leaders left and gone, their pace and an estimate for the rest; the next one waits, the third is placed."""
    stage = Stage(regions=240, settings=PdSettings(transfer_s=(1.0, 2.0)))
    seen = []

    async def scene(s):
        s.annotate(0, restart="")
        s.annotate(1, restart="")
        await s.reach("evicting")
        await s.rig.sleep(12)
        seen.append(members(s))
        await s.rig.until(lambda: s.renewed(0) and s.renewed(1) and s.ready() and s.clean(), limit_s=900)
        seen.append(members(s))

    stage.play(scene)
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
    assert during["demo-tikv-1"]["state"] == "waits"
    assert during["demo-tikv-2"]["state"] == "placed"
    cells = row("tidb/demo", first)
    assert cells[0] == "● moving"
    assert "leaders gone" in cells[-1]
    _, after = seen[1]
    assert {m["state"] for m in after.values()} == {"placed"}
    assert {m["asked"] for m in after.values()} == {""}


def test_given_up_is_held_and_says_why():
    """E9: after a timeout the member is held, with the reason a person needs."""
    from mooring.handoff.policy import HandoffPolicy

    stage = Stage(
        settings=PdSettings(transfer_s=(9e4, 9e4)), policy=HandoffPolicy(recheck_s=5.0, idle_s=20.0, timeout_s=60.0)
    )
    seen = []

    async def scene(s):
        s.annotate(0, restart="")
        await s.rig.sleep(180)
        seen.append(members(s)[1]["demo-tikv-0"])

    stage.play(scene)
    assert seen[0]["state"] == "held"
    assert "did not leave within 60 s" in row("tidb/demo", seen[0])[-1]


def test_pd_leader_is_named():
    """E9: which PD member leads is on its row."""
    stage = Stage(pd=3, settings=PdSettings(members=tuple(f"demo-pd-{i}" for i in range(3))))
    seen = []

    async def scene(s):
        await s.rig.sleep(5)
        seen.append(members(s)[1])

    stage.play(scene)
    assert [m["pod"] for m in seen[0].values() if m.get("leads")] == ["demo-pd-0"]
    assert row("tidb/demo", seen[0]["demo-pd-0"])[5] == "leads PD"
