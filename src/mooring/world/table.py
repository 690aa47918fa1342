"""The objects of one kind, by name and by uid, and the rule that time does not run backwards.

A watch delivers in order, but an event can still be late: a reconnect replays, a decider's own write answers before
the watch does. So:

- an object with an older resourceVersion than the stored one of the same uid is not news. Versions are compared as
  numbers, and only within one uid, the one comparison that Kubernetes promises; what is not a number is taken as new;
- a uid that was seen to go never comes back (uids are not reused). The last few thousand are remembered;
- a list is the whole truth and overrules both, so that even a restored etcd heals with the next list.
"""

from collections.abc import Iterable, Iterator, ValuesView
from typing import Any, Final, Generic, TypeVar

import msgspec

from mooring.model.cluster import Key

T = TypeVar("T", bound=Any)

_REMEMBERED_GONE: Final = 4096


def older(version: str, than: str) -> bool:
    """Whether one resourceVersion is known to come before another of the same object."""
    try:
        return int(version) < int(than)
    except ValueError:
        return False


class Table(Generic[T]):
    __slots__ = ("_by_uid", "_gone", "_gone_before", "_rows", "synced")

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, T]] = {}
        self._by_uid: dict[str, T] = {}
        # Two generations, so that forgetting costs nothing and memory stays bounded.
        self._gone: set[str] = set()
        self._gone_before: set[str] = set()
        #: A list has been seen: what is not here does not exist.
        self.synced = False

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, key: Key) -> T | None:
        rows = self._rows.get(key.namespace)
        return None if rows is None else rows.get(key.name)

    def named(self, name: str) -> T | None:
        """Of a cluster-scoped kind."""
        rows = self._rows.get("")
        return None if rows is None else rows.get(name)

    def by_uid(self, uid: str) -> T | None:
        return self._by_uid.get(uid)

    def within(self, namespace: str) -> Iterable[T]:
        rows = self._rows.get(namespace)
        return () if rows is None else rows.values()

    def values(self) -> ValuesView[T]:
        return self._by_uid.values()

    def __iter__(self) -> Iterator[T]:
        return iter(self._by_uid.values())

    def __len__(self) -> int:
        return len(self._by_uid)

    # ── judging ───────────────────────────────────────────────────────────────────────────────────────────────────

    def is_news(self, old: T | None, new: T) -> bool:
        """Whether an event that brings `new`, where `old` is stored under its name, says anything new."""
        if old is not None and old.uid == new.uid:
            return bool(old.resource_version != new.resource_version or not new.resource_version) and not older(
                new.resource_version, old.resource_version
            )
        return new.uid not in self._gone and new.uid not in self._gone_before

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, key: Key, old: T | None, new: T) -> None:
        """Store `new` in place of `old` (same name, same uid) or as a new row."""
        if old is not None:
            # The keys of our dicts are the old row's strings. Handing them on keeps one copy of each instead of two;
            # they are equal, so nobody can tell.
            msgspec.structs.force_setattr(new, "uid", old.uid)
            msgspec.structs.force_setattr(new, "name", old.name)
        rows = self._rows.get(key.namespace)
        if rows is None:
            rows = self._rows[key.namespace] = {}
        rows[new.name] = new
        self._by_uid[new.uid] = new

    def drop(self, key: Key, old: T, *, for_good: bool) -> None:
        """Remove `old`. `for_good`: it was seen to go, rather than missing from a list that may have been behind."""
        rows = self._rows[key.namespace]
        del rows[key.name]
        if not rows:
            del self._rows[key.namespace]
        del self._by_uid[old.uid]
        if for_good:
            self.bury(old.uid)

    def bury(self, uid: str) -> None:
        """Remember that this uid is gone."""
        if not uid:
            return
        if len(self._gone) >= _REMEMBERED_GONE:
            self._gone, self._gone_before = set(), self._gone
        self._gone.add(uid)

    def missing_from(self, uids: set[str]) -> list[T]:
        """What a list with these uids says is gone."""
        return [row for uid, row in self._by_uid.items() if uid not in uids]

    def listed(self) -> None:
        """A list overrules what was remembered as gone."""
        self._gone, self._gone_before = set(), set()
        self.synced = True
