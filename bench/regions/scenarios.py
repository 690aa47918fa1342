"""Clusters to play with: even ones to which something happens at the first moment. All drawn from a seed."""

import math
from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import Final

import msgspec

from mooring.core.model.tidb import Peer, Region, Store

REPLICAS: Final = 3
MEAN_MIB: Final = 96


class RegionCluster(msgspec.Struct):
    """As it is right after it happened. `sources`: the schedulers that have something to do."""

    stores: dict[int, Store]
    regions: list[Region]
    evicting: set[int] = msgspec.field(default_factory=set)


def _even(stores: int, regions: int, randomness: Random, size: Callable[[], int] = lambda: MEAN_MIB) -> RegionCluster:
    ids = list(range(1, stores + 1))
    made = []
    for number in range(regions):
        first = number % stores
        where = [ids[(first + k * max(1, stores // REPLICAS)) % stores] for k in range(min(REPLICAS, stores))]
        where = list(dict.fromkeys(where)) if stores >= REPLICAS else where
        if len(where) < min(REPLICAS, stores):
            where = randomness.sample(ids, min(REPLICAS, stores))
        peers = tuple(Peer(number * 10 + k, s) for k, s in enumerate(where))
        start, end = (f"{number:08d}" if number else ""), (f"{number + 1:08d}" if number < regions - 1 else "")
        leader = where[(number // stores) % len(where)]
        made.append(Region(number + 1, start, end, peers=peers, leader_store=leader, size_mib=size()))
    return RegionCluster({s: Store(s, f"s{s}:20160") for s in ids}, made)


def _share(stores: int) -> int:
    """A tenth of the stores, at least one."""
    return max(1, stores // 10)


def scale_out(stores: int, regions: int, randomness: Random) -> RegionCluster:
    """A tenth more stores, empty."""
    cluster = _even(stores, regions, randomness)
    for new in range(stores + 1, stores + 1 + _share(stores)):
        cluster.stores[new] = Store(new, f"s{new}:20160")
    return cluster


def scale_in(stores: int, regions: int, randomness: Random) -> RegionCluster:
    """A tenth of the stores are to go; four at least are needed for three replicas to find a place."""
    cluster = _even(max(4, stores), regions, randomness)
    for gone in range(1, 1 + _share(stores)):
        cluster.stores[gone] = Store(gone, f"s{gone}:20160", "Offline")
    return cluster


def store_loss(stores: int, regions: int, randomness: Random) -> RegionCluster:
    """One store is Down: its peers are to be made up for elsewhere; what it led has been elected again."""
    cluster = _even(max(4, stores), regions, randomness)
    cluster.stores[1] = Store(1, "s1:20160", "Down")
    for index, region in enumerate(cluster.regions):
        if region.leader_store == 1:
            others = [p.store_id for p in region.peers if p.store_id != 1]
            cluster.regions[index] = msgspec.structs.replace(region, leader_store=randomness.choice(others))
    return cluster


def hot_store(stores: int, regions: int, randomness: Random) -> RegionCluster:
    """What one store leads is asked for twenty times as much as the rest, and a tenth more stores are new."""
    cluster = scale_out(stores, regions, randomness)
    for index, region in enumerate(cluster.regions):
        flow = (20 if region.leader_store == 1 else 1) * randomness.randint(1 << 20, 2 << 20)
        cluster.regions[index] = msgspec.structs.replace(region, written_bytes=flow)
    return cluster


def mixed(stores: int, regions: int, randomness: Random) -> RegionCluster:
    """Regions of all sizes, to merge, to split and to spread over a tenth more stores; and one store is Down."""

    def size() -> int:
        return min(600, int(randomness.lognormvariate(math.log(60), 1.2)))

    cluster = _even(max(4, stores), regions, randomness, size)
    lost = store_loss(stores, 0, randomness).stores[1]
    cluster.stores[1] = lost
    for index, region in enumerate(cluster.regions):
        if region.leader_store == 1:
            others = [p.store_id for p in region.peers if p.store_id != 1]
            cluster.regions[index] = msgspec.structs.replace(region, leader_store=others[0])
    first = max(4, stores) + 1
    for new in range(first, first + _share(stores)):
        cluster.stores[new] = Store(new, f"s{new}:20160")
    return cluster


SCENARIOS: Final[Mapping[str, Callable[[int, int, Random], RegionCluster]]] = MappingProxyType(
    {
        "scale-out": scale_out,
        "scale-in": scale_in,
        "store-loss": store_loss,
        "hot-store": hot_store,
        "mixed": mixed,
    }
)
