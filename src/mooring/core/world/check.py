"""Is each incremental index what the rows say it should be? Built again here, the plain way, and compared.

Deliberately written without the code that keeps the indexes: a mistake there must not repeat itself here.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mooring.core.model.cluster import Pod
from mooring.core.model.tidb import COMPONENT, INSTANCE
from mooring.core.world.indexes import TIDB_COMPONENTS

if TYPE_CHECKING:
    from mooring.core.world.world import World


def differences(world: "World") -> list[str]:
    """One line per index that is not what a rebuild gives; empty when there is none."""
    pods, nodes, sets = list(world._rows.pods), list(world._rows.nodes), list(world._rows.replica_sets)  # noqa: SLF001
    pod_indexes, node_indexes = world._pod_indexes, world._node_indexes  # noqa: SLF001
    by_deployment = world._replica_set_indexes.by_deployment  # noqa: SLF001
    found: list[str] = []

    def compare(what: str, kept: Any, rebuilt: Any) -> None:
        if kept != rebuilt:
            found.append(f"{what}: kept {_only(kept, rebuilt)}, rebuilt {_only(rebuilt, kept)}")

    for kind, table in world._rows.by_kind.items():  # noqa: SLF001
        names = {(ns, name): uid for ns, named in table._names.items() for name, uid in named.items()}  # noqa: SLF001
        compare(f"{kind} by name", names, {(row.key.namespace, row.key.name): row.uid for row in table})
        compare(f"{kind} by uid", table._rows, {row.uid: row for row in table})  # noqa: SLF001
        compare(f"{kind} namespaces", [ns for ns, named in table._names.items() if not named], [])  # noqa: SLF001
    compare("pods by node", pod_indexes.by_node, _groups((p.node, p.uid) for p in pods if p.node))
    compare("pods by owner", pod_indexes.by_owner, _groups((p.owner.uid, p.uid) for p in pods if p.owner))
    compare("pods by TiDB component", pod_indexes.by_member, _members(pods))
    compare("node usage", pod_indexes.used, _usage(pods))
    classes = {n.name: world.rules.class_of(n.labels) for n in nodes}
    compare("node classes", node_indexes.class_of, classes)
    compare("nodes by class", node_indexes.by_class, _groups((classes[n.name], n.uid) for n in nodes))
    compare("nodes by taint", node_indexes.by_taint, _groups((t.key, n.uid) for n in nodes for t in n.taints))
    compare("ReplicaSets by Deployment", by_deployment, _groups((r.owner.uid, r.uid) for r in sets if r.owner))
    return found


def _groups(pairs: Iterable[tuple[Any, str]]) -> dict[Any, dict[str, None]]:
    made: defaultdict[Any, dict[str, None]] = defaultdict(dict)
    for group, uid in pairs:
        made[group][uid] = None
    return dict(made)


def _members(pods: list[Pod]) -> dict[Any, dict[str, None]]:
    return _groups(
        ((p.namespace, p.labels[INSTANCE], p.labels[COMPONENT]), p.uid)
        for p in pods
        if INSTANCE in p.labels and p.labels.get(COMPONENT) in TIDB_COMPONENTS
    )


def _usage(pods: list[Pod]) -> dict[str, list[int]]:
    counted: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.node and pod.phase not in {"Succeeded", "Failed"}:
            counted[pod.node].append(pod)
    return {
        node: [sum(p.shape.cpu_milli for p in there), sum(p.shape.memory_bytes for p in there), len(there)]
        for node, there in counted.items()
    }


def _only(left: Any, right: Any) -> Any:
    """The part of `left` that `right` does not have, so that a report stays readable."""
    if isinstance(left, dict) and isinstance(right, dict):
        return {key: value for key, value in left.items() if right.get(key) != value}
    return left
