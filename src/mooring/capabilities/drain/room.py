"""What keeps a pod off a node, by the rules of kube-scheduler that are read here. An estimate: kube-scheduler
decides."""

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final

import msgspec

from mooring.core.model.cluster import Node, Pod, PodShape, SelectorTerm, Taint, Toleration, Volume
from mooring.core.world.read import WorldRead

_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})
_HOSTNAME: Final = "kubernetes.io/hostname"


class Bar(StrEnum):
    """What keeps a pod off a node, in the order in which it is told."""

    INTERRUPTED = "interrupted"
    CORDONED = "cordoned"
    NOT_READY = "not Ready"
    OWN_RULES = "excluded by its own node rules"
    TAINTED = "with a taint that it does not tolerate"
    SHARED = "with a replica that it may not stand beside"
    VOLUMES = "out of reach of its volumes"
    FULL = "full"


class RoomNeeds(msgspec.Struct, frozen=True):
    """What a pod asks of a node."""

    shape: PodShape
    #: The node rules to go by; they may be fewer than the shape's.
    terms: tuple[SelectorTerm, ...] | None
    tolerations: tuple[Toleration, ...]
    volumes: tuple[Volume, ...]
    #: Where its anti-affinity lets no second replica stand: (topology key, value).
    taken: frozenset[tuple[str, str]]


def taken_domains(pod: Pod, world: WorldRead) -> frozenset[tuple[str, str]]:
    keys = pod.shape.anti_affinity_keys
    if not keys or pod.owner is None:
        return frozenset()
    siblings = [p for p in world.pods_owned_by(pod.owner.uid) if p.uid != pod.uid and p.active and p.node]
    nodes = [node for node in (world.node(p.node) for p in siblings) if node is not None]
    return frozenset((key, value) for node in nodes for key in keys if (value := _domain(node, key)))


def _domain(node: Node, key: str) -> str:
    return node.labels.get(key, node.name if key == _HOSTNAME else "")


def untolerated(node: Node, tolerations: Collection[Toleration]) -> Taint | None:
    """The first taint that keeps a pod with these tolerations off the node."""
    return untolerated_of(node.taints, tolerations)


def untolerated_of(taints: Iterable[Taint], tolerations: Collection[Toleration]) -> Taint | None:
    kept_off = (t for t in taints if t.effect in _BLOCKING)
    return next((t for t in kept_off if not any(one.tolerates(t) for one in tolerations)), None)


def closed_by(node: Node) -> Bar | None:
    """What keeps every pod off this node."""
    if node.unschedulable:
        return Bar.CORDONED
    return Bar.NOT_READY if node.ready != "True" or node.deletion_at is not None else None


def bar_of(node: Node, needs: RoomNeeds, interrupted: Collection[str] = ()) -> Bar | None:
    """The first thing that keeps the pod off this node; None: nothing but, perhaps, its size."""
    if node.name in interrupted:
        return Bar.INTERRUPTED
    closed = closed_by(node)
    if closed is not None:
        return closed
    labels = node.labels
    if not all(labels.get(k) == v for k, v in needs.shape.node_selector.items()) or not matches(needs.terms, node):
        return Bar.OWN_RULES
    if untolerated(node, needs.tolerations) is not None:
        return Bar.TAINTED
    if needs.taken and any((key, _domain(node, key)) in needs.taken for key in needs.shape.anti_affinity_keys):
        return Bar.SHARED
    if needs.volumes and any(not matches(v.required_terms, node) for v in needs.volumes):
        return Bar.VOLUMES
    return None


def matches(terms: tuple[SelectorTerm, ...] | None, node: Node) -> bool:
    return terms is None or any(term.matches(node.labels, node.name) for term in terms)


def copies(node: Node, shape: PodShape, world: WorldRead) -> int:
    """How many such pods fit on this node. A pod that asks for nothing takes a place and nothing else."""
    used = world.usage(node.name)
    places = node.pods_limit - used.pods
    if shape.cpu_milli:
        places = min(places, (node.cpu_milli - used.cpu_milli) // shape.cpu_milli)
    if shape.memory_bytes:
        places = min(places, (node.memory_bytes - used.memory_bytes) // shape.memory_bytes)
    if shape.anti_affinity_keys:
        places = min(places, 1)
    return max(0, places)
