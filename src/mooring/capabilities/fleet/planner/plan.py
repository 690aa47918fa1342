"""The plan: which machines should make up the cluster, what changes to get there, and why. Values only."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import msgspec

from mooring.capabilities.fleet.planner.current import Current
from mooring.capabilities.fleet.planner.document import PlanError
from mooring.capabilities.fleet.planner.template import Constraints, Template
from mooring.core.model.machine import Machine


class Action(StrEnum):
    GENERATE = "generate"
    REGENERATE = "regenerate"
    NONE = "none"
    REMOVE_NON_EXISTENT = "remove-non-existent"
    INCREASE_CONTROL_PLANE = "increase-control-plane"
    DECREASE_CONTROL_PLANE = "decrease-control-plane"
    REPLACE_CONTROL_PLANE = "replace-control-plane"
    INCREASE_WORKERS = "increase-workers"
    DECREASE_WORKERS = "decrease-workers"
    TAINT = "taint"
    #: Same places, and what the registry says of a member's machine (its labels, its rack) has changed.
    UPDATE = "update"


class Verb(StrEnum):
    ADD = "add"
    REMOVE = "remove"
    PROMOTE = "promote"
    DEMOTE = "demote"
    TAINT = "taint"
    UNTAINT = "untaint"
    UPDATE = "update"


class WhenShort(StrEnum):
    """What to do when constraints cannot be met: nothing at all (the design), or what can be done."""

    FAIL = "fail"
    PROCEED = "proceed"


class PlanChange(msgspec.Struct, frozen=True, gc=False):
    address: str
    serial: str
    change: Verb
    why: str


class Unmet(msgspec.Struct, frozen=True, gc=False):
    constraint: str
    wanted: int
    have: int


class Assignment(msgspec.Struct, frozen=True, gc=False):
    """A place in the planned cluster. `machine` is None for a node kept although its machine has vanished."""

    address: str
    control_plane: bool
    machine: Machine | None
    #: How a vanished machine's node was written, kept word for word.
    kept: Mapping[str, Any] | None = None


class FleetView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a plan depends on. Same view, same plan."""

    template: Template
    constraints: Constraints
    machines: Sequence[Machine]
    now: float
    #: None: there is no cluster yet.
    current: Current | None = None
    #: Live Nodes: name → taint keys. A Node that is not there counts as untainted.
    node_taints: Mapping[str, Sequence[str]] = MappingProxyType({})
    wait_retired_s: float = 300.0
    when_short: WhenShort = WhenShort.FAIL
    #: A person has confirmed that many workers are to go at once.
    yes_remove: bool = False
    #: A guarded removal stops only itself: the vanished workers stay, the other actions go on (the live loop).
    hold_removal: bool = False
    #: Vanished workers that a person has confirmed, and those whose removal was blocked before and still is: new
    #: workers in their place must not lower their share.
    confirmed_removals: frozenset[str] = frozenset()
    held_removals: frozenset[str] = frozenset()
    #: Control planes that were replaced of late, and when; and how long one must have been broken while others of them
    #: have come back (0: no matter).
    replaced: Mapping[str, float] = MappingProxyType({})
    replace_backoff_s: float = 0.0
    #: Actions that wait for an earlier change: the others have their turn.
    skip: frozenset[Action] = frozenset()
    #: The template has changed: keep the nodes, write them again.
    regenerate: bool = False


class ClusterPlan(msgspec.Struct, frozen=True):
    """The destination. `error` set: nothing is to change, and `assignments` is empty."""

    action: Action
    assignments: tuple[Assignment, ...] = ()
    changes: tuple[PlanChange, ...] = ()
    unmet: tuple[Unmet, ...] = ()
    error: PlanError | None = None
    #: For people: machines left out, odd settings, what could not be done though nothing demands it.
    notes: tuple[str, ...] = ()
    #: Nodes as written, in the order of `assignments`, where the plan had to write them to compare; else None.
    nodes: tuple[Mapping[str, Any], ...] | None = None

    @property
    def control_planes(self) -> tuple[Assignment, ...]:
        return tuple(s for s in self.assignments if s.control_plane)

    @property
    def workers(self) -> tuple[Assignment, ...]:
        return tuple(s for s in self.assignments if not s.control_plane)
