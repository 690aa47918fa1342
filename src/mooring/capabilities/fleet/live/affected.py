"""Which changes concern fleet: a node's heartbeat does not, and of ten thousand machines only those that changed."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from mooring.capabilities.fleet.live.ledger import read_ledger
from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.fleet.planner.current import Member
from mooring.core.model.cluster import ConfigMap, Node
from mooring.core.model.events import Object
from mooring.core.model.machine import Machine


class NodeNews(msgspec.Struct, frozen=True):
    #: Whether it came, went, or became Ready or not: then the plan may have settled.
    standing: bool


def node_news(old: Object | None, new: Object | None) -> NodeNews | None:
    """None: nothing that fleet reads has changed."""
    if not isinstance(old, Node) or not isinstance(new, Node):
        return NodeNews(True)
    roles = is_control_plane(old) != is_control_plane(new)
    standing = old.ready != new.ready or old.taints != new.taints or old.internal_ip != new.internal_ip or roles
    if standing:
        return NodeNews(True)
    same = old.labels == new.labels and old.annotations == new.annotations and old.unschedulable == new.unschedulable
    return None if same else NodeNews(False)


def is_control_plane(node: Node) -> bool:
    return keys.CONTROL_PLANE_ROLE in node.labels or keys.MASTER_ROLE in node.labels


def changed_members(old: Object | None, new: Object | None) -> set[str]:
    """Addresses whose place in the stored cluster is another than before."""
    rows = []
    for one in (old, new):
        ledger = read_ledger(one) if isinstance(one, ConfigMap) else None
        rows.append(set() if ledger is None or isinstance(ledger, str) else {_row(m) for m in ledger.members})
    return {address for address, *_ in rows[0] ^ rows[1]}


def _row(m: Member) -> tuple[str, ...]:
    return (m.address, str(m.control_plane), str(m.state_taint), str(m.leaving))


def changed_machines(before: Mapping[str, Machine], now: Iterable[Machine]) -> Iterator[str]:
    """Addresses of machines whose labels or annotations may be others now, or that may carry our cordon no longer."""
    for machine in now:
        old = before.get(machine.address)
        if old is None or (old is not machine and _shown(old) != _shown(machine)):
            yield machine.address


def _shown(machine: Machine) -> tuple[object, ...]:
    m = machine
    return (m.serial, m.rack, m.index_in_rack, m.role, m.state, m.labels, m.register_date, m.retire_date, m.retire_at)
