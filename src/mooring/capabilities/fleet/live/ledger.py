"""The stored cluster: decisions with their revision, what the last change still waits for, and a short history.

One ConfigMap, written by compare-and-swap: a write that another has overtaken is refused by the API server, and the
pass is made again from what is there then. The number of the revision rises by one with each write.

10,000 nodes written out as cluster.yml are 6 MB, four times what Kubernetes stores in one object. The decisions behind
them (serial, address, control plane, which state taint has been released) are under 300 KB, and everything else follows
from the template and what is stored beside of each member's machine, so that cluster.yml can be written while the
registry is silent, or hides a machine (F13). The text is JSON with rows instead of objects, above a few KB compressed
and in base64, so that it fits into a ConfigMap's `data`.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

import msgspec

from mooring.capabilities.fleet.planner.current import Current, Member
from mooring.capabilities.fleet.planner.labels import dates
from mooring.capabilities.fleet.planner.plan import PlanChange
from mooring.core.model.cluster import NO_LABELS, ConfigMap, Key
from mooring.core.model.instructions import Create, Instruction, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import Machine, MachineState

_VERSION: Final = 1
_PACKED: Final = b"zlib:"
#: The fastest: the text is small either way.
_LEVEL: Final = 1
_LEAVING: Final = "-"
_PLAIN_BELOW: Final = 4096


class InvalidDecisionsError(Exception):
    """What is stored is not what we write."""


class Decisions(msgspec.Struct, frozen=True):
    """What is stored. `revision` is that of the template it was made from; `members` control planes first."""

    revision: str
    members: tuple[Member, ...]

    def current(self) -> Current:
        return Current(self.members)


class _Stored(msgspec.Struct, array_like=True):
    version: int
    revision: str
    control_planes: int
    #: serial, address, and the state taint's value, or "-" for a member on its way out
    rows: list[tuple[str, str, str]]


_decoder: Final = msgspec.json.Decoder(_Stored)


def encode_decisions(what: Decisions) -> bytes:
    """Text for a ConfigMap. Members keep their order, control planes first."""
    planes = [m for m in what.members if m.control_plane]
    workers = [m for m in what.members if not m.control_plane]
    text = msgspec.json.encode(_Stored(_VERSION, what.revision, len(planes), _rows([*planes, *workers])))
    return packed(text)


def packed(text: bytes) -> bytes:
    return text if len(text) < _PLAIN_BELOW else _PACKED + b64encode(zlib.compress(text, _LEVEL))


def unpacked(raw: bytes) -> bytes:
    """`ValueError`, `zlib.error`: it is not what we write."""
    return zlib.decompress(b64decode(raw[len(_PACKED) :], validate=True)) if raw.startswith(_PACKED) else raw


def _rows(members: Iterable[Member]) -> list[tuple[str, str, str]]:
    return [
        (m.serial, m.address, m.state_taint[0] if m.state_taint else _LEAVING if m.leaving else "") for m in members
    ]


def decode_decisions(raw: bytes) -> Decisions:
    try:
        stored = _decoder.decode(unpacked(raw))
    except (ValueError, zlib.error, RecursionError) as error:
        raise InvalidDecisionsError(f"the stored cluster is not readable: {error}") from None
    if stored.version != _VERSION:
        raise InvalidDecisionsError(f"the stored cluster has version {stored.version}; this Mooring reads {_VERSION}")
    planes = stored.control_planes
    rows = stored.rows
    # We never write a cluster without a control plane.
    if not 0 < planes <= len(rows):
        raise InvalidDecisionsError(f"the stored cluster has {planes} control planes among {len(rows)} members")
    members = [_read(row, control_plane=True) for row in rows[:planes]]
    # Nearly all are plain workers: made without a call each.
    members += [
        Member(address, False, None, serial) if not mark else _read((serial, address, mark), control_plane=False)
        for serial, address, mark in rows[planes:]
    ]
    return Decisions(stored.revision, tuple(members))


def _read(row: tuple[str, str, str], *, control_plane: bool) -> Member:
    serial, address, mark = row
    taint = (mark, "NoExecute") if mark and mark != _LEAVING else None
    return Member(address, control_plane, taint, serial, leaving=mark == _LEAVING)


# ── Machines of the members ───────────────────────────────────────────────────────────────────────────────────────


class _Machines(msgspec.Struct, array_like=True):
    version: int
    #: Of ten thousand machines most have the labels of another one.
    labels: list[dict[str, str]]
    #: serial, address, rack, index in rack, role, which labels, register date, retire date
    rows: list[tuple[str, str, int, int, str, int, str, str]]


_machines: Final = msgspec.json.Decoder(_Machines)


def as_shown(machine: Machine) -> Machine:
    """What cluster.yml shows of a machine, and nothing else: its state has a place of its own."""
    m = machine
    registered, retires = dates(m)
    return Machine(
        *(m.serial, m.address, MachineState.HEALTHY, m.rack, m.index_in_rack, m.role, m.labels),
        register_date=registered,
        retire_date=retires,
    )


def encode_machines(machines: Iterable[Machine]) -> str:
    tables: dict[tuple[tuple[str, str], ...], int] = {}
    rows = []
    for m in map(as_shown, machines):
        index = tables.setdefault(tuple(m.labels.items()), len(tables))
        rows.append((m.serial, m.address, m.rack, m.index_in_rack, m.role, index, m.register_date, m.retire_date))
    return packed(msgspec.json.encode(_Machines(_VERSION, [dict(t) for t in tables], rows))).decode()


@lru_cache(maxsize=4)
def decode_machines(text: str) -> Mapping[str, Machine]:
    """By address. Raises InvalidDecisionsError."""
    if not text:
        return {}
    try:
        stored = _machines.decode(unpacked(text.encode()))
        labels = [table or NO_LABELS for table in stored.labels]
        return {
            row[1]: Machine(
                *(row[0], row[1], MachineState.HEALTHY, *row[2:5], labels[row[5]]),
                register_date=row[6],
                retire_date=row[7],
            )
            for row in stored.rows
        }
    except (ValueError, zlib.error, RecursionError, IndexError) as error:
        raise InvalidDecisionsError(f"the stored machines are not readable: {error}") from None


def revision_of(document: Any) -> str:
    """A short name for a template's content: the same content, the same revision, whatever the order of keys."""
    return sha256(msgspec.json.encode(document, order="deterministic")).hexdigest()[:16]


# ── The ConfigMap ───────────────────────────────────────────────────────────────────────────────────────────────────

NAME: Final = "mooring-fleet-cluster"
DECISIONS: Final = "decisions"
REVISION: Final = "revision"
PENDING: Final = "pending.json"
HISTORY: Final = "history.json"
#: Vanished workers whose removal waits for a confirmation.
HELD: Final = "held.json"
#: The members' machines as they were last seen.
MACHINES: Final = "machines"
#: Control planes that were replaced for being broken, and when.
REPLACED: Final = "replaced.json"
#: How long that is remembered.
REMEMBERED_S: Final = 3600.0
#: Changes told per revision; the rest is counted.
_TOLD: Final = 8


class Pending(msgspec.Struct, frozen=True):
    """What was added and is to become Ready, and what was taken away and is to go: address → since when."""

    added: Mapping[str, float] = {}
    removed: Mapping[str, float] = {}


class _PendingText(msgspec.Struct, omit_defaults=True):
    """As it is stored. 0.2 wrote, and reads, one moment for all."""

    at: float = 0.0
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    since: dict[str, float] = {}


def write_pending(pending: Pending) -> str:
    since = {**pending.removed, **pending.added}
    latest = max(since.values(), default=0.0)
    text = _PendingText(latest, tuple(pending.added), tuple(pending.removed), since)
    return msgspec.json.encode(text).decode()


def _read_pending(text: str) -> Pending:
    stored = msgspec.json.decode(text, type=_PendingText)
    added, removed = ({a: stored.since.get(a, stored.at) for a in one} for one in (stored.added, stored.removed))
    return Pending(added, removed)


class StoredChange(msgspec.Struct, frozen=True, omit_defaults=True):
    revision: int
    at: float
    action: str
    control_planes: int
    workers: int
    changes: tuple[str, ...] = ()
    more: int = 0


class StoredCluster(msgspec.Struct, frozen=True):
    decisions: Decisions
    revision: int = 0
    pending: Pending = Pending()
    history: tuple[StoredChange, ...] = ()
    held: frozenset[str] = frozenset()
    replaced: Mapping[str, float] = {}
    #: Of the ConfigMap; None: there is none yet.
    object: ConfigMap | None = None
    #: The members' machines, packed.
    machines_text: str = ""

    @property
    def machines(self) -> Mapping[str, Machine]:
        """By address, as they were when they were last listed."""
        return decode_machines(self.machines_text)

    @property
    def members(self) -> tuple[Member, ...]:
        return self.decisions.members

    def find(self, address: str) -> Member | None:
        return next((m for m in self.members if m.address == address), None)


EMPTY: Final = StoredCluster(Decisions("", ()))


def read_ledger(found: ConfigMap | None) -> StoredCluster | str:
    """The ledger, or what is wrong with it: then nothing is touched."""
    if found is None:
        return EMPTY
    data = found.data
    try:
        decisions = decode_decisions(data[DECISIONS].encode()) if data.get(DECISIONS) else Decisions("", ())
        pending = _read_pending(data.get(PENDING) or "{}")
        history = msgspec.json.decode(data.get(HISTORY) or "[]", type=tuple[StoredChange, ...])
        revision = int(data.get(REVISION) or 0)
        held = msgspec.json.decode(data.get(HELD) or "[]", type=frozenset[str])
        decode_machines(data.get(MACHINES, ""))
        replaced = msgspec.json.decode(data.get(REPLACED) or "{}", type=dict[str, float])
    except (InvalidDecisionsError, ValueError, RecursionError) as error:
        return f"ConfigMap {found.key}: {error}"
    return StoredCluster(decisions, revision, pending, history, held, replaced, found, data.get(MACHINES, ""))


def next_data(
    old: StoredCluster, new: Decisions, action: str, changes: Iterable[PlanChange], now: float, *, keep: int
) -> dict[str, str]:
    """The ConfigMap's data after this change."""
    before, after = {m.address for m in old.members}, {m.address for m in new.members}
    told = [f"{c.change.value} {c.address}: {c.why}" for c in changes]
    planes = sum(m.control_plane for m in new.members)
    entry = StoredChange(
        old.revision + 1,
        now,
        action,
        planes,
        len(new.members) - planes,
        tuple(t[:200] for t in told[:_TOLD]),
        max(0, len(told) - _TOLD),
    )
    added, removed = sorted(after - before), sorted(before - after)
    pending = Pending(
        {a: at for a, at in old.pending.added.items() if a in after} | dict.fromkeys(added, now),
        {a: at for a, at in old.pending.removed.items() if a not in after} | dict.fromkeys(removed, now),
    )
    return {
        DECISIONS: encode_decisions(new).decode(),
        REVISION: str(entry.revision),
        PENDING: write_pending(pending),
        HISTORY: msgspec.json.encode((*old.history, entry)[-keep:]).decode(),
    }


def write_ledger(namespace: str, old: StoredCluster, data: Mapping[str, str], why: str) -> Instruction:
    if old.object is None:
        return Create(kind=Kind.CONFIG_MAP, object=new_object(namespace, data), why=why)
    return Patch(
        kind=Kind.CONFIG_MAP,
        key=old.object.key,
        uid=old.object.uid,
        resource_version=old.object.resource_version,
        patch={"data": dict(data)},
        why=why,
    )


def new_object(namespace: str, data: Mapping[str, str], name: str = NAME) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app.kubernetes.io/managed-by": "mooring"}},
        "data": dict(data),
    }


def key(namespace: str) -> Key:
    return Key(namespace, NAME)
