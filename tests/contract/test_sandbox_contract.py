"""The sandbox keeps the contract of the Kubernetes API, in process."""

import pytest
from kube_contract import CASES, Bench, Case

from mooring.model.kinds import Kind
from mooring.ports import Json
from mooring.sandbox.api import SandboxKubeApi
from mooring.sandbox.clock import Timeline, run_virtual
from mooring.sandbox.labels import selects
from mooring.sandbox.store import ObjectStore


def count_budgets(store: ObjectStore) -> None:
    """Stands in for the disruption controller: pods without an owner, minAvailable as a number."""

    def look(event: str, old: Json | None, new: Json | None) -> None:
        for pdb in store.list(Kind.PDB, (new or old)["metadata"]["namespace"]):
            store.mutate(Kind.PDB, *(pdb["metadata"][k] for k in ("namespace", "name")), count)

    def count(pdb: Json) -> Json:
        pods = [
            p
            for p in store.list(Kind.POD, pdb["metadata"]["namespace"])
            if selects(pdb["spec"]["selector"], p["metadata"]["labels"]) and "deletionTimestamp" not in p["metadata"]
        ]
        ready = [{"type": "Ready", "status": "True"}]
        healthy = sum(p["status"].get("conditions", [])[-1:] == ready for p in pods)
        desired = pdb["spec"]["minAvailable"]
        counted = {
            "observedGeneration": pdb["metadata"]["generation"],
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": len(pods),
            "disruptionsAllowed": max(0, healthy - desired),
        }
        return {**pdb, "status": {**(pdb.get("status") or {}), **counted}}

    store.subscribe(Kind.POD, look)
    store.subscribe(Kind.PDB, lambda event, old, new: look(event, old, new) if event == "ADDED" else None)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_sandbox(case: Case) -> None:
    """Each promise of the contract holds on the sandbox, on virtual time."""
    timeline = Timeline()
    store = ObjectStore(timeline, seed=1)
    api = SandboxKubeApi(store, seed=1, latency_s=0.002)
    count_budgets(store)
    store.create(Kind.NAMESPACE, {"metadata": {"name": "contract"}})
    run_virtual(lambda: case(Bench(api, "contract", api.server.watches.compact)), timeline)
