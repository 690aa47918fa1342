"""The life of a replica: one table, one word for each stage.

    FOLLOWING ──lease won──► SYNCING ──world applied──► RECOVERING ──marks read──► DECIDING
        ▲                       │                           │                         │
        └───────────────────────┴── lease lost: the queue is forgotten ───────────────┘

*Synced* means that every kind that is followed has been listed **and applied**; `/readyz`, the extender, the webhook
and recovery all ask `Engine.synced`. Until DECIDING nothing is proposed and nothing is promoted: what has begun must be
charged first.
"""

from enum import StrEnum
from typing import Final


class Stage(StrEnum):
    FOLLOWING = "following"
    SYNCING = "syncing"
    RECOVERING = "recovering"
    DECIDING = "deciding"


class Signal(StrEnum):
    LEASE_WON = "lease won"
    WORLD_APPLIED = "world applied"
    MARKS_READ = "marks read"
    LEASE_LOST = "lease lost"


TRANSITIONS: Final = {
    (Stage.FOLLOWING, Signal.LEASE_WON): Stage.SYNCING,
    (Stage.SYNCING, Signal.WORLD_APPLIED): Stage.RECOVERING,
    (Stage.RECOVERING, Signal.MARKS_READ): Stage.DECIDING,
    (Stage.SYNCING, Signal.LEASE_LOST): Stage.FOLLOWING,
    (Stage.RECOVERING, Signal.LEASE_LOST): Stage.FOLLOWING,
    (Stage.DECIDING, Signal.LEASE_LOST): Stage.FOLLOWING,
}


def after(stage: Stage, signal: Signal) -> Stage:
    """The next stage; the same one where the signal means nothing (a lease won twice)."""
    return TRANSITIONS.get((stage, signal), stage)
