"""Is there a node that would take this pod? Asked before it is moved.

Without this question a replica is evicted and has no place to go, or comes back where it was. The answer is an estimate
by the rules of kube-scheduler that are read here: kube-scheduler decides.

Most pods have no node rules of their own: for them a node is closed (and why), or open, and then its taints and its
free CPU say the most. `NodeRoom` keeps nodes in that order, so that thousands of pods can ask when none has room.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from mooring.capabilities.drain.signals import DETECTORS, NoticeKind, signals_of
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Key, Node, Pod, PodShape, SelectorTerm, Taint, Toleration, Volume, Workload
from mooring.core.model.events import Change, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.world.read import WorldRead

_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})
_HOSTNAME: Final = "kubernetes.io/hostname"
#: On every node that Karpenter has made.
_NODE_POOL: Final = "karpenter.sh/nodepool"
_NAMED: Final = ("app.kubernetes.io/name", "k8s-app", "app")


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


# ── Nodes by what they have left ──────────────────────────────────────────────────────────────────────────────────


class NodeRoom:
    """An index of the world: nodes by class; the closed ones by what closes them, the open ones by their free CPU. And
    who makes nodes."""

    observes: frozenset[object] = frozenset({Kind.NODE, Kind.POD, Kind.DEPLOYMENT})

    def __init__(self) -> None:
        #: Class and taints → (free CPU, name), the least first.
        self.open: dict[tuple[NodeClass, tuple[Taint, ...]], list[tuple[int, str]]] = {}
        self.closed: dict[tuple[NodeClass, Bar], int] = {}
        #: Where each node stands: its place among the open ones, or what closes it.
        self._places: dict[str, tuple[NodeClass, tuple[Taint, ...], int] | tuple[NodeClass, Bar]] = {}
        #: Nodes that Karpenter has made, and Deployments that are named as autoscalers are.
        self._pooled: set[str] = set()
        self._autoscalers: set[Key] = set()

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        assert isinstance(trigger, Change)
        old, new = trigger.old, trigger.new
        if trigger.kind is Kind.NODE:
            node = new if isinstance(new, Node) else None
            self._file(trigger.key.name, node, world)
            (self._pooled.add if node is not None and _NODE_POOL in node.labels else self._pooled.discard)(
                trigger.key.name
            )
            return
        if trigger.kind is Kind.DEPLOYMENT:
            scales = isinstance(new, Workload) and new.ready_replicas and _is_autoscaler(new)
            (self._autoscalers.add if scales else self._autoscalers.discard)(trigger.key)
            return
        before, after = _takes(old), _takes(new)
        if before != after:
            for name, _ in {before, after}:
                if name in self._places:
                    self._file(name, world.node(name), world)

    def advance(self) -> bool:
        return False

    @property
    def autoscaler(self) -> str:
        """Who makes nodes for Pending pods here, by its name; "": nobody that can be seen. The cluster autoscaler of a
        managed control plane cannot."""
        if self._pooled:
            return "karpenter"
        return min((key.name for key in self._autoscalers), default="")

    def _file(self, name: str, node: Node | None, world: WorldRead) -> None:
        self._drop(name)
        if node is None:
            return
        node_class = world.rules.class_of(node.labels)
        bar = Bar.INTERRUPTED if is_going(node) else closed_by(node)
        if bar is not None:
            self._places[name] = (node_class, bar)
            self.closed[node_class, bar] = self.closed.get((node_class, bar), 0) + 1
            return
        free = node.cpu_milli - world.usage(name).cpu_milli
        self._places[name] = (node_class, node.taints, free)
        insort(self.open.setdefault((node_class, node.taints), []), (free, name))

    def _drop(self, name: str) -> None:
        place = self._places.pop(name, None)
        if place is None:
            return
        if len(place) == 2:
            self.closed[place] -= 1
            if not self.closed[place]:
                del self.closed[place]
            return
        node_class, taints, free = place
        nodes = self.open[node_class, taints]
        del nodes[bisect_left(nodes, (free, name))]
        if not nodes:
            del self.open[node_class, taints]


def is_going(node: Node) -> bool:
    """A sign of its departure is on it, by the detectors that are built in. One that only may go takes pods."""
    quiet = node.ready == "True" and not (node.taints or node.conditions or node.annotations)
    if quiet and node.deletion_at is None:
        return False
    return any(one.kind is not NoticeKind.RECOMMENDATION for one in signals_of(node, DETECTORS, spot=False))


def _takes(row: object) -> tuple[str, int]:
    """Where a pod takes CPU, and how much."""
    return (row.node, row.shape.cpu_milli) if isinstance(row, Pod) and not row.terminal else ("", 0)


def _is_autoscaler(workload: Workload) -> bool:
    names = {workload.name, *(workload.labels.get(key, "") for key in _NAMED)}
    return any(n == "karpenter" or n.endswith("cluster-autoscaler") for n in names)


# ── The question ──────────────────────────────────────────────────────────────────────────────────────────────────


class Lack(msgspec.Struct, frozen=True):
    words: str
    #: There are nodes, and the pod's own rules exclude every one of them: more nodes would not help.
    by_own_rules: bool = False


class Room:
    """Of one class of nodes, or of all. `interrupted`: nodes that go, besides those whose sign is built in."""

    def __init__(self, world: WorldRead, wanted: NodeClass | None = None, interrupted: Collection[str] = ()) -> None:
        self._world, self._wanted, self._interrupted = world, wanted, interrupted
        self._index = world.index(NodeRoom)

    def fits(self, needs: RoomNeeds, *, others: int = 0) -> bool:
        """Room for this pod and for `others` like it that are on their way."""
        count = 0
        for node in self._large_enough(needs) if _is_plain(needs) else self._not_excluded(needs):
            count += copies(node, needs.shape, self._world)
            if count > others:
                return True
        return False

    def lack(self, needs: RoomNeeds) -> Lack:
        """Why no node would take the pod, as kube-scheduler counts: "4 nodes: 3 cordoned, 1 full"."""
        causes = dict.fromkeys(Bar, 0)
        if _is_plain(needs):
            for (node_class, bar), many in self._index.closed.items():
                if self._wanted in {None, node_class}:
                    causes[bar] += many
            for (node_class, taints), nodes in self._index.open.items():
                if self._wanted in {None, node_class}:
                    causes[Bar.TAINTED if untolerated_of(taints, needs.tolerations) else Bar.FULL] += len(nodes)
        else:
            for node in self._nodes():
                causes[self._bar(node, needs) or Bar.FULL] += 1
        total = sum(causes.values())
        told = ", ".join(f"{many} {cause}" for cause, many in causes.items() if many)
        noun = "node" if total == 1 else "nodes"
        words = f"{total} {noun}: {told}" if total else f"there is no {self._wanted or ''} node".replace("  ", " ")
        return Lack(words, by_own_rules=0 < total == causes[Bar.OWN_RULES])

    def most(self, needs: RoomNeeds) -> Node | None:
        """The node with the most CPU left, of those that nothing but their size keeps the pod off."""
        found: Iterable[Node]
        if _is_plain(needs):
            found = filter(None, (self._world.node(nodes[-1][1]) for nodes in self._tolerated(needs)))
        else:
            found = self._not_excluded(needs)
        free = ((n.cpu_milli - self._world.usage(n.name).cpu_milli, n.name, n) for n in found)
        return max(free, default=(0, "", None))[2]

    def _nodes(self) -> Iterable[Node]:
        return self._world.nodes() if self._wanted is None else self._world.nodes_of_class(self._wanted)

    def _bar(self, node: Node, needs: RoomNeeds) -> Bar | None:
        return Bar.INTERRUPTED if is_going(node) else bar_of(node, needs, self._interrupted)

    def _tolerated(self, needs: RoomNeeds) -> Iterator[list[tuple[int, str]]]:
        for (node_class, taints), nodes in self._index.open.items():
            if self._wanted in {None, node_class} and untolerated_of(taints, needs.tolerations) is None:
                yield nodes

    def _large_enough(self, needs: RoomNeeds) -> Iterator[Node]:
        """Open nodes whose taints the pod tolerates and whose free CPU suffices, the emptiest first."""
        for nodes in self._tolerated(needs):
            for free, name in reversed(nodes):
                node = self._world.node(name)
                if free < needs.shape.cpu_milli or node is None:
                    break
                if name not in self._interrupted:
                    yield node

    def _not_excluded(self, needs: RoomNeeds) -> Iterator[Node]:
        return (n for n in self._nodes() if self._bar(n, needs) is None)


def needs_of(pod: Pod, world: WorldRead) -> RoomNeeds:
    """By the pod's own rules alone."""
    volumes = world.volumes_of(pod) if pod.claims else ()
    shape = pod.shape
    return RoomNeeds(shape, shape.required_terms, shape.tolerations, volumes, taken_domains(pod, world))


def _is_plain(needs: RoomNeeds) -> bool:
    """Nothing but class, taints and size decides."""
    shape = needs.shape
    return not (shape.node_selector or needs.terms is not None or needs.volumes or shape.anti_affinity_keys)


# ── Volumes ─────────────────────────────────────────────────────────────────────────────────────────────────────────
#
# Can the pod come up anywhere else? Volumes bound to nodes that take no pods say no, and then nothing is deleted.
#
# It is asked before leaders leave, not only before the deletion: a hand-over that cannot end would keep a store without
# leaders, and make all other operators wait, until a person acts.

#: So many nodes are named; a zone's volume fits hundreds.
NAMED = 3


class StuckVolume(msgspec.Struct, frozen=True, gc=False):
    """Why its volumes keep a pod from coming back, and the command that would end it ("" when there is none)."""

    detail: str
    remedy: str = ""


def stuck_volume(pod: Pod, world: WorldRead) -> StuckVolume | None:
    """None when its volumes are bound to no node, or some node that they fit takes pods."""
    bound = [v.required_terms for v in world.volumes_of(pod) if v.required_terms is not None]
    if not bound:
        return None
    fits = sorted((n for n in world.nodes() if _fits(n, bound)), key=lambda n: n.name)
    closed = [(node.name, why) for node in fits if (why := _closed(node, pod))]
    if len(closed) < len(fits):
        return None
    if not fits:
        return StuckVolume(f"the volume of {pod.name} is bound to a node that is not there any more")
    first, why = closed[0]
    where = f"{first}, which is {why}" if len(closed) == 1 else _several(closed)
    cordoned = next((name for name, why in closed if why == "cordoned"), "")
    return StuckVolume(
        f"the volume of {pod.name} is bound to {where}", f"kubectl uncordon {cordoned}" if cordoned else ""
    )


def is_pinned(pod: Pod, world: WorldRead) -> bool:
    """Its volumes reach no node but its own: more nodes would not help."""
    bound = [v.required_terms for v in world.volumes_of(pod) if v.required_terms is not None] if pod.claims else []
    return bool(bound) and [n.name for n in world.nodes() if _fits(n, bound)] == [pod.node]


def _fits(node: Node, bound: Iterable[tuple[SelectorTerm, ...]]) -> bool:
    return all(matches(terms, node) for terms in bound)


def _closed(node: Node, pod: Pod) -> str:
    """Why this node takes no such pod; "" when it does."""
    if node.unschedulable:
        return "cordoned"
    if node.ready != "True":
        return "not Ready"
    taint = untolerated(node, pod.shape.tolerations)
    return f"tainted {taint.key}" if taint is not None else ""


def _several(closed: list[tuple[str, str]]) -> str:
    named = ", ".join(f"{name} ({why})" for name, why in closed[:NAMED])
    more = len(closed) - NAMED
    return f"{named} and {more} more that take no pods" if more > 0 else named
