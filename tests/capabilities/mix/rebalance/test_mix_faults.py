"""An outside that loses requests, answers late, breaks watches and drops history."""

import pytest

from mooring.core.engine.invariants import broken
from mooring.sandbox.faults import FaultRates
from mooring.sim.rig import Rig
from mooring.sim.scenarios.mix import NAMESPACE, ModeChangeScenario, NoticeScenario, QuickScenario

ROUGH = FaultRates(lost_request=0.1, lost_answer=0.1, conflict=0.1, throttled=0.08, slow=0.05)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("kind", [ModeChangeScenario, QuickScenario, NoticeScenario])
def test_on_a_rough_road_it_ends_the_same(kind: type, seed: int) -> None:
    """O5: the same end, nothing left, never more than one away beyond what is allowed, and the queue's books right."""
    scene = kind(seed=seed)
    rig: Rig = scene.rig()
    found: list[str] = []
    fewest = scene.replicas

    async def whole(rig: Rig) -> None:
        nonlocal fewest
        await scene.build(rig)
        rig.start()
        rig.start()
        await rig.until(rig.leads)
        rig.cluster.api.faults.rates = ROUGH
        rig.cluster.api.faults.schedule(100.0, count=3)
        rig.cluster.timeline.after(20.0 + 5 * seed, lambda: rig.kill(next(iter(rig.replicas))))
        await scene.act(rig)
        end = rig.clock.monotonic() + 1800
        while not (scene.done(rig) and not rig.unsettled()):
            await rig.sleep(0.5)
            fewest = min(fewest, rig.cluster.ready(NAMESPACE, "web"))
            for one in rig.replicas.values():
                found.extend(broken(one.replica.engine))
            assert rig.clock.monotonic() < end, f"{scene.left_overs(rig)}\n{rig.story()}"
        rig.cluster.api.faults.rates = FaultRates()
        await rig.sleep(60.0)

    rig.play(whole)
    assert found == []
    assert scene.left_overs(rig) == []
    if kind is ModeChangeScenario:
        assert fewest >= scene.replicas - 2
