"""The event itself: what the outside does to the sandbox's cluster when the moment has come.

A rack or a node that is lost falls silent: on bare metal nobody takes the Node object away. A spot node is the cloud's:
a while after its machine, the Node goes too. Retiring is said by the registry, and a restart is asked for as a person
asks, by annotation.
"""

from typing import Final

from mooring.capabilities.handoff.requests import RESTART
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.rehearse.events import Act, Name
from mooring.sandbox.cluster import Cluster

#: A registry notices a machine that does not answer.
UNREACHABLE_S: Final = 60.0


def strike(cluster: Cluster, act: Act) -> None:
    match act.name:
        case Name.RACK_LOST | Name.NODE_LOST | Name.ZONE_LOST | Name.ZONE_CUT_OFF:
            for node in act.nodes:
                cluster.kubelets.silence(node)
            cluster.timeline.after(UNREACHABLE_S, lambda: _unreachable(cluster, act.nodes))
        case Name.SPOT_GONE:
            for node in act.nodes:
                _take(cluster, node, act.notice_s)
        case Name.RETIRE:
            for serial in act.machines:
                cluster.sabakan.set_state(serial, MachineState.RETIRING)
        case Name.RESTART:
            for namespace, name in act.pods:
                if cluster.store.find(Kind.POD, namespace, name) is not None:
                    cluster.annotate(Kind.POD, namespace, name, {RESTART: ""})
            for namespace, name in act.deleted:
                if cluster.store.find(Kind.POD, namespace, name) is not None:
                    cluster.store.delete(Kind.POD, namespace, name)


def _take(cluster: Cluster, node: str, notice_s: float | None) -> None:
    if cluster.store.find(Kind.NODE, "", node) is None:
        return
    if notice_s is None:
        cluster.cloud.take(node)
    else:
        cluster.cloud.notice(node, after_s=notice_s)


def _unreachable(cluster: Cluster, nodes: tuple[str, ...]) -> None:
    """The registry learns that these machines do not answer."""
    registry = cluster.sabakan
    if registry is None:
        return
    addresses = set(nodes)
    for name in nodes:
        node = cluster.store.find(Kind.NODE, "", name) or {}
        addresses |= {one["address"] for one in (node.get("status") or {}).get("addresses") or ()}
    for serial, entry in sorted(registry.entries.items()):
        if entry.ipv4 and entry.ipv4[0] in addresses and entry.state is MachineState.HEALTHY:
            registry.set_state(serial, MachineState.UNREACHABLE)
