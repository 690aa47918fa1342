"""The invariants of the queue, computed anew from what it holds. Slow; for tests, and for a doctor who suspects us.

Taken = released: what is charged on a target is exactly its facts, its running operators beyond their own facts, and
what cools down. The incremental state (`room`, `front`, `blocked`) is what a full walk would find.
"""

from collections.abc import Iterator

from mooring.core.queue.lane import WAITING, Lane
from mooring.core.queue.state import State


def audit(state: State) -> list[str]:
    """Everything that is not as it should be, in words; empty when all is well."""
    return [*_entries(state), *(wrong for lane in state.lanes.values() for wrong in _lane(state, lane))]


def _entries(state: State) -> Iterator[str]:
    counts: dict[str, int] = {}
    claims: dict[str, str] = {}
    for op_id, entry in state.entries.items():
        for claim in entry.claims:
            if claim in claims:
                yield f"{claim} is claimed by {claims[claim]} and {op_id}"
            claims[claim] = op_id
        if entry.state == WAITING and not entry.parked:
            counts[entry.op.source] = counts.get(entry.op.source, 0) + 1
            behind = sum(entry in lane.queue[lane.front :] for lane in state.lanes.values())
            if behind != entry.blocked:
                yield f"{op_id} is behind on {behind} targets and says {entry.blocked}"
            if not behind and not state.held:
                yield f"{op_id} fits everywhere and waits"
    if counts != state.waiting_count:
        yield f"waiting by source is {counts}, counted {state.waiting_count}"
    if claims.keys() != state._claims.keys():  # noqa: SLF001
        yield "claims are held by nobody"


def _lane(state: State, lane: Lane) -> Iterator[str]:
    name = lane.name
    charged = sum(entry.need.get(name, 0) for entry in lane.running.values())
    facts = sum(fact.amount for fact in lane.facts.values())
    if lane.used != charged + facts + lane.cooling:
        yield f"{name}: {lane.used} used, {charged} charged + {facts} facts + {lane.cooling} cooling"
    answered = sum(entry.cost[name] - entry.need.get(name, 0) for entry in lane.running.values())
    if lane.loose != facts - answered:
        yield f"{name}: {lane.loose} loose, {facts} − {answered} found"
    touching = {op_id for op_id, entry in state._running.items() if name in entry.cost}  # noqa: SLF001
    if lane.running.keys() != touching:
        yield f"{name}: running {set(lane.running)}, found {touching}"
    if lane.limit != state.limit(name):
        yield f"{name}: its limit is {lane.limit}, should be {state.limit(name)}"
    room = lane.cap - lane.used
    front = 0
    live = list(lane.waiting())
    if [entry.key for entry in live] != sorted(entry.key for entry in live):
        yield f"{name}: not in queue order"
    for entry in live:
        if entry.need[name] > room:
            break
        room -= entry.need[name]
        front += 1
    if sum(entry.state == WAITING for entry in lane.queue[: lane.front]) != front or lane.room != room:
        yield f"{name}: front or room is off: {lane.room}, should be {room}"
    if lane.dead != len(lane.queue) - len(live):
        yield f"{name}: {lane.dead} dead entries counted, {len(lane.queue) - len(live)} there"
