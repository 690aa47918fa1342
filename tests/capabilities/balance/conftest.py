"""A cluster in a few words: stores by number, regions by where their peers lie, the leader first."""

import pytest

from mooring.capabilities.balance import BalancePolicy, Influence, Picture, Summary
from mooring.core.model.tidb import Peer, Region, Store
from mooring.core.queue.config import REGION_SCHEDULERS


class Town:
    """`town.region(7, 1, 2, 3)`: region 7 on stores 1, 2, 3, led by 1."""

    def __init__(self, stores=3, policy=None, labels=None):
        self.policy = policy or BalancePolicy(sources=REGION_SCHEDULERS)
        self.summary = Summary(self.policy)
        self.stores = {n: Store(n, f"s{n}:20160", labels=(labels or {}).get(n, {})) for n in range(1, stores + 1)}
        self.evicting = set()
        self.tell()

    def tell(self):
        self.summary.set_stores(self.stores.values(), self.evicting)

    def state(self, store_id, state):
        self.stores[store_id] = Store(store_id, f"s{store_id}:20160", state, labels=self.stores[store_id].labels)
        self.tell()

    def evict(self, store_id):
        self.evicting.add(store_id)
        self.tell()

    def region(self, region_id, *where, size=96, flow=0, leader=None, **more):
        peers = tuple(Peer(region_id * 10 + s, s) for s in where)
        leader = where[0] if leader is None else leader
        keys = {"start_key": f"{region_id:08d}", "end_key": f"{region_id + 1:08d}"}
        self.summary.put(
            Region(region_id, **keys, peers=peers, leader_store=leader, size_mib=size, written_bytes=flow, **more)
        )

    def picture(self, turn=0):
        return Picture(self.summary, Influence(self.summary), turn)


@pytest.fixture
def town():
    return Town
