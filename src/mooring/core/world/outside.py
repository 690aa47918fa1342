"""What is polled rather than watched: PD's views, the machine registry, and which features are on.

When there is no answer, the last one is kept with its time, beside the error.
"""

import msgspec

from mooring.core.model.cluster import Key
from mooring.core.model.decision import Verdict
from mooring.core.model.machine import Machine
from mooring.core.model.tidb import PdView
from mooring.core.world.read import PdLook


class Outside:
    def __init__(self) -> None:
        self.pd: dict[Key, PdLook] = {}
        #: PD's cluster id → the TidbClusters that have it, by their last look.
        self.by_pd: dict[int, set[Key]] = {}
        #: Clusters whose PD did not answer the last time, and the error.
        self.pd_lost: dict[Key, Verdict] = {}
        self.machines: tuple[Machine, ...] = ()
        self.machines_at: float | None = None
        self.machines_asked_at: float | None = None
        #: The error of the last query of the registry.
        self.machines_lost = ""
        #: The features that are switched on; None: unknown.
        self.features: frozenset[str] | None = None

    def look(self, cluster: Key, view: PdView, at: float) -> None:
        if self._is_borrowed(cluster, view.cluster_id):
            view = msgspec.structs.replace(view, cluster_id=0)
        last = self.pd.get(cluster)
        same = last is not None and last.view.life == view.life
        took_over = last is not None and (last.took_over or not same)
        since = last.since if last is not None and same and last.view.evicting is not None else at
        self.forget(cluster)
        self.pd[cluster] = PdLook(view, at, since, took_over)
        if view.cluster_id:
            self.by_pd.setdefault(view.cluster_id, set()).add(cluster)

    def _is_borrowed(self, cluster: Key, cluster_id: int) -> bool:
        """A tenant's PD may say any id, and would take the place of whoever has it. Between namespaces an id is shared
        only once the PD that had it first lists a store of this cluster."""
        for other in self.by_pd.get(cluster_id, ()):
            if other.namespace != cluster.namespace:
                stores = self.pd[other].view.stores
                begins = (f"{cluster.name}-tikv-", f"{cluster.name}-tiflash-")
                if not any(s.namespace == cluster.namespace and s.pod_name.startswith(begins) for s in stores):
                    return True
        return False

    def forget(self, cluster: Key) -> None:
        last = self.pd.pop(cluster, None)
        if last is not None and last.view.cluster_id:
            self.by_pd[last.view.cluster_id].discard(cluster)
            if not self.by_pd[last.view.cluster_id]:
                del self.by_pd[last.view.cluster_id]
        self.pd_lost.pop(cluster, None)
