"""Which component of which TidbCluster a pod is, by its owner (`core.world.members`), and who may take it away."""

from typing import Final

import msgspec

from mooring.core.model.cluster import Key, Pod
from mooring.core.world.members import tidb_member
from mooring.core.world.read import WorldRead

#: What handoff takes away: no other capability deletes these.
HANDED_OVER: Final = frozenset({"tikv", "pd"})


class Component(msgspec.Struct, frozen=True, gc=False):
    cluster: Key
    #: `tikv`, `pd`, `tidb`, …
    name: str


def component_of(pod: Pod, world: WorldRead) -> Component | None:
    """None: no member of any TidbCluster."""
    member = tidb_member(pod, world)
    return None if member is None else Component(*member)


def is_handed_over(pod: Pod, world: WorldRead) -> bool:
    """A member of TiKV or PD: handoff takes its leaders off and deletes it, no other capability does."""
    found = component_of(pod, world)
    return found is not None and found.name in HANDED_OVER
