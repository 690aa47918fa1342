"""Indexes that capabilities register: what they look up often, kept per change instead of computed per question.

The same rows give the same index, whatever the order in which they came. An index belongs to the world: a capability
reads it in `evaluate` and never writes to it.
"""

from typing import Protocol

from mooring.core.model.events import Trigger
from mooring.core.world.read import WorldRead


class Index(Protocol):
    #: What it wants to see: kinds of objects, and classes of other observations (`PdSeen`, `RegionsSeen`, …).
    observes: frozenset[object]

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        """Take one observation in. The world shows the state after it."""
        ...

    def advance(self) -> bool:
        """Take in one more part of something large; True while there is more. The engine calls it between events."""
        ...
