"""The arithmetic of a Deployment's rolling update, without any object: how many pods each revision may have.

Kept apart because it is exact: surge rounds up, unavailable rounds down, and if both come out as 0 one may be
unavailable. Unhealthy pods of old revisions go first, since they do not serve.
"""

import math

import msgspec

IntOrPercent = int | str


def resolve(value: IntOrPercent | None, replicas: int, *, up: bool, default: IntOrPercent) -> int:
    value = default if value is None else value
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        return int(value)
    exact = replicas * int(value[:-1]) / 100
    return math.ceil(exact) if up else math.floor(exact)


def fence(surge: IntOrPercent | None, unavailable: IntOrPercent | None, replicas: int) -> tuple[int, int]:
    """(maxSurge, maxUnavailable) as numbers."""
    most = resolve(surge, replicas, up=True, default="25%")
    least = resolve(unavailable, replicas, up=False, default="25%")
    return (0, 1) if most == 0 and least == 0 else (most, least)


class Revision(msgspec.Struct, frozen=True):
    """One ReplicaSet, as the arithmetic sees it. Old ones are given oldest first."""

    name: str
    replicas: int
    available: int


def grow_new(wanted: int, surge: int, new: Revision, old: list[Revision]) -> int:
    """How many replicas the newest revision gets now."""
    if new.replicas >= wanted:
        return wanted
    room = wanted + surge - new.replicas - sum(one.replicas for one in old)
    return new.replicas if room <= 0 else new.replicas + min(room, wanted - new.replicas)


def shrink_old(wanted: int, unavailable: int, new: Revision, old: list[Revision]) -> dict[str, int]:
    """New sizes of the old revisions that may give replicas up now."""
    floor = wanted - unavailable
    total = new.replicas + sum(one.replicas for one in old)
    budget = total - floor - (new.replicas - new.available)
    if budget <= 0 or not old:
        return {}
    sizes = {one.name: one.replicas for one in old}
    for one in old:  # those that do not serve first
        sick = min(budget, one.replicas - one.available)
        if sick > 0:
            sizes[one.name] -= sick
            budget -= sick
    spare = new.available + sum(one.available for one in old) - floor
    for one in old:
        take = min(spare, sizes[one.name])
        if take > 0:
            sizes[one.name] -= take
            spare -= take
    return {one.name: sizes[one.name] for one in old if sizes[one.name] != one.replicas}


def proportional(target: int, revisions: list[Revision]) -> dict[str, int]:
    """Spread a change of size over the revisions of a rollout in progress, largest first; leftovers to the first."""
    total = sum(one.replicas for one in revisions)
    change = target - total
    if change == 0 or total == 0:
        return {}
    ordered = sorted(revisions, key=lambda one: (-one.replicas, one.name))
    sizes, left = {}, change
    for one in ordered:
        share = round(one.replicas * change / total)
        share = min(share, left) if change > 0 else max(share, left)
        sizes[one.name] = max(0, one.replicas + share)
        left -= sizes[one.name] - one.replicas
    if left:
        first = ordered[0].name
        sizes[first] = max(0, sizes[first] + left)
    return {one.name: sizes[one.name] for one in ordered if sizes[one.name] != one.replicas}
