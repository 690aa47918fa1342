"""Indexes that capabilities register: what they look up often, kept per change instead of computed per question.

The same rows give the same index, whatever the order in which they came; one that knows more than the rows that are
there now has `kept()` and `restore(kept)`, for checkpoints. An index belongs to the world: a capability reads it in
`evaluate` and never writes to it.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

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


@runtime_checkable
class Adopts(Protocol):
    """An index that holds more than the world can show it again: it stays when another of its class is registered."""

    def adopt(self, other: Any) -> None:
        """Go by the other's policy from now on."""
        ...


class IndexSet:
    """The indexes that are registered, and who of them wants to see what."""

    def __init__(self) -> None:
        self.by_class: dict[type, Index] = {}
        #: Kind, or class of another observation → the indexes that want to see it.
        self.observers: dict[object, tuple[Index, ...]] = {}
        #: Told of an index that failed on one observation; without it the failure is raised.
        self.failed: Callable[[str, Exception], None] | None = None

    def add(self, index: Index) -> bool:
        """In the place of one of the same class. False: that one stays, and has adopted the policy of this."""
        old = self.by_class.get(type(index))
        if isinstance(old, Adopts):
            old.adopt(index)
            return False
        self.by_class[type(index)] = index
        for seen in index.observes:
            self.observers[seen] = (*(one for one in self.observers.get(seen, ()) if one is not old), index)
        return True

    def observe(self, index: Index, trigger: Trigger, world: WorldRead) -> None:
        try:
            index.observe(trigger, world)
        except Exception as error:
            if self.failed is None:
                raise
            self.failed(f"index {type(index).__name__} {getattr(trigger, 'key', '')}", error)

    def advance(self) -> bool:
        more = False
        for index in self.by_class.values():
            more |= index.advance()
        return more
