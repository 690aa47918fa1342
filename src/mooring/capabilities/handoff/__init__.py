"""Handoff: a TiKV pod is deleted only after its leaders have left, and they come back only when it is ready again.

Modules: `requests` (what annotations ask), `capability` (what the engine talks to), `tikv_evaluation` and
`member_evaluation` (what should change), `operators` (costs), `situation` (what is observed of one member), `eviction`,
`eviction_exits`, `restart` and `member_steps` (the operators' state machines), `proof` (when a store is really empty),
`volumes` (whether the pod could come back), `members` (PD and TiDB), `facts` (what is broken already), `mark`,
`progress`, `report` and `explain` (for people).
"""

from mooring.capabilities.handoff.capability import Handoff
from mooring.capabilities.handoff.policy import HandoffPolicy

__all__ = ["Handoff", "HandoffPolicy"]
