"""All schedulers by name, and one look of several of them: each sees what the ones before it have just proposed."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final

import msgspec

from mooring.capabilities.balance import leaders, peers
from mooring.capabilities.balance.picture import Picture, Proposal
from mooring.capabilities.balance.policy import BALANCE_LEADER, BALANCE_REGION, HOT, MERGE, ORDER, REPLICA, SPLIT
from mooring.core.model.operator import Operator
from mooring.core.queue import Settings, region_operator

Scheduler = Callable[[Picture], Iterator[Proposal]]

SCHEDULERS: Final[Mapping[str, Scheduler]] = MappingProxyType(
    {
        BALANCE_LEADER: leaders.balance_leader,
        BALANCE_REGION: peers.balance_region,
        REPLICA: peers.replica,
        MERGE: peers.merge,
        SPLIT: peers.split,
        HOT: leaders.hot,
    }
)


def propose(picture: Picture, source: str, room: int) -> Iterator[Proposal]:
    """At most `room` requests of one scheduler. Each is added to the influence before the next is chosen."""
    for proposal in islice(_free(picture, source), room):
        picture.influence.add(proposal.move.regions, proposal.move.steps)
        yield proposal


def _free(picture: Picture, source: str) -> Iterator[Proposal]:
    """A scheduler that walks a list may come to a region that its own last request has just taken."""
    for proposal in SCHEDULERS[source](picture):
        if picture.influence.busy.isdisjoint(proposal.move.regions):
            yield proposal


def propose_all(picture: Picture, rooms: Mapping[str, int]) -> Iterator[Proposal]:
    """Every scheduler that has room, in the order of urgency."""
    for source in ORDER:
        if rooms.get(source, 0) > 0:
            yield from propose(picture, source, rooms[source])


#: A repair's place in the line: before what has no deadline, behind a spot node's notice.
REPAIR_WITHIN_S: Final = 3600.0


def operator_of(
    proposal: Proposal, settings: Settings, cluster: str = "", id_: str = "", *, repair_at: float | None = None
) -> Operator:
    """The request, priced by its steps. `repair_at`: repairs go first, and this is when it was asked for."""
    operator = region_operator(
        id=id_,
        source=proposal.source,
        move=proposal.move,
        settings=settings,
        cluster=cluster,
        reason=proposal.reason,
        detail=proposal.detail,
    )
    if repair_at is None or proposal.source != REPLICA:
        return operator
    return msgspec.structs.replace(operator, deadline=repair_at + REPAIR_WITHIN_S)
