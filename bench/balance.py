"""How long a look of each scheduler takes: 1,000 stores, 100,000 regions, 10 ms at most; and a walk over all regions
beside it, as a scheduler without kept figures would need. Then a million regions: memory, a full read, what following
them costs.

The cluster is uneven, repairs are due, and two hundred operators are under way, so that every scheduler has something
to find. Times are CPU time of this process: the median and the worst of fifty looks.
"""

import gc
import random
import resource
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mooring.capabilities.balance import BalancePolicy, Influence, Picture, Summary, operator_of, propose
from mooring.capabilities.balance.book import PACE_S, RANGE, Book
from mooring.clients.pd.regions import regions_of_range as parse
from mooring.core.model.cluster import Key
from mooring.core.model.events import RegionsSeen
from mooring.core.model.placement import Placement, PlacementRule
from mooring.core.model.tidb import PdView, Peer, Region, Store
from mooring.core.queue import Queue, Settings
from mooring.core.queue.config import REGION_SCHEDULERS

STORES, REGIONS, LOOKS = 1_000, 100_000, 50
MANY = 1_000_000
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


def looks() -> None:
    summary, regions = cluster()
    took = timed(lambda: [summary.put(region) for region in regions])
    print(f"{STORES:,} stores, {REGIONS:,} regions; taken in at {took * 1000 / REGIONS:.1f} µs a region")
    settings, queue = Settings(max_waiting_operator=None), Queue(Settings(max_waiting_operator=None))
    picture = Picture(summary, Influence(summary))
    for source in ("balance-region", "balance-leader"):
        for number, proposal in enumerate(propose(picture, source, 100)):
            queue.submit(operator_of(proposal, settings, id_=f"{source}-{number}"))

    def once(source: str, turn: int) -> int:
        seen = Picture(summary, Influence(summary), turn)
        seen.influence.add_operators(queue.operators(), "region/")
        return sum(1 for _ in propose(seen, source, 3))

    print(f"one look, 3 proposals, {len(list(queue.operators()))} operators under way (target {TARGET_MS:g} ms):")
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


def pages(rotation: int) -> Iterator[bytes]:
    """What PD answers, range by range; in each rotation some leaders have moved and all serve something else."""
    rng = random.Random(rotation)
    for first in range(0, MANY, RANGE):
        found = []
        for n in range(first, min(MANY, first + RANGE)):
            where = [1 + (n * 7 + k * 331) % STORES for k in range(3)]
            peers = [{"role_name": "Voter", "id": 4 * n + 1 + k, "store_id": s} for k, s in enumerate(where)]
            leader = peers[rotation % 3 if n % 50 == 0 else 0]
            flow = {"written_bytes": rng.randint(0, 1 << 20), "read_bytes": rng.randint(0, 1 << 20)}
            size = {"approximate_size": 96, "approximate_keys": 960_000}
            epoch = {"conf_ver": 5, "version": n % 900}
            keys = {"start_key": _key(n), "end_key": _key(n + 1)}
            found.append({"id": 4 * n, **keys, "epoch": epoch, "peers": peers, "leader": leader, **flow, **size})
        yield msgspec.json.encode({"count": len(found), "regions": found})


def _key(number: int) -> str:
    return f"7480000000000000FF{number // 100:016X}5F72{number:016X}FA" if 0 < number < MANY else ""


def _word(good: bool) -> str:
    return "ok" if good else "ABOVE THE GOAL"


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / (1 << 20)


def million() -> None:
    gc.collect()
    before, book, parts = resident_mib(), Book(BalancePolicy()), list[float]()
    stores = tuple(Store(s, f"s{s}:1", capacity_bytes=1 << 40, available_bytes=1 << 39) for s in range(1, STORES + 1))
    view = PdView(stores, (), MANY, 7, placement=Placement((PlacementRule(),)))
    seen = timed(lambda: book.see(view, 0.0))
    print(f"{STORES:,} stores, {MANY:,} regions, read in rotation by {RANGE:,}:")
    for rotation in range(2):
        spent = 0.0
        for number, body in enumerate(pages(rotation)):

            def take(body=body, at=rotation * 1e6 + number) -> None:
                found = parse(body)
                book.take(RegionsSeen(Key("tidb", "demo"), found, at, (), found[0].start_key, found[-1].end_key))

            parts.append(timed(take))
            spent += parts[-1]
        what = "the first" if rotation == 0 else "steady"
        print(f"  {what:<9} rotation: {spent / 1000:5.1f} s of CPU, {spent * 1000 / MANY:4.1f} µs a region")
    assert len(book.summary.regions) == MANY
    times = [timed(lambda t=turn: _look(book.summary, t)) for turn in range(LOOKS)]
    lasts = MANY * PACE_S
    share = (spent / lasts + (statistics.median(times) + seen) / BalancePolicy().idle_s) / 10
    used = resident_mib() - before
    print(f"  a range: worst {max(parts):.1f} ms; a look of two schedulers: worst {max(times):.1f} ms")
    print(f"  memory: {used:,.0f} MiB (goal 1,024)   {_word(used <= 1024)}")
    print(f"  a rotation lasts {lasts:.0f} s; following costs {share:.1f} % of a core (goal 5)   {_word(share <= 5)}")


def _look(summary: Summary, turn: int) -> None:
    picture = Picture(summary, Influence(summary), turn)
    for source in ("balance-leader", "balance-region"):
        list(propose(picture, source, 3))


def main() -> None:
    looks()
    million()


if __name__ == "__main__":
    main()
