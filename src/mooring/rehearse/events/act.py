"""An event on a snapshot: its name, what it affects, and when. Pure."""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from mooring.core.model.exits import UserError
from mooring.core.model.spelling import did_you_mean

NOTICE_S: Final = 120.0
#: How many names an error lists.
SHOWN: Final = 12


class BadEventError(UserError, ValueError):
    """What is wrong with it, and what would be right."""


class Name(StrEnum):
    RACK_LOST = "rack-lost"
    NODE_LOST = "node-lost"
    SPOT_GONE = "spot-gone"
    RETIRE = "retire"
    RESTART = "restart"
    ZONE_LOST = "zone-lost"
    ZONE_CUT_OFF = "zone-cut-off"
    ROLLING_UPDATE = "rolling-update"
    DRAIN = "drain"
    PD_AWAY = "pd-away"
    API_AWAY = "api-away"
    LEADER_LOST = "leader-lost"


#: A planned operation: nothing need be lost.
PLANNED: Final = frozenset({Name.RETIRE, Name.RESTART, Name.ROLLING_UPDATE, Name.DRAIN})
#: Machines go, and no notice is given.
LOSSES: Final = frozenset({Name.RACK_LOST, Name.NODE_LOST, Name.ZONE_LOST, Name.ZONE_CUT_OFF, Name.LEADER_LOST})


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What flags say about events."""

    notice_s: float = NOTICE_S
    unannounced: bool = False
    #: Of `retire`: so many machines, of the registry's choice.
    count: int = 0
    rack_label: str = ""
    #: How long a server is away, or a zone is cut off.
    away_s: float = 300.0
    #: How much virtual time is played at most.
    limit_s: float = 1800.0


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One event on this snapshot: what it affects."""

    name: Name
    #: Seconds after the first moment.
    after_s: float
    #: "rack 2 is lost: n5 n6 n7 n8"
    title: str
    nodes: tuple[str, ...] = ()
    #: Of `rack-lost`: the node label that names racks.
    label: str = ""
    #: None: no notice is given.
    notice_s: float | None = None
    machines: tuple[str, ...] = ()
    #: Namespace and names of pods.
    pods: tuple[tuple[str, str], ...] = ()
    #: Of `restart`: those that are deleted.
    deleted: tuple[tuple[str, str], ...] = ()
    #: Kind, namespace and name of what is updated.
    target: tuple[str, str, str] | None = None
    pds: tuple[tuple[str, str], ...] = ()
    away_s: float = 0.0


def listed(names: Iterable[str]) -> str:
    """Names in order, numbers within them as numbers; the first few when there are many."""
    ordered = sorted(names, key=natural)
    if not ordered:
        return "none"
    more = f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return " ".join(ordered[:SHOWN]) + more


def there_are(typed: str, names: Iterable[str]) -> str:
    """What the snapshot has instead, and which of it was probably meant."""
    known = list(names)
    return f"there are {listed(known)}{did_you_mean(typed, known)}"


def natural(name: str) -> list[tuple[int, int, str]]:
    parts = (part for part in re.split(r"(\d+)", name) if part)
    return [(0, int(part), "") if part.isdigit() and len(part) < 20 else (1, 0, part) for part in parts]
