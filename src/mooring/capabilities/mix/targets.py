"""How many replicas belong on on-demand nodes, and which.

T(mode, R) is the number of on-demand replicas among R. Every mode has one property on which all of Mix rests: adding a
replica adds at most one on-demand replica, T(k+1) − T(k) ∈ {0, 1}. So a mode is one endless sequence of classes,

    majority-in-on-demand   O O s O s O s O s …
    custom 30 %             O s s O s s O s s s …
    custom 3                O O O s s s …

and slots 0…R−1 hold exactly T(R) on-demand replicas, for every R. A replica in slot i keeps its class however the
workload scales, and a class can be chosen without knowing R: a stale replica count cannot misplace a pod.

The percentage rounds up, since it is a minimum: 1 % of one replica is one replica.
"""

from enum import StrEnum
from typing import Final

import msgspec

from mooring.core.model.capacity import NodeClass
from mooring.core.model.kinds import Kind


class Mode(StrEnum):
    ALL_IN_ON_DEMAND = "all-in-on-demand"
    ALL_IN_SPOT = "all-in-spot"
    MAJORITY_IN_ON_DEMAND = "majority-in-on-demand"
    CUSTOM = "custom"


MODES: Final = tuple(mode.value for mode in Mode)


class Share(msgspec.Struct, frozen=True, gc=False):
    """The figure of a custom mode: a count of replicas, or a percentage of them."""

    number: int
    percent: bool = False

    def __str__(self) -> str:
        return f"{self.number}%" if self.percent else str(self.number)


class Target(msgspec.Struct, frozen=True, gc=False):
    """What a workload wants. `share` is set if and only if the mode is custom."""

    mode: Mode
    share: Share | None = None

    def on_demand(self, replicas: int) -> int:
        """T(R): how many of `replicas` must be on on-demand nodes."""
        if replicas <= 0:
            return 0
        match self.mode:
            case Mode.ALL_IN_ON_DEMAND:
                return replicas
            case Mode.ALL_IN_SPOT:
                return 0
            case Mode.MAJORITY_IN_ON_DEMAND:
                return replicas // 2 + 1
            case Mode.CUSTOM:
                assert self.share is not None, "a custom mode has a figure"
                if self.share.percent:
                    return -(-self.share.number * replicas // 100)
                return min(self.share.number, replicas)

    def class_of(self, slot: int) -> NodeClass:
        """The class of slot 0, 1, 2 …, the same for every number of replicas."""
        return NodeClass.ON_DEMAND if self.on_demand(slot + 1) > self.on_demand(slot) else NodeClass.SPOT

    def sequence(self, replicas: int) -> str:
        """Slots 0…R−1 as one letter each: O for on-demand, s for spot."""
        return "".join("O" if self.class_of(i) is NodeClass.ON_DEMAND else "s" for i in range(replicas))

    def __str__(self) -> str:
        return f"{self.mode} {self.share}" if self.share is not None else self.mode.value


#: A majority of one is that one, so the design's "a single replica goes to on-demand" needs no case of its own, and
#: scaling between one and two changes no mode.
STATEFUL_SET_DEFAULT: Final = Target(Mode.MAJORITY_IN_ON_DEMAND)
DEPLOYMENT_DEFAULT: Final = Target(Mode.ALL_IN_SPOT)


def default_target(kind: str, deployment_default: Target = DEPLOYMENT_DEFAULT) -> Target:
    """What a workload that names no mode wants."""
    return STATEFUL_SET_DEFAULT if kind == Kind.STATEFUL_SET else deployment_default
