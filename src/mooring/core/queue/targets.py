"""Targets: names with a limit. The kind is what stands before the first slash; a bare number is a TiKV store.

Limits of stores are settings (`MaxScheduleCost`, `StoreMaxScheduleCost`); those of the other kinds come from the
descriptors of the capabilities and follow what they stand for by `Queue.set_limit`.
"""

from typing import Final

from mooring.core.model import subjects
from mooring.core.model.reasons import Reason

#: The limit of a kind that no capability describes: the most careful one.
UNKNOWN_KIND_LIMIT: Final = 1


def kind_of(target: str) -> str:
    return subjects.kind_of(target)


def is_store(target: str) -> bool:
    return target.startswith("store/") or target.isdecimal()


def is_share(target: str) -> bool:
    """What one namespace may have of something that all of them use: `share/<what>/<namespace>`."""
    return target.startswith("share/")


def shared(target: str) -> str:
    """What a share, or the first places beyond a limit (`first/<what>`), are of; "" for all others."""
    if is_share(target):
        return target.removeprefix("share/").rpartition("/")[0]
    return target.removeprefix("first/") if target.startswith("first/") else ""


def store_target(cluster: str, store: int) -> str:
    """`store/<cluster>/<id>`; without a cluster (a replay knows only one) the bare id."""
    return subjects.store(cluster, store)


def store_names(target: str) -> tuple[str, ...]:
    """The spellings under which `StoreMaxScheduleCost` may name a store, the most exact first."""
    if target.isdecimal():
        return (target,)
    _, _, within = target.partition("/")
    cluster, _, store = within.rpartition("/")
    return (target, within, f"{cluster}/*", store)


def paused_reason(target: str) -> Reason:
    return Reason.STORE_PAUSED if is_store(target) else Reason.TARGET_PAUSED


def busy_reason(claim: str) -> Reason:
    return Reason.REGION_BUSY if claim.startswith("region/") else Reason.SUBJECT_BUSY


def order(target: str) -> tuple[tuple[bool, int, str], ...]:
    """A sort key in which numbers compare as numbers: store 9 before store 10."""
    return tuple((not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in target.split("/"))
