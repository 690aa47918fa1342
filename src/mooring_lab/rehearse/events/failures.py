"""Every single failure that a snapshot can have: each node, rack, zone, spot pool, machine and TiKV member. Pure.

Nodes that are alike (labels, size, taints, rack, and pods of the same owners) would be lost alike: one is played, and
the others are named beside it. A member of a database is like no other pod.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mooring.capabilities.fleet.live import settings
from mooring.clients.ports import Json
from mooring.core.model.capacity import CapacityRules
from mooring.core.model.cluster import Key
from mooring.core.model.kinds import Kind
from mooring.core.model.spelling import did_you_mean
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import labels_of
from mooring_lab.cluster.controllers.workloads.ownership import controller_of
from mooring_lab.cluster.nodes import HOSTNAME
from mooring_lab.rehearse.events.catalog import RETIRABLE, ZONE, BadEventError, fleet_settings, natural, pools, rack_key
from mooring_lab.rehearse.snapshot.schema import Snapshot
from mooring_lab.rehearse.snapshot.stores import tikv_pods

SCOPES: Final = ("node", "rack", "zone", "pool", "machine", "member")


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    scope: str
    #: What is typed behind `mooring rehearse play`.
    event: str
    #: Those that it stands for besides the one it names.
    alike: tuple[str, ...] = ()
    #: How many nodes it is about.
    nodes: int = 1

    @property
    def weight(self) -> int:
        """How long it takes to play, beside others: what a single node takes, and a third of that for each."""
        return 2 + self.nodes


def longest_first(found: Iterable[Failure]) -> list[Failure]:
    """The order to play them in: so that the end of it does not wait for a long one that was begun last."""
    return sorted(found, key=lambda one: -one.nodes)


def scopes(text: str) -> tuple[str, ...]:
    """Of `--events node,rack`; raises BadEventError."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for one in found:
        if one not in SCOPES:
            raise BadEventError(f"--events {one}: allowed: {', '.join(SCOPES)}{did_you_mean(one, SCOPES)}")
    return found or SCOPES


def failures(
    snapshot: Snapshot, rules: CapacityRules, of: Sequence[str] = SCOPES, rack_label: str = ""
) -> list[Failure]:
    """What the snapshot does not have is not there: no zones, no machines, no PD that was asked."""
    alike = _alike(snapshot)
    racks = rack_key(snapshot, rack_label)
    spot = pools(snapshot, rules)
    made: dict[str, Callable[[], Iterable[Failure]]] = {
        "node": lambda: [Failure(scope="node", event=f"node-lost {n[0]}", alike=tuple(n[1:])) for n in alike],
        "rack": lambda: _each("rack", "rack-lost", _values(snapshot, racks) if racks != ZONE else {}),
        "zone": lambda: _each("zone", "zone-lost", _values(snapshot, ZONE)),
        "pool": lambda: _each("pool", "spot-gone", {name: len(spot[name]) for name in sorted(spot)}),
        "machine": lambda: _machines(snapshot, alike),
        "member": lambda: _each("member", "restart", dict.fromkeys(_members(snapshot), 1)),
    }
    return [one for scope in SCOPES if scope in of for one in made[scope]()]


def _each(scope: str, event: str, names: Mapping[str, int]) -> list[Failure]:
    """`names`: each with the number of its nodes."""
    return [Failure(scope=scope, event=f"{event} {name}".strip(), nodes=nodes) for name, nodes in names.items()]


def _values(snapshot: Snapshot, label: str) -> dict[str, int]:
    found = Counter(labels_of(node)[label] for node in snapshot.of(Kind.NODE) if label in labels_of(node))
    return {value: found[value] for value in sorted(found, key=natural)}


def _members(snapshot: Snapshot) -> list[str]:
    """TiKV pods whose PD was asked: the others are not restarted."""
    keys = [Key(shot.namespace, shot.cluster) for shot in snapshot.pds]
    pods = [podstate.key_of(pod) for key in keys for pod in tikv_pods(snapshot.of(Kind.POD), key)]
    return [f"pod/{namespace}/{name}" for namespace, name in sorted(pods)]


def _machines(snapshot: Snapshot, alike: Sequence[Sequence[str]]) -> list[Failure]:
    """Machines with a node, those of nodes that are alike once."""
    if not snapshot.machines or fleet_settings(snapshot).get(settings.ENABLED) != "true":
        return []
    homes = {address: node["metadata"]["name"] for node in snapshot.of(Kind.NODE) for address in _addresses(node)}
    serials = {homes[m.address]: m.serial for m in snapshot.machines if m.address in homes and m.state in RETIRABLE}
    found = []
    for nodes in alike:
        here = [serials[node] for node in nodes if node in serials]
        if here:
            found.append(Failure(scope="machine", event=f"retire {here[0]}", alike=tuple(here[1:])))
    return sorted(found, key=lambda one: natural(one.event))


def _addresses(node: Json) -> list[str]:
    listed = (node.get("status") or {}).get("addresses") or ()
    return [node["metadata"]["name"], *(one["address"] for one in listed)]


# ── Alike ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _alike(snapshot: Snapshot) -> list[list[str]]:
    """Names of nodes, grouped; groups and names in their natural order."""
    owners = {
        one["metadata"]["uid"]: reference["uid"]
        for one in snapshot.of(Kind.REPLICA_SET)
        if (reference := controller_of(one)) is not None
    }
    pods: dict[str, Counter[Any]] = defaultdict(Counter)
    for pod in snapshot.of(Kind.POD):
        pods[podstate.node_of(pod)][_look(pod, owners)] += 1
    states = {one.address: (one.role, one.state, one.rack) for one in snapshot.machines or ()}
    groups: dict[Any, list[str]] = defaultdict(list)
    for node in snapshot.of(Kind.NODE):
        name = node["metadata"]["name"]
        labels = {(k, v) for k, v in labels_of(node).items() if k != HOSTNAME and v != name}
        spec, status = node.get("spec") or {}, node.get("status") or {}
        size = msgspec.json.encode([status.get("allocatable"), spec.get("taints"), spec.get("unschedulable")])
        machine = next((states[one] for one in _addresses(node) if one in states), None)
        ready = (podstate.condition(node, "Ready") or {}).get("status")
        groups[frozenset(labels), size, machine, ready, frozenset(pods[name].items())].append(name)
    return sorted((sorted(names, key=natural) for names in groups.values()), key=lambda names: natural(names[0]))


def _look(pod: Json, owners: dict[str, str]) -> tuple[str, str, bool]:
    """What tells it from other pods: its owner, its own name where it has a name to keep, and whether it serves."""
    reference = controller_of(pod)
    uid = "" if reference is None else str(reference["uid"])
    keeps_name = reference is None or reference["kind"] not in {"ReplicaSet", "DaemonSet", "Node"}
    name = "/".join(podstate.key_of(pod)) if keeps_name else ""
    return owners.get(uid, uid if reference is None or reference["kind"] != "Node" else ""), name, podstate.ready(pod)
