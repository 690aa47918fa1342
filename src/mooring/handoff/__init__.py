"""Handoff: a TiKV pod is deleted only after its leaders have left, and they come back only when it is ready again.

Modules: `wishes` (what annotations ask), `proof` (when a store is really empty), `eviction` and `restart` (the two
operators' state machines), `decider` (the capability the engine talks to), `status` (what is broken, as facts).
"""

from mooring.handoff.decider import Handoff
from mooring.handoff.policy import HandoffPolicy

__all__ = ["Handoff", "HandoffPolicy"]
