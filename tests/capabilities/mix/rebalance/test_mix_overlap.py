"""Two leaders for a moment: the old one stalls with a write that has passed its fence, and goes on while another leads."""

from functools import cache

import pytest

from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.mix import NAMESPACE, left_behind
from tests.sim.kill import undisturbed
from tests.sim.scenarios.mix import ModeChangeScenario, NoticeScenario


@cache
def writes() -> int:
    """Played when it is needed: collecting the tests takes long enough."""
    return len(undisturbed(ModeChangeScenario(before=1, after=3)).writes)


def _stall_at(rig: Rig, number: int, resume_after_s: float) -> None:
    """The leader is held when its write `number` is about to leave; it goes on later."""
    leader = rig.leader()
    assert leader is not None
    name, first, count = leader.identity, len(rig.writes), rig._count

    def counting(what: str, when: str) -> bool:
        died = count(what, when)
        if when == "before" and len(rig.writes) == first + number and not rig.replicas[name].gate.held:
            rig._count = count  # type: ignore[method-assign]
            rig.pause(name)
            rig.cluster.timeline.after(resume_after_s, lambda: rig.resume(name))
        return died

    for one in rig.replicas.values():
        one.gate._count = counting


@pytest.mark.parametrize("resume_after_s", [14.0, 45.0])
def test_never_more_than_one_replica_over_the_limit(resume_after_s: float) -> None:
    """Worked example 7: whichever write it stalls at, at most one replica more than allowed is away, ever."""
    for number in range(1, writes() + 1):
        scenario = ModeChangeScenario(before=1, after=3)
        rig = scenario.rig()
        fewest = scenario.replicas

        async def whole(rig: Rig, scenario: ModeChangeScenario = scenario, number: int = number) -> None:
            nonlocal fewest
            await scenario.build(rig)
            rig.start()
            rig.start()
            await rig.until(rig.leads)
            _stall_at(rig, number, resume_after_s)
            await scenario.act(rig)
            end = rig.clock.monotonic() + 900
            while not (scenario.done(rig) and not rig.unsettled()):
                await rig.sleep(0.25)
                fewest = min(fewest, rig.cluster.ready(NAMESPACE, "web"))
                assert rig.clock.monotonic() < end, rig.story()
            await rig.sleep(60.0)

        rig.play(whole)
        assert fewest >= scenario.replicas - 2, f"stalled at write {number}"
        assert left_behind(rig) == []
        assert scenario.done(rig)


def test_a_leader_that_stalls_in_the_two_minutes_costs_nobody_an_endpoint() -> None:
    """M8, worked example 7: the next leader takes over what the stalled one had detached, and its late writes do no
    harm: no detached pod, mark or cordon stays, and no endpoint is lost."""
    writes = len(undisturbed(NoticeScenario(spots=2, replicas=2)).writes)
    for number in range(1, writes + 1):
        scenario = NoticeScenario(spots=2, replicas=2)
        rig = scenario.rig()

        async def whole(rig: Rig, scenario: NoticeScenario = scenario, number: int = number) -> None:
            await scenario.build(rig)
            rig.start()
            rig.start()
            await rig.until(rig.leads)
            _stall_at(rig, number, 30.0)
            await scenario.act(rig)
            end = rig.clock.monotonic() + 900
            while not (scenario.done(rig) and not rig.unsettled()):
                await rig.sleep(0.25)
                assert rig.clock.monotonic() < end, f"stalled at {number}: {left_behind(rig)}\n{rig.story()}"
            await rig.sleep(60.0)

        rig.play(whole)
        assert scenario.fewest == 2, f"stalled at write {number}"
        assert scenario.left_overs(rig) == []
