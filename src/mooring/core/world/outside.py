"""What was asked rather than followed: PD's views, the machine registry, and which features are on.

Silence is no reason to forget: what was seen last stays, with its date, and beside it what was said instead.
"""

from mooring.core.model.cluster import Key
from mooring.core.model.machine import Machine
from mooring.core.model.tidb import PdView


class Outside:
    def __init__(self) -> None:
        #: Cluster → the last view of its PD, and when it was taken.
        self.pd: dict[Key, tuple[PdView, float]] = {}
        #: Clusters whose PD did not answer the last time, and what was said instead.
        self.pd_lost: dict[Key, str] = {}
        self.machines: tuple[Machine, ...] = ()
        self.machines_at: float | None = None
        self.machines_asked_at: float | None = None
        #: What the registry said instead of an answer, the last time.
        self.machines_lost = ""
        #: The features that are switched on; None: unknown.
        self.features: frozenset[str] | None = None

    def forget(self, cluster: Key) -> None:
        self.pd.pop(cluster, None)
        self.pd_lost.pop(cluster, None)
