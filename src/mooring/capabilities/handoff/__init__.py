"""Handoff: a TiKV pod is deleted only after its leaders have left, and they come back only when it is ready again.

Modules: `wishes` (what annotations ask), `scene` (what is observed of one member), `proof` (when a store is really
empty), `volumes` (whether the pod could come back), `eviction` and `restart` (the two operators' state machines),
`operators` (their costs), `members` (PD and TiDB), `decider` (the capability the engine talks to), `status` (what is
broken, as facts), `progress`, `report` and `words` (how it is told).
"""

from mooring.capabilities.handoff.capability import Handoff
from mooring.capabilities.handoff.policy import HandoffPolicy

__all__ = ["Handoff", "HandoffPolicy"]
