"""The simulation itself: the same seed is the same run, what is broken is found, and a failure shrinks."""

import asyncio
import json
import multiprocessing
import os
import signal
import subprocess
import sys

import msgspec
import pytest

from mooring.cli.output import Format
from mooring.cli.sim import sim
from mooring.core.model.exits import Exit
from mooring.core.model.kinds import Kind
from mooring.sandbox.clock import StuckError, Timeline, run_virtual
from mooring.sim.whole import coverage, seeds, simulation
from mooring.sim.whole.plan import FAULTS, Deed, Plan, deed_names, draw_plan
from mooring.sim.whole.shrink import shrink
from mooring.sim.whole.simulation import DEEDS, Simulation, simulate

QUIET = msgspec.structs.replace(draw_plan(3, hours=0.05, features=("mix", "handoff")), deeds=())

#: The loop holds tasks weakly.
TASKS: list[asyncio.Task[None]] = []


def with_deeds(*deeds: tuple[float, str, float, float]) -> Plan:
    return msgspec.structs.replace(QUIET, deeds=tuple(Deed(*deed) for deed in deeds))


def test_same_seed_same_run_under_any_hash_seed():
    """O5: timeline, writes and revision repeat, whatever PYTHONHASHSEED is."""
    script = (
        "from mooring.sim.whole.seeds import *; quiet_logs();"
        "print(run_seed(4, SeedOptions(hours=0.1)).digest, run_seed(9, SeedOptions(hours=0.1)).digest)"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "77")
    }
    assert len(seen) == 1


def test_a_plan_is_data():
    """A plan that is written down and read back is the same plan; its deeds are all known."""
    plan = draw_plan(11)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
    assert sorted(DEEDS) == deed_names()
    assert {deed.what for seed in range(60) for deed in draw_plan(seed).deeds} == set(DEEDS)


def test_numbers_of_a_deed_are_below_one():
    """They choose from lists: 1.0 would point behind the end (seed 314)."""
    assert all(0 <= n < 1 for seed in range(300, 330) for deed in draw_plan(seed).deeds for n in (deed.a, deed.b))


def test_coverage_has_sixty_names_and_more():
    """Issue 18: at least 60 counters, each named once."""
    names = coverage.names()
    assert len(names) == len(set(names)) >= 60


def test_faults_none_draws_no_fault():
    """`--faults none` leaves load and interference."""
    faults = {name for group in FAULTS.values() for name in group}
    assert not [deed for seed in range(10) for deed in draw_plan(seed, faults=()).deeds if deed.what in faults]


def test_tasks_that_keep_each_other_busy_are_found():
    """Liveness: virtual time must advance."""

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(StuckError, match="time stands still"):
        run_virtual(spin, Timeline())


def evict_without_uid(sim: Simulation, _: float, __: float) -> str:
    """A mutant of ours: an eviction without a precondition."""
    replica = next(iter(sim.rig.replicas.values()))
    pod = sim.objects(Kind.POD, namespace="shop")[0]["metadata"]["name"]

    async def evict() -> None:
        await replica.client.evict("shop", pod)

    TASKS.append(asyncio.get_running_loop().create_task(evict()))
    return pod


def test_a_write_without_precondition_is_found_and_shrinks(monkeypatch):
    """No write without precondition; of many deeds only the guilty one is left, and it fails the same way again."""
    monkeypatch.setitem(DEEDS, "evict-without-uid", evict_without_uid)
    plan = with_deeds(
        (5.0, "rollout", 0.1, 0.2), (9.0, "scale", 0.5, 0.5), (20.0, "evict-without-uid", 0, 0), (40.0, "cordon", 0, 0)
    )
    smaller, kept, result = shrink(plan)
    assert kept == (2,)
    assert [deed.what for deed in smaller.deeds] == ["evict-without-uid"]
    assert result.failure is not None
    assert result.failure.invariant == "no write without precondition"
    assert simulate(smaller).failure == result.failure


def test_a_leftover_is_found(monkeypatch):
    """After quiet: a mark that nobody takes back is told."""

    def left(sim: Simulation, _: float, __: float) -> str:
        node = sim.objects(Kind.NODE)[0]["metadata"]["name"]
        sim.rig.cluster.annotate(Kind.NODE, "", node, {"mooring.dev/cordoned-by": "somebody"})
        return str(node)

    monkeypatch.setitem(simulation.DEEDS, "leave-a-mark", left)
    failure = simulate(with_deeds((5.0, "leave-a-mark", 0, 0))).failure
    assert failure is not None
    assert failure.invariant == "after quiet: nothing of ours is left"


def test_command(capfd):
    """The contract: exit codes, JSON, a replay command, and bad input named."""
    run = [sys.executable, "-m", "mooring", "sim"]
    done = subprocess.run(
        [*run, "--seeds", "1..2", "--hours", "0.05", "--jobs", "1", "-o", "json"], capture_output=True, check=False
    )
    found = json.loads(done.stdout)
    assert found["seeds"] == 2 and found["coverage"] and isinstance(found["failed"], list)
    assert done.returncode == (1 if found["failed"] else 0)
    for wrong in (
        ["--seeds", "9..1"],
        ["--faults", "nonsense"],
        ["--features", "x"],
        ["--seed", "1", "--seeds", "1..2"],
    ):
        assert subprocess.run([*run, *wrong], capture_output=True, check=False).returncode == 2


def test_a_worker_that_is_killed_ends_the_run_and_names_the_seeds_not_played():
    """O5: the kernel takes memory back by killing; a run that waits for that worker would never end."""
    coming = seeds.run_many(range(1, 400), seeds.SeedOptions(hours=0.02), jobs=2)
    played = [next(coming).seed]
    os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGKILL)
    with pytest.raises(seeds.SeedsLostError, match=r"was killed; not played: .*\.\.399 ") as error:
        played.extend(result.seed for result in coming)
    assert sorted([*played, *error.value.seeds]) == [*range(1, 400)]


def test_the_command_reports_what_was_played_and_names_the_rest(monkeypatch, capfd):
    """O5: hours of a run are not lost with one of its processes."""

    def run_many(numbers, options, jobs):
        yield simulate(QUIET)
        raise seeds.SeedsLostError([2, 4, 5, 6])

    monkeypatch.setattr(seeds, "run_many", run_many)
    with pytest.raises(seeds.SeedsLostError, match=r"not played: 2, 4\.\.6 ") as error:
        sim(seeds="1..6", output=Format.JSON)
    assert error.value.code is Exit.COULD_NOT_LOOK
    assert json.loads(capfd.readouterr().out)["seeds"] == 1
