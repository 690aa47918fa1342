"""A sandbox for the contract: its API server, and the one controller that the contract needs."""

from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.api import SandboxKubeApi
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.controllers.disruption import Disruption


def sandbox(latency_s: float = 0.002) -> SandboxKubeApi:
    store = ObjectStore(Timeline(), seed=1)
    api = SandboxKubeApi(store, seed=1, latency_s=latency_s)
    Disruption(store.timeline, store)
    store.create(Kind.NAMESPACE, {"metadata": {"name": "contract"}})
    return api
