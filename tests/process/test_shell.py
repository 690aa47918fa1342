"""The shell: what its ports do wrong is told to the engine, and nobody waits for an answer that never comes."""

import asyncio

import pytest

from mooring.core.engine.engine import Engine
from mooring.core.engine.events import LeaseChanged
from mooring.core.model.cluster import Key
from mooring.core.model.events import MachinesLost, PdLost
from mooring.core.model.instructions import Outcome, Patch, ReadMachines, ReadPd, ReadRegions
from mooring.core.model.kinds import Kind
from mooring.core.queue import Queue
from mooring.core.world.world import World
from mooring.process.clock import WallClock
from mooring.process.shell import Shell


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
        (ReadMachines(id="i1"), MachinesLost),
        (ReadPd(id="i2", cluster=Key("tidb", "demo")), PdLost),
        (ReadRegions(id="i3", cluster=Key("tidb", "demo")), Outcome),
        (ReadRegions(id="i4", cluster=Key("tidb", "demo"), region_ids=(7,)), Outcome),
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
    shell._start([ReadMachines(id="i1")])
    assert not shell._tasks
    shell.tell(LeaseChanged(True))
    assert shell.backlog == 1


class Hands:
    """A clock set by hand: real time passes by `wait`, and somebody may `set` the wall clock."""

    def __init__(self):
        self.wall, self.real = 1_000_000.0, 50.0

    def now(self):
        return self.wall

    def monotonic(self):
        return self.real

    def wait(self, seconds):
        self.wall += seconds
        self.real += seconds

    def set(self, by):
        self.wall += by


def shell_by(clock):
    return Shell(Engine(World(), Queue(), ()), None, Broken(), clock, None)


@pytest.mark.parametrize("by", [3600.0, -3600.0, 45.0, -45.0])
def test_a_clock_that_is_set_is_followed_without_a_jump(by):
    """Notices and marks carry wall time: a clock that was wrong when we started must not stay wrong for our whole life.
    Yet no time-out may fire, and no time go back, because somebody set it."""
    clock = Hands()
    shell = shell_by(clock)
    before = shell.now()
    clock.set(by)
    assert shell.now() == before, "at that very moment nothing changes"
    for _ in range(200):
        clock.wait(1.0)
        assert 0.5 <= shell.now() - before <= 1.5
        before = shell.now()
    for _ in range(80):
        clock.wait(100.0)
        shell.now()
    assert abs(shell.now() - clock.now()) < 1.0


def test_a_clock_that_nobody_sets_is_read_to_the_digit():
    """O5, same input, same output: without a step our time is the wall's."""
    clock = Hands()
    shell = shell_by(clock)
    for seconds in (0.25, 7.0, 3600.0, 86_400.0):
        clock.wait(seconds)
        assert shell.now() == clock.now()


def test_a_clock_set_wrong_and_right_again_leaves_no_trace():
    """A wrong hour for a second is worth half a second."""
    clock = Hands()
    shell = shell_by(clock)
    clock.set(3600.0)
    clock.wait(1.0)
    assert shell.now() - (clock.now() - 3600.0) <= 0.5
    clock.set(-3600.0)
    clock.wait(10.0)
    shell.now()
    assert abs(shell.now() - clock.now()) <= 0.5


class Hangs:
    """An API server that never answers."""

    async def carry_out(self, write):
        await asyncio.Event().wait()


async def test_a_stop_waits_once_and_not_longer():
    """Contracts, SIGTERM within 10 s: what has not ended by then is given up; its mark says that it had begun."""
    shell = Shell(Engine(World(), Queue(), ()), Hangs(), Broken(), WallClock(), None)
    shell._start([Patch(id="i1", kind=Kind.NODE, key=Key("", "n1"), uid="u", patch={})])
    assert len(shell._tasks) == 1
    await shell.drain(0.05)
    assert not shell._tasks, "whoever waits for them again has nothing to wait for"
    await shell.drain_for_now(3600.0)
