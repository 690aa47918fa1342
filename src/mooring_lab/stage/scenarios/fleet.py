"""A machine on the sandbox: registered, a member, retiring, retired; and faults of the registry. Nodes
are named by their machine's address, as CKE names them."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from mooring.capabilities.fleet.live import ledger, settings
from mooring.capabilities.fleet.live.ledger import StoredCluster, read_ledger
from mooring.capabilities.fleet.planner import keys
from mooring.clients.wire.kube import project
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.core.model.marks import HANDOFF, LEAVING, RETIRING
from mooring_lab.cluster.controllers.podstate import active, node_of
from mooring_lab.cluster.sabakan import SandboxSabakan
from mooring_lab.cluster.sabakan.registry import Ipam
from mooring_lab.stage.environment import Environment
from mooring_lab.stage.rig import Rig

TEMPLATE = """\
name: rehearsal
nodes:
- user: mooring
  control_plane: true
- user: mooring
  control_plane: false
service_subnet: 10.68.0.0/16
"""


def set_settings(rig: Rig, **data: str) -> None:
    """As `mooring fleet set-…` and `enable` would."""
    wanted = {settings.TEMPLATE: TEMPLATE, settings.ENABLED: "true", **data}
    namespace = rig.config.namespace
    found = rig.cluster.store.find(Kind.CONFIG_MAP, namespace, settings.NAME)
    if found is None:
        rig.cluster.store.create(Kind.CONFIG_MAP, ledger.new_object(namespace, wanted, settings.NAME))
    else:
        rig.cluster.store.patch(Kind.CONFIG_MAP, namespace, settings.NAME, {"data": data})


def stored(rig: Environment) -> StoredCluster:
    found = rig.cluster.store.find(Kind.CONFIG_MAP, rig.config.namespace, ledger.NAME)
    made = read_ledger(project(Kind.CONFIG_MAP, found)) if found is not None else ledger.EMPTY  # type: ignore[arg-type]
    assert isinstance(made, StoredCluster), made
    return made


def roles_by_address(rig: Environment) -> dict[str, str]:
    """Address → what it is in the stored cluster."""

    def word(plane: bool, taint: Any, leaving: bool) -> str:
        return "control plane" if plane else "leaving" if leaving else f"worker, {taint[0]}" if taint else "worker"

    return {m.address: word(m.control_plane, m.state_taint, m.leaving) for m in stored(rig).members}


def taints_of(rig: Environment, node: str) -> dict[str, str]:
    spec = rig.cluster.store.get(Kind.NODE, "", node)["spec"]
    return {t["key"]: f"{t.get('value', '')}:{t['effect']}" for t in spec.get("taints") or ()}


def cordoned(rig: Environment, node: str) -> bool:
    return bool(rig.cluster.store.get(Kind.NODE, "", node)["spec"].get("unschedulable"))


def pods_on(rig: Environment, node: str) -> list[str]:
    return sorted(p["metadata"]["name"] for p in rig.cluster.store.list(Kind.POD) if node_of(p) == node and active(p))


def serial_of(rig: Environment, address: str) -> str:
    serial: str = next(s for s, e in rig.cluster.sabakan.entries.items() if e.ipv4[0] == address)
    return serial


def set_state(rig: Environment, address: str, *states: MachineState) -> None:
    for state in states:
        rig.cluster.sabakan.set_state(serial_of(rig, address), state)


def marks_left(rig: Environment) -> Iterator[str]:
    """Marks that say something is under way."""
    for node in rig.cluster.store.list(Kind.NODE):
        if RETIRING in (node["metadata"].get("annotations") or {}):
            yield f"{RETIRING} on {node['metadata']['name']}"
    for pod in rig.cluster.store.list(Kind.POD):
        if LEAVING in (pod["metadata"].get("annotations") or {}) and active(pod):
            yield f"{LEAVING} on {pod['metadata']['name']}"
    for tc in rig.cluster.store.list(Kind.TIDB_CLUSTER):
        if HANDOFF in (tc["metadata"].get("annotations") or {}):
            yield f"{HANDOFF} on {tc['metadata']['name']}"


def register_nodes(rig: Environment, names: Iterable[str]) -> None:
    """A machine for each of these nodes, known by the address the node has; racks as the nodes' labels say."""
    registry = rig.cluster.sabakan = SandboxSabakan(rig.cluster.timeline, ipam=Ipam())
    for number, name in enumerate(names, 1):
        node = rig.cluster.store.get(Kind.NODE, "", name)
        address = next(a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP")
        rack = int(node["metadata"]["labels"].get(keys.RACK, 0))
        entry = registry.register(f"M{number:03d}", rack=rack, state=MachineState.HEALTHY)
        registry.entries[entry.serial] = msgspec.structs.replace(entry, ipv4=(address,))
