"""Delivers the store's writes to its subscribers, in order."""

from collections import deque
from collections.abc import Callable

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind

Subscriber = Callable[[str, Json | None, Json | None], None]
Listener = Callable[[Kind, str, Json | None, Json | None], None]


class Delivery:
    """Synchronous, after the write, in order, also for writes that a subscriber makes (they are delivered when
    all subscribers have got the first)."""

    def __init__(self) -> None:
        self.subscribers: dict[Kind, list[Subscriber]] = {kind: [] for kind in Kind}
        #: Of all kinds, before the subscribers of the kind.
        self.listeners: list[Listener] = []
        self._undelivered: deque[tuple[Kind, str, Json | None, Json | None]] = deque()
        self._delivering = False

    def tell(self, kind: Kind, event: str, old: Json | None, new: Json | None) -> None:
        self._undelivered.append((kind, event, old, new))
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._undelivered:
                kind, event, old, new = self._undelivered.popleft()
                for listener in self.listeners:
                    listener(kind, event, old, new)
                for subscriber in self.subscribers[kind]:
                    subscriber(event, old, new)
        finally:
            self._delivering = False
