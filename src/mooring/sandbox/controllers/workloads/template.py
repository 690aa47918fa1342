"""From a pod template to pods and revisions.

Pods of one template share its spec (objects in the store are never changed in place), so a thousand replicas cost a
thousand small dicts, not a thousand templates. The hash stands for the template's content: same template, same name
of ReplicaSet or revision, in every run.
"""

from functools import lru_cache
from typing import Final

import msgspec

from mooring.clients.ports import Json

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
