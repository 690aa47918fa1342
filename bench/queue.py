"""The queue's figures: operators per second from submit to finish, how flat that stays, and the longest single event.

Two situations, 1,000 stores and 100,000 regions, 4-step moves priced by their steps:
- *other stores*: so many operators wait, on stores that the measured ones do not touch;
- *same stores*: the measured ones wait too, behind all the others, on the same 1,000 stores.
Beside them, at small sizes, a pass that walks the whole queue at every event.

Times are CPU time of this process, so that other load on the machine does not count. The rate and the longest event
come from separate runs, since timing every call costs as much as a fifth of the work.
"""

import gc
import random
import time
from collections import deque

import msgspec

from mooring.core.model.operator import Operator, Step, StepKind
from mooring.core.queue import Promoted, Queue, RegionMove, Settings, region_operator

STORES = 1_000
REGIONS = 100_000
SETTINGS = Settings(max_waiting_operator=None)


def move(number: int, source_store: int, to_store: int) -> Operator:
    """AddLearner → PromoteLearner → TransferLeader → RemovePeer, priced by the design's table."""
    steps = (
        Step(StepKind.ADD_LEARNER, to_store),
        Step(StepKind.PROMOTE_LEARNER, to_store),
        Step(StepKind.TRANSFER_LEADER, None, source_store, to_store),
        Step(StepKind.REMOVE_PEER, source_store),
    )
    region = RegionMove(regions=(number,), steps=steps, leader=source_store, peers=(source_store,))
    return region_operator(id=f"op-{number}", source="balance-region", move=region, settings=SETTINGS)


def moves(count: int, first: int, stores: range, rng: random.Random) -> list[Operator]:
    return [move(first + n, *rng.sample(stores, 2)) for n in range(count)]


class Meter:
    """Calls through, and remembers the longest one where asked to."""

    def __init__(self, each: bool) -> None:
        self.worst_s = 0.0
        self.each = each

    def of(self, call):
        if not self.each:
            return call

        def timed(*args):
            start = time.thread_time()
            result = call(*args)
            self.worst_s = max(self.worst_s, time.thread_time() - start)
            return result

        return timed


def others_wait(waiting: int, each: bool, measured: int = 30_000) -> tuple[float, float]:
    """Throughput on free stores while `waiting` operators wait on stores of their own."""
    rng = random.Random(1)
    queue = Queue(SETTINGS)
    crowd = range(STORES, STORES + max(2, min(STORES, waiting)))
    number = 0
    # Fill the crowd's stores until exactly so many wait.
    while len(queue.records.by_id) - len(queue.records.running) < waiting:
        queue.submit(move(number, *rng.sample(crowd, 2)))
        number += 1
    batch = moves(measured, number, range(STORES), rng)
    meter = Meter(each)
    submit, finish = meter.of(queue.submit), meter.of(queue.finish)
    settle()
    start = time.process_time()
    for op in batch:
        submit(op)
        finish(op.id)
    return measured / (time.process_time() - start), meter.worst_s


def all_wait(waiting: int, each: bool, measured: int = 20_000) -> tuple[float, float]:
    """Throughput when every operator queues up behind `waiting` others on the same stores: one in, one out."""
    rng = random.Random(2)
    queue = Queue(SETTINGS)
    running: deque[str] = deque()
    number = 0
    while len(queue.records.by_id) - len(queue.records.running) < waiting:
        running.extend(e.id for e in queue.submit(move(number, *rng.sample(range(STORES), 2))) if type(e) is Promoted)
        number += 1
    batch = moves(measured, number, range(STORES), rng)
    meter = Meter(each)
    submit, finish = meter.of(queue.submit), meter.of(queue.finish)
    settle()
    start = time.process_time()
    done = 0
    for op in batch:
        for event in submit(op):
            if type(event) is Promoted:
                running.append(event.id)
        while running and len(queue.records.by_id) > waiting + len(running):
            for event in finish(running.popleft()):
                if type(event) is Promoted:
                    running.append(event.id)
            done += 1
    return done / (time.process_time() - start), meter.worst_s


def walk_everything(waiting: int, measured: int = 300) -> float:
    """The obvious way: at every event, walk the queue from the front and add up what is reserved."""
    rng = random.Random(1)
    line = [(op.id, op.cost) for op in moves(waiting, 0, range(STORES, STORES + max(2, min(STORES, waiting))), rng)]
    used: dict[str, int] = {str(s): 20 for s in range(STORES, 2 * STORES)}
    start = time.process_time()
    for op in moves(measured, waiting, range(STORES), rng):
        line.append((op.id, op.cost))
        for finished in (False, True):
            if finished:
                for store, cost in op.cost.items():
                    used[store] -= cost
            reserved: dict[str, int] = {}
            left = []
            for entry in line:
                if all(used.get(s, 0) + reserved.get(s, 0) + c <= 20 for s, c in entry[1].items()):
                    for store, cost in entry[1].items():
                        used[store] = used.get(store, 0) + cost
                else:
                    for store, cost in entry[1].items():
                        reserved[store] = reserved.get(store, 0) + cost
                    left.append(entry)
            line = left
    return measured / (time.process_time() - start)


def each_kind_of_event(waiting: int) -> dict[str, float]:
    """The longest single call of each kind, in ms, while so many wait on the same stores."""
    rng = random.Random(4)
    queue = Queue(SETTINGS)
    number = 0
    while len(queue.records.by_id) - len(queue.records.running) < waiting:
        queue.submit(move(number, *rng.sample(range(STORES), 2)))
        number += 1
    settle()
    longest: dict[str, float] = {}

    def timed(name, call, *args):
        start = time.thread_time()
        call(*args)
        longest[name] = max(longest.get(name, 0.0), (time.thread_time() - start) * 1000)

    names = rng.sample(queue.waiting, 600)
    for n in range(300):
        store = str(rng.randrange(STORES))
        timed("cancel", queue.cancel, names.pop())
        urgent = msgspec.structs.replace(move(number + n, *rng.sample(range(STORES), 2)), deadline=float(n % 7))
        timed("submit with a deadline", queue.submit, urgent)
        timed("fact begins", queue.set_fact, store, "", 15, "somebody else's operator")
        timed("fact ends", queue.clear_fact, store, "")
        timed("limit lowered", queue.set_limit, store, 12)
        timed("limit raised", queue.reset_limit, store)
        timed("why", queue.why, names.pop())
    tighter = msgspec.structs.replace(SETTINGS, max_schedule_cost=19)
    for _ in range(3):
        timed("configure, 1,000 stores tighter", queue.configure, tighter)
        timed("configure, 1,000 stores wider", queue.configure, SETTINGS)
    timed("tick, nothing due", queue.tick, 1.0)
    return longest


def settle() -> None:
    """Start each measurement from a clean heap; the collector stays on."""
    gc.collect()


def report(title: str, sizes: tuple[int, ...], run, target: int, flat: float) -> None:
    print(f"\n{title}   (target ≥ {target:,}/s, flat within {flat}×, no event above 20 ms)")
    rates = []
    for size in sizes:
        rate, _ = run(size, each=False)
        _, worst = run(size, each=True)
        rates.append(rate)
        print(f"  {size:>7,} waiting   {rate:>9,.0f} operators/s   longest event {worst * 1000:6.2f} ms")
    print(f"  flatness {max(rates) / min(rates):.2f}× from {sizes[0]:,} to {sizes[-1]:,}")


def main() -> None:
    print(f"submit → promote → finish, {STORES:,} stores, {REGIONS:,} regions, one process")
    print("for comparison, PD's controller in Go at this size: 12,800–15,300/s")
    report("waiting on other stores", (10, 1_000, 100_000), others_wait, 50_000, 1.5)
    report("all waiting on the same stores", (1_000, 10_000, 100_000), all_wait, 25_000, 2.0)
    print("\nwalking the whole queue at every event, waiting on other stores")
    for size in (10, 100, 1_000):
        print(f"  {size:>7,} waiting   {walk_everything(size):>9,.0f} operators/s")
    print("\nlongest single event of each kind, 100,000 waiting on the same stores   (target: none above 20 ms)")
    for name, longest in each_kind_of_event(100_000).items():
        print(f"  {name:<32} {longest:6.2f} ms")
    start = time.process_time()
    moves(20_000, 0, range(STORES), random.Random(3))
    print(f"\npricing alone (steps → cost per store): {20_000 / (time.process_time() - start):,.0f} operators/s")


if __name__ == "__main__":
    main()
