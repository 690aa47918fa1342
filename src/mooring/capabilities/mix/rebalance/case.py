"""What a diagnosis of one workload answers, and what is remembered of it until the next one."""

import msgspec

from mooring.capabilities.mix.rebalance.misplaced import Candidate
from mooring.core.model.decision import Verdict


class WorkloadNotes(msgspec.Struct, frozen=True, gc=False):
    """Soft memory of one workload, from one evaluation to the next."""

    #: The pods whose moves were proposed. The queue says which of them stand; asking it about every pod costs more.
    moves: tuple[str, ...] = ()
    #: Since when spot has had room for pods that fell back to on-demand.
    spot_room_since: float | None = None


NO_NOTES = WorkloadNotes()


class Case(msgspec.Struct, frozen=True, gc=False):
    """Who should go, and what it would fix; or why none goes just now."""

    candidates: tuple[Candidate, ...] = ()
    #: Pods that stand wrong for this reason. At most so many go.
    off_by: int = 0
    verdict: Verdict | None = None
    again_at: float | None = None
    #: Nothing can be said just now: what waits keeps waiting.
    undecided: bool = False


NOTHING_WRONG = Case()
