"""Full Nodes in an extender's request: the bytes that came, as one piece or by their fields.

A list of pieces is as long as its sender likes: `{},{},…` takes twenty times its size in memory. The fields that the
API server stores have names, which make even the shortest Node 15 bytes long, so a list of those needs no counting.
"""

from typing import Final

import msgspec

ABSENT: Final = msgspec.Raw(b"null")


class NodeFields(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A Node with the fields that the API server stores, and no others. It takes eight times its size at most."""

    metadata: msgspec.Raw
    spec: msgspec.Raw = ABSENT
    status: msgspec.Raw = ABSENT
    kind: msgspec.Raw = ABSENT
    version: msgspec.Raw = msgspec.field(default=ABSENT, name="apiVersion")

    def pieces(self) -> list[bytes | msgspec.Raw]:
        """What to join to have one object again."""
        found: list[bytes | msgspec.Raw] = [b'{"metadata":', self.metadata]
        for name, value in (
            (b',"spec":', self.spec),
            (b',"status":', self.status),
            (b',"kind":', self.kind),
            (b',"apiVersion":', self.version),
        ):
            if value is not ABSENT:
                found += (name, value)
        found.append(b"}")
        return found


class NodeList(msgspec.Struct, frozen=True, gc=False):
    """Each Node in one piece."""

    items: list[msgspec.Raw] | None = None


class StoredNodes(msgspec.Struct, frozen=True, gc=False):
    """Each Node by its fields."""

    items: list[NodeFields] | None = None
