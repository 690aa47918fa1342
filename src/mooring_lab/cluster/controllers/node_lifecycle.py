"""Node lifecycle: what the cluster says about a node that no longer reports, or that was cordoned.

    beats ──silent for 50 s──▶ Ready=Unknown, taints unreachable:NoSchedule at once, :NoExecute at a limited rate
    Ready=False ──────────────▶ taints not-ready, the same way        Ready=True ──▶ both gone
    spec.unschedulable ───────▶ taint unschedulable:NoSchedule

The rate is Kubernetes': one node in ten seconds; a hundredth of a node a second in a zone with more than 50 nodes of
which at least 55 % are down, none at all in a smaller one or when no node is Ready: then the network is the likelier
cause. A zone that is down to its last node while others are healthy is treated as lost, and emptied at the usual rate.
"""

from typing import Final

from mooring.clients.ports import ConflictError, Json, NotFoundError
from mooring.core.model.cluster import Taint, Toleration
from mooring.core.model.kinds import Kind
from mooring.core.model.times import rfc3339
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline, Timer
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import condition, key_of, make_condition, node_of, with_condition
from mooring_lab.cluster.controllers.queue import Key, WorkQueue
from mooring_lab.cluster.kubelet import Kubelets
from mooring_lab.cluster.nodes import ZONE

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Pod garbage collection: pods of a node that is gone, and those stuck on one declared out of service.


OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"


class PodGc:
    """A node must be missing for a while (40 s) before its pods are taken for lost."""

    def __init__(self, timeline: Timeline, store: ObjectStore, *, quarantine_s: float = 40.0) -> None:
        self._timeline = timeline
        self._store = store
        self._quarantine_s = quarantine_s
        self.queue = WorkQueue(timeline, self._sync)
        store.subscribe(Kind.NODE, self._on_node)
        store.subscribe(Kind.POD, self._on_pod)

    def _on_node(self, kind: str, old: Json | None, new: Json | None) -> None:
        if kind == "DELETED" and old is not None:
            self.queue.add_after(key_of(old), self._quarantine_s)
        elif new is not None and _out_of_service(new):
            self.queue.add(key_of(new))

    def _on_pod(self, kind: str, old: Json | None, new: Json | None) -> None:
        if new is None or kind == "DELETED" or (old is not None and node_of(old) == node_of(new)):
            if new is not None and podstate.terminating(new) and node_of(new):
                node = self._store.find(Kind.NODE, "", node_of(new))
                if node is not None and _out_of_service(node):
                    self.queue.add(key_of(node))
            return
        name = node_of(new)
        if name and self._store.find(Kind.NODE, "", name) is None:
            self.queue.add_after(("", name), self._quarantine_s)

    def _sync(self, key: Key) -> float | None:
        node = self._store.find(Kind.NODE, *key)
        for pod in self._store.pods_on(key[1]):
            if node is None:
                self._bury(pod, "PodGC: node no longer exists")
            elif _out_of_service(node) and podstate.terminating(pod):
                self._bury(pod, "PodGC: node is out of service")
        return None

    def _bury(self, pod: Json, words: str) -> None:
        if not podstate.terminal(pod):
            item = make_condition("DisruptionTarget", "True", self._timeline.now(), "DeletionByPodGC", words)
            conditions = with_condition(list((pod.get("status") or {}).get("conditions") or ()), item)
            self._store.mutate(
                Kind.POD, *key_of(pod), lambda one: podstate.with_status(one, phase="Failed", conditions=conditions)
            )
        self._store.delete(Kind.POD, *key_of(pod), uid=pod["metadata"]["uid"], grace_s=0)


def _out_of_service(node: Json) -> bool:
    return any(t["key"] == OUT_OF_SERVICE for t in (node.get("spec") or {}).get("taints") or ())


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# NoExecute: a tainted node loses the pods that do not tolerate it, each when its tolerationSeconds are over.


PodKey = tuple[str, str]
FOREVER: Final = float("inf")


def stays_s(pod: Json, taints: tuple[Taint, ...]) -> float:
    """How long the pod may stay under these NoExecute taints: 0 at once, infinity for ever."""
    tolerations = [
        Toleration(
            t.get("key", ""),
            t.get("operator", "Equal"),
            t.get("value", ""),
            t.get("effect", ""),
            t.get("tolerationSeconds"),
        )
        for t in pod["spec"].get("tolerations") or ()
    ]
    shortest = FOREVER
    for taint in taints:
        seconds = [t.seconds for t in tolerations if t.tolerates(taint)]
        if not seconds:
            return 0.0
        limited = [max(0.0, float(s)) for s in seconds if s is not None]
        if limited:
            shortest = min(shortest, *limited)
    return shortest


class TaintEviction:
    def __init__(self, timeline: Timeline, store: ObjectStore) -> None:
        self._timeline = timeline
        self._store = store
        self._taints: dict[str, tuple[Taint, ...]] = {}
        self._timers: dict[PodKey, tuple[str, float, Timer]] = {}
        store.subscribe(Kind.NODE, self._on_node)
        store.subscribe(Kind.POD, self._on_pod)

    def _on_node(self, kind: str, old: Json | None, new: Json | None) -> None:
        node = new or old
        if node is None:
            return
        name = node["metadata"]["name"]
        taints = () if kind == "DELETED" else _no_execute(node)
        if taints == self._taints.get(name, ()):
            return
        if taints:
            self._taints[name] = taints
        else:
            self._taints.pop(name, None)
        for pod in self._store.pods_on(name):
            self._look(pod, taints)

    def _on_pod(self, kind: str, old: Json | None, new: Json | None) -> None:
        if kind == "DELETED" or new is None:
            if old is not None and self._timers:
                self._cancel(key_of(old))
        elif self._taints and (taints := self._taints.get(node_of(new))):
            self._look(new, taints)

    def _look(self, pod: Json, taints: tuple[Taint, ...]) -> None:
        key, uid = key_of(pod), pod["metadata"]["uid"]
        stays = stays_s(pod, taints) if taints else FOREVER
        waiting = self._timers.get(key)
        if stays == FOREVER or podstate.terminating(pod) or podstate.terminal(pod):
            self._cancel(key)
            return
        due = self._timeline.monotonic() + stays
        if waiting is not None:
            if waiting[0] == uid and (waiting[1] <= due):
                return  # it counts from when the taint came
            waiting[2].cancel()
        self._timers[key] = (uid, due, self._timeline.at(due, lambda: self._evict(key, uid)))

    def _cancel(self, key: PodKey) -> None:
        waiting = self._timers.pop(key, None)
        if waiting is not None:
            waiting[2].cancel()

    def _evict(self, key: PodKey, uid: str) -> None:
        self._timers.pop(key, None)
        item = make_condition(
            "DisruptionTarget",
            "True",
            self._timeline.now(),
            "DeletionByTaintManager",
            "Taint manager: deleting due to NoExecute taint",
        )

        def marked(current: Json) -> Json | None:
            if current["metadata"]["uid"] != uid:
                return None
            conditions = list((current.get("status") or {}).get("conditions") or ())
            return podstate.with_status(current, conditions=with_condition(conditions, item))

        try:
            self._store.mutate(Kind.POD, *key, marked)
            self._store.delete(Kind.POD, *key, uid=uid)
        except (NotFoundError, ConflictError):
            return


def _no_execute(node: Json) -> tuple[Taint, ...]:
    return tuple(
        Taint(t["key"], t["effect"], t.get("value", ""))
        for t in (node.get("spec") or {}).get("taints") or ()
        if t["effect"] == "NoExecute"
    )


UNREACHABLE: Final = "node.kubernetes.io/unreachable"
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
SETTLE_S: Final = 0.1
_OURS: Final = frozenset({UNREACHABLE, NOT_READY, UNSCHEDULABLE})


class NodeLifecycle:
    def __init__(
        self,
        timeline: Timeline,
        store: ObjectStore,
        kubelets: Kubelets,
        *,
        grace_s: float = 50.0,
        rate_per_s: float = 0.1,
        slow_rate_per_s: float = 0.01,
        latency_s: float = 0.02,
    ) -> None:
        self._timeline = timeline
        self._store = store
        self._kubelets = kubelets
        self._grace_s = grace_s
        self._rate_per_s = rate_per_s
        self._slow_rate_per_s = slow_rate_per_s
        self._free_at: dict[str, float] = {}
        self._down_since: dict[str, float] = {}
        self.queue = WorkQueue(timeline, self._sync, latency_s=latency_s)
        kubelets.on_health(lambda node: self.queue.add(("", node)))
        store.subscribe(Kind.NODE, self._on_node)

    def _on_node(self, kind: str, _old: Json | None, new: Json | None) -> None:
        if kind != "DELETED" and new is not None:
            self.queue.add(key_of(new))

    def _sync(self, key: Key) -> float | None:
        node = self._store.find(Kind.NODE, *key)
        if node is None:
            return None
        again_s: float | None = None
        since = self._kubelets.silent_since(key[1])
        if since is not None:
            left = since + self._grace_s - self._timeline.monotonic()
            if left > 0:
                again_s = left
            else:
                node = self._unknown(node)
        ready = (condition(node, "Ready") or {}).get("status", "Unknown")
        if ready != "True":
            self._mark_pods(key[1])
        else:
            self._down_since.pop(key[1], None)
        wait_s = self._taint(node, ready)
        return wait_s if again_s is None else again_s if wait_s is None else min(again_s, wait_s)

    def _unknown(self, node: Json) -> Json:
        now = self._timeline.now()
        conditions = list(node["status"].get("conditions") or ())
        for kind in [item["type"] for item in conditions]:
            item = make_condition(kind, "Unknown", now, "NodeStatusUnknown", "Kubelet stopped posting node status.")
            conditions = with_condition(conditions, item)
        changed = self._store.mutate(
            Kind.NODE, *key_of(node), lambda current: podstate.with_status(current, conditions=conditions)
        )
        return changed or node

    def _mark_pods(self, name: str) -> None:
        """Pods of a node that is not Ready are not Ready either: endpoints leave them out."""
        item = make_condition("Ready", "False", self._timeline.now())
        for pod in self._store.pods_on(name):
            if podstate.ready(pod):
                conditions = with_condition(list(pod["status"]["conditions"]), item)
                self._store.mutate(
                    Kind.POD,
                    *key_of(pod),
                    lambda current, conditions=conditions: podstate.with_status(  # type: ignore[misc]
                        current, conditions=conditions
                    ),
                )

    # ── taints ────────────────────────────────────────────────────────────────────────────────────────────────

    def _taint(self, node: Json, ready: str) -> float | None:
        """Sets the taints that the node's state asks for; seconds until NoExecute may be set."""
        now = rfc3339(self._timeline.now())
        have = node["spec"].get("taints") or []
        wanted: list[Json] = []
        if node["spec"].get("unschedulable"):
            wanted.append({"key": UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": now})
        wait_s = None
        if ready != "True":
            key = UNREACHABLE if ready == "Unknown" else NOT_READY
            wanted.append({"key": key, "effect": "NoSchedule", "timeAdded": now})
            held = any(t["key"] in {UNREACHABLE, NOT_READY} and t["effect"] == "NoExecute" for t in have)
            wait_s = None if held else self._settling_s(node) or self._wait_s(node)
            if held or wait_s == 0:
                wanted.append({"key": key, "effect": "NoExecute", "timeAdded": now})
                wait_s = None
        known = {(t["key"], t["effect"]): t for t in have}
        ours = [known.get((t["key"], t["effect"]), t) for t in wanted]
        taints = [*(t for t in have if t["key"] not in _OURS), *ours]
        if taints != have:
            self._store.mutate(Kind.NODE, *key_of(node), lambda current: _with_taints(current, taints))
        return wait_s

    def _settling_s(self, node: Json) -> float:
        """Nodes that fall together are all seen to be down before the first is given up."""
        name, now = node["metadata"]["name"], self._timeline.monotonic()
        return max(0.0, self._down_since.setdefault(name, now) + SETTLE_S - now)

    def _wait_s(self, node: Json) -> float:
        """0: NoExecute may be set now, and this is noted."""
        zone = podstate.labels_of(node).get(ZONE, "")
        nodes = self._store.list(Kind.NODE)
        if not any(_ready(one) for one in nodes):
            return 5.0
        here = [one for one in nodes if podstate.labels_of(one).get(ZONE, "") == zone]
        down = sum(not _ready(one) for one in here)
        rate = self._rate_per_s
        if 2 < down < len(here) and down / len(here) >= 0.55:
            if len(here) <= 50:
                return 5.0
            rate = self._slow_rate_per_s
        now = self._timeline.monotonic()
        free_at = self._free_at.get(zone, 0.0)
        if now < free_at:
            return free_at - now
        self._free_at[zone] = now + 1 / rate
        return 0.0


def _ready(node: Json) -> bool:
    return (condition(node, "Ready") or {}).get("status") == "True"


def _with_taints(node: Json, taints: list[Json]) -> Json:
    spec = {key: value for key, value in node["spec"].items() if key != "taints"}
    return {**node, "spec": {**spec, "taints": taints} if taints else spec}
