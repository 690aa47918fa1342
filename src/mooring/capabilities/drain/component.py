"""Which component of which TidbCluster a pod is, by its owner (`core.world.members`), and who may take it away."""

from typing import Final

import msgspec

from mooring.core.model.cluster import Key, Pod, Workload
from mooring.core.model.kinds import Kind
from mooring.core.model.leaders import driver_of
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
    """A member of TiKV, of PD or of a system with leaders: handoff takes its leaders off and deletes it, no other
    capability does."""
    found = component_of(pod, world)
    return found.name in HANDED_OVER if found is not None else led_set(pod, world) is not None


def led_set(pod: Pod, world: WorldRead) -> Workload | None:
    """The StatefulSet whose members have leaders, as its annotation says (L1); None: this is no such member."""
    if pod.owner is None or pod.owner.kind != Kind.STATEFUL_SET:
        return None
    workload = world.workload_of(pod)
    return workload if workload is not None and driver_of(workload) else None
