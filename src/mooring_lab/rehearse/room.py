"""Who found no place in the end, why, and how many machines more it would take.

The last question is not estimated: nodes like those that the cluster has are added to the sandbox, one by one, and its
scheduler says when all are placed. A pod that no such node helps, because its volume is on a machine that is gone
or because a rule of its own keeps it off, is told apart.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from mooring.clients.ports import Json
from mooring.core.model.capacity import CapacityRules, NodeClass
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import labels_of
from mooring_lab.cluster.nodes import HOSTNAME, healthy_conditions
from mooring_lab.cluster.scheduler.classes import lacks, refuses
from mooring_lab.cluster.scheduler.needs import Needs, parse_needs
from mooring_lab.cluster.scheduler.snapshot import NodeState

#: More nodes than this are not a useful answer.
MOST_NODES: Final = 200
#: How long the scheduler gets for each node that is added.
SCHEDULING_S: Final = 12.0
_ORDER: Final = {NodeClass.ON_DEMAND: 0, NodeClass.UNKNOWN: 1, NodeClass.SPOT: 2}

Sleep = Callable[[float], Awaitable[None]]


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    pod: str
    workload: str
    cpu_milli: int
    memory_mib: int
    #: kube-scheduler's words.
    why: str
    #: "room": more machines help · "pinned": its volume or a rule of its own keeps it off them · "before": it had no
    #: place when the event began either.
    lacks: str = "room"


class More(msgspec.Struct, frozen=True, kw_only=True):
    """So many nodes like this one, and all that lack room are placed (or as many as `places`)."""

    nodes: int
    like: str
    node_class: str
    cpu: str
    memory: str
    places: int


def unplaced(cluster: Cluster, workload_of: Callable[[Json], str]) -> list[Unplaced]:
    found = []
    for pod in cluster.store.list(Kind.POD):
        if podstate.node_of(pod) or not podstate.active(pod):
            continue
        needs = parse_needs(pod["spec"])
        said = podstate.condition(pod, "PodScheduled") or {}
        found.append(
            Unplaced(
                pod="/".join(podstate.key_of(pod)),
                workload=workload_of(pod),
                cpu_milli=needs.cpu_milli,
                memory_mib=needs.memory >> 20,
                why=str(said.get("message") or "not looked at yet"),
            )
        )
    return found


async def more_nodes(
    cluster: Cluster, waiting: list[Unplaced], rules: CapacityRules, shapes: list[Json], sleep: Sleep
) -> tuple[list[Unplaced], list[More]]:
    """Those that wait, each told apart, and what would place those that lack room. Changes the cluster."""
    left, answers = {one.pod for one in waiting}, list[More]()
    for shape in _kinds_of(shapes, rules):
        helped = [pod for pod in _still(cluster, left) if _fits_empty(shape, parse_needs(pod["spec"]))]
        if not helped:
            continue
        names = {"/".join(podstate.key_of(pod)) for pod in helped}
        added, before = 0, len(names)
        while added < MOST_NODES and (now := len(_still(cluster, names))):
            cluster.store.create(Kind.NODE, like(shape, f"rehearsed-{len(answers)}-{added:03d}", cluster))
            added += 1
            await sleep(SCHEDULING_S)
            if len(_still(cluster, names)) == now:
                added -= 1  # one more of these does not help
                break
        placed = before - len(_still(cluster, names))
        if placed:
            answers.append(_answer(shape, added, placed, rules))
    left = {"/".join(podstate.key_of(pod)) for pod in _still(cluster, left)}
    told = [msgspec.structs.replace(one, lacks="pinned" if one.pod in left else "room") for one in waiting]
    return told, answers


def _still(cluster: Cluster, names: set[str]) -> list[Json]:
    pods = (cluster.store.find(Kind.POD, *name.split("/", 1)) for name in sorted(names))
    return [pod for pod in pods if pod is not None and not podstate.node_of(pod)]


def _kinds_of(nodes: list[Json], rules: CapacityRules) -> list[Json]:
    """One node of each size and class, on-demand first, then the most usual size."""
    usual: Counter[Any] = Counter(_size(node, rules) for node in nodes)
    first = {_size(node, rules): node for node in reversed(nodes)}
    order = sorted(first, key=lambda size: (_ORDER[size[0]], -usual[size], size[1:]))
    return [first[size] for size in order]


def _size(node: Json, rules: CapacityRules) -> tuple[NodeClass, str, str]:
    room = (node.get("status") or {}).get("allocatable") or {}
    return rules.class_of(labels_of(node)), str(room.get("cpu", "0")), str(room.get("memory", "0"))


def _fits_empty(shape: Json, needs: Needs) -> bool:
    node = NodeState("rehearsed")
    node.read(_bare(shape))
    return not refuses(node, needs) and not lacks(node, needs)


def _bare(shape: Json) -> Json:
    """As a healthy node: its own taints stay, those that Kubernetes and Mooring set for its state go."""
    passing = ("node.kubernetes.io/", "mooring.dev/", "vacant.io/", "cke.cybozu.com/state")
    taints = [t for t in shape["spec"].get("taints") or () if not str(t["key"]).startswith(passing)]
    return {**shape, "spec": {"taints": taints} if taints else {}}


def like(shape: Json, name: str, cluster: Cluster) -> Json:
    """A healthy, empty node of the same size and labels."""
    bare = _bare(shape)
    status = {**bare["status"], "conditions": healthy_conditions(cluster.timeline.now()), "addresses": []}
    return {
        "metadata": {"name": name, "labels": {**labels_of(shape), HOSTNAME: name}},
        "spec": bare["spec"],
        "status": status,
    }


def _answer(shape: Json, added: int, placed: int, rules: CapacityRules) -> More:
    node_class, cpu, memory = _size(shape, rules)
    return More(
        nodes=added, like=shape["metadata"]["name"], node_class=node_class.value, cpu=cpu, memory=memory, places=placed
    )
