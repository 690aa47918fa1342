"""Worked example 7 of the one queue, and an outside that is late, dead or both: never two members away."""

from functools import cache

import pytest

from mooring.core.engine.invariants import broken
from tests.sim.kill import undisturbed
from tests.sim.scenarios.restart import RestartScenario


@cache
def writes() -> int:
    """Played when it is needed: collecting the tests takes long enough."""
    return len(undisturbed(RestartScenario((0, 1))).writes)


class Play:
    """A restart of two pods with something going wrong; what must hold is looked at every virtual second."""

    def __init__(self, seed=1, members=(0, 1)):
        self.scenario = RestartScenario(members, seed=seed)
        self.rig = self.scenario.rig()
        self.broken = []

    def play(self, trouble, *, replicas=1, limit_s=3600):
        async def whole(rig):
            await self.scenario.build(rig)
            for _ in range(replicas):
                rig.start()
            await rig.until(rig.leads)
            rig.cluster.timeline.after(1.0, self._look)
            await trouble(rig)
            await rig.until(lambda: self.scenario.done(rig), limit_s=limit_s, every_s=0.5)
            await rig.until(lambda: not rig.unsettled(), limit_s=300)

        self.rig.play(whole)
        assert self.broken == []
        assert self.scenario.left_overs(self.rig) == []
        assert self.scenario.pd(self.rig).interruptions == []
        assert self.scenario.most_away == 1

    def _look(self):
        self.scenario.done(self.rig)  # counts who is away
        for one in self.rig.replicas.values():
            self.broken += [text for text in broken(one.replica.engine) if text not in self.broken]
        self.rig.cluster.timeline.after(1.0, self._look)


def hold_at(rig, number, resume_after_s):
    """The leader stalls when its write `number` has passed the fence and has not left yet; it goes on later."""
    name = rig.leader().identity
    first = len(rig.writes)
    count = rig._count

    def counting(what, when):
        died = count(what, when)
        if when == "before" and len(rig.writes) == first + number and not rig.replicas[name].gate.held:
            rig._count = count
            rig.pause(name)
            rig.cluster.timeline.after(resume_after_s, lambda: rig.resume(name))
        return died

    for one in rig.replicas.values():
        one.gate._count = counting


@pytest.mark.parametrize("resume_after_s", [14.0, 40.0, 90.0])
def test_two_leaders_for_a_moment(resume_after_s):
    """Worked example 7: the old leader stalls at any write and goes on while another leads: never two members away."""
    for number in range(1, writes() + 1):
        play = Play()

        async def trouble(rig, play=play, number=number):
            hold_at(rig, number, resume_after_s)
            await play.scenario.act(rig)

        play.play(trouble, replicas=2)


def test_late_eviction_of_a_stalled_leader_is_taken_back():
    """E3, E5, worked example 7: its scheduler arrives when the hand-over is long over: who put it there takes it back."""
    play = Play(members=(0,))

    async def trouble(rig):
        hold_at(rig, 2, 60.0)  # 1 is the mark, 2 the scheduler
        await play.scenario.act(rig)
        await rig.until(lambda: play.scenario.done(rig), limit_s=55, every_s=0.5)
        added = rig.writes.count("pd add_evict_leader 1")
        stalled = next(one for one in rig.replicas.values() if one.gate.held)
        await rig.until(lambda: not stalled.gate.held, limit_s=60, every_s=0.05)
        await rig.until(lambda: not play.scenario.left_overs(rig), limit_s=10)
        # It was the stalled one's, counted before it stalled; nobody else has removed anything since.
        assert added == 2
        assert rig.writes[-1] == "pd remove_evict_leader 1"

    play.play(trouble, replicas=2)


def test_watch_that_is_half_a_minute_late():
    """What is seen is up to 30 s old; it takes longer, and nothing is done twice."""
    play = Play()

    async def trouble(rig):
        rig.lag_watches(30.0)
        await play.scenario.act(rig)

    play.play(trouble)
    deletions = [w for w in play.rig.writes if w.startswith("delete Pod")]
    assert deletions == [f"delete Pod tidb/demo-tikv-{i}" for i in (0, 1)]


@pytest.mark.parametrize("down_s", [3.0, 30.0])
def test_api_server_dead_midway(down_s):
    """E5: dead for a while right after any write: the replica steps down if it must, and ends the same."""
    for number in range(1, writes() + 1):
        play = Play()

        async def trouble(rig, play=play, number=number):
            await play.scenario.act(rig)
            begun = len(rig.writes)
            await rig.until(lambda: len(rig.writes) >= begun + number, every_s=0.05, limit_s=900)
            rig.cluster.api.faults.dead_for(down_s)

        play.play(trouble)
