"""StatefulSet: pods with an identity, one after another.

One pass does the first thing that is due and stops there (OrderedReady), or does all of a kind at once (Parallel):

    ordinals start…start+replicas−1, lowest first: gone → create · ended → delete · not yet Running and Ready → wait
    ordinals beyond, highest first: delete, each after its successor is gone
    rolling update, highest first down to the partition: old revision → delete · new one not Ready → wait

So one pod that cannot start blocks an ordered set, also a rollout that would fix it: exactly what Kubernetes does.
"""

from typing import Final

from mooring.clients.ports import AlreadyExistsError, ConflictError, Json, NotFoundError, PortError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import key_of, labels_of
from mooring_lab.cluster.controllers.queue import Key, WorkQueue
from mooring_lab.cluster.controllers.workloads.ownership import Orphans, OwnedPods, Send, claim_pods
from mooring_lab.cluster.controllers.workloads.rollout import REVISION_LABEL, owner_reference, pod_from, template_hash

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# What a StatefulSet's pod is called and what comes with the name: ordinal, labels, host name, claims.


def ordinal_of(owner: Json, pod: Json) -> int | None:
    prefix, _, tail = pod["metadata"]["name"].rpartition("-")
    if prefix != owner["metadata"]["name"] or not tail.isdigit():
        return None
    return int(tail)


def claims_for(owner: Json, pod_name: str) -> list[Json]:
    claims = []
    for template in owner["spec"].get("volumeClaimTemplates") or ():
        name = f"{template['metadata']['name']}-{pod_name}"
        labels = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
        claims.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"namespace": owner["metadata"]["namespace"], "name": name, "labels": labels},
                "spec": template.get("spec") or {},
            }
        )
    return claims


def pod_for(owner: Json, template: Json, ordinal: int, revision: str) -> Json:
    name = f"{owner['metadata']['name']}-{ordinal}"
    pod = pod_from(template, owner["metadata"]["namespace"], owner_reference(owner, "apps/v1", "StatefulSet"))
    pod["metadata"]["name"] = name
    pod["metadata"]["generateName"] = f"{owner['metadata']['name']}-"
    pod["metadata"]["labels"] = {
        **pod["metadata"]["labels"],
        REVISION_LABEL: revision,
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(ordinal),
    }
    spec = {**pod["spec"], "hostname": name, "subdomain": owner["spec"].get("serviceName", "")}
    volumes = [
        {
            "name": claim["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": f"{claim['metadata']['name']}-{name}"},
        }
        for claim in owner["spec"].get("volumeClaimTemplates") or ()
    ]
    if volumes:
        taken = {volume["name"] for volume in volumes}
        spec["volumes"] = [*(v for v in spec.get("volumes") or () if v["name"] not in taken), *volumes]
    return {**pod, "spec": spec}


#: A wait with no end of its own: a pod's change wakes the set.
WAIT: Final = None


class StatefulSets:
    def __init__(
        self,
        timeline: Timeline,
        store: ObjectStore,
        owned: OwnedPods,
        orphans: Orphans,
        send: Send,
        *,
        latency_s: float = 0.01,
    ) -> None:
        self._timeline = timeline
        self._store = store
        self._orphans = orphans
        self._send = send
        #: Templates by revision name (ControllerRevisions): an old revision may still be needed below a partition.
        self._revisions: dict[str, dict[str, Json]] = {}
        self._in_flight: set[Key] = set()
        self.queue = WorkQueue(timeline, self._sync, latency_s=latency_s, forgets=False)
        store.subscribe(Kind.STATEFUL_SET, self._on_set)
        owned.route("StatefulSet", self._on_pod)

    def _on_set(self, kind: str, old: Json | None, new: Json | None) -> None:
        obj = new or old
        if obj is None:
            return
        if kind == "DELETED":
            self._revisions.pop(obj["metadata"]["uid"], None)
        self.queue.add(key_of(obj))

    def _on_pod(self, _event: str, old: Json | None, new: Json | None, reference: Json) -> None:
        pod = new or old
        if pod is not None:
            self.queue.add((pod["metadata"]["namespace"], reference["name"]))

    # ── one pass ──────────────────────────────────────────────────────────────────────────────────────────────

    def _sync(self, key: Key) -> float | None:
        obj = self._store.find(Kind.STATEFUL_SET, *key)
        if obj is None:
            return None
        current, update = self._revision_names(obj)
        pods = [
            pod
            for pod in claim_pods(self._store, self._orphans, obj, "apps/v1", "StatefulSet")
            if ordinal_of(obj, pod) is not None
        ]
        again_s = None
        if not podstate.terminating(obj):
            again_s = self._act(obj, pods, current, update)
        self._write_status(key, current, update)
        return again_s

    def _revision_names(self, obj: Json) -> tuple[str, str]:
        """(current, update): names of revisions, the latter of the template as it is now."""
        known = self._revisions.setdefault(obj["metadata"]["uid"], {})
        update = f"{obj['metadata']['name']}-{template_hash(obj['spec']['template'])}"
        known.setdefault(update, obj["spec"]["template"])
        current = (obj.get("status") or {}).get("currentRevision") or update
        return (current if current in known else update), update

    def _act(self, obj: Json, pods: list[Json], current: str, update: str) -> float | None:
        start = int((obj["spec"].get("ordinals") or {}).get("start", 0))
        wanted = range(start, start + int(obj["spec"].get("replicas", 1)))
        by_ordinal = {ordinal_of(obj, pod): pod for pod in pods}
        ordered = obj["spec"].get("podManagementPolicy", "OrderedReady") == "OrderedReady"
        min_ready_s = int(obj["spec"].get("minReadySeconds", 0))
        partition = int(((obj["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}).get("partition", 0))
        now = self._timeline.now()

        for ordinal in wanted:
            pod = by_ordinal.get(ordinal)
            if pod is None:
                self._create(obj, ordinal, current if ordinal < start + partition else update)
            elif podstate.terminal(pod) and not podstate.terminating(pod):
                self._delete(pod)
            elif not podstate.terminating(pod) and podstate.available(pod, min_ready_s, now) and _running(pod):
                continue
            elif ordered and podstate.ready(pod) and not podstate.terminating(pod):
                return float(min_ready_s)  # ready, and only has to stay so
            if ordered:
                return WAIT

        surplus = sorted((o for o in by_ordinal if o is not None and o not in wanted), reverse=True)
        for ordinal in surplus:
            pod = by_ordinal[ordinal]
            if podstate.terminating(pod):
                if ordered:
                    return WAIT
                continue
            self._delete(pod)
            if ordered:
                return WAIT

        if (obj["spec"].get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate":
            self._roll(by_ordinal, wanted, start + partition, update)
        return None

    def _roll(self, by_ordinal: dict[int | None, Json], wanted: range, lowest: int, update: str) -> None:
        for ordinal in reversed(wanted):
            if ordinal < lowest:
                return
            pod = by_ordinal.get(ordinal)
            if pod is None or podstate.terminating(pod):
                return
            if labels_of(pod).get(REVISION_LABEL) != update:
                self._delete(pod)
                return
            if not (_running(pod) and podstate.ready(pod)):
                return

    # ── pods ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _create(self, obj: Json, ordinal: int, revision: str) -> None:
        key = key_of(obj)
        template = self._revisions[obj["metadata"]["uid"]].get(revision, obj["spec"]["template"])
        pod = pod_for(obj, template, ordinal, revision)
        pod_key = (key[0], pod["metadata"]["name"])
        if pod_key in self._in_flight:
            return
        for claim in claims_for(obj, pod["metadata"]["name"]):
            try:
                self._store.create(Kind.PVC, claim)
            except AlreadyExistsError:
                continue
        self._in_flight.add(pod_key)

        def answer(error: PortError | None) -> None:
            self._in_flight.discard(pod_key)
            if error is None:
                self.queue.forget(key)
            else:
                self.queue.retry(key)

        self._send(pod, answer)

    def _delete(self, pod: Json) -> None:
        meta = pod["metadata"]
        try:
            self._store.delete(Kind.POD, meta["namespace"], meta["name"], uid=meta["uid"])
        except (NotFoundError, ConflictError):
            return

    # ── status ────────────────────────────────────────────────────────────────────────────────────────────────

    def _write_status(self, key: Key, current: str, update: str) -> None:
        obj = self._store.find(Kind.STATEFUL_SET, *key)
        if obj is None:
            return
        pods = [pod for pod in self._store.pods_of(obj["metadata"]["uid"]) if ordinal_of(obj, pod) is not None]
        now, min_ready_s = self._timeline.now(), int(obj["spec"].get("minReadySeconds", 0))
        alive = [pod for pod in pods if not podstate.terminating(pod)]
        of = {name: sum(labels_of(pod).get(REVISION_LABEL) == name for pod in alive) for name in (current, update)}
        ready = [pod for pod in pods if _running(pod) and podstate.ready(pod)]
        wanted = int(obj["spec"].get("replicas", 1))
        rolls = (obj["spec"].get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate"
        if rolls and of[update] == len(pods) == len(ready) == wanted:
            current = update
        status: Json = {
            **(obj.get("status") or {}),
            "observedGeneration": obj["metadata"].get("generation", 1),
            "replicas": len(pods),
            "readyReplicas": len(ready),
            "availableReplicas": sum(podstate.available(pod, min_ready_s, now) for pod in ready),
            "currentReplicas": of[current],
            "updatedReplicas": of[update],
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": 0,
        }
        if status != obj.get("status"):
            self._store.mutate(Kind.STATEFUL_SET, *key, lambda one: {**one, "status": status})


def _running(pod: Json) -> bool:
    return podstate.phase_of(pod) == "Running"
