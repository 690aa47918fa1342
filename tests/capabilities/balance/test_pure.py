"""Issue 17: evaluating changes nothing, so asking is free: `why` and the dry run ask the same and throw it away."""

import msgspec
import pytest

from mooring.capabilities.balance.capability import Balance
from mooring.sim.scenarios.balance import ScaleOutScenario


def value_of(thing, seen=None):
    """Everything reachable from it, by value: plain data, structs, dicts, and the attributes of objects."""
    seen = {} if seen is None else seen
    if isinstance(thing, str | int | float | bool | bytes | None | type) or callable(thing):
        return thing
    if id(thing) in seen:
        return seen[id(thing)]
    seen[id(thing)] = f"again: {type(thing).__name__}"
    if isinstance(thing, msgspec.Struct):
        return type(thing).__name__, {f: value_of(getattr(thing, f), seen) for f in thing.__struct_fields__}
    if hasattr(thing, "keys") and hasattr(thing, "__getitem__"):
        return [(value_of(k, seen), value_of(thing[k], seen)) for k in list(thing.keys())]
    if isinstance(thing, list | tuple | set | frozenset) or hasattr(thing, "popleft"):
        return type(thing).__name__, [value_of(item, seen) for item in thing]
    slots = [s for cls in type(thing).__mro__ for s in getattr(cls, "__slots__", ())]
    names = sorted({*getattr(thing, "__dict__", {}), *slots} - {"__weakref__"})
    return type(thing).__name__, {n: value_of(getattr(thing, n), seen) for n in names if hasattr(thing, n)}


def test_the_comparison_sees_what_is_deep_inside():
    """A test that could not fail would show nothing."""
    twice = Twice(Balance())
    before = value_of(twice)
    assert value_of(Twice(Balance())) == before
    twice.later = {"a": [1]}
    deep = value_of(twice)
    twice.later["a"].append(2)
    assert before != deep != value_of(twice)


class Twice:
    """Asks twice whenever the engine asks once, and compares everything before and after, every few times."""

    def __init__(self, balance, every=397):
        self.balance, self.every = balance, every
        self.asked = self.proposed = self.instructed = 0

    def __getattr__(self, name):
        return getattr(self.balance, name)

    def evaluate(self, key, world, queue, notes, now):
        self.asked += 1
        things = (self.balance, world, queue) if self.asked % self.every == 1 else ()
        before = [value_of(thing) for thing in things]
        first, second = (self.balance.evaluate(key, world, queue, notes, now) for _ in range(2))
        assert first == second
        assert [value_of(thing) for thing in things] == before
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
