"""The ways into the world: pods by node, owner and TiDB component; nodes by class and taint; ReplicaSets by Deployment.

Each index holds uids and changes by exactly what an event changes. The groups are small dicts rather than sets: half
the size, and in a stable order. Empty ones are removed, so an index does not grow with deleted objects.
"""

from collections.abc import Hashable, Iterable
from typing import Final, TypeVar

from mooring.core.model.capacity import CapacityRules, NodeClass
from mooring.core.model.cluster import Node, Pod, ReplicaSet
from mooring.core.model.tidb import COMPONENT, INSTANCE, V2_CLUSTER, v2_component

G = TypeVar("G", bound=Hashable)

#: Other software uses the same two labels: only these components are TiDB's.
TIDB_COMPONENTS: Final = frozenset({"pd", "tidb", "tikv", "tiflash", "ticdc", "tiproxy", "pump"})

#: (namespace, TidbCluster's name, component)
Member = tuple[str, str, str]


def member_of(pod: Pod) -> Member | None:
    """Which component of which TidbCluster a pod is, by its labels; of tidb-operator v2 by its owner, too."""
    labels, v2 = pod.shape.labels, v2_component(pod.owner)
    if v2 is not None:
        return None if V2_CLUSTER not in labels else (pod.namespace, labels[V2_CLUSTER], v2)
    component = labels.get(COMPONENT)
    if component not in TIDB_COMPONENTS or component is None:
        return None
    instance = labels.get(INSTANCE)
    return None if instance is None else (pod.namespace, instance, component)


class Groups(dict[G, dict[str, None]]):
    """group → uids. A plain dict of dicts that keeps no empty group and answers an unknown one with nothing."""

    __slots__ = ()

    def add(self, group: G, uid: str) -> None:
        uids = self.get(group)
        if uids is None:
            uids = self[group] = {}
        uids[uid] = None

    def remove(self, group: G, uid: str) -> None:
        uids = self[group]
        del uids[uid]
        if not uids:
            del self[group]

    def of(self, group: G) -> Iterable[str]:
        return self.get(group, ())


class PodIndexes:
    __slots__ = ("by_member", "by_node", "by_owner", "used")

    def __init__(self) -> None:
        self.by_node: Groups[str] = Groups()
        self.by_owner: Groups[str] = Groups()
        self.by_member: Groups[Member] = Groups()
        #: node → [milli-CPU, bytes, pods] requested
        self.used: dict[str, list[int]] = {}

    def change(self, old: Pod | None, new: Pod | None) -> None:
        if (
            old is not None
            and new is not None
            and old.shape is new.shape
            and old.owner is new.owner
            and old.node == new.node
            and old.terminal == new.terminal
        ):
            return  # by far the most: a status changed, and the pod stands where it stood
        if old is not None:
            self._take(old)
            self._count(old, -1)
        if new is not None:
            self._put(new)
            self._count(new, 1)

    def _put(self, pod: Pod) -> None:
        if pod.node:
            self.by_node.add(pod.node, pod.uid)
        if pod.owner is not None:
            self.by_owner.add(pod.owner.uid, pod.uid)
        member = member_of(pod)
        if member is not None:
            self.by_member.add(member, pod.uid)

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

    def __init__(self, rules: CapacityRules, nodes: Iterable[Node] = ()) -> None:
        self._rules = rules
        self.by_class: Groups[NodeClass] = Groups()
        self.by_taint: Groups[str] = Groups()
        #: node's name → class
        self.class_of: dict[str, NodeClass] = {}
        for node in nodes:
            self.change(None, node)

    def change(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and old.labels is new.labels and old.taints == new.taints:
            return
        if old is not None:
            self.by_class.remove(self.class_of.pop(old.name), old.uid)
            for key in {t.key for t in old.taints}:
                self.by_taint.remove(key, old.uid)
        if new is not None:
            node_class = self._rules.class_of(new.labels)
            self.class_of[new.name] = node_class
            self.by_class.add(node_class, new.uid)
            for key in {t.key for t in new.taints}:
                self.by_taint.add(key, new.uid)


class ReplicaSetIndexes:
    __slots__ = ("by_deployment",)

    def __init__(self) -> None:
        self.by_deployment: Groups[str] = Groups()

    def change(self, old: ReplicaSet | None, new: ReplicaSet | None) -> None:
        if old is not None and old.owner is not None:
            self.by_deployment.remove(old.owner.uid, old.uid)
        if new is not None and new.owner is not None:
            self.by_deployment.add(new.owner.uid, new.uid)
