"""Handoff: a TiKV pod is deleted only after its leaders have left, and they come back only when it is ready again.

Modules: `requests` (what annotations ask), `capability` (what the engine talks to), `situation` (what is observed of
one member), `facts` (what is broken already), `operators` (costs and marks), `report` and `descriptor` (for people, and
for the rest of the product). TiKV: `tikv_evaluation` (what should change), `eviction`, `eviction_exits` and `restart`
(the operators' state machines), `proof` (when a store is really empty). PD and TiDB: `member_operators`,
`member_steps`. Systems with leaders: `led`, `led_steps`.
"""

from mooring.capabilities.handoff.capability import Handoff
from mooring.capabilities.handoff.policy import HandoffPolicy

__all__ = ["Handoff", "HandoffPolicy"]
