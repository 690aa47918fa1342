"""What the shell tells the engine, besides what reaches the world (`model.events`)."""

from typing import Any

import msgspec

from mooring.core.model.capacity import CapacityRules
from mooring.core.model.events import (
    EvictionAsked,
    KubeEvent,
    LeadersSeen,
    MachinesLost,
    MachinesSeen,
    PdLost,
    PdSeen,
    RegionsSeen,
)
from mooring.core.model.instructions import Outcome
from mooring.core.queue import Settings


class LeaseChanged(msgspec.Struct, frozen=True, gc=False):
    """This replica has won (or lost) the lease."""

    leading: bool


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time has passed; nothing else is new."""


class Features(msgspec.Struct, frozen=True, gc=False):
    """Which capabilities are on, and which of the others decide without doing anything."""

    on: frozenset[str]
    observing: frozenset[str] = frozenset()


class PolicyChanged(msgspec.Struct, frozen=True, gc=False):
    """The settings of one capability have changed: its whole section, as plain values."""

    name: str
    policy: dict[str, Any]
    #: How nodes are told apart, where that is part of it.
    rules: CapacityRules | None = None


class QueueSettingsChanged(msgspec.Struct, frozen=True, gc=False):
    """The queue's settings have changed: limits, step costs, caps."""

    settings: Settings


Event = (
    KubeEvent
    | PdSeen
    | PdLost
    | LeadersSeen
    | RegionsSeen
    | MachinesSeen
    | MachinesLost
    | EvictionAsked
    | LeaseChanged
    | Tick
    | Features
    | PolicyChanged
    | QueueSettingsChanged
    | Outcome
)
