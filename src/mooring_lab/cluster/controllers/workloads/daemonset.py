"""DaemonSet: one pod on every node that may have it. It tolerates the taints of unhealthy nodes, so drains leave it
alone."""

from typing import Final

from mooring.clients.ports import ConflictError, Json, NotFoundError, PortError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import key_of, labels_of
from mooring_lab.cluster.controllers.queue import Key, WorkQueue
from mooring_lab.cluster.controllers.workloads.ownership import Orphans, OwnedPods, Send, claim_pods
from mooring_lab.cluster.controllers.workloads.rollout import (
    REVISION_LABEL,
    owner_reference,
    pod_from,
    resolve,
    template_hash,
)
from mooring_lab.cluster.scheduler.classes import refuses
from mooring_lab.cluster.scheduler.needs import Needs, parse_needs
from mooring_lab.cluster.scheduler.snapshot import NodeState

_ALWAYS_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


class DaemonSets:
    def __init__(
        self,
        timeline: Timeline,
        store: ObjectStore,
        owned: OwnedPods,
        orphans: Orphans,
        send: Send,
        *,
        latency_s: float = 0.02,
    ) -> None:
        self._timeline = timeline
        self._store = store
        self._orphans = orphans
        self._send = send
        #: What was found of each node, and of which template.
        self._judged: dict[Key, dict[str, tuple[Json, Json, tuple[bool, bool]]]] = {}
        self.queue = WorkQueue(timeline, self._sync, latency_s=latency_s)
        store.subscribe(Kind.DAEMON_SET, self._on_set)
        owned.route("DaemonSet", self._on_pod)
        store.subscribe(Kind.NODE, self._on_node)

    def _on_set(self, _kind: str, old: Json | None, new: Json | None) -> None:
        obj = new or old
        if obj is not None:
            self.queue.add(key_of(obj))

    def _on_pod(self, _event: str, old: Json | None, new: Json | None, reference: Json) -> None:
        pod = new or old
        if pod is not None:
            self.queue.add((pod["metadata"]["namespace"], reference["name"]))

    def _on_node(self, _kind: str, old: Json | None, new: Json | None) -> None:
        if new is None:
            return  # as in Kubernetes: its pods are the garbage collector's, and the next change is soon enough
        if old is not None and new is not None and old["spec"] == new["spec"] and labels_of(old) == labels_of(new):
            return
        for obj in self._store.list(Kind.DAEMON_SET):
            self.queue.add(key_of(obj))

    def _sync(self, key: Key) -> float | None:
        obj = self._store.find(Kind.DAEMON_SET, *key)
        if obj is None or podstate.terminating(obj):
            return None
        pods = claim_pods(self._store, self._orphans, obj, "apps/v1", "DaemonSet")
        template = _tolerant(obj["spec"]["template"])
        needs = parse_needs(template["spec"])
        revision = template_hash(obj["spec"]["template"])
        by_node: dict[str, list[Json]] = {}
        for pod in pods:
            by_node.setdefault(_target(pod), []).append(pod)
        verdicts = self._verdicts(key, obj["spec"]["template"], needs)
        wanted = {name for name, (run, _) in verdicts.items() if run}
        stay = {name for name, (_, go_on) in verdicts.items() if go_on}
        for name in sorted(wanted - by_node.keys()):
            self._create(key, obj, template, name, revision)
        for name in sorted(by_node):
            alive = [pod for pod in by_node[name] if not podstate.terminating(pod)]
            if name not in verdicts:
                alive = [pod for pod in alive if not podstate.node_of(pod)]
            surplus = alive if name not in stay else alive[1:]
            for pod in (*surplus, *(p for p in alive[:1] if podstate.terminal(p))):
                self._delete(pod)
        if (obj["spec"].get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate":
            self._roll(obj, by_node, wanted, revision)
        self._write_status(key, obj, wanted, revision)
        return None

    def _verdicts(self, key: Key, template: Json, needs: Needs) -> dict[str, tuple[bool, bool]]:
        """Node → (should run, may go on running). What is stored is never changed in place: the same node and the same
        template get the same answer."""
        before = self._judged.get(key, {})
        now = self._judged[key] = {}
        for obj in self._store.list(Kind.NODE):
            known = before.get(name := obj["metadata"]["name"])
            if known is None or known[0] is not obj or known[1] is not template:
                known = (obj, template, self._verdict(obj, needs))
            now[name] = known
        return {name: verdict for name, (_, _, verdict) in now.items()}

    @staticmethod
    def _verdict(obj: Json, needs: Needs) -> tuple[bool, bool]:
        node = NodeState(obj["metadata"]["name"])
        node.read(obj)
        if not refuses(node, needs):
            return True, True
        node.taints = tuple(t for t in node.taints if t.effect == "NoExecute")
        node.unschedulable = False
        return False, not refuses(node, needs)

    def _create(self, key: Key, obj: Json, template: Json, node: str, revision: str) -> None:
        pod = pod_from(template, key[0], owner_reference(obj, "apps/v1", "DaemonSet"))
        pod["metadata"]["generateName"] = f"{key[1]}-"
        pod["metadata"]["labels"] = {**pod["metadata"]["labels"], REVISION_LABEL: revision}
        pod["spec"] = {**pod["spec"], "affinity": _pinned(pod["spec"].get("affinity") or {}, node)}

        def answer(error: PortError | None) -> None:
            if error is not None:
                self.queue.retry(key)

        self._send(pod, answer)

    def _delete(self, pod: Json) -> None:
        meta = pod["metadata"]
        try:
            self._store.delete(Kind.POD, meta["namespace"], meta["name"], uid=meta["uid"])
        except (NotFoundError, ConflictError):
            return

    def _roll(self, obj: Json, by_node: dict[str, list[Json]], wanted: set[str], revision: str) -> None:
        rolling = (obj["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
        allowed = resolve(rolling.get("maxUnavailable"), len(wanted), up=True, default=1)
        old: list[Json] = []
        for name in sorted(wanted):
            pods = [pod for pod in by_node.get(name, ()) if not podstate.terminating(pod)]
            if not pods or not podstate.ready(pods[0]):
                allowed -= 1
            if pods and labels_of(pods[0]).get(REVISION_LABEL) != revision:
                old.append(pods[0])
        sick = [pod for pod in old if not podstate.ready(pod)]
        for pod in sick:
            self._delete(pod)
        for pod in [pod for pod in old if podstate.ready(pod)][: max(0, allowed)]:
            self._delete(pod)

    def _write_status(self, key: Key, obj: Json, wanted: set[str], revision: str) -> None:
        pods = [p for p in self._store.pods_of(obj["metadata"]["uid"]) if podstate.active(p) and podstate.node_of(p)]
        here = [pod for pod in pods if podstate.node_of(pod) in wanted]
        ready = [pod for pod in here if podstate.ready(pod)]
        status = {
            "observedGeneration": obj["metadata"].get("generation", 1),
            "desiredNumberScheduled": len(wanted),
            "currentNumberScheduled": len(here),
            "updatedNumberScheduled": sum(labels_of(pod).get(REVISION_LABEL) == revision for pod in here),
            "numberReady": len(ready),
            "numberAvailable": len(ready),
            "numberUnavailable": len(wanted) - len(ready),
            "numberMisscheduled": len(pods) - len(here),
        }
        if status != obj.get("status"):
            self._store.mutate(Kind.DAEMON_SET, *key, lambda one: {**one, "status": status})


def _tolerant(template: Json) -> Json:
    have = template["spec"].get("tolerations") or []
    more = [
        {"key": key, "operator": "Exists", "effect": effect}
        for key, effect in _ALWAYS_TOLERATED
        if not any(t.get("key") == key and t.get("effect") == effect for t in have)
    ]
    return {**template, "spec": {**template["spec"], "tolerations": [*have, *more]}}


def _pinned(affinity: Json, node: str) -> Json:
    """The user's node affinity ends in the node's name, in every term."""
    field = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    hard = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = ((affinity.get("nodeAffinity") or {}).get(hard) or {}).get("nodeSelectorTerms") or [{}]
    pinned = [{**term, "matchFields": field} for term in terms]
    return {
        **affinity,
        "nodeAffinity": {**(affinity.get("nodeAffinity") or {}), hard: {"nodeSelectorTerms": pinned}},
    }


def _target(pod: Json) -> str:
    if podstate.node_of(pod):
        return podstate.node_of(pod)
    hard = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = pod["spec"]["affinity"]["nodeAffinity"][hard]["nodeSelectorTerms"]
    return str(terms[0]["matchFields"][0]["values"][0])
