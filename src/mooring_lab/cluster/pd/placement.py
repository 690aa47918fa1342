"""What the sandbox's PD was told about where replicas belong, and the checker that sees to it.

The rules are kept as PD's API has them. Without rules of its own a cluster has one: so many voters, anywhere.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from mooring.clients.wire.placement import placement
from mooring.core.model.placement import Placement, PlacementRule
from mooring.core.model.tidb import Peer, Region
from mooring_lab.cluster.pd.operators import PdStep, StoredOperator
from mooring_lab.cluster.pd.tikv import TikvStore

if TYPE_CHECKING:
    from mooring_lab.cluster.pd.server import PdServer

CHECKERS = ("add-rule-peer", "remove-orphan-peer")


class PlacementSettings:
    def __init__(self, replicas: int) -> None:
        self.rules: list[dict[str, Any]] = [
            {"group_id": "pd", "id": "default", "start_key": "", "end_key": "", "role": "voter", "count": replicas}
        ]
        #: Rules of region labels, as PD's API has them.
        self.region_labels: list[dict[str, Any]] = []
        self.location_labels = ""
        self.halted = False
        self.low_space_ratio = 0.8
        #: Does a checker of its own see to the rules? Only where rules were set, or replicas are yet to come.
        self.checked = False
        self._read: tuple[object, Placement] | None = None

    def set_rules(self, rules: list[dict[str, Any]]) -> None:
        self.rules, self.checked = rules, True

    def expect(self, replicas: int) -> None:
        """So many voters are what this cluster has, unless rules were set."""
        if not self.checked:
            self.rules[0]["count"] = replicas

    def deny(self, start_key: str, end_key: str) -> None:
        """What TiDB Lightning does for the range that it imports into."""
        ranges = [{"start_key": start_key, "end_key": end_key}]
        labels = [{"key": "schedule", "value": "deny"}]
        self.region_labels.append({"id": "deny", "labels": labels, "rule_type": "key-range", "data": ranges})

    def schedule(self) -> dict[str, Any]:
        return {"halt-scheduling": str(self.halted).lower(), "low-space-ratio": self.low_space_ratio}

    def replicate(self) -> dict[str, Any]:
        count = self.rules[0]["count"] if self.rules else 3
        return {"max-replicas": count, "location-labels": self.location_labels, "enable-placement-rules": "true"}

    def read(self) -> Placement:
        """As the client reads it: the same value as long as nothing has changed."""
        said = tuple(map(msgspec.json.encode, (self.schedule(), self.replicate(), self.rules, self.region_labels)))
        if self._read is None or self._read[0] != said:
            schedule, replicate, rules, labels = said
            self._read = (said, placement(schedule, replicate, rules, None, labels))
        return self._read[1]


def is_low_on_space(settings: PlacementSettings, store: TikvStore) -> bool:
    return store.free_share is not None and store.free_share < 1 - settings.low_space_ratio


def rule_checker(pd: "PdServer", region: Region) -> Iterator[StoredOperator]:
    """One region: a replica that no rule wants goes, one that a rule misses is added."""
    group = pd.tikv.groups.get(region.id)
    if group is None or region.id in pd.operators.running or any("ing" in p.role for p in region.peers):
        return
    left, missing = list(region.peers), list[PlacementRule]()
    for rule in _rules_of(pd.placement.read(), region):
        able = [p for p in left if _fits(pd, rule, p, region)][: rule.count]
        left = [p for p in left if p not in able]
        missing += [rule] * (rule.count - len(able))
    if missing and pd.placement.checked:
        holders = {p.store_id for p in region.peers}
        able_stores = [s for s in pd.up_stores() if s not in holders and pd.takes_peers(s)]
        able_stores = [s for s in able_stores if missing[0].takes(pd.tikv.stores[s].labels)]
        if able_stores:
            store = min(able_stores, key=lambda s: (pd.heard.region_counts.get(s, 0), s))
            steps = add_steps(store, pd.tikv.new_id(), voter=missing[0].role != "learner")
            yield StoredOperator("add-rule-peer", f"add peer: store [{store}]", group, ("replica", "region"), steps)
            return
    spare = not missing
    left = [p for p in left if p.role == "Learner" or (spare and p.store_id != region.leader_store)]
    if left:
        step = PdStep("remove-peer", f"remove peer on store {left[0].store_id}", store=left[0].store_id)
        brief = f"rm peer: store [{left[0].store_id}]"
        yield StoredOperator("remove-orphan-peer", brief, group, ("replica", "region"), (step,))


def add_steps(store: int, peer: int, *, voter: bool) -> tuple[PdStep, ...]:
    add = PdStep("add-learner", f"add learner peer {peer} on store {store}", store=store, peer_id=peer)
    promote = PdStep("promote-learner", f"promote learner peer {peer} on store {store} to voter", store=store)
    return (add, promote) if voter else (add,)


def _rules_of(placement: Placement, region: Region) -> list[PlacementRule]:
    """Those whose range holds it; the last that overrides replaces its group."""
    found: list[PlacementRule] = []
    for rule in placement.rules:
        if rule.start_key <= region.start_key and (
            not rule.end_key or (region.end_key and region.end_key <= rule.end_key)
        ):
            found = [r for r in found if not rule.override or r.group != rule.group]
            found.append(rule)
    return found


def _fits(pd: "PdServer", rule: PlacementRule, peer: Peer, region: Region) -> bool:
    if not rule.takes(pd.tikv.stores[peer.store_id].labels):
        return False
    if rule.role == "learner":
        return peer.role == "Learner"
    leads = peer.store_id == region.leader_store
    role_fits = rule.role == "voter" or leads == (rule.role == "leader")
    return role_fits and peer.role == ("Witness" if rule.is_witness else "Voter")
