"""What a person may store by hand: a cluster that meets constraints and quorum, and removals that are held."""

from collections.abc import Iterable
from typing import Final

import msgspec

from mooring.capabilities.fleet.live import ledger
from mooring.capabilities.fleet.live.ledger import StoredCluster, next_data
from mooring.capabilities.fleet.live.settings import FleetSettings
from mooring.capabilities.fleet.live.store import Decisions
from mooring.capabilities.fleet.planner.current import Current
from mooring.capabilities.fleet.planner.files.constraints import Constraints

#: Revisions that the history keeps.
KEEP: Final = 50


def problems_of(current: Current, limits: Constraints, stored: StoredCluster, *, quorum_is_lost: bool) -> list[str]:
    """Why this cluster may not replace the stored one; empty: it may."""
    return [*_unmet(current, limits), *([] if quorum_is_lost else _quorum(current, stored))]


def replacing_data(current: Current, made: FleetSettings, stored: StoredCluster, now: float) -> dict[str, str]:
    """The stored cluster's ConfigMap once this one is in it; nothing of an earlier change is pending any more."""
    members = tuple(msgspec.structs.replace(m, node=None) for m in current.members)
    data = next_data(stored, Decisions(made.revision, members), "set-by-hand", (), now, keep=KEEP)
    return {**data, ledger.PENDING: "{}"}


def confirmed_text(before: str, stored: StoredCluster, chosen: Iterable[str]) -> str:
    """The setting `confirmed` with these removals in it. What was confirmed and has gone since is forgotten: a machine
    that comes back is guarded again."""
    kept = [a for a in msgspec.json.decode(before or "[]", type=list[str]) if a in stored.held]
    return msgspec.json.encode(sorted({*kept, *chosen})).decode()


def _unmet(current: Current, limits: Constraints) -> list[str]:
    planes = sum(m.control_plane for m in current.members)
    workers = len(current.members) - planes
    found = []
    if planes != limits.control_plane_count:
        found.append(f"{planes} control planes, control-plane-count is {limits.control_plane_count}")
    if workers < limits.minimum_workers:
        found.append(f"{workers} workers, minimum-workers is {limits.minimum_workers}")
    if 0 < limits.maximum_workers < workers:
        found.append(f"{workers} workers, maximum-workers is {limits.maximum_workers}")
    return found


def _quorum(current: Current, stored: StoredCluster) -> list[str]:
    planes = {m.address for m in stored.members if m.control_plane}
    stay = {m.address for m in current.members if m.control_plane} & planes
    if not planes or len(stay) * 2 > len(planes):
        return []
    lost = f"only {len(stay)} of {len(planes)} control planes would stay: etcd would lose its quorum"
    return [f"{lost}. Change fewer at a time, or --quorum-is-lost when it is"]
