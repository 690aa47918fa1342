"""The sweep and the simulation on a Dask cluster: a real scheduler and two worker processes, one of which is killed."""

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from distributed import Client, LocalCluster

import mooring
from mooring_lab.rehearse.events.failures import Failure, failures
from mooring_lab.rehearse.sweep.forks import Failed
from mooring_lab.rehearse.sweep.remote import run_on_dask
from mooring_lab.rehearse.sweep.sweep import Found, collect, run
from mooring_lab.simulate import remote
from mooring_lab.simulate.seeds import SeedOptions, run_many
from mooring_lab.stage.dask import DaskMismatchError, DaskUnreachableError, check
from tests.rehearse.test_sweep import PLAN, RULES, small


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as made:
        yield made


@pytest.fixture
def kill_one(cluster: LocalCluster) -> Callable[[], None]:
    """Kill one of the workers, as a power cut would."""
    with Client(cluster.scheduler_address, set_as_default=False) as client:
        victim = next(iter(client.run(os.getpid).values()))
    return lambda: os.kill(victim, signal.SIGKILL)


@pytest.mark.nightly
def test_a_worker_that_is_killed_midway_costs_nothing(cluster: LocalCluster, kill_one: Callable[[], None]) -> None:
    """O7: every event is played, and comes out as on one machine."""
    snapshot = small()
    todo = failures(snapshot, RULES, ("node", "rack"))
    here: list[tuple[Failure, Found | Failed]] = []
    run(snapshot, todo, PLAN, 2, lambda failure, result: here.append((failure, result)))
    there: list[tuple[Failure, Found | Failed]] = []

    def told(failure: Failure, result: Found | Failed) -> None:
        if not there:
            kill_one()
        there.append((failure, result))

    assert run_on_dask(snapshot, todo, PLAN, cluster.scheduler_address, told)
    assert collect(snapshot, todo, there) == collect(snapshot, todo, here)


@pytest.mark.nightly
def test_seeds_of_the_simulation_too(cluster: LocalCluster, kill_one: Callable[[], None]) -> None:
    """O7: `mooring sim --seeds A..B --dask …`, one worker killed after the first seed: every result, as here."""
    options = SeedOptions(hours=0.05)
    there = []
    for result in remote.run_on_dask(range(1, 7), options, cluster.scheduler_address):
        if not there:
            kill_one()
        there.append(result)
    assert sorted(there, key=lambda one: one.seed) == list(run_many(range(1, 7), options))


@pytest.mark.nightly
def test_a_worker_with_another_mooring_is_named_before_anything_is_played(cluster: LocalCluster) -> None:
    """O7: the version there, the version here, and which worker; no worker at all is said too."""
    with Client(cluster.scheduler_address, set_as_default=False) as client:
        worker = min(client.scheduler_info()["workers"])
        client.run(_set_version, "0.0.9", workers=[worker])
        try:
            with pytest.raises(DaskMismatchError, match=rf"worker {worker} of tcp://.* has Mooring 0\.0\.9"):
                run_on_dask(small(), [], PLAN, cluster.scheduler_address, lambda *_: None)
        finally:
            client.run(_set_version, mooring.__version__, workers=[worker])
    with pytest.raises(DaskUnreachableError, match="has no worker"):
        check({}, "tcp://s")


def _set_version(version: str) -> None:
    mooring.__version__ = version


def test_a_scheduler_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """O7: the address is named."""
    monkeypatch.setattr("mooring_lab.stage.dask.CONNECT_S", 1)
    with pytest.raises(DaskUnreachableError, match=r"tcp://127\.0\.0\.1:9"):
        run_on_dask(small(), [], PLAN, "tcp://127.0.0.1:9", lambda *_: None)
