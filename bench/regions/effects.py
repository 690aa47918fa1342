"""What a finished step does to its region, and what it gained or lost where: ("peer" or "leader", region, store)."""

import msgspec

from mooring.capabilities.balance import Summary
from mooring.core.model.operator import Operator, Step, StepKind
from mooring.core.model.tidb import Peer, Region

Place = tuple[str, int, int]


def apply(summary: Summary, operator: Operator, step: Step, next_id: int) -> tuple[list[Place], list[Place], int]:
    """Change the region; answers gains, losses and the next free region id. A region that is gone changes nothing."""
    region = summary.regions.get(int(operator.subject.rpartition("/")[2]))
    if region is None:
        return [], [], next_id
    key, store = region.id, step.store or 0
    match step.kind:
        case StepKind.ADD_LEARNER | StepKind.ADD_PEER:
            role = "Learner" if step.kind is StepKind.ADD_LEARNER else "Voter"
            summary.put(_with(region, (*region.peers, Peer(key * 1000 + store, store, role))))
            return [("peer", key, store)], [], next_id
        case StepKind.PROMOTE_LEARNER:
            summary.put(
                _with(region, tuple(Peer(p.id, p.store_id) if p.store_id == store else p for p in region.peers))
            )
        case StepKind.REMOVE_PEER:
            summary.put(_with(region, tuple(p for p in region.peers if p.store_id != store)))
            return [], [("peer", key, store)], next_id
        case StepKind.TRANSFER_LEADER:
            lost, to = region.leader_store, step.to_store or 0
            summary.put(msgspec.structs.replace(region, leader_store=to))
            return [("leader", key, to)], [("leader", key, lost)], next_id
        case StepKind.SPLIT_REGION:
            return [], [], _split(summary, region, next_id)
        case _:
            _merge(summary, region, int(operator.claims[1].rpartition("/")[2]))
    return [], [], next_id


def _with(region: Region, peers: tuple[Peer, ...]) -> Region:
    return msgspec.structs.replace(region, peers=peers)


def _split(summary: Summary, region: Region, next_id: int) -> int:
    middle, half = region.start_key + "m", region.size_mib // 2
    replace = msgspec.structs.replace
    left = replace(region, id=next_id, end_key=middle, size_mib=half, written_bytes=region.written_bytes // 2)
    summary.put(replace(region, start_key=middle, size_mib=region.size_mib - half, version=region.version + 1))
    summary.put(left)
    return next_id + 1


def _merge(summary: Summary, region: Region, into: int) -> None:
    target = summary.regions.get(into)
    if target is None:
        return
    start = region.start_key if region.end_key == target.start_key else target.start_key
    end = region.end_key if region.start_key == target.end_key else target.end_key
    summary.drop(region.id)
    size, flow = target.size_mib + region.size_mib, target.written_bytes + region.written_bytes
    summary.put(msgspec.structs.replace(target, start_key=start, end_key=end, size_mib=size, written_bytes=flow))
