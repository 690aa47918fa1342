"""The cluster of a lab as acts read it: the mirror, and beside it what no API server has (PD, machines, a cloud)."""

from typing import Any, cast

from mooring.demo.onlab.mirror import Mirror
from mooring.sandbox.clock import Timeline
from mooring.sandbox.cloud import Cloud
from mooring.sandbox.controllers.tidb.operator import TidbOperator
from mooring.sandbox.kubelet import Kubelets
from mooring.sandbox.pd import SandboxPd
from mooring.sandbox.reading import Reading


class _Machines:
    """What the cloud switches off. kwok plays a kubelet for as long as there is a Node: the cloud deletes it anyway."""

    def silence(self, node: str) -> None:
        """Its Node goes with it, a moment later."""


class LabFixtures(Reading):
    def __init__(self, timeline: Timeline, store: Mirror) -> None:
        self.timeline = timeline
        self.store = store
        self.pd: dict[tuple[str, str], SandboxPd] = {}
        self.sabakan: Any = None
        self.cloud = Cloud(timeline, store, cast("Kubelets", _Machines()), delete_after_s=1.0)
        self.tidb_operator = TidbOperator(timeline, store, self.pd)
