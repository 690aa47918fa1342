"""What a recording says of a pod that the world knew before the turn: only what moves in its life.

It is made, and made into bytes, while the event is taken in: both rows are at hand then, and looking at them again
later would cost more than all the rest of recording an event.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from mooring.core.model.cluster import Pod
from mooring.core.model.events import Change, Object

#: What moved, or a version that shows nothing new.
MOVED: Final = "m"
SAME: Final = "v"
#: In msgpack, by the identity of the event.
Briefs = Mapping[int, bytes]
NONE: Final[Briefs] = MappingProxyType({})
_encode: Final = msgspec.msgpack.Encoder().encode


def brief(pod: Object, changes: Sequence[Change]) -> bytes | None:
    """`changes`: what it did to the world. None: it is to be told as a whole."""
    if not changes:
        return _encode((SAME, pod.uid, pod.resource_version))
    old = changes[-1].old
    if (
        type(old) is not Pod
        or type(pod) is not Pod
        or old.shape is not pod.shape
        or old.owner is not pod.owner
        or old.annotations != pod.annotations
        or old.claims != pod.claims
        or old.nominated_node != pod.nominated_node
        or old.is_mirror is not pod.is_mirror
        or old.created_at != pod.created_at
        or old.generate_name != pod.generate_name
    ):
        return None
    node = None if old.node == pod.node else pod.node
    moved = (pod.phase, pod.ready, pod.ready_since, pod.deletion_at, pod.schedulable)
    return _encode((MOVED, pod.uid, pod.resource_version, node, *moved))
