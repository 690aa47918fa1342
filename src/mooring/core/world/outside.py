"""What is polled rather than watched: PD's views, the machine registry, and which features are on.

When there is no answer, the last one is kept with its time, beside the error.
"""

from mooring.core.model.cluster import Key
from mooring.core.model.machine import Machine
from mooring.core.model.tidb import PdView
from mooring.core.world.read import PdLook


class Outside:
    def __init__(self) -> None:
        self.pd: dict[Key, PdLook] = {}
        #: Clusters whose PD did not answer the last time, and the error.
        self.pd_lost: dict[Key, str] = {}
        self.machines: tuple[Machine, ...] = ()
        self.machines_at: float | None = None
        self.machines_asked_at: float | None = None
        #: The error of the last query of the registry.
        self.machines_lost = ""
        #: The features that are switched on; None: unknown.
        self.features: frozenset[str] | None = None

    def look(self, cluster: Key, view: PdView, at: float) -> None:
        last = self.pd.get(cluster)
        same = last is not None and last.view.life == view.life
        took_over = last is not None and (last.took_over or not same)
        since = last.since if last is not None and same and last.view.evicting is not None else at
        self.forget(cluster)
        self.pd[cluster] = PdLook(view, at, since, took_over)

    def forget(self, cluster: Key) -> None:
        self.pd.pop(cluster, None)
        self.pd_lost.pop(cluster, None)
