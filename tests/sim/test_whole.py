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
from mooring.core.model.exits import Exit
from mooring.core.model.kinds import Kind
from mooring_lab.cli.sim import sim
from mooring_lab.cluster.clock import StuckError, Timeline, run_virtual
from mooring_lab.events.catalogue import CATALOGUE
from mooring_lab.events.context import Draw, EventContext, Target
from mooring_lab.simulate import plan, seeds
from mooring_lab.simulate.asked import shrink
from mooring_lab.simulate.plan import FAULTS, Action, Plan, action_names, draw_plan
from mooring_lab.simulate.simulation import simulate
from tests.program import mooring

QUIET = msgspec.structs.replace(draw_plan(3, hours=0.05, features=("mix", "handoff")), actions=())

#: The loop holds tasks weakly.
TASKS: list[asyncio.Task[None]] = []


def with_actions(*actions: tuple[float, str, float, float]) -> Plan:
    return msgspec.structs.replace(QUIET, actions=tuple(Action(*action) for action in actions))


@pytest.mark.nightly
def test_same_seed_same_run_under_any_hash_seed():
    """O5: timeline, writes and revision repeat, whatever PYTHONHASHSEED is."""
    script = (
        "from mooring_lab.simulate.seeds import *; quiet_logs();"
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
    """A plan that is written down and read back is the same plan; its actions are all known."""
    plan = draw_plan(11)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
    assert set(action_names()) <= set(CATALOGUE)
    assert {action.what for seed in range(60) for action in draw_plan(seed).actions} == set(action_names())


def test_numbers_of_an_action_are_below_one():
    """They choose from lists: 1.0 would point behind the end (seed 314)."""
    assert all(
        0 <= n < 1 for seed in range(300, 330) for action in draw_plan(seed).actions for n in (action.a, action.b)
    )


def test_coverage_has_sixty_names_and_more():
    """Issue 18: at least 60 counters, each named once."""
    names = plan.coverage_names()
    assert len(names) == len(set(names)) >= 60


def test_faults_none_draws_no_fault():
    """`--faults none` leaves load and interference."""
    faults = {name for group in FAULTS.values() for name in group}
    assert not [action for seed in range(10) for action in draw_plan(seed, faults=()).actions if action.what in faults]


def test_tasks_that_keep_each_other_busy_are_found():
    """Liveness: virtual time must advance."""

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(StuckError, match="time stands still"):
        run_virtual(spin, Timeline())


def evict_without_uid(sim: EventContext, _: Target, __: Draw) -> str:
    """A mutant of ours: an eviction without a precondition."""
    replica = next(iter(sim.stage.replicas.values()))
    pod = sim.objects(Kind.POD, namespace="shop")[0]["metadata"]["name"]

    async def evict() -> None:
        await replica.client.evict("shop", pod)

    TASKS.append(asyncio.get_running_loop().create_task(evict()))
    return pod


def test_a_write_without_precondition_is_found_and_shrinks(monkeypatch):
    """No write without precondition; of many actions only the guilty one is left, and it fails the same way again."""
    monkeypatch.setitem(CATALOGUE, "evict-without-uid", evict_without_uid)
    plan = with_actions(
        (5.0, "rollout", 0.1, 0.2), (9.0, "scale", 0.5, 0.5), (20.0, "evict-without-uid", 0, 0), (40.0, "cordon", 0, 0)
    )
    smaller, kept, result = shrink(plan)
    assert kept == (2,)
    assert [action.what for action in smaller.actions] == ["evict-without-uid"]
    assert result.failure is not None
    assert result.failure.promise == "no write without precondition"
    assert simulate(smaller).failure == result.failure


def test_a_leftover_is_found(monkeypatch):
    """After quiet: a mark that nobody takes back is told."""

    def left(sim: EventContext, _: Target, __: Draw) -> str:
        node = sim.objects(Kind.NODE)[0]["metadata"]["name"]
        sim.stage.cluster.annotate(Kind.NODE, "", node, {"mooring.dev/cordoned-by": "somebody"})
        return str(node)

    monkeypatch.setitem(CATALOGUE, "leave-a-mark", left)
    failure = simulate(with_actions((5.0, "leave-a-mark", 0, 0))).failure
    assert failure is not None
    assert failure.promise == "after quiet: nothing of ours is left"


def test_command():
    """The contract: exit codes, JSON, a replay command, and bad input named."""
    done = mooring("sim", "--seeds", "1..2", "--hours", "0.05", "--jobs", "1", "-o", "json")
    found = json.loads(done.stdout)
    assert found["seeds"] == 2 and found["coverage"] and isinstance(found["failed"], list)
    assert done.returncode == (1 if found["failed"] else 0)
    for wrong in (
        ["--seeds", "9..1"],
        ["--faults", "nonsense"],
        ["--features", "x"],
        ["--seed", "1", "--seeds", "1..2"],
    ):
        assert mooring("sim", *wrong).returncode == 2


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
    assert error.value.code is Exit.UNREACHABLE
    assert json.loads(capfd.readouterr().out)["seeds"] == 1
