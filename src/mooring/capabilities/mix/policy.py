"""What an administrator may set about Mix. Numbers are seconds."""

from enum import StrEnum
from functools import cache
from typing import Final

import msgspec

from mooring.capabilities.mix.labels import parse_share
from mooring.capabilities.mix.pace import InterruptionPolicy, RebalancePolicy
from mooring.capabilities.mix.targets import DEPLOYMENT_DEFAULT, MODES, Mode, Share, Target
from mooring.core.model.capacity import ANY, CapacityRules
from mooring.core.model.cluster import Toleration

#: The sources of Mix's operators and marks.
SOURCES: Final = frozenset({"mix", "spot"})


class OnDisable(StrEnum):
    #: Pods that carry our affinity are recreated one by one, without it.
    RECREATE = "recreate"
    LEAVE = "leave"


class OnShortage(StrEnum):
    #: A pod that finds no on-demand room is recreated and prefers on-demand instead of requiring it.
    RELAX = "relax"
    WAIT = "wait"


class MixPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    #: How this cluster tells spot from on-demand. The first label is the one written into affinities.
    capacity: CapacityRules = CapacityRules()
    #: What spot pods tolerate. Not given: a NoSchedule taint that says the same as the first capacity label.
    spot_tolerations: tuple[Toleration, ...] | None = None
    #: What a Deployment without a mode wants: `all-in-spot`, the design's, or e.g. `custom:1` for a floor of one.
    deployment_default: str = Mode.ALL_IN_SPOT.value
    #: Pods with Mooring's affinity when a workload is switched off: `recreate` one by one without it, or `leave`.
    on_disable: OnDisable = OnDisable.RECREATE
    #: A pod that finds no on-demand node: `relax` recreates it with a preference instead, `wait` leaves it.
    on_shortage: OnShortage = OnShortage.RELAX
    #: How long a slot is kept for a pod that was admitted and not yet seen: a create request takes 34 s at most.
    reservation_s: float = 40.0
    #: A ReplicaSet that asks for more than it may have is retrying: reservations older than this are then dropped.
    reclaim_s: float = 5.0
    #: How fast replicas are moved, and what is done when a node is about to go.
    rebalance: RebalancePolicy = RebalancePolicy()
    interruption: InterruptionPolicy = InterruptionPolicy()

    def __post_init__(self) -> None:
        if not self.capacity.labels:
            raise ValueError("capacity.labels is empty; name at least one node label that tells spot from on-demand")
        first = self.capacity.labels[0]
        if not first.spot_values and not first.ondemand_values:
            raise ValueError(f"capacity.labels[0] ({first.key}) names neither spot_values nor ondemand_values")
        _target(self.deployment_default)

    @property
    def deployment_target(self) -> Target:
        return _target(self.deployment_default)

    @property
    def tolerations(self) -> tuple[Toleration, ...]:
        """What a spot pod gets."""
        if self.spot_tolerations is not None:
            return self.spot_tolerations
        first = self.capacity.labels[0]
        if ANY in first.spot_values:
            return (Toleration(first.key, "Exists", effect="NoSchedule"),)
        return tuple(Toleration(first.key, "Equal", value, "NoSchedule") for value in first.spot_values)


@cache
def _target(text: str) -> Target:
    """`all-in-spot`, `custom:1`, `custom:30%`."""
    name, colon, figure = text.partition(":")
    share: Share | None = parse_share(figure) if colon else None
    if name not in MODES or (name == Mode.CUSTOM) != bool(colon) or (colon and share is None):
        raise ValueError(
            f"deployment-default is {text!r}; write one of {', '.join(m for m in MODES if m != Mode.CUSTOM)}, "
            "or custom with a figure, e.g. custom:1 or custom:30%"
        )
    return DEPLOYMENT_DEFAULT if name == Mode.ALL_IN_SPOT else Target(Mode(name), share)
