"""How many replicas return to spot in a minute, in the whole cluster.

Every return takes a place of the queue's target `return-to-spot` while it runs, and for the rest of its first minute as
a fact. The limit is a share of the replicas of all workloads that are switched on, halved for each twentieth of the
spot nodes that was lost within the last half hour.
"""

from typing import Final

import msgspec

from mooring.capabilities.mix.interruption.notices import InterruptedNodes
from mooring.capabilities.mix.policy import MixPolicy
from mooring.core.model.capacity import NodeClass
from mooring.core.model.decision import Evaluation, Fact
from mooring.core.model.reasons import Reason
from mooring.core.queue import QueueRead
from mooring.core.world.read import WorldRead

#: The key that this is evaluated under, and the target.
KEY: Final = "returns/all"
TARGET: Final = "return-to-spot"
#: However few replicas there are.
AT_LEAST: Final = 10
_MINUTE_S: Final = 60.0
_LOST_LATELY_S: Final = 1800.0
_HALVED_BY: Final = 0.05


class ReturnNotes(msgspec.Struct, frozen=True, gc=False):
    #: Who returned within the last minute, and when that began.
    began: tuple[tuple[str, float], ...] = ()
    #: Spot nodes without any notice, when that was last looked at; and when others of them were lost.
    steady: tuple[str, ...] = ()
    lost: tuple[float, ...] = ()


def evaluate(
    policy: MixPolicy, notes: ReturnNotes | None, world: WorldRead, queue: QueueRead, now: float
) -> Evaluation:
    notes = _noted(notes, world, queue, now)
    limit = per_minute(policy, notes, world)
    facts = tuple(Fact(TARGET, subject, 1, "it returned less than a minute ago") for subject, _ in notes.began)
    ends = [at + _MINUTE_S for _, at in notes.began] + [at + _LOST_LATELY_S for at in notes.lost[:1]]
    return Evaluation(facts=facts, limits={TARGET: limit}, notes=notes, again_at=min(ends, default=None))


def per_minute(policy: MixPolicy, notes: ReturnNotes, world: WorldRead) -> int:
    replicas = sum(w.replicas for w in world.workloads() if policy.concerns(w))
    usual = max(AT_LEAST, replicas * policy.rebalance.return_share // 100)
    lost = len(notes.lost) / max(1, len(notes.lost) + len(notes.steady))
    return max(1, int(usual * 0.5 ** (lost / _HALVED_BY)))


def _noted(notes: ReturnNotes | None, world: WorldRead, queue: QueueRead, now: float) -> ReturnNotes:
    began = dict(notes.began) if notes is not None else {}
    for record in queue.running_records():
        if record.operator.reason is Reason.RETURN_TO_SPOT:
            began[record.operator.subject] = record.promoted_at
    index = world.index(InterruptedNodes)
    steady = {node.name for node in world.nodes_of_class(NodeClass.SPOT) if node.name not in index.names}
    lost = [at for at in notes.lost if at > now - _LOST_LATELY_S] if notes is not None else []
    gone = set(notes.steady) - steady if notes is not None else ()
    # One that is emptied without a deadline (consolidated, maintained) was not taken away.
    lost += [now for name in gone if world.node(name) is None or name in index.urgent]
    recent = sorted((at, subject) for subject, at in began.items() if at > now - _MINUTE_S)
    return ReturnNotes(tuple((subject, at) for at, subject in recent), tuple(sorted(steady)), tuple(lost))
