"""One table per class of equal pods: for each node a score, or −1 where such a pod cannot go.

A thousand nodes times twenty pods a second is too much to look at afresh. A table is computed once and then catches
up with the snapshot's log, so that a pod costs the nodes that changed since the last pod of its class. What differs
from pod to pod (siblings, anti-affinity, volumes, nominations) is laid over it per pod, by `constraints.py`.

Scores and weights are kube-scheduler's defaults: taints 3, node affinity 2, least allocated 1, balanced 1. Affinity
and PreferNoSchedule are normalised over the nodes of the whole table rather than over the feasible ones; that is the
same while all nodes that are preferred are so by one weight, which is the usual case. Where not, `is_exact` is False.
"""

from typing import Final

from mooring.core.model.cluster import Taint
from mooring_lab.cluster.scheduler.needs import EVERY_ADDRESS, Needs
from mooring_lab.cluster.scheduler.snapshot import NodeState, SchedulerSnapshot

NEVER: Final = -1
_UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")


def refuses(node: NodeState, needs: Needs) -> str:
    """Why the node's face (not its load) rules the pod out, in kube-scheduler's words; "" when it does not."""
    if node.unschedulable and not any(t.tolerates(_UNSCHEDULABLE) for t in needs.tolerations):
        return "node(s) were unschedulable"
    taint = untolerated(node, needs)
    if taint is not None:
        return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    return "" if is_selected(node, needs) else "node(s) didn't match Pod's node affinity/selector"


def untolerated(node: NodeState, needs: Needs) -> Taint | None:
    hard = (taint for taint in node.taints if taint.effect != "PreferNoSchedule")
    return next((taint for taint in hard if not any(t.tolerates(taint) for t in needs.tolerations)), None)


def is_selected(node: NodeState, needs: Needs) -> bool:
    """By the pod's node selector and its required node affinity."""
    if any(node.labels.get(key) != value for key, value in needs.selector):
        return False
    return needs.required is None or any(term.matches(node.labels, node.name) for term in needs.required)


def lacks(node: NodeState, needs: Needs) -> str:
    """Why the node has no room; "" when it has."""
    if len(node.pods) >= node.pods_limit:
        return "Too many pods"
    if needs.cpu_milli and node.used_cpu + needs.cpu_milli > node.cpu:
        return "Insufficient cpu"
    if needs.memory and node.used_memory + needs.memory > node.memory:
        return "Insufficient memory"
    for name, value in needs.others:
        if node.used_others.get(name, 0) + value > node.others.get(name, 0):
            return f"Insufficient {name}"
    if needs.host_ports and _taken(node, needs.host_ports):
        return "node(s) didn't have free ports for the requested pod ports"
    return ""


def _taken(node: NodeState, wanted: tuple[tuple[str, str, int], ...]) -> bool:
    used = {port for pod in node.pods.values() for port in pod.needs.host_ports}
    return any(
        (protocol, port) == (used_protocol, used_port) and (ip == used_ip or EVERY_ADDRESS in {ip, used_ip})
        for ip, protocol, port in wanted
        for used_ip, used_protocol, used_port in used
    )


def load_score(node: NodeState, needs: Needs) -> int:
    """Least allocated plus balanced allocation, each 0…100. The second compares the node with and without the pod, and
    weighs nothing for a pod that asks for nothing."""
    cpu_room, memory_room = node.cpu, node.memory
    least = count = 0
    for room, used in (
        (cpu_room, node.score_cpu + needs.sought_cpu_milli),
        (memory_room, node.score_memory + needs.sought_memory),
    ):
        if room:
            least += (room - used) * 100 // room if used <= room else 0
            count += 1
    least = least // count if count else 0
    if not needs.cpu_milli and not needs.memory:
        return least
    if not cpu_room or not memory_room:
        return least + 75
    cpu, memory = node.used_cpu, node.used_memory
    alone = abs(min(1.0, cpu / cpu_room) - min(1.0, memory / memory_room)) / 2
    cpu, memory = cpu + needs.cpu_milli, memory + needs.memory
    beside = abs(min(1.0, cpu / cpu_room) - min(1.0, memory / memory_room)) / 2
    return least + 50 + (50 + int((1 - beside) * 100) - int((1 - alone) * 100)) // 2


def liking(node: NodeState, needs: Needs) -> int:
    """By the pod's preferred node affinity."""
    return sum(w for w, term in needs.preferred if term.matches(node.labels, node.name))


def shunning(node: NodeState, needs: Needs) -> int:
    """How many of its PreferNoSchedule taints the pod does not tolerate."""
    return sum(
        1
        for taint in node.taints
        if taint.effect == "PreferNoSchedule" and not any(t.tolerates(taint) for t in needs.tolerations)
    )


def faces(liked: list[int], shunned: list[int]) -> list[int]:
    """Points for node affinity and taints, weights 2 and 3, normalised over these nodes."""
    most_liked, most_shunned = max(liked, default=0), max(shunned, default=0)
    return [
        (2 * (100 * like // most_liked) if most_liked else 0)
        + 3 * (100 - 100 * shun // most_shunned if most_shunned else 100)
        for like, shun in zip(liked, shunned, strict=True)
    ]


class ClassTable:
    def __init__(self, needs: Needs, snapshot: SchedulerSnapshot) -> None:
        self.needs = needs
        self._snapshot = snapshot
        self._generation = -1
        self._position = 0
        self._versions: list[int] = []
        self._refused: list[bool] = []
        self._liking: list[int] = []
        self._shunning: list[int] = []
        self._face: list[int] = []
        self.is_exact = True
        self.scores: list[int] = []

    def catch_up(self) -> list[int]:
        """Scores by node index, as of now. The table's own list: copy before changing it."""
        snapshot = self._snapshot
        end = snapshot.log_base + len(snapshot.log)
        if self._generation != snapshot.generation or self._position < snapshot.log_base:
            self._rebuild()
        elif self._position < end:
            changed = set(snapshot.log[self._position - snapshot.log_base :])
            if not self._faces_changed(changed):
                for index in changed:
                    self._score(index)
        self._position = end
        return self.scores

    def _rebuild(self) -> None:
        self._generation = self._snapshot.generation
        nodes = self._snapshot.order
        self._versions = [node.version for node in nodes]
        self._refused = [bool(refuses(node, self.needs)) for node in nodes]
        self._liking = [liking(node, self.needs) for node in nodes]
        self._shunning = [shunning(node, self.needs) for node in nodes]
        self._normalise()

    def _faces_changed(self, changed: set[int]) -> bool:
        nodes, normal = self._snapshot.order, True
        for index in changed:
            node = nodes[index]
            if self._versions[index] == node.version:
                continue
            self._versions[index] = node.version
            self._refused[index] = bool(refuses(node, self.needs))
            like, shun = liking(node, self.needs), shunning(node, self.needs)
            if (like, shun) != (self._liking[index], self._shunning[index]):
                self._liking[index], self._shunning[index] = like, shun
                normal = False
        if not normal:
            self._normalise()
        return not normal

    def _normalise(self) -> None:
        self._face = faces(self._liking, self._shunning)
        self.is_exact = len({0, *self._liking}) <= 2 and len({0, *self._shunning}) <= 2
        self.scores = [NEVER] * len(self._face)
        for index in range(len(self._face)):
            self._score(index)

    def _score(self, index: int) -> None:
        node, needs = self._snapshot.order[index], self.needs
        if (
            self._refused[index]
            or len(node.pods) >= node.pods_limit
            or (needs.cpu_milli and node.used_cpu + needs.cpu_milli > node.cpu)
            or (needs.memory and node.used_memory + needs.memory > node.memory)
            or ((needs.others or needs.host_ports) and lacks(node, needs))
        ):
            self.scores[index] = NEVER
        else:
            self.scores[index] = self._face[index] + load_score(node, needs)


class ClassTables:
    """Tables by class, the least recently made dropped first."""

    def __init__(self, snapshot: SchedulerSnapshot, limit: int = 512) -> None:
        self._snapshot = snapshot
        self._limit = limit
        self._tables: dict[int, ClassTable] = {}

    def of(self, needs: Needs) -> ClassTable:
        # The table keeps its needs, so this identity is not reused while the entry lives.
        table = self._tables.get(id(needs))
        if table is None:
            if len(self._tables) >= self._limit:
                del self._tables[next(iter(self._tables))]
            table = self._tables[id(needs)] = ClassTable(needs, self._snapshot)
        return table
