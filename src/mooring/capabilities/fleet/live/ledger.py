"""The stored cluster: decisions with their revision, what the last change still waits for, and a short history.

One ConfigMap, written by compare-and-swap: a write that another has overtaken is refused by the API server, and the
pass is made again from what is there then. The number of the revision rises by one with each write.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from mooring.capabilities.fleet.live.store import (
    Decisions,
    InvalidDecisionsError,
    decode_decisions,
    decode_machines,
    encode_decisions,
)
from mooring.capabilities.fleet.planner.current import Member
from mooring.capabilities.fleet.planner.plan import PlanChange
from mooring.core.model.cluster import ConfigMap, Key
from mooring.core.model.instructions import Create, Instruction, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import Machine

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
