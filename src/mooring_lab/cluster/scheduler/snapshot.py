"""What the scheduler knows of nodes and of the pods on them, kept up to date change by change.

Nodes have an index in the order of their names. Every change of a node's load or face is written into a log, so that
a table computed for a class of pods (`classes.py`) catches up by looking at the nodes that changed, not at all.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from mooring.clients.ports import Json
from mooring.clients.wire.quantity import milli, whole
from mooring.core.model.cluster import Taint
from mooring_lab.cluster.apiserver.labels import selects
from mooring_lab.cluster.scheduler.needs import Needs, PodTerm

PodKey = tuple[str, str]
ZONE: Final = "topology.kubernetes.io/zone"


class PodUse(msgspec.Struct, frozen=True):
    """A pod that occupies a node, bound or assumed."""

    key: PodKey
    uid: str
    node: str
    needs: Needs
    labels: dict[str, str]
    owner_uid: str
    started_at: float = 0.0
    leaving: bool = False


class NodeState:
    __slots__ = (
        "cpu",
        "index",
        "labels",
        "memory",
        "name",
        "obj",
        "others",
        "pods",
        "pods_limit",
        "score_cpu",
        "score_memory",
        "taints",
        "unschedulable",
        "used_cpu",
        "used_memory",
        "used_others",
        "version",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.index = 0
        self.version = 0
        self.pods: dict[PodKey, PodUse] = {}
        self.used_cpu = self.used_memory = self.score_cpu = self.score_memory = 0
        self.used_others: dict[str, int] = {}

    def read(self, obj: Json) -> None:
        status, spec = obj.get("status") or {}, obj.get("spec") or {}
        room = status.get("allocatable") or status.get("capacity") or {}
        self.obj = obj
        self.labels: dict[str, str] = obj["metadata"].get("labels") or {}
        self.taints = tuple(Taint(t["key"], t["effect"], t.get("value", "")) for t in spec.get("taints") or ())
        self.unschedulable = bool(spec.get("unschedulable"))
        self.cpu = milli(room.get("cpu", "0"))
        self.memory = whole(room.get("memory", "0"))
        self.pods_limit = whole(room.get("pods", "110"))
        self.others = {k: whole(v) for k, v in room.items() if k not in {"cpu", "memory", "pods"}}
        self.version += 1

    def fits(self, needs: Needs, *, without: Iterable[PodUse] = (), plus: Iterable[PodUse] = ()) -> bool:
        """Room for one more such pod, imagining some pods gone and others there."""
        cpu, memory, count = self.used_cpu, self.used_memory, len(self.pods)
        others = self.used_others
        for sign, pods in ((-1, without), (1, plus)):
            for pod in pods:
                cpu += sign * pod.needs.cpu_milli
                memory += sign * pod.needs.memory
                count += sign
                if pod.needs.others:
                    others = dict(others)
                    for name, value in pod.needs.others:
                        others[name] = others.get(name, 0) + sign * value
        return (
            count < self.pods_limit
            and (not needs.cpu_milli or cpu + needs.cpu_milli <= self.cpu)
            and (not needs.memory or memory + needs.memory <= self.memory)
            and all(others.get(name, 0) + value <= self.others.get(name, 0) for name, value in needs.others)
        )


class MatchCount:
    """How many pods per node match a selector in some namespaces, with or without those that are leaving: kept up
    while the scheduler lives."""

    __slots__ = ("by_node", "leaving", "namespaces", "selector")

    def __init__(self, namespaces: tuple[str, ...], selector: Json | None, *, leaving: bool) -> None:
        self.namespaces = namespaces
        self.selector = selector
        self.leaving = leaving
        self.by_node: dict[str, int] = {}

    def note(self, pod: PodUse, sign: int) -> None:
        if pod.leaving and not self.leaving:
            return
        if pod.key[0] in self.namespaces and selects(self.selector, pod.labels):
            left = self.by_node.get(pod.node, 0) + sign
            if left:
                self.by_node[pod.node] = left
            else:
                self.by_node.pop(pod.node, None)


#: By namespace, selector and topology key.
_Terms = dict[tuple[str, bytes, str], tuple[PodTerm, PodUse, dict[str, int]]]
#: What a required affinity of a pod that is placed weighs for others.
HARD_AFFINITY: Final = 1


class SchedulerSnapshot:
    def __init__(self) -> None:
        self.nodes: dict[str, NodeState] = {}
        self._order: list[NodeState] | None = []
        #: Pods on nodes that we do not know (yet, or any more).
        self._homeless: dict[str, dict[PodKey, PodUse]] = {}
        #: Some node carries a zone.
        self.zoned = False
        #: Grows when nodes come or go: indexes are new.
        self.generation = 0
        #: Indexes of nodes that changed; `base` is how many entries were dropped from the front.
        self.log: list[int] = []
        self.log_base = 0
        self.pods: dict[PodKey, PodUse] = {}
        self.by_owner: dict[str, dict[str, int]] = {}
        self.counts: dict[tuple[tuple[str, ...], bytes, bool], MatchCount] = {}
        #: Anti-affinity terms of pods that are placed, each with one such pod and the nodes where they are.
        self.anti: _Terms = {}
        #: The same of those that draw or keep away others softly: their weight is signed.
        self.drawing: _Terms = {}

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def set_node(self, obj: Json) -> bool:
        """True when something that placement reads has changed."""
        name = obj["metadata"]["name"]
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = NodeState(name)
            node.read(obj)
            for pod in self._homeless.pop(name, {}).values():
                self._load(node, pod, 1)
            self._renumber()
            return True
        before = (node.labels, node.taints, node.unschedulable, node.cpu, node.memory, node.pods_limit, node.others)
        version = node.version
        node.read(obj)
        if before == (
            node.labels,
            node.taints,
            node.unschedulable,
            node.cpu,
            node.memory,
            node.pods_limit,
            node.others,
        ):
            node.version = version
            return False
        self._changed(node.index)
        self.zoned = self.zoned or ZONE in node.labels
        return True

    def drop_node(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is not None:
            if node.pods:
                self._homeless[name] = node.pods
            self._renumber()

    @property
    def order(self) -> list[NodeState]:
        """The nodes by index."""
        return self.number() if self._order is None else self._order

    def number(self) -> list[NodeState]:
        """Gives nodes their indexes, when some came or went: not at each, since they come by the thousand."""
        if self._order is None:
            self._order = [self.nodes[name] for name in sorted(self.nodes)]
            for index, node in enumerate(self._order):
                node.index = index
            self.zoned = any(ZONE in node.labels for node in self._order)
        return self._order

    def _renumber(self) -> None:
        self._order = None
        self.generation += 1
        self.log_base += len(self.log)
        self.log = []

    def _changed(self, index: int) -> None:
        if self._order is None:
            return  # every table is computed again anyhow
        if len(self.log) > 4 * len(self._order) + 4096:
            self.log_base += len(self.log)
            self.log = []
        self.log.append(index)

    # ── pods ──────────────────────────────────────────────────────────────────────────────────────────────────

    def place(self, pod: PodUse) -> None:
        known = self.pods.get(pod.key)
        if known is not None:
            same = known.uid == pod.uid and known.node == pod.node and known.labels is pod.labels
            if same and known.leaving == pod.leaving:
                return
            self.take_away(pod.key)
        self.pods[pod.key] = pod
        self._note(pod, 1)

    def take_away(self, key: PodKey) -> PodUse | None:
        pod = self.pods.pop(key, None)
        if pod is not None:
            self._note(pod, -1)
        return pod

    def discount(self, pod: PodUse, sign: int) -> None:
        """kube-scheduler imagines a pod gone from counts of spread though it was leaving, and so was not in them."""
        for count in self.counts.values() if pod.leaving else ():
            if not count.leaving:
                count.note(msgspec.structs.replace(pod, leaving=False), sign)

    def _note(self, pod: PodUse, sign: int) -> None:
        node = self.nodes.get(pod.node)
        if node is not None:
            self._load(node, pod, sign)
            self._changed(node.index)
        elif sign > 0:
            self._homeless.setdefault(pod.node, {})[pod.key] = pod
        else:
            self._homeless.get(pod.node, {}).pop(pod.key, None)
        if pod.owner_uid and not pod.leaving:
            on = self.by_owner.setdefault(pod.owner_uid, {})
            left = on.get(pod.node, 0) + sign
            if left:
                on[pod.node] = left
            else:
                on.pop(pod.node, None)
                if not on:
                    del self.by_owner[pod.owner_uid]
        for count in self.counts.values():
            count.note(pod, sign)
        needs = pod.needs
        for term in needs.anti:
            _note_term(self.anti, term, pod, sign)
        for term in needs.affine:
            _note_term(self.drawing, msgspec.structs.replace(term, weight=HARD_AFFINITY), pod, sign)
        for term in needs.affine_preferred:
            _note_term(self.drawing, term, pod, sign)
        for term in needs.anti_preferred:
            _note_term(self.drawing, msgspec.structs.replace(term, weight=-term.weight), pod, sign)

    @staticmethod
    def _load(node: NodeState, pod: PodUse, sign: int) -> None:
        needs = pod.needs
        if sign > 0:
            node.pods[pod.key] = pod
        else:
            node.pods.pop(pod.key, None)
        node.used_cpu += sign * needs.cpu_milli
        node.used_memory += sign * needs.memory
        node.score_cpu += sign * needs.score_cpu_milli
        node.score_memory += sign * needs.score_memory
        for name, value in needs.others:
            node.used_others[name] = node.used_others.get(name, 0) + sign * value

    def count(self, namespaces: tuple[str, ...], selector: Json | None, *, leaving: bool = True) -> MatchCount:
        key = (namespaces, _selector_key(selector), leaving)
        found = self.counts.get(key)
        if found is None:
            found = self.counts[key] = MatchCount(namespaces, selector, leaving=leaving)
            for pod in self.pods.values():
                found.note(pod, 1)
        return found


def _note_term(terms: _Terms, term: PodTerm, pod: PodUse, sign: int) -> None:
    exact = [term.selector_for(pod.labels), term.namespaces, term.namespace_selector, term.weight]
    key = (pod.key[0], _selector_key(exact), term.topology_key)
    _, _, on = terms.setdefault(key, (term, pod, {}))
    on[pod.node] = on.get(pod.node, 0) + sign
    if not on[pod.node]:
        del on[pod.node]
        if not on:
            del terms[key]


def _selector_key(selector: object) -> bytes:
    return msgspec.json.encode(selector, order="deterministic")
