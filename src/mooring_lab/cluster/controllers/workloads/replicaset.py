"""ReplicaSet: as many active pods as wanted, created in doubling waves, removed in Kubernetes' order."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cmp_to_key
from typing import Final

from mooring.clients.ports import ConflictError, Json, NotFoundError, PortError
from mooring.core.model.kinds import Kind
from mooring.core.model.times import moment
from mooring_lab.cluster.apiserver.labels import selects
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import (
    annotations_of,
    key_of,
    labels_of,
    node_of,
    phase_of,
    ready,
    ready_since,
    with_condition,
    with_status,
)
from mooring_lab.cluster.controllers.queue import Key, WorkQueue
from mooring_lab.cluster.controllers.workloads.ownership import (
    Orphans,
    OwnedCounts,
    OwnedPods,
    Send,
    Waves,
    claim_pods,
    controller_of,
)
from mooring_lab.cluster.controllers.workloads.rollout import owner_reference, pod_from

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Which pods of a ReplicaSet go first, ranked as Kubernetes ranks them.


DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
#: int32 as the API server accepts it: no plus sign, no leading zero.
_COST: Final = re.compile(r"^(0|-?[1-9][0-9]*)$")


def deletion_cost(pod: Json) -> int:
    text = annotations_of(pod).get(DELETION_COST, "0")
    if not _COST.match(text):
        return 0
    value = int(text)
    return value if -(2**31) <= value < 2**31 else 0


def _restarts(pod: Json) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((int(status.get("restartCount", 0)) for status in statuses), default=0)


def _bucket(since: float, now: float) -> int:
    age_ns = (now - since) * 1e9
    return int(math.log2(age_ns)) if age_ns > 0 else -1


def _by_age(left: Json, right: Json, one: float, two: float, now: float) -> int:
    difference = _bucket(one, now) - _bucket(two, now)
    if difference:
        return difference
    return -1 if left["metadata"]["uid"] < right["metadata"]["uid"] else 1


def rank(pods: Iterable[Json], siblings_on: Mapping[str, int], now: float) -> list[Json]:
    """The pods in the order in which they go; `siblings_on` counts active related pods per node."""

    def compare(left: Json, right: Json) -> int:
        for one, two in (
            (bool(node_of(left)), bool(node_of(right))),
            (_PHASES.get(phase_of(left), 2), _PHASES.get(phase_of(right), 2)),
            (ready(left), ready(right)),
            (deletion_cost(left), deletion_cost(right)),
            (-siblings_on.get(node_of(left), 0), -siblings_on.get(node_of(right), 0)),
        ):
            if one != two:
                return -1 if one < two else 1
        since, until = ready_since(left), ready_since(right)
        if since is not None and until is not None and since != until:
            return _by_age(left, right, since, until, now)
        if _restarts(left) != _restarts(right):
            return _restarts(right) - _restarts(left)
        born, other = (moment(pod["metadata"].get("creationTimestamp", "")) or 0.0 for pod in (left, right))
        return _by_age(left, right, born, other, now) if born != other else 0

    return sorted(sorted(pods, key=lambda pod: str(pod["metadata"]["name"])), key=cmp_to_key(compare))


#: At most so many creations or deletions in one pass.
BURST: Final = 500


class ReplicaSets:
    def __init__(
        self,
        timeline: Timeline,
        store: ObjectStore,
        owned: OwnedPods,
        orphans: Orphans,
        send: Send,
        *,
        latency_s: float = 0.01,
        call_s: float = 0.005,
    ) -> None:
        self._timeline = timeline
        self._store = store
        self._orphans = orphans
        self._send = send
        self._call_s = call_s
        self._creating: set[str] = set()
        self._tally = OwnedCounts()
        self.queue = WorkQueue(timeline, self._sync, latency_s=latency_s, forgets=False)
        store.subscribe(Kind.REPLICA_SET, self._on_set)
        owned.route("ReplicaSet", self._on_pod)
        orphans.on_orphan(self._on_orphan)

    def _on_set(self, _type: str, old: Json | None, new: Json | None) -> None:
        if old is not None and new is not None and old["spec"] == new["spec"]:
            return  # our own status
        obj = new or old
        if obj is not None:
            self._tally.unsure.add(obj["metadata"]["uid"])  # there may be pods to adopt
            self.queue.add(key_of(obj))

    def _on_pod(self, event: str, old: Json | None, new: Json | None, reference: Json) -> None:
        pod = new or old
        if self._tally.note(event, old, new, reference["uid"]) and pod is not None:
            self.queue.add((pod["metadata"]["namespace"], reference["name"]))

    def _on_orphan(self, pod: Json) -> None:
        labels = labels_of(pod)
        if labels:
            for obj in self._store.list(Kind.REPLICA_SET, pod["metadata"]["namespace"]):
                if selects(obj["spec"].get("selector"), labels):
                    self._tally.unsure.add(obj["metadata"]["uid"])
                    self.queue.add(key_of(obj))

    def _sync(self, key: Key) -> float | None:
        obj = self._store.find(Kind.REPLICA_SET, *key)
        if obj is None:
            return None  # its pods are collected by the store
        uid = obj["metadata"]["uid"]
        if uid in self._creating:
            return None  # the wave's end looks again
        if uid in self._tally.unsure:
            claim_pods(self._store, self._orphans, obj, "apps/v1", "ReplicaSet")
            self._tally.unsure.discard(uid)
        if not podstate.terminating(obj):
            missing = int(obj["spec"].get("replicas", 1)) - self._tally.of(uid)[0]
            if missing > 0:
                self._create(key, obj, min(missing, BURST))
            elif missing < 0:
                self._remove(obj, self._active_pods(uid), min(-missing, BURST))
            if missing <= 0:
                self.queue.forget(key)
        return self._write_status(obj)

    def _active_pods(self, uid: str) -> list[Json]:
        return [pod for pod in self._store.pods_of(uid) if podstate.active(pod)]

    # ── pods ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _create(self, key: Key, obj: Json, count: int) -> None:
        uid = obj["metadata"]["uid"]
        reference = owner_reference(obj, "apps/v1", "ReplicaSet")
        pod = pod_from(obj["spec"]["template"], key[0], reference)
        pod["metadata"]["generateName"] = f"{key[1]}-"
        self._creating.add(uid)

        def done(error: PortError | None) -> None:
            self._creating.discard(uid)
            self._set_failure(key, error)
            if error is None:
                self.queue.add(key)
            else:
                self.queue.retry(key)

        Waves(self._timeline, self._send, [pod] * count, done, call_s=self._call_s).start()

    def _remove(self, obj: Json, active: list[Json], count: int) -> None:
        on_node = Counter(podstate.node_of(pod) for pod in self._related(obj, active))
        for pod in rank(active, on_node, self._timeline.now())[:count]:
            meta = pod["metadata"]
            try:
                self._store.delete(Kind.POD, meta["namespace"], meta["name"], uid=meta["uid"])
            except (NotFoundError, ConflictError):
                continue

    def _related(self, obj: Json, active: list[Json]) -> list[Json]:
        """Active pods of every ReplicaSet with the same owner: a Deployment's revisions are spread together."""
        owner = controller_of(obj)
        if owner is None:
            return active
        pods: list[Json] = []
        for other in self._store.list(Kind.REPLICA_SET, obj["metadata"]["namespace"]):
            reference = controller_of(other)
            if reference is not None and reference["uid"] == owner["uid"]:
                pods.extend(p for p in self._store.pods_of(other["metadata"]["uid"]) if podstate.active(p))
        return pods

    # ── status ────────────────────────────────────────────────────────────────────────────────────────────────

    def _write_status(self, obj: Json) -> float | None:
        uid = obj["metadata"]["uid"]
        min_ready_s = int(obj["spec"].get("minReadySeconds", 0))
        active, ready = self._tally.of(uid)
        available = ready
        if min_ready_s > 0:
            now = self._timeline.now()
            available = sum(podstate.available(pod, min_ready_s, now) for pod in self._active_pods(uid))
        old = obj.get("status") or {}
        fresh = {
            "replicas": active,
            "fullyLabeledReplicas": active,
            "readyReplicas": ready,
            "availableReplicas": available,
            "observedGeneration": obj["metadata"].get("generation", 1),
        }
        if any(old.get(name) != value for name, value in fresh.items()):
            self._change_status(key_of(obj), lambda current: with_status(current, **fresh))
        return 1.0 if available < ready else None

    def _set_failure(self, key: Key, error: PortError | None) -> None:
        """The condition ReplicaFailure: a quota's or a webhook's refusal is visible on the ReplicaSet."""

        def change(current: Json) -> Json | None:
            conditions = (current.get("status") or {}).get("conditions") or []
            if error is None:
                kept = [item for item in conditions if item["type"] != "ReplicaFailure"]
                return with_status(current, conditions=kept) if len(kept) < len(conditions) else None
            item = podstate.make_condition("ReplicaFailure", "True", self._timeline.now(), "FailedCreate", str(error))
            updated = with_condition(conditions, item)
            return with_status(current, conditions=updated) if updated != conditions else None

        self._change_status(key, change)

    def _change_status(self, key: Key, change: podstate.Change) -> None:
        self._store.mutate(Kind.REPLICA_SET, *key, change)
