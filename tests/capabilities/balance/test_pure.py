"""Issue 17: evaluating changes nothing, so asking is free: `why` and the dry run ask the same and throw it away."""

import pytest

from tests.capabilities.asking import by_value
from tests.sim.scenarios.balance import ScaleOutScenario


class Twice:
    """Asks twice whenever the engine asks once, and compares everything before and after, every few times."""

    def __init__(self, balance, every=397):
        self.balance, self.every = balance, every
        self.asked = self.proposed = self.instructed = 0

    def __getattr__(self, name):
        return getattr(self.balance, name)

    def evaluate(self, key, world, queue, notes, now):
        self.asked += 1
        things = (vars(self.balance), vars(world), vars(queue), notes) if self.asked % self.every == 1 else ()
        before = by_value(*things)
        first, second = (self.balance.evaluate(key, world, queue, notes, now) for _ in range(2))
        assert first == second
        assert by_value(*things) == before
        self.proposed += len(first.proposals)
        self.instructed += len(first.instructions)
        return first


@pytest.mark.parametrize(("befalls", "hours"), [("nothing", 24), ("PD restarts", 0.2), ("a store is lost", 0.2)])
def test_evaluating_twice_gives_the_same_and_changes_nothing(befalls, hours):
    """Issue 17: over a simulated day of a cluster that grows: every key that the engine looks at, with its notes."""
    scenario = ScaleOutScenario(stores=3, regions=24)
    checks = []

    async def day(rig):
        await scenario.build(rig)
        rig.start()
        await rig.until(rig.leads)
        engine = rig.leader().engine
        checks.append(Twice(engine.capabilities["balance"]))
        engine.capabilities["balance"] = checks[0]
        await scenario.act(rig)
        await rig.sleep(20)
        if befalls == "PD restarts":
            scenario.pd(rig).restart()
        if befalls == "a store is lost":
            scenario.pd(rig).pod_gone("demo-tikv-1")
        await rig.sleep(hours * 3600)

    scenario.rig().play(day)
    (check,) = checks
    assert check.asked > 200 * hours and check.proposed > 10 and check.instructed > 100 * hours
