"""The arithmetic of a Deployment's rolling update, without any object: how many pods each revision may have.

Kept apart because it is exact: surge rounds up, unavailable rounds down, and if both come out as 0 one may be
unavailable. Unhealthy pods of old revisions go first, since they do not serve.
"""

import math
from functools import lru_cache
from typing import Final

import msgspec

from mooring.clients.ports import Json

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# From a pod template to pods and revisions.


HASH_LABEL: Final = "pod-template-hash"
REVISION_LABEL: Final = "controller-revision-hash"
#: The alphabet Kubernetes uses for generated names: no vowels, no words by accident.
_SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
_encoder = msgspec.json.Encoder(order="deterministic")


def template_hash(template: Json, collisions: int = 0) -> str:
    return _hash(_encoder.encode(template) + str(collisions).encode())


@lru_cache(maxsize=1024)
def _hash(content: bytes) -> str:
    value = 0x811C9DC5
    for byte in content:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(_SAFE[int(digit) % len(_SAFE)] for digit in str(value))


def without_hash(template: Json) -> Json:
    meta = template.get("metadata") or {}
    labels = {k: v for k, v in (meta.get("labels") or {}).items() if k != HASH_LABEL}
    return {**template, "metadata": {**meta, "labels": labels}}


def same_template(one: Json, other: Json) -> bool:
    if one.get("spec") != other.get("spec"):
        return False
    return without_hash(one) == without_hash(other)


def owner_reference(owner: Json, api_version: str, kind: str) -> Json:
    meta = owner["metadata"]
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_from(template: Json, namespace: str, reference: Json) -> Json:
    """A pod as a controller sends it: no name yet (the caller sets `name` or `generateName`), no status."""
    meta = template.get("metadata") or {}
    metadata: Json = {"namespace": namespace, "labels": meta.get("labels") or {}, "ownerReferences": [reference]}
    if meta.get("annotations"):
        metadata["annotations"] = meta["annotations"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec") or {}}


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
