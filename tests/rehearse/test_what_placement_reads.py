"""O4: a snapshot keeps every field that a filter of kube-scheduler reads."""

import pytest

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.scheduler.scheduler import Scheduler
from mooring_lab.rehearse.snapshot.redact import redact
from mooring_lab.rehearse.snapshot.schema import KINDS
from tests.e2e.scheduling_cases import Case

NAMESPACES = ("one", "two")


def _objects(case: Case) -> dict[Kind, list[Json]]:
    found: dict[Kind, list[Json]] = {
        Kind.NAMESPACE: [{"metadata": {"name": name, "labels": {"team": name}}} for name in NAMESPACES],
        Kind.NODE: case.nodes,
        Kind.PV: case.volumes,
        Kind.PVC: [{**one, "metadata": {**one["metadata"], "namespace": NAMESPACES[0]}} for one in case.claims],
        Kind.POD: case.pods,
    }
    for kind, objects in found.items():
        for at, one in enumerate(objects):
            one["metadata"]["uid"] = f"{kind}-{at}"
    return found


def _scheduler(objects: dict[Kind, list[Json]]) -> Scheduler:
    store = ObjectStore(Timeline())
    for kind, these in objects.items():
        for one in these:
            store.create(kind, one)
    return Scheduler(store.timeline, store)


@pytest.mark.parametrize("seed", range(20))
def test_the_same_nodes_are_feasible_on_the_cluster_and_on_its_snapshot(seed: int) -> None:
    """O4: for random clusters and pods; a field that is left out would let a pod in where kube-scheduler does not."""
    case = Case(seed, NAMESPACES)
    whole = _objects(case)
    real = _scheduler(whole)
    kept = _scheduler({kind: [redact(kind, one) for one in whole[kind]] for kind in KINDS if kind in whole})
    for at, probe in enumerate(case.probes()):
        probe["metadata"]["uid"] = f"probe-{at}"
        assert kept.feasible(redact(Kind.POD, probe)) == real.feasible(probe), probe["spec"]
