"""Asking Handoff is free: over a simulated day, evaluating twice gives the same and changes nothing (rule 1)."""

from tests.capabilities.asking import Asker
from tests.capabilities.handoff.handoff_stage import Stage


def test_asking_twice_over_a_day():
    """Rule 1: restarts, evictions, PD away, a leader lost: every key and every operator, twice, once a few seconds."""
    stage, asker = Stage(tikv=4, pd=3, tidb=2, nodes=8), Asker("handoff")

    async def pass_by(s, seconds):
        for _ in range(int(seconds / 3)):
            await s.rig.sleep(3.0)
            if s.rig.leader() is not None:
                asker.ask(s.rig.leader().engine)

    async def scenario(s):
        await pass_by(s, 30)
        s.annotate(0, restart="")
        s.annotate(1, evict_leader="none")
        await pass_by(s, 60)
        s.pd.go_dark(20.0)
        s.annotate("demo-pd-0", pd_transfer_leader="delete-pod")
        await pass_by(s, 60)
        s.annotate(1, evict_leader=None)
        s.annotate(2, evict_leader="delete-pod")
        await s.reach("away")
        s.rig.kill()
        s.rig.start()
        await pass_by(s, 180)
        await s.rig.until(s.clean, limit_s=300)
        await pass_by(s, 60)

    stage.play(scenario)
    assert asker.evaluations["handoff"] > 100
    assert asker.proposals["handoff"] > 0
    assert asker.steps["handoff"] > 30
