"""What `mooring doctor` says of handoff: who acts on annotations of tidb-operator, and whose store a limit is."""

from collections.abc import Iterator
from typing import Final

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.core.model.descriptor import Examined
from mooring.core.model.finding import Finding, ill, well

#: How much of a long list a finding shows.
SHOWN: Final = 3


def examine(seen: Examined) -> Iterator[Finding]:
    yield from shared_annotations(seen)
    yield from bare_stores(seen)


def bare_stores(seen: Examined) -> Iterator[Finding]:
    """Every PD counts its stores from 1: a bare id is a store of each cluster."""
    bare = sorted(filter(str.isdecimal, map(str, seen.config.queue.get("StoreMaxScheduleCost") or ())))
    if not bare or len(seen.clusters) < 2:
        return
    where = f"queue.StoreMaxScheduleCost is a store of each of {len(seen.clusters)} TidbClusters"
    told = f"{', '.join(bare[:SHOWN])} in {where}"
    first = min(tc.key for tc in seen.clusters)
    fix = f'queue: {{StoreMaxScheduleCost: {{"{first}/{bare[0]}": …}}}} in the settings'
    yield ill("settings", "MO604", "limits of stores name their cluster", told, fix, warning=True)


def shared_annotations(seen: Examined) -> Iterator[Finding]:
    """Who acts on what tidb-operator knows, too. It writes a phase; we never do."""
    policy = seen.config.policy(HandoffPolicy)
    kept = sorted(str(tc.key) for tc in seen.clusters if tc.tikv_phase or tc.pd_phase or tc.tidb_phase)
    if not kept or not seen.on:
        return
    who = ", ".join(kept[:SHOWN]) + (f" and {len(kept) - SHOWN} more" if len(kept) > SHOWN else "")
    what = "evict-leader, pd-transfer-leader and tidb-graceful-shutdown"
    if policy.leave_to_tidb_operator is False:
        told = f"a tidb-operator keeps {who}, and handoff.leave-to-tidb-operator is false: both act on {what}"
        fix = "handoff: {leave-to-tidb-operator: auto} in the settings"
        yield ill("handoff", "MO603", "one acts on an annotation", told, fix, warning=True)
        return
    then = "" if policy.leaves_all else f"; what it has not begun within {policy.yield_s:.0f} s, Mooring does"
    yield well("handoff", f"{what} are left to the tidb-operator that keeps {who}{then}")
