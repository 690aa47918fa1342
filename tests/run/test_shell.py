"""The shell: what its ports do wrong is told to the engine, and nobody waits for an answer that never comes."""

import asyncio

import pytest

from mooring.engine.engine import Engine
from mooring.engine.events import Led
from mooring.model.cluster import Key
from mooring.model.events import MachinesLost, PdLost
from mooring.model.instructions import LookAtMachines, LookAtPd, LookAtRegions, Outcome
from mooring.run.shell import Shell
from mooring.run.wall import WallClock
from mooring.traffic import Queue
from mooring.world.world import World


class Broken:
    """Registry and PD with a defect of their own: what they raise is no error of the ports."""

    def pd(self, cluster):
        return self

    async def _fall(self, *_):
        raise TypeError("a defect")

    machines = observe = regions = region = _fall


def shell_on(broken):
    engine = Engine(World(), Queue(), ())
    return Shell(engine, None, broken, WallClock(), None, registry=broken)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (LookAtMachines(id="i1"), MachinesLost),
        (LookAtPd(id="i2", cluster=Key("tidb", "demo")), PdLost),
        (LookAtRegions(id="i3", cluster=Key("tidb", "demo")), Outcome),
        (LookAtRegions(id="i4", cluster=Key("tidb", "demo"), region_ids=(7,)), Outcome),
    ],
)
async def test_a_look_that_falls_over_is_told_as_a_loss(asked, told):
    """Level, not edge: a defect in a client costs a look, and the next one is asked for; it is not waited for for ever."""
    shell = shell_on(Broken())
    shell._start([asked])
    await asyncio.gather(*shell._tasks)
    (event,) = shell._inbox
    assert isinstance(event, told)
    assert "TypeError: a defect" in event.detail
    if isinstance(event, Outcome):
        assert (event.instruction, event.looked) == (asked.id, True)
        assert event.reason is not None


async def test_while_stopping_nothing_is_begun_and_outcomes_are_taken_in():
    """Contracts, SIGTERM: stops promoting; what was begun is heard to its end."""
    shell = shell_on(Broken())
    await shell.drain(0.1)
    shell._start([LookAtMachines(id="i1")])
    assert not shell._tasks
    shell.tell(Led(True))
    assert shell.backlog == 1
