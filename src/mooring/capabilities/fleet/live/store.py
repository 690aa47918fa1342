"""The cluster as decisions: who is in, and as what. Small enough to live in one Kubernetes object.

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
from mooring.core.model.cluster import NO_LABELS
from mooring.core.model.machine import Machine, MachineState
from mooring.core.model.times import rfc3339

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
    registered, retires = m.register_date or rfc3339(m.registered_at), m.retire_date or rfc3339(m.retire_at)
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
