"""The regions that leaders have reported to PD, counted by store."""

import msgspec

from mooring.core.model.tidb import Region


class HeardRegions:
    def __init__(self) -> None:
        self.by_id: dict[int, Region] = {}
        self.leader_counts: dict[int, int] = {}
        self.region_counts: dict[int, int] = {}
        self.led: dict[int, dict[int, None]] = {}
        self.held: dict[int, dict[int, None]] = {}
        #: Regions between two sets of voters; a checker leads them out.
        self.joint: dict[int, None] = {}
        #: Regions to check against the placement rules.
        self.to_check: dict[int, None] = {}
        #: How many have a leader.
        self.with_leader = 0

    def learn(self, region: Region) -> None:
        self.by_id[region.id] = region
        for peer in region.peers:
            self.region_counts[peer.store_id] = self.region_counts.get(peer.store_id, 0) + 1
            self.held.setdefault(peer.store_id, {})[region.id] = None
            if peer.role in ("IncomingVoter", "DemotingVoter"):
                self.joint[region.id] = None
        leader = region.leader_store
        if leader:
            self.with_leader += 1
            self.leader_counts[leader] = self.leader_counts.get(leader, 0) + 1
            self.led.setdefault(leader, {})[region.id] = None

    def forget(self, region: Region) -> None:
        del self.by_id[region.id]
        self.joint.pop(region.id, None)
        for peer in region.peers:
            self.region_counts[peer.store_id] -= 1
            self.held[peer.store_id].pop(region.id, None)
        if region.leader_store:
            self.with_leader -= 1
            self.leader_counts[region.leader_store] -= 1
            self.led[region.leader_store].pop(region.id, None)

    def forget_regions(self) -> None:
        self.by_id = {}
        self.region_counts.clear()
        self.held.clear()
        self.joint.clear()

    def forget_leaders(self) -> None:
        self.by_id = {r.id: msgspec.structs.replace(r, leader_store=0) for r in self.by_id.values()}
        self.leader_counts.clear()
        self.led.clear()
        self.with_leader = 0
