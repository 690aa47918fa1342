"""The objects of one kind, by name and by uid. An older version never replaces a newer one.

A watch delivers in order, but an event can still be late: a reconnect replays, a capability's own write answers before
the watch does. So:

- an object with an older resourceVersion than the stored one of the same uid is not news. Versions are compared as
  numbers, and only within one uid, the one comparison that Kubernetes promises; what is not a number is taken as new;
- a uid that was seen to go never comes back (uids are not reused). The last few thousand are remembered;
- a list is the whole truth and overrules both, so that even a restored etcd is followed from the next list on;
- a version that shows nothing new in the row (a kubelet's note on a container, a heartbeat) is stored and is no news.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, ValuesView
from typing import Any, Final, Generic, TypeVar

import msgspec

from mooring.core.model.cluster import Key

T = TypeVar("T", bound=Any)

_REMEMBERED_GONE: Final = 4096
_NO_NAMES: Final[dict[str, str]] = {}
_set: Final = msgspec.structs.force_setattr


def older(version: str, than: str) -> bool:
    """Whether one resourceVersion is known to come before another of the same object."""
    try:
        return int(version) < int(than)
    except ValueError:
        return False


class Table(Generic[T]):
    """uid → row, and name → uid.

    A row is stored in one place only: everything else (names, indexes) holds uids. So an event that moves nothing, and
    most do not, is one lookup and one store; and dicts of strings are nothing for the garbage collector to walk.
    """

    __slots__ = ("_frozen", "_gone", "_gone_before", "_names", "_rows", "by_uid", "synced")

    def __init__(self) -> None:
        self._rows: dict[str, T] = {}
        self._names: dict[str, dict[str, str]] = {}
        #: The dict's own: several lookups per event, none of them worth a call of ours.
        self.by_uid: Callable[[str], T | None] = self._rows.get
        # Two generations, so that forgetting costs nothing and memory stays bounded.
        self._gone: set[str] = set()
        self._gone_before: set[str] = set()
        #: A list has been seen: what is not here does not exist.
        self.synced = False
        self._frozen: tuple[weakref.ref[Frozen[T]], ...] = ()

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, key: Key) -> T | None:
        uid = self._names.get(key.namespace, _NO_NAMES).get(key.name)
        return None if uid is None else self._rows[uid]

    def named(self, name: str) -> T | None:
        """Of a cluster-scoped kind."""
        uid = self._names.get("", _NO_NAMES).get(name)
        return None if uid is None else self._rows[uid]

    def rows(self, uids: Iterable[str]) -> tuple[T, ...]:
        rows = self._rows
        return tuple([rows[uid] for uid in uids])

    def within(self, namespace: str) -> tuple[T, ...]:
        return self.rows(self._names.get(namespace, _NO_NAMES).values())

    def values(self) -> ValuesView[T]:
        return self._rows.values()

    def freeze(self) -> "Frozen[T]":
        """The rows as they are now, to be read later and once. At no cost now: a copy of 150,000 rows would take
        milliseconds."""
        frozen = Frozen(self._rows, self._names)
        self._frozen += (weakref.ref(frozen, self._thaw),)
        return frozen

    def _thaw(self, frozen: "weakref.ref[Frozen[T]]") -> None:
        self._frozen = tuple(other for other in self._frozen if other is not frozen)

    def _put_aside(self, row: T, old: T | None) -> None:
        """Before `old` (None: nothing), which is or will be `row`, is overwritten."""
        for frozen in filter(None, [frozen() for frozen in self._frozen]):
            frozen.put_aside(row, old)

    def __iter__(self) -> Iterator[T]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    # ── judging ───────────────────────────────────────────────────────────────────────────────────────────────────

    def is_news(self, old: T | None, new: T) -> bool:
        """Whether an event that brings `new`, where `old` is stored under its uid, says anything new."""
        if old is None:
            return new.uid not in self._gone and new.uid not in self._gone_before
        version, known = new.resource_version, old.resource_version
        return not version or (version != known and not older(version, known))

    def shows_the_same(self, old: T, new: T) -> bool:
        """Whether all that is new in `new` is its version: then there is nothing to decide again."""
        version = new.resource_version
        # This row is still private, so it may carry the old version while the two are compared.
        _set(new, "resource_version", old.resource_version)
        same: bool = new == old
        _set(new, "resource_version", version)
        return same

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, old: T | None, new: T) -> None:
        """Store `new` in place of `old` (the same uid), or as a row of its own."""
        if self._frozen:
            self._put_aside(new, old)
        if old is None:
            key = new.key
            names = self._names.get(key.namespace)
            if names is None:
                names = self._names[key.namespace] = {}
            names[new.name] = new.uid
        else:
            # Names and indexes hold the old row's strings. Handing them on keeps one copy of each instead of two;
            # they are equal, so it makes no difference.
            _set(new, "uid", old.uid)
            _set(new, "name", old.name)
        self._rows[new.uid] = new

    def drop(self, old: T, *, for_good: bool) -> None:
        """Remove `old`. `for_good`: it was seen to go, rather than missing from a list that may have been behind."""
        if self._frozen:
            self._put_aside(old, old)
        key = old.key
        names = self._names[key.namespace]
        del names[key.name]
        if not names:
            del self._names[key.namespace]
        del self._rows[old.uid]
        if for_good:
            self.bury(old.uid)

    def bury(self, uid: str) -> None:
        """Remember that this uid is gone."""
        if not uid:
            return
        if len(self._gone) >= _REMEMBERED_GONE:
            self._gone, self._gone_before = set(), self._gone
        self._gone.add(uid)

    def kept(self) -> dict[str, object]:
        """What a checkpoint keeps besides the rows."""
        return {"synced": self.synced, "_gone": self._gone, "_gone_before": self._gone_before}

    def restore(self, kept: Mapping[str, Any]) -> None:
        for name, value in kept.items():
            setattr(self, name, value)

    def missing_from(self, uids: set[str]) -> list[T]:
        """What a list with these uids says is gone."""
        return [row for uid, row in self._rows.items() if uid not in uids]

    def listed(self) -> None:
        """A list overrules what was remembered as gone."""
        self._gone, self._gone_before = set(), set()


class Frozen(Generic[T]):
    """The rows of a table as they were, namespace by namespace. What changes before it was read is put aside first."""

    def __init__(self, rows: dict[str, T], names: dict[str, dict[str, str]]) -> None:
        self._rows, self._names = rows, names
        self._namespaces = list(names)
        self._aside: dict[str, T | None] = {}
        #: Namespaces, and uids of the one that is being read.
        self._done: set[str] = set()
        self._read: set[str] = set()

    def put_aside(self, row: T, old: T | None) -> None:
        if row.uid not in self._read and row.key.namespace not in self._done:
            self._aside.setdefault(row.uid, old)

    def __iter__(self) -> Iterator[T]:
        for namespace in self._namespaces:
            for uid in list(self._names.get(namespace, _NO_NAMES).values()):
                self._read.add(uid)
                row = self._aside.pop(uid) if uid in self._aside else self._rows.get(uid)
                if row is not None:
                    yield row
            self._done.add(namespace)
            self._read = set()
        yield from [row for row in self._aside.values() if row is not None]
