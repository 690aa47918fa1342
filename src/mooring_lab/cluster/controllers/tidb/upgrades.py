"""What tidb-operator v1.6 does to upgrade TiKV: one member after the other, the highest first, leaders off before each.

    old revision ──► evict-leader scheduler ──► no leaders left ──► partition lowered: its pod is replaced
    new revision, Ready, store Up ──► its scheduler ends ──► the next

It looks again every few seconds, begins nothing while a store is neither Up nor Tombstone, and does not consult
Mooring.
"""

from collections.abc import Mapping
from typing import Final

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import labels_of
from mooring_lab.cluster.pd import requests
from mooring_lab.cluster.pd.driver import SandboxPd

REVISION: Final = "controller-revision-hash"
RECHECK_S: Final = 5.0


class TikvUpgrades:
    """Off unless a scenario wants it: without it a change of the template rolls TiKV as any StatefulSet."""

    def __init__(self, store: ObjectStore, pd: Mapping[tuple[str, str], SandboxPd], *, acts: bool = False) -> None:
        self._store = store
        self._pd = pd
        self.acts = acts
        #: Stores it has begun to evict.
        self.evicting: set[int] = set()

    def held_back(self, wanted: Json, component: str) -> Json:
        """The StatefulSet's update strategy while a change of the template begins: no pod goes before its leaders."""
        if not self.acts or component != "tikv":
            return {}
        return {"updateStrategy": _partition(int(wanted["spec"]["replicas"]))}

    def step(self, cluster: Json, part: Json | None) -> float | None:
        """One pass over the members; when to look again."""
        meta = cluster["metadata"]
        pd = self._pd.get((meta["namespace"], meta["name"]))
        status = (part or {}).get("status") or {}
        if not self.acts or part is None or pd is None or pd.away:
            return None
        if status.get("currentRevision") == status.get("updateRevision"):
            return None
        for ordinal in reversed(range(int(part["spec"]["replicas"]))):
            if not self._is_upgraded(part, ordinal, str(status["updateRevision"]), pd):
                return RECHECK_S
        return RECHECK_S

    def _is_upgraded(self, part: Json, ordinal: int, revision: str, pd: SandboxPd) -> bool:
        meta = part["metadata"]
        name = f"{meta['name']}-{ordinal}"
        pod, store = self._store.find(Kind.POD, meta["namespace"], name), pd.store_of(name)
        if pod is None or store is None or podstate.terminating(pod):
            return False
        if labels_of(pod).get(REVISION) == revision:
            if not podstate.ready(pod) or pd.server.state_of(store) != "Up":
                return False
            if store.id in self.evicting:
                self.evicting.discard(store.id)
                requests.remove_evict_leader(pd.server, store.id)
            return True
        states = {pd.server.state_of(one) for one in pd.server.tikv.stores.values()}
        if states <= {"Up", "Tombstone"}:
            self.evicting.add(store.id)
            requests.add_evict_leader(pd.server, store.id)
            if not pd.server.tikv.led[store.id]:
                self._store.update(Kind.STATEFUL_SET, podstate.with_spec(part, updateStrategy=_partition(ordinal)))
        return False


def _partition(ordinal: int) -> Json:
    return {"type": "RollingUpdate", "rollingUpdate": {"partition": ordinal}}
