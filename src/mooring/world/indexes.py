"""The ways into the world: pods by node, owner and TiDB component; nodes by class and taint; ReplicaSets by Deployment.

Each index is a dict of small dicts (uid or name → row), changed by exactly what an event changes. Small dicts rather
than sets: they are half the size, and lead straight to the row. Empty ones are removed, so an index never grows with
what has been.
"""

from collections.abc import Hashable
from typing import Any, Final, Generic, TypeVar

from mooring.model.capacity import CapacityRules, NodeClass
from mooring.model.cluster import Node, Pod, ReplicaSet

G = TypeVar("G", bound=Hashable)
T = TypeVar("T", bound=Any)

INSTANCE: Final = "app.kubernetes.io/instance"
COMPONENT: Final = "app.kubernetes.io/component"
#: Other software uses the same two labels: only these components are TiDB's.
TIDB_COMPONENTS: Final = frozenset({"pd", "tidb", "tikv", "tiflash", "ticdc", "tiproxy", "pump"})

#: (namespace, TidbCluster's name, component)
Member = tuple[str, str, str]


def member_of(pod: Pod) -> Member | None:
    """Which component of which TidbCluster a pod is, by its labels."""
    labels = pod.shape.labels
    component = labels.get(COMPONENT)
    if component not in TIDB_COMPONENTS or component is None:
        return None
    instance = labels.get(INSTANCE)
    return None if instance is None else (pod.namespace, instance, component)


class Grouped(Generic[G, T]):
    """group → id → row."""

    __slots__ = ("groups",)

    def __init__(self) -> None:
        self.groups: dict[G, dict[str, T]] = {}

    def add(self, group: G, row_id: str, row: T) -> None:
        rows = self.groups.get(group)
        if rows is None:
            rows = self.groups[group] = {}
        rows[row_id] = row

    def remove(self, group: G, row_id: str) -> None:
        rows = self.groups[group]
        del rows[row_id]
        if not rows:
            del self.groups[group]

    def of(self, group: G) -> tuple[T, ...]:
        rows = self.groups.get(group)
        return () if rows is None else tuple(rows.values())


class PodIndexes:
    __slots__ = ("by_member", "by_node", "by_owner", "used")

    def __init__(self) -> None:
        self.by_node: Grouped[str, Pod] = Grouped()
        self.by_owner: Grouped[str, Pod] = Grouped()
        self.by_member: Grouped[Member, Pod] = Grouped()
        #: node → [milli-CPU, bytes, pods] requested
        self.used: dict[str, list[int]] = {}

    def change(self, old: Pod | None, new: Pod | None) -> None:
        """Take `old` out, put `new` in; when both stand in the same places, only the rows are exchanged."""
        if old is not None and new is not None:
            same_owner = old.owner is new.owner or old.owner == new.owner
            if same_owner and old.node == new.node and old.shape is new.shape and old.terminal == new.terminal:
                self._put(new)
                return
        if old is not None:
            self._take(old)
            self._count(old, -1)
        if new is not None:
            self._put(new)
            self._count(new, 1)

    def _put(self, pod: Pod) -> None:
        uid = pod.uid
        if pod.node:
            self.by_node.add(pod.node, uid, pod)
        if pod.owner is not None:
            self.by_owner.add(pod.owner.uid, uid, pod)
        member = member_of(pod)
        if member is not None:
            self.by_member.add(member, uid, pod)

    def _take(self, pod: Pod) -> None:
        if pod.node:
            self.by_node.remove(pod.node, pod.uid)
        if pod.owner is not None:
            self.by_owner.remove(pod.owner.uid, pod.uid)
        member = member_of(pod)
        if member is not None:
            self.by_member.remove(member, pod.uid)

    def _count(self, pod: Pod, sign: int) -> None:
        if not pod.node or pod.terminal:
            return
        used = self.used.get(pod.node)
        if used is None:
            used = self.used[pod.node] = [0, 0, 0]
        used[0] += sign * pod.shape.cpu_milli
        used[1] += sign * pod.shape.memory_bytes
        used[2] += sign
        if used[2] == 0:
            del self.used[pod.node]


class NodeIndexes:
    __slots__ = ("_rules", "by_class", "by_taint", "class_of")

    def __init__(self, rules: CapacityRules) -> None:
        self._rules = rules
        self.by_class: Grouped[NodeClass, Node] = Grouped()
        self.by_taint: Grouped[str, Node] = Grouped()
        self.class_of: dict[str, NodeClass] = {}

    def change(self, old: Node | None, new: Node | None) -> None:
        if old is not None:
            self.by_class.remove(self.class_of.pop(old.name), old.name)
            for key in {t.key for t in old.taints}:
                self.by_taint.remove(key, old.name)
        if new is not None:
            node_class = self._rules.class_of(new.labels)
            self.class_of[new.name] = node_class
            self.by_class.add(node_class, new.name, new)
            for key in {t.key for t in new.taints}:
                self.by_taint.add(key, new.name, new)


class ReplicaSetIndexes:
    __slots__ = ("by_deployment",)

    def __init__(self) -> None:
        self.by_deployment: Grouped[str, ReplicaSet] = Grouped()

    def change(self, old: ReplicaSet | None, new: ReplicaSet | None) -> None:
        if old is not None and old.owner is not None:
            self.by_deployment.remove(old.owner.uid, old.uid)
        if new is not None and new.owner is not None:
            self.by_deployment.add(new.owner.uid, new.uid, new)
