"""When is a store really empty of leaders?

`leader_count == 0` alone is no proof: a PD that has just restarted shows every store Up with zero leaders until the
region heartbeats arrive. So all of this must hold, twice, some seconds apart, seen from one PD that did not restart in
between:

- PD's list of evict-leader schedulers could be read and names the store (it cannot be read in that window);
- the stores' leader counts add up to the number of regions (in that window they add up to nothing), but for a stated
  share that a PD which has been up for long may miss (a lost region has no leader anywhere), and there are regions at
  all, also on this store (a PD that lost its storage shows zero of everything, which adds up);
- PD itself did not start just now, nor did another of its members take over while we looked: what it knows of regions
  is still coming in;
- the store is Up and its heartbeat is fresh.

Before the pod goes, elections must be over, too: PD counts the leaders of a store that has just restarted as they were.
"""

from math import inf
from typing import Final

import msgspec

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.core.model.reasons import Reason
from mooring.core.model.tidb import PdView
from mooring.core.world.read import PdLook

#: The second look comes no sooner than this.
SECOND_LOOK_S: Final = 0.1
#: So many times the age at which a PD's answers count at all: by then every region has reported many times.
SETTLED: Final = 10


def tolerated_leaderless(regions: int, policy: HandoffPolicy) -> int:
    """How many regions may be without a leader (`leaderless_share`)."""
    return max(1, int(regions * policy.leaderless_share)) if policy.leaderless_share else 0


class Doubt(msgspec.Struct, frozen=True, gc=False):
    """Why a look at PD does not show an empty store."""

    reason: Reason
    detail: str
    leaders: int | None = None


def disproof(view: PdView, store_id: int, now: float, policy: HandoffPolicy) -> Doubt | None:
    """None: this one look shows the store empty, its eviction on, and a PD that knows its regions."""
    store = next((s for s in view.stores if s.id == store_id), None)
    if store is None:
        return Doubt(Reason.STORE_UNKNOWN, f"PD does not know store {store_id}")
    if view.evicting is None:
        return Doubt(Reason.PD_UNSURE, "PD cannot say which stores it evicts (it has just started)")
    if store_id not in view.evicting:
        return Doubt(Reason.PD_UNSURE, f"PD has no evict-leader scheduler for store {store_id}")
    if store.state != "Up":
        return Doubt(Reason.STORE_NOT_UP, f"store {store_id} is {store.state}")
    if store.last_heartbeat_at is None:
        return Doubt(Reason.PD_UNSURE, f"store {store_id} has never sent a heartbeat that PD knows of")
    if now - store.last_heartbeat_at > policy.heartbeat_s:
        return Doubt(Reason.PD_UNSURE, f"store {store_id} has not sent a heartbeat for {policy.heartbeat_s:.0f} s")
    # Leaders that PD does count are there, however little else it knows: the figure is worth showing.
    if store.leader_count:
        return Doubt(Reason.LEADERS_LEFT, f"{store.leader_count} leaders left", store.leader_count)
    age = max(0.0, now - view.start_timestamp)
    if age < policy.young_pd_s:
        return Doubt(Reason.PD_UNSURE, f"PD started {age:.0f} s ago: its stores are still reporting their leaders")
    # A store that has had no region for long may well have none (new, or emptied): it must not wait for ever.
    settled = age >= SETTLED * policy.young_pd_s
    if view.region_count == 0 or (store.region_count == 0 and not settled):
        return Doubt(Reason.PD_UNSURE, "PD knows no regions there: its stores have not reported yet")
    leaders = sum(s.leader_count for s in view.stores)
    missing, tolerated = view.region_count - leaders, tolerated_leaderless(view.region_count, policy)
    if missing > (tolerated if settled else 0):
        what = "not all stores have reported" if not settled else f"{tolerated} without a leader are tolerated"
        return Doubt(Reason.PD_UNSURE, f"PD counts {leaders} leaders for {view.region_count} regions: {what}")
    return None


def elected_at(view: PdView, store_id: int, now: float, policy: HandoffPolicy) -> tuple[float, int] | None:
    """PD counts the leaders of a store that has just restarted as they were, until others are elected: here, maybe.
    When that is over, and which store it is; None: no other store has restarted. A start in the future is a clock that
    is wrong."""
    started = [(s.started_at, s.id) for s in view.stores if s.id != store_id and s.started_at and s.started_at <= now]
    at, store = max(started, default=(-inf, 0))
    over_at = at + policy.election_s
    return (over_at, store) if over_at > now else None


def absent_at(look: PdLook, policy: HandoffPolicy) -> float | None:
    """A PD that comes back adds its schedulers one by one, so one that it does not list is absent only if this very PD
    has been listing for a while. When a look would show that; None: this one does."""
    at = look.since + max(policy.prove_s, SECOND_LOOK_S)
    return at if look.at < at else None


def prove(notes: dict[str, float], look: PdLook, began_with: str, now: float, policy: HandoffPolicy) -> float | None:
    """Zero must last, seen from one PD. When the next look would prove it; None: it is proven. `began_with` is the PD
    that led when the hand-over began, by its mark, which outlives us."""
    # No fewer regions than before: else what is known is still coming in.
    if notes.get("zero_at", -inf) < look.since or look.view.region_count < notes.get("regions", 0.0):
        notes["zero_at"] = look.at
    notes["regions"] = float(look.view.region_count)
    at = notes["zero_at"] + policy.prove_s
    if look.took_over or began_with != look.view.life:
        # It knows the leaders as they were told to the PD before it, until the stores report to it.
        at = max(at, look.since + policy.young_pd_s)
    if look.at == notes["zero_at"]:
        return max(at, now + SECOND_LOOK_S)  # two looks are needed, however short the time between them
    return at if look.at < at else None


def recheck_reason(notes: dict[str, float], proven_at: float, policy: HandoffPolicy) -> str:
    """Why it is looked at once more."""
    if proven_at > notes["zero_at"] + policy.prove_s + SECOND_LOOK_S:
        return "PD has a new leader, and stores may not have reported to it yet; looking again"
    return "looking once more"
