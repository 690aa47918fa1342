"""How long a look of each scheduler takes: 1,000 stores, 100,000 regions, 10 ms at most; and a walk over all regions
beside it, as a scheduler without kept figures would need.

The cluster is uneven, repairs are due, and two hundred operators are under way, so that every scheduler has something
to find. Times are CPU time of this process: the median and the worst of fifty looks.
"""

import random
import statistics
import time

from mooring.capabilities.balance import BalancePolicy, Influence, Picture, Summary, operator_of, propose
from mooring.capabilities.balance.book import Book
from mooring.core.model.cluster import Key
from mooring.core.model.events import RegionsSeen
from mooring.core.model.tidb import Peer, Region, Store
from mooring.core.queue import Queue, Settings
from mooring.core.queue.config import REGION_SCHEDULERS

STORES, REGIONS, LOOKS = 1_000, 100_000, 50
TARGET_MS = 10.0


def cluster() -> tuple[Summary, list[Region]]:
    """900 stores hold everything, 100 are new; one is Down, one evicting; some regions are odd."""
    rng = random.Random(1)
    summary = Summary(BalancePolicy(sources=REGION_SCHEDULERS))
    stores = [Store(s, f"s{s}:1", "Down" if s == 5 else "Up") for s in range(1, STORES + 1)]
    summary.set_stores(stores, {7})
    regions = []
    for number in range(1, REGIONS + 1):
        where = rng.sample(range(1, 901), 2 if number % 5000 == 0 else 3)
        leader = next(s for s in where if s != 5)
        size = 500 if number % 997 == 0 else 5 if number % 499 < 2 else rng.randint(60, 140)
        keys = (f"{number:07d}", f"{number + 1:07d}")
        peers = tuple(Peer(number * 10 + k, s) for k, s in enumerate(where))
        flow = (30 if leader < 20 else 1) * rng.randint(1 << 19, 1 << 21)
        regions.append(Region(number, *keys, peers=peers, leader_store=leader, size_mib=size, written_bytes=flow))
    return summary, regions


def even() -> Summary:
    """Leaders are even, and a hundred new stores hold nothing yet: balance-leader looks everywhere, in vain."""
    summary = Summary(BalancePolicy())
    summary.set_stores([Store(s, f"s{s}:1") for s in range(1, STORES + 1)])
    for number in range(1, 900 * 30 + 1):
        where = [1 + (number + k * 7) % 900 for k in range(3)]
        peers = tuple(Peer(number * 10 + k, s) for k, s in enumerate(where))
        summary.put(Region(number, peers=peers, leader_store=where[0], size_mib=96))
    return summary


def timed(call) -> float:
    began = time.process_time()
    call()
    return (time.process_time() - began) * 1000


def naive(regions: list[Region]) -> None:
    """What counting anew costs before anything is chosen."""
    held: dict[int, int] = {}
    led: dict[int, int] = {}
    for region in regions:
        led[region.leader_store] = led.get(region.leader_store, 0) + 1
        for peer in region.peers:
            held[peer.store_id] = held.get(peer.store_id, 0) + region.size_mib


def main() -> None:
    summary, regions = cluster()
    took = timed(lambda: [summary.put(region) for region in regions])
    print(f"{STORES:,} stores, {REGIONS:,} regions; taken in at {took * 1000 / REGIONS:.1f} µs a region")
    settings, queue = Settings(max_waiting_operator=None), Queue(Settings(max_waiting_operator=None))
    picture = Picture(summary, Influence(summary))
    for source in ("balance-region", "balance-leader"):
        for number, wish in enumerate(propose(picture, source, 100)):
            queue.submit(operator_of(wish, settings, id_=f"{source}-{number}"))

    def once(source: str, turn: int) -> int:
        seen = Picture(summary, Influence(summary), turn)
        seen.influence.add_operators(queue.operators(), "region/")
        return sum(1 for _ in propose(seen, source, 3))

    print(f"one look, 3 wishes, {len(list(queue.operators()))} operators under way (target {TARGET_MS:g} ms):")
    for source in REGION_SCHEDULERS:
        found = once(source, 0)
        times = sorted(timed(lambda s=source, t=turn: once(s, t)) for turn in range(LOOKS))
        worst, median = times[-1], statistics.median(times)
        word = "ok" if worst <= TARGET_MS else "TOO SLOW"
        print(f"  {source:<15} {found} found   median {median:6.2f} ms   worst {worst:6.2f} ms   {word}")
    vain = even()
    times = sorted(
        timed(lambda t=turn: list(propose(Picture(vain, Influence(vain), t), "balance-leader", 3)))
        for turn in range(LOOKS)
    )
    word = "ok" if times[-1] <= TARGET_MS else "TOO SLOW"
    print(f"  {'in vain':<15} 0 found   median {statistics.median(times):6.2f} ms   worst {times[-1]:6.2f} ms   {word}")
    print(f"  counting all regions anew: {timed(lambda: naive(regions)):.0f} ms before anything is chosen")
    book = Book(summary.policy)
    book.take(RegionsSeen(Key("tidb", "demo"), tuple(regions), 1.0))
    slices = []
    while True:
        began = time.process_time()
        more = book.advance()
        slices.append((time.process_time() - began) * 1000)
        if not more:
            break
    book.take(RegionsSeen(Key("tidb", "demo"), tuple(regions), 2.0))
    again = []
    more = True
    while more:
        began = time.process_time()
        more = book.advance()
        again.append((time.process_time() - began) * 1000)
    print(f"a whole list taken in by slices: worst {max(slices):.1f} ms when all is new, {max(again):.1f} ms unchanged")


if __name__ == "__main__":
    main()
