"""Operators that PD lists, parsed from PD's text: what they cost, and whose they are.

PD lists an operator's steps and the API it came in by (`admin-…` for the operators API), not the client. After a crash,
therefore, every operator of that API is treated as ours and followed to its end; a person's pd-ctl command among them
is charged by its steps, as it would be anyway, and never canceled. While this process runs, ours are those it
remembers; all others are facts on the stores they touch.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from mooring.capabilities.balance.policy import BALANCE_LEADER, BALANCE_REGION, MERGE, REPLICA, SPLIT
from mooring.capabilities.balance.summary import Summary
from mooring.core.model.cluster import Key
from mooring.core.model.decision import Fact
from mooring.core.model.operator import Step, StepKind
from mooring.core.model.tidb import PdOperator
from mooring.core.queue import RegionMove, Settings, price, region_claims, store_target

#: What the operators API calls its operators → the scheduler of ours that would have asked for it.
OURS: Final = {
    "admin-transfer-leader": BALANCE_LEADER,
    "admin-move-peer": BALANCE_REGION,
    "admin-add-peer": REPLICA,
    "admin-remove-peer": REPLICA,
    "admin-merge-region": MERGE,
    "admin-split-region": SPLIT,
}
#: The name of a request → what the operators API calls the operator that it makes.
DESC_OF: Final = {
    "transfer-leader": "admin-transfer-leader",
    "transfer-peer": "admin-move-peer",
    "add-peer": "admin-add-peer",
    "remove-peer": "admin-remove-peer",
    "merge-region": "admin-merge-region",
    "split-region": "admin-split-region",
}
_TRANSFER: Final = re.compile(r"transfer leader from store (\d{1,19})\b to store (\d{1,19})\b")
_ON: Final = (
    (re.compile(r"^add learner peer \d+ on store (\d{1,19})\b"), StepKind.ADD_LEARNER),
    (re.compile(r"^add peer \d+ on store (\d{1,19})\b"), StepKind.ADD_PEER),
    (
        re.compile(r"^(?:use joint consensus, )?promote learner peer \d+ on store (\d{1,19})\b"),
        StepKind.PROMOTE_LEARNER,
    ),
    (re.compile(r"^remove peer on store (\d{1,19})\b"), StepKind.REMOVE_PEER),
)


def steps_of(operator: PdOperator) -> tuple[Step, ...]:
    """The design's steps among PD's; what has no cost there (leaving the joint state) is left out."""
    return tuple(step for text in operator.steps if (step := _step(text)) is not None)


def _step(text: str) -> Step | None:
    transfer = _TRANSFER.search(text)
    if transfer is not None:
        return Step(StepKind.TRANSFER_LEADER, None, int(transfer[1]), int(transfer[2]))
    for pattern, kind in _ON:
        match = pattern.search(text)
        if match is not None:
            return Step(kind, int(match[1]))
    if text.startswith("merge region"):
        return Step(StepKind.MERGE_REGION)
    return Step(StepKind.SPLIT_REGION) if text.startswith("split region") else None


def move_of(operator: PdOperator, summary: Summary | None = None) -> RegionMove:
    """What it moves. Without its region (never seen) no store is charged for leading it: store 0 is written for
    that."""
    region = summary.regions.get(operator.region_id) if summary is not None else None
    leader = region.leader_store if region is not None else 0
    peers = tuple(p.store_id for p in region.peers) if region is not None else (0,)
    return RegionMove((operator.region_id,), steps_of(operator), leader, peers)


def costs(operator: PdOperator, settings: Settings, summary: Summary | None = None) -> dict[int, int]:
    return {store: cost for store, cost in price(move_of(operator, summary), settings).items() if store}


def facts(operators: Iterable[PdOperator], settings: Settings, summary: Summary, cluster: Key) -> Iterator[Fact]:
    for operator in operators:
        subject = region_claims((operator.region_id,), str(cluster))[0]
        for store, cost in sorted(costs(operator, settings, summary).items()):
            target = store_target(str(cluster), store)
            yield Fact(target, subject, cost, f"PD runs {operator.desc} on region {operator.region_id}")
