"""The invariants of the queue, computed again from what it holds. Slow; for tests only.

Taken = released: what is charged on a target is exactly its facts, its running operators beyond their own facts, and
what cools down. The incremental state (`room`, `front`, `blocked`) is what a full walk would find.
"""

from collections.abc import Iterator

from mooring.core.model.decision import WAITING
from mooring.core.queue.lane import Lane
from mooring.core.queue.queue import Queue


def audit(queue: Queue) -> list[str]:
    """Every broken invariant, in words; empty when there is none."""
    touching: dict[str, set[str]] = {}
    for op_id, record in queue.records.running.items():
        for name in record.cost:
            touching.setdefault(name, set()).add(op_id)
    found = [*_records(queue)]
    for name, lane in queue.lanes.items():
        if name in touching or not _nothing(queue, lane):
            found += _lane(queue, lane, touching.get(name, set()))
    return found


def _nothing(queue: Queue, lane: Lane) -> bool:
    """Empty, and right: most of them."""
    if lane.running or lane.facts or lane.queue or lane.unowned or lane.front or lane.dead:
        return False
    return lane.used == lane.cooling and lane.room == lane.cap - lane.used and lane.limit == queue.limit(lane.name)


def _records(queue: Queue) -> Iterator[str]:
    counts: dict[tuple[str, str], int] = {}
    claims: dict[str, str] = {}
    for op_id, record in queue.records.by_id.items():
        for claim in record.claims:
            if claim in claims:
                yield f"{claim} is claimed by {claims[claim]} and {op_id}"
            claims[claim] = op_id
        if record.state == WAITING and not record.parked:
            counted = (record.operator.source, record.operator.quota)
            counts[counted] = counts.get(counted, 0) + 1
            behind = sum(record in lane.queue[lane.front :] for lane in queue.lanes.values())
            if behind != record.blocked:
                yield f"{op_id} is behind on {behind} targets and says {record.blocked}"
            if not behind:
                yield f"{op_id} fits everywhere and waits"
    if counts != queue.records.waiting_count:
        yield f"waiting by source is {counts}, counted {queue.records.waiting_count}"
    if claims.keys() != queue.records.by_claim.keys():
        yield "claims without an operator"


def _lane(queue: Queue, lane: Lane, touching: set[str]) -> Iterator[str]:
    name = lane.name
    room = lane.cap - lane.used
    charged = sum(record.need.get(name, 0) for record in lane.running.values())
    facts = sum(fact.amount for fact in lane.facts.values())
    if lane.used != charged + facts + lane.cooling:
        yield f"{name}: {lane.used} used, {charged} charged + {facts} facts + {lane.cooling} cooling"
    answered = sum(record.cost[name] - record.need.get(name, 0) for record in lane.running.values())
    if lane.unowned != facts - answered:
        yield f"{name}: {lane.unowned} unowned, {facts} − {answered} found"
    if lane.running.keys() != touching:
        yield f"{name}: running {set(lane.running)}, found {touching}"
    if lane.limit != queue.limit(name):
        yield f"{name}: its limit is {lane.limit}, should be {queue.limit(name)}"
    front = 0
    live = list(lane.waiting())
    if [record.key for record in live] != sorted(record.key for record in live):
        yield f"{name}: not in queue order"
    for record in live:
        if record.need[name] > room:
            break
        room -= record.need[name]
        front += 1
    if sum(record.state == WAITING for record in lane.queue[: lane.front]) != front or lane.room != room:
        yield f"{name}: front or room is off: {lane.room}, should be {room}"
    if lane.dead != len(lane.queue) - len(live):
        yield f"{name}: {lane.dead} dead entries counted, {len(lane.queue) - len(live)} there"
