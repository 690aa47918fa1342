"""One copy of what repeats: the pods of a template differ in name, node and times, not in their containers.

Objects come in as fresh JSON, so equal parts arrive as different Python objects; a cluster of 150,000 pods would take
5 GB. Here each larger part is looked up by its content and replaced by the first that was equal. Safe because stored
objects are never changed in place.
"""

from typing import Any, Final

import msgspec

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind

_ENCODE: Final = msgspec.json.Encoder().encode
#: A table that grew to this many parts holds mostly things that do not repeat: start afresh.
_LIMIT: Final = 50_000
_SHARED_KINDS: Final = frozenset({Kind.POD, Kind.REPLICA_SET, Kind.NODE, Kind.STATEFUL_SET, Kind.DEPLOYMENT})
_METADATA_PARTS: Final = ("labels", "annotations", "ownerReferences")


class Shared:
    def __init__(self) -> None:
        self._parts: dict[bytes, Any] = {}
        #: Parts known to be shared, by identity: pods made from one template in memory need no encoding.
        self._known: dict[int, Any] = {}

    def share(self, kind: Kind, obj: Json) -> Json:
        """The same object; its own top-level, metadata and spec dicts are reused, what is in them may be replaced."""
        if kind not in _SHARED_KINDS:
            return obj
        metadata = obj["metadata"]
        for field in _METADATA_PARTS:
            if metadata.get(field):
                metadata[field] = self.part(metadata[field])
        spec = obj.get("spec")
        if isinstance(spec, dict):
            obj["spec"] = {k: self.part(v) if isinstance(v, dict | list) else v for k, v in spec.items()}
        return obj

    def part(self, value: Any) -> Any:
        if id(value) in self._known:
            return value
        if len(self._parts) > _LIMIT:
            self._parts.clear()
            self._known.clear()
        kept = self._parts.setdefault(_ENCODE(value), value)
        self._known[id(kept)] = kept
        return kept
