"""The sweep on a Dask cluster: a real scheduler and two worker processes, one of which is killed midway."""

import os
import signal
from collections.abc import Iterator

import pytest
from distributed import Client, LocalCluster

from mooring.rehearse.failures import Failure, failures
from mooring.rehearse.forks import Failed
from mooring.rehearse.remote import DaskMismatchError, DaskUnreachableError, check, run_on_dask, versions
from mooring.rehearse.sweep import Found, collect, run
from tests.rehearse.test_sweep import PLAN, RULES, small


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as made:
        yield made


def test_a_worker_that_is_killed_midway_costs_nothing(cluster: LocalCluster) -> None:
    """O7: every event is played, and comes out as on one machine."""
    snapshot = small()
    todo = failures(snapshot, RULES, ("node", "rack"))
    here: list[tuple[Failure, Found | Failed]] = []
    run(snapshot, todo, PLAN, 2, lambda failure, result: here.append((failure, result)))
    with Client(cluster.scheduler_address, set_as_default=False) as client:
        victim = next(iter(client.run(os.getpid).values()))
    there: list[tuple[Failure, Found | Failed]] = []

    def told(failure: Failure, result: Found | Failed) -> None:
        if not there:
            os.kill(victim, signal.SIGKILL)
        there.append((failure, result))

    assert run_on_dask(snapshot, todo, PLAN, cluster.scheduler_address, told)
    assert collect(snapshot, todo, there) == collect(snapshot, todo, here)


def test_versions_are_compared_first() -> None:
    """O7: another Mooring on a worker is named with the worker; no worker at all is said."""
    assert check({"tcp://a": versions()}, "tcp://s") == 1
    with pytest.raises(DaskMismatchError, match=r"worker tcp://b of tcp://s has Mooring 0\.0\.9"):
        check({"tcp://a": versions(), "tcp://b": ("0.0.9", "3.11")}, "tcp://s")
    with pytest.raises(DaskUnreachableError, match="has no worker"):
        check({}, "tcp://s")


def test_a_scheduler_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """O7: the address is named."""
    monkeypatch.setattr("mooring.rehearse.remote.CONNECT_S", 1)
    with pytest.raises(DaskUnreachableError, match=r"tcp://127\.0\.0\.1:9"):
        run_on_dask(small(), [], PLAN, "tcp://127.0.0.1:9", lambda *_: None)
