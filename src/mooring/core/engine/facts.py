"""Who says what is broken. Several keys may name the same object on the same target; the largest word counts.

Each look at a key replaces the facts it stated before, so a fact ends when its cause does, without anybody having to
remember it.
"""

from collections.abc import Iterable, Sequence

from mooring.core.model.decision import Fact
from mooring.core.queue import Queue
from mooring.core.queue.events import Event


class FactBook:
    def __init__(self) -> None:
        self._by_key: dict[str, tuple[Fact, ...]] = {}
        #: (target, subject) → key → fact
        self._stated: dict[tuple[str, str], dict[str, Fact]] = {}

    def keys_of(self, capability: str) -> Sequence[str]:
        return [key for key in self._by_key if key.startswith(f"{capability}:")]

    def replace(self, key: str, facts: Iterable[Fact], queue: Queue) -> list[Event]:
        new = tuple(facts)
        old = self._by_key.get(key, ())
        if new == old:
            return []
        if new:
            self._by_key[key] = new
        else:
            del self._by_key[key]
        places = dict.fromkeys((f.target, f.subject) for f in (*old, *new))
        for place in places:
            self._stated.setdefault(place, {}).pop(key, None)
        for fact in new:
            self._stated[(fact.target, fact.subject)][key] = fact
        events: list[Event] = []
        for target, subject in places:
            stated = self._stated[(target, subject)]
            if stated:
                worst = max(stated.values(), key=lambda f: f.amount)
                events.extend(queue.set_fact(target, subject, worst.amount, worst.detail))
            else:
                del self._stated[(target, subject)]
                events.extend(queue.clear_fact(target, subject))
        return events
