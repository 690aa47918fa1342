"""Is this node spot or on-demand? Each cloud says it with a label of its own.

A node is spot if any known label says so; else on-demand if any says so; else of the class that is configured for
nodes that say nothing. That is `unknown` unless told otherwise, and an unknown node is never counted and never chosen:
counting a spot node as on-demand would silently break a workload's minimum on on-demand nodes.

GKE and AKS label only their spot nodes, but put a label of theirs on every node, which tells the others apart.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

#: Any value of the label will do.
ANY: Final = "*"


class NodeClass(StrEnum):
    SPOT = "spot"
    ON_DEMAND = "on-demand"
    UNKNOWN = "unknown"


class CapacityLabel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node label that tells the class, by its values. `*` stands for any value."""

    key: str
    spot_values: tuple[str, ...] = ()
    ondemand_values: tuple[str, ...] = ()

    def class_of(self, labels: Mapping[str, str]) -> NodeClass:
        value = labels.get(self.key)
        if value is None:
            return NodeClass.UNKNOWN
        if value in self.spot_values or ANY in self.spot_values:
            return NodeClass.SPOT
        if value in self.ondemand_values or ANY in self.ondemand_values:
            return NodeClass.ON_DEMAND
        return NodeClass.UNKNOWN


DEFAULT_LABELS: Final = (
    CapacityLabel("node.kubernetes.io/capacity", ("spot",), ("on-demand",)),
    # Karpenter; reserved capacity is paid for and stays.
    CapacityLabel("karpenter.sh/capacity-type", ("spot",), ("on-demand", "reserved")),
    CapacityLabel("eks.amazonaws.com/capacityType", ("SPOT",), ("ON_DEMAND", "CAPACITY_BLOCK")),
    CapacityLabel("cloud.google.com/gke-spot", ("true",)),
    CapacityLabel("cloud.google.com/gke-preemptible", ("true",)),
    CapacityLabel("cloud.google.com/gke-nodepool", (), (ANY,)),
    CapacityLabel("kubernetes.azure.com/scalesetpriority", ("spot",), ("regular",)),
    CapacityLabel("kubernetes.azure.com/agentpool", (), (ANY,)),
)


class CapacityRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How this cluster tells its classes apart."""

    #: Node labels that tell spot from on-demand. Those that nodes use are written into affinities, else the first.
    labels: tuple[CapacityLabel, ...] = DEFAULT_LABELS
    #: The class of a node that no label names.
    unlabelled: NodeClass = NodeClass.UNKNOWN

    def class_of(self, labels: Mapping[str, str]) -> NodeClass:
        """Spot wins over on-demand: a wrong `spot` costs one place, a wrong `on-demand` breaks a workload's minimum."""
        said = {label.class_of(labels) for label in self.labels}
        if NodeClass.SPOT in said:
            return NodeClass.SPOT
        return NodeClass.ON_DEMAND if NodeClass.ON_DEMAND in said else self.unlabelled
