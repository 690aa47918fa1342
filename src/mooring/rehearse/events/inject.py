"""The event itself: what the outside does to the sandbox's cluster when the moment has come.

A rack or a node that is lost stops reporting: on bare metal nothing deletes the Node object. A spot node is the
cloud's: a while after its machine, the Node goes too. Retiring is said by the registry, and a restart is asked for as a
person asks, by annotation.
"""

import contextlib
from typing import Final

from mooring.capabilities.handoff.requests import RESTART
from mooring.clients.ports import PortError
from mooring.clients.wire.annotations import MIRROR
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.rehearse.events.catalog import Act, Name
from mooring.sandbox.apiserver.eviction import evict
from mooring.sandbox.cluster import Cluster
from mooring.sandbox.controllers import podstate
from mooring.sandbox.controllers.workloads.ownership import controller_of

#: A registry notices a machine that does not answer.
UNREACHABLE_S: Final = 60.0
#: How soon `kubectl drain` asks again after a budget refused.
DRAIN_AGAIN_S: Final = 5.0


def inject(cluster: Cluster, act: Act) -> None:
    match act.name:
        case Name.RACK_LOST | Name.NODE_LOST | Name.ZONE_LOST | Name.LEADER_LOST:
            for node in act.nodes:
                cluster.kubelets.silence(node)
            cluster.timeline.after(UNREACHABLE_S, lambda: _unreachable(cluster, act.nodes))
        case Name.ZONE_CUT_OFF:
            _cut_off(cluster, act)
        case Name.ROLLING_UPDATE:
            _update(cluster, act)
        case Name.DRAIN:
            for node in act.nodes:
                cluster.cordon(node)
                _drain(cluster, node)
        case Name.PD_AWAY:
            for key in act.pds:
                cluster.pd[key].go_dark(act.away_s)
        case Name.API_AWAY:
            cluster.api.faults.dead_for(act.away_s)
            cluster.api.faults.cut_watches()
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


def _cut_off(cluster: Cluster, act: Act) -> None:
    """They do not report, go on running, and report again."""
    for node in act.nodes:
        cluster.kubelets.silence(node)

    def back() -> None:
        for node in act.nodes:
            if cluster.store.find(Kind.NODE, "", node) is not None:
                cluster.kubelets.resume(node)

    cluster.timeline.after(act.away_s, back)


def _update(cluster: Cluster, act: Act) -> None:
    """A new image for every container; a partition that held revisions apart is lifted, as tidb-operator does."""
    if act.target is None:
        return
    kind, namespace, name = Kind(act.target[0]), act.target[1], act.target[2]
    if kind is Kind.STATEFUL_SET:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
        cluster.store.patch(kind, namespace, name, {"spec": {"updateStrategy": strategy}})
    cluster.set_image(kind, namespace, name, "rehearsed/next")


def _drain(cluster: Cluster, node: str) -> None:
    """As `kubectl drain` does: each pod but a DaemonSet's is evicted, and what a budget refuses is asked again."""
    left = False
    for pod in cluster.store.pods_on(node):
        owner = controller_of(pod)
        per_node = MIRROR in podstate.annotations_of(pod) or (owner is not None and owner["kind"] == "DaemonSet")
        if per_node or podstate.terminating(pod):
            continue
        left = True
        with contextlib.suppress(PortError):
            evict(cluster.store, *podstate.key_of(pod))
    if left:
        cluster.timeline.after(DRAIN_AGAIN_S, lambda: _drain(cluster, node))


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
