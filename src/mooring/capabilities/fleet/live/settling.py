"""Has the last change settled, and what of the control plane is broken already?

"While idle", as the design says: a pass changes something only when what the last one added is Ready, what it removed
is gone, and no fleet operator runs. A machine that never comes up would hold everything up for ever, so that after
`settle_timeout_s` the next change may come all the same.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from mooring.capabilities.fleet.live.ledger import StoredCluster
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


def unsettled(ledger: StoredCluster, nodes: Mapping[str, Node], now: float, timeout_s: float) -> str:
    """What the last change still waits for, in words; "" when it has settled, or its time is over."""
    pending = ledger.pending
    if now - pending.at >= timeout_s:
        return ""
    coming = [a for a in pending.added if a not in nodes or nodes[a].ready != "True"]
    going = [a for a in pending.removed if a in nodes]
    said = [f"{listed(coming)} not Ready yet"] if coming else []
    said += [f"{listed(going)} not gone yet"] if going else []
    return " and ".join(said)


def settles_at(ledger: StoredCluster, timeout_s: float) -> float:
    return ledger.pending.at + timeout_s


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
        if keys.CONTROL_PLANE_ROLE not in node.labels and keys.MASTER_ROLE not in node.labels:
            continue
        if node.name not in planes and node.internal_ip not in planes:
            found = ledger.find(node.name) or ledger.find(node.internal_ip)
            serial = found.serial if found is not None else node.annotations.get(keys.SERIAL)
            subject = f"machine/{serial or node.name}"
            detail = f"{node.name} is a control plane in Kubernetes and not in the written cluster"
            yield Fact(CONTROL_PLANE_TARGET, subject, 1, detail)
