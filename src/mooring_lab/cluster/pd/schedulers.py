"""PD's own schedulers: what each moves next, by what PD has been told.

Each is a function from the server's view to operators not yet started; the server starts them as long as their kind's
limit allows (softly, as PD does: the limit is looked at before a batch, not within it).
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mooring.core.model.tidb import Region
from mooring_lab.cluster.pd.operators import PdStep, StoredOperator

if TYPE_CHECKING:
    from mooring_lab.cluster.pd.server import PdServer

EVICT_LEADER = "evict-leader-scheduler"
BALANCE_LEADER = "balance-leader-scheduler"
BALANCE_REGION = "balance-region-scheduler"
EVICT_STOPPING = "evict-stopping-store-scheduler"
#: Those a PD 8.5 runs by default; of the last three only the last moves anything here.
DEFAULTS = (
    BALANCE_REGION,
    BALANCE_LEADER,
    "balance-hot-region-scheduler",
    "evict-slow-store-scheduler",
    EVICT_STOPPING,
)


def transfer_step(from_store: int, to_store: int) -> PdStep:
    return PdStep("transfer-leader", f"transfer leader from store {from_store} to store {to_store}", store=to_store)


def move_steps(region: Region, from_store: int, to_store: int, peer_id: int, next_leader: int) -> tuple[PdStep, ...]:
    """A peer from one store to another by joint consensus; a leader that has to go steps aside first."""
    gone = next((p.id for p in region.peers if p.store_id == from_store), 0)
    change = (
        f"promote learner peer {peer_id} on store {to_store} to voter, "
        f"demote voter peer {gone} on store {from_store} to learner"
    )
    add = PdStep("add-learner", f"add learner peer {peer_id} on store {to_store}", store=to_store, peer_id=peer_id)
    enter = PdStep("enter-joint", f"use joint consensus, {change}", store=to_store, demoted=from_store)
    leave = PdStep("leave-joint", f"leave joint state, {change}", store=to_store, demoted=from_store)
    remove = PdStep("remove-peer", f"remove peer on store {from_store}", store=from_store)
    if region.leader_store != from_store:
        return add, enter, leave, remove
    aside = transfer_step(from_store, next_leader)
    # A new voter can lead once it is one: in the joint state.
    return (add, enter, aside, leave, remove) if next_leader == to_store else (add, aside, enter, leave, remove)


def leave_joint(pd: "PdServer") -> Iterator[StoredOperator]:
    """PD's joint-state checker: a change that a forgotten operator left half done is brought to its end."""
    for region_id in pd.heard.joint:
        region, group = pd.cache[region_id], pd.tikv.groups.get(region_id)
        if group is None or region_id in pd.operators.running:
            continue
        steps: tuple[PdStep, ...] = (PdStep("leave-joint", "leave joint state"),)
        demoted = {p.store_id for p in region.peers if p.role == "DemotingVoter"}
        heirs = [p.store_id for p in region.peers if p.role in ("Voter", "IncomingVoter") and pd.is_up(p.store_id)]
        if region.leader_store in demoted and heirs:
            steps = (transfer_step(region.leader_store, heirs[0]), *steps)
        yield StoredOperator("leave-joint-state", "leave joint state", group, ("region",), steps)


def next_stopping(pd: "PdServer") -> int | None:
    """Of the stores that say they are stopping the one that PD empties by itself, until it is back or gone. Two that
    begin together: none of them."""
    stores = pd.tikv.stores.values()
    stopping = [s.id for s in stores if s.stopping_until is not None and pd.state_of(s) == "Up"]
    return pd.stopping if pd.stopping in stopping else stopping[0] if len(stopping) == 1 else None


def evict_leaders(pd: "PdServer", stores: Iterable[int], desc: str = EVICT_LEADER) -> Iterator[StoredOperator]:
    """Off every listed store, to any follower's store that is Up and not listed itself. All listed: nothing moves."""
    for store_id in stores:
        found = 0
        for region_id in pd.led_by(store_id):
            if found >= pd.evict_batch:
                break
            region = pd.cache[region_id]
            targets = [s for s in followers(pd, region) if pd.takes_leaders(s)]
            group = pd.tikv.groups.get(region_id)
            if region_id in pd.operators.running or not targets or group is None:
                continue
            to = pd.randomness.random.choice(targets)
            among = " ".join(map(str, targets))
            brief = f"evict leader: from store {store_id} to one in [{among}], or to {to} (for compatibility)"
            yield StoredOperator(desc, brief, group, ("leader",), (transfer_step(store_id, to),))
            found += 1


def balance_leaders(pd: "PdServer") -> Iterator[StoredOperator]:
    """From stores with many leaders to those of their followers with the fewest, one batch."""
    counts = {s: pd.heard.leader_counts.get(s, 0) for s in pd.up_stores() if not pd.refuses_leaders(s)}
    most, found = 2 * pd.settings.tolerance, 0
    for source in sorted(counts, key=lambda s: (-counts[s], s)):
        for region_id in pd.led_by(source):
            if found == pd.settings.balance_batch or counts[source] - min(counts.values()) <= most:
                break
            group = pd.tikv.groups.get(region_id)
            if group is None or region_id in pd.operators.running:
                continue
            target = _least(pd.cache[region_id], source, counts)
            if target is None or counts[source] - counts[target] <= most:
                continue
            found += 1
            counts[source] -= 1
            counts[target] += 1
            step, brief = transfer_step(source, target), f"transfer leader: store {source} to {target}"
            yield StoredOperator(BALANCE_LEADER, brief, group, ("leader",), (step,))


def _least(region: Region, source: int, counts: dict[int, int]) -> int | None:
    """The voter's store with the fewest leaders among those that count."""
    stores = [p.store_id for p in region.peers if p.role == "Voter" and p.store_id != source and p.store_id in counts]
    return min(stores, key=lambda s: (counts[s], s), default=None)


def replace_leaving(pd: "PdServer") -> Iterator[StoredOperator]:
    """PD's replica checker: peers leave stores that are Offline or Down, until none is left there. Those of the only
    TiFlash store have nowhere to go."""
    sources = [s for s in pd.leaving_stores() if pd.heard.region_counts.get(s, 0)]
    counts = _counts(pd) if sources else {}
    for source in sources if counts else ():
        if "engine" not in pd.tikv.stores[source].labels:
            yield from _moves(pd, source, counts, desc="replace-offline-replica", kinds=("replica", "region"), within=0)


def balance_regions(pd: "PdServer") -> Iterator[StoredOperator]:
    """Peers from the fullest store to the emptiest."""
    counts = _counts(pd)
    if counts:
        source = max(counts, key=lambda s: (counts[s], s))
        yield from _moves(pd, source, counts, desc=BALANCE_REGION, kinds=("region",), within=2 * pd.settings.tolerance)


def _counts(pd: "PdServer") -> dict[int, int]:
    """Regions by store, where voters may go."""
    tikv = [s for s in pd.up_stores() if "engine" not in pd.tikv.stores[s].labels]
    return {s: pd.heard.region_counts.get(s, 0) for s in tikv}


def _moves(
    pd: "PdServer", source: int, counts: dict[int, int], *, desc: str, kinds: tuple[str, ...], within: int
) -> Iterator[StoredOperator]:
    if counts.get(source, 10**9) - min(counts.values()) <= within:
        return
    for region_id in pd.held_by(source):
        region, group = pd.cache[region_id], pd.tikv.groups.get(region_id)
        holders = {p.store_id for p in region.peers}
        targets = [s for s in counts if s not in holders and counts.get(source, 10**9) - counts[s] > within]
        targets = [s for s in targets if pd.takes_peers(s)]
        others = [s for s in followers(pd, region) if s != source and pd.takes_leaders(s)]
        if group is None or region_id in pd.operators.running or not targets:
            continue
        target = min(targets, key=lambda s: (counts[s], s))
        if region.leader_store == source and not others and target in pd.evicting:
            continue
        if pd.operators.count(kinds[0]) >= pd.settings.region_limit:
            return
        counts[target] += 1
        if source in counts:
            counts[source] -= 1
        steps = move_steps(region, source, target, pd.tikv.new_id(), others[0] if others else target)
        yield StoredOperator(desc, f"mv peer: store [{source}] to [{target}]", group, kinds, steps)


def followers(pd: "PdServer", region: Region) -> list[int]:
    """Stores with a voter that could lead: Up, as far as PD knows."""
    return [
        p.store_id
        for p in region.peers
        if p.role == "Voter" and p.store_id != region.leader_store and pd.is_up(p.store_id)
    ]
