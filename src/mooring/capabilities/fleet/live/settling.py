"""Has the last change settled, and what of the control plane is broken already?

"While idle", as the design says, per concern (F9): the control plane changes only once its own last change is done,
workers come once those that came are Ready, they leave once those that left are gone. A machine that never comes up
would hold its concern up for ever, so that after `settle_timeout_s` the next change may come all the same.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf

import msgspec

from mooring.capabilities.fleet.live.ledger import Pending, StoredCluster
from mooring.capabilities.fleet.live.release import CONTROL_PLANE_TARGET
from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.fleet.planner.explain import listed
from mooring.core.model.cluster import Node
from mooring.core.model.decision import Fact
from mooring.core.world.read import WorldRead


def live_nodes(world: WorldRead, addresses: Collection[str]) -> dict[str, Node]:
    """Address → Node. A node is known by its address, as CKE names them; else by its InternalIP. Its kubelet writes
    that, so it names no node where two have it."""
    return {address: nodes[0] for address, nodes in _claiming(world, addresses).items() if len(nodes) == 1}


def claimed_twice(world: WorldRead, addresses: Collection[str]) -> str:
    """Which addresses more than one node has, in words; "": none. Fleet does nothing then: a machine whose node
    is hidden by another's is not empty."""
    twice = {a: nodes for a, nodes in _claiming(world, addresses).items() if len(nodes) > 1}
    return "; ".join(f"{a} is the address of {listed([n.name for n in nodes])}" for a, nodes in sorted(twice.items()))


def _claiming(world: WorldRead, addresses: Collection[str]) -> dict[str, list[Node]]:
    named: dict[str, list[Node]] = {}
    others: dict[str, list[Node]] = {}
    for node in world.nodes():
        if node.name in addresses:
            named[node.name] = [node]
        elif node.internal_ip in addresses:
            others.setdefault(node.internal_ip, []).append(node)
    return others | named


class Waits(msgspec.Struct, frozen=True):
    """What is still to come or to go, in words, by concern; "": it has settled, or its time is over."""

    control_plane: str = ""
    joining: str = ""
    leaving: str = ""
    #: When the next time is over.
    until: float = inf

    def of_all(self) -> str:
        return self.control_plane or self.joining or self.leaving


def waits(ledger: StoredCluster, nodes: Mapping[str, Node], now: float, timeout_s: float) -> Waits:
    pending = ledger.pending
    if pending == Pending():
        return Waits()
    planes = {m.address for m in ledger.members if m.control_plane}
    coming = {a: at for a, at in pending.added.items() if now - at < timeout_s and not is_ready(a, nodes)}
    going = {a: at for a, at in pending.removed.items() if now - at < timeout_s and a in nodes}
    was_plane = {a for a in going if is_control_plane(nodes[a])}
    joining, leaving = sorted(coming.keys() - planes), sorted(going.keys() - was_plane)
    said = [f"{listed(sorted(coming.keys() & planes))} not Ready yet"] if coming.keys() & planes else []
    said += [f"{listed(sorted(was_plane))} not gone yet"] if was_plane else []
    return Waits(
        " and ".join(said),
        f"{listed(joining)} not Ready yet" if joining else "",
        f"{listed(leaving)} not gone yet" if leaving else "",
        min((at + timeout_s for at in (*coming.values(), *going.values())), default=inf),
    )


def is_ready(address: str, nodes: Mapping[str, Node]) -> bool:
    return address in nodes and nodes[address].ready == "True"


def is_control_plane(node: Node) -> bool:
    return keys.CONTROL_PLANE_ROLE in node.labels or keys.MASTER_ROLE in node.labels


def control_plane_facts(ledger: StoredCluster, nodes: Mapping[str, Node], all_nodes: Iterable[Node]) -> Iterator[Fact]:
    """Control-plane nodes that are not Ready, or written and not in Kubernetes, or the reverse."""
    planes = {m.address: m for m in ledger.members if m.control_plane}
    for address, member in planes.items():
        subject = f"machine/{member.serial or address}"
        node = nodes.get(address)
        if node is None:
            yield Fact(CONTROL_PLANE_TARGET, subject, 1, f"control plane {address} is not in Kubernetes")
        elif node.ready != "True":
            yield Fact(CONTROL_PLANE_TARGET, subject, 1, f"control plane {address} is not Ready")
    if not planes:
        return
    for node in all_nodes:
        if not is_control_plane(node):
            continue
        if node.name not in planes and node.internal_ip not in planes:
            found = ledger.find(node.name) or ledger.find(node.internal_ip)
            serial = found.serial if found is not None else node.annotations.get(keys.SERIAL)
            subject = f"machine/{serial or node.name}"
            detail = f"{node.name} is a control plane in Kubernetes and not in the written cluster"
            yield Fact(CONTROL_PLANE_TARGET, subject, 1, detail)
