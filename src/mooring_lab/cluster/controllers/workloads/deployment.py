"""Deployment: one ReplicaSet per template, and the rollout from the old ones to the new one.

    template changed ──▶ new ReplicaSet (0) ──▶ grow new / shrink old, as far as surge and unavailable allow ──▶ done
                                              └─ Recreate: old to 0, wait until their pods are gone, new to full size

`paused` stops the rollout, not the scaling: pods are still replaced and a new `replicas` is still spread over the
revisions. A template that was there before reuses its ReplicaSet (rollback).
"""

from typing import Final

from mooring.clients.ports import AlreadyExistsError, Json
from mooring.core.model.kinds import Kind
from mooring.core.model.times import moment, rfc3339
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import (
    annotations_of,
    key_of,
    make_condition,
    with_condition,
    with_meta,
    with_spec,
)
from mooring_lab.cluster.controllers.queue import Key, WorkQueue
from mooring_lab.cluster.controllers.workloads import rollout
from mooring_lab.cluster.controllers.workloads.ownership import OwnedPods, controller_of
from mooring_lab.cluster.controllers.workloads.rollout import HASH_LABEL, owner_reference, same_template, template_hash

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# A Deployment's status: the counts that health gates read, and the conditions Available and Progressing.


def deployment_status(
    obj: Json, sets: list[Json], new: Json | None, unavailable: int, now: float
) -> tuple[Json, float | None]:
    """The status as it should be, and when to look again (the progress deadline)."""
    old = obj.get("status") or {}
    wanted = int(obj["spec"].get("replicas", 1))

    def total(name: str, of: list[Json]) -> int:
        return sum(int((one.get("status") or {}).get(name, 0)) for one in of)

    replicas, available = total("replicas", sets), total("availableReplicas", sets)
    updated = total("replicas", [new] if new is not None else [])
    status: Json = {
        "observedGeneration": obj["metadata"].get("generation", 1),
        "replicas": replicas,
        "updatedReplicas": updated,
        "readyReplicas": total("readyReplicas", sets),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(int(one["spec"].get("replicas", 1)) for one in sets) - available),
    }
    if old.get("collisionCount"):
        status["collisionCount"] = old["collisionCount"]
    enough = available >= wanted - unavailable
    conditions = with_condition(
        list(old.get("conditions") or ()),
        make_condition(
            "Available",
            "True" if enough else "False",
            now,
            "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        ),
    )
    progressing, again_s = _progress(obj, old, status, new, now)
    if progressing is not None:
        conditions = with_condition(conditions, progressing)
    failure = next(
        (c for one in sets for c in (one.get("status") or {}).get("conditions") or () if c["type"] == "ReplicaFailure"),
        None,
    )
    conditions = [c for c in conditions if c["type"] != "ReplicaFailure"]
    if failure is not None:
        conditions.append(failure)
    status["conditions"] = conditions
    return status, again_s


def _progress(obj: Json, old: Json, status: Json, new: Json | None, now: float) -> tuple[Json | None, float | None]:
    current = _progressing(old)
    reason = "" if current is None else current.get("reason")
    if obj["spec"].get("paused") or (reason == COMPLETE and status["replicas"] == status["updatedReplicas"]):
        return current, None  # no rollout is under way
    if new is None:
        return None, None
    if is_complete(obj, status):
        return make_condition("Progressing", "True", now, COMPLETE), None
    deadline_s = float(obj["spec"].get("progressDeadlineSeconds", 600))
    grown = any(status[f] > old.get(f, 0) for f in ("updatedReplicas", "readyReplicas", "availableReplicas"))
    left, left_before = (one.get("replicas", 0) - one.get("updatedReplicas", 0) for one in (status, old))
    if grown or left < left_before:
        item = make_condition("Progressing", "True", now, "ReplicaSetUpdated")
        return {**item, "lastUpdateTime": rfc3339(now)}, deadline_s
    if current is None or reason == COMPLETE:
        return current, None
    since = moment(str(current.get("lastUpdateTime") or current["lastTransitionTime"])) or 0.0
    if now - since >= deadline_s:
        return make_condition("Progressing", "False", now, LATE), None
    return current, since + deadline_s - now


def is_complete(obj: Json, status: Json) -> bool:
    """Every replica is of the newest revision, and serves."""
    counts = {status.get(field, 0) for field in ("updatedReplicas", "replicas", "availableReplicas")}
    return counts == {int(obj["spec"].get("replicas", 1))}


def _progressing(status: Json) -> Json | None:
    conditions: list[Json] = status.get("conditions") or []
    return next((one for one in conditions if one["type"] == "Progressing"), None)


COMPLETE: Final = "NewReplicaSetAvailable"
LATE: Final = "ProgressDeadlineExceeded"
PAUSED: Final = "DeploymentPaused"
REVISION: Final = "deployment.kubernetes.io/revision"
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MAX: Final = "deployment.kubernetes.io/max-replicas"


class Deployments:
    def __init__(self, timeline: Timeline, store: ObjectStore, owned: OwnedPods, *, latency_s: float = 0.01) -> None:
        self._timeline = timeline
        self._store = store
        self._sets: dict[str, set[Key]] = {}
        self._compared: dict[str, tuple[Json, Json, bool]] = {}
        self.queue = WorkQueue(timeline, self._sync, latency_s=latency_s)
        store.subscribe(Kind.DEPLOYMENT, self._on_deployment)
        store.subscribe(Kind.REPLICA_SET, self._on_set)
        owned.route("ReplicaSet", self._on_pod)

    def _on_deployment(self, _type: str, old: Json | None, new: Json | None) -> None:
        if old is not None and new is not None and old["metadata"]["generation"] == new["metadata"]["generation"]:
            return  # our own status: annotations count as a change of a Deployment, labels do not
        obj = new or old
        if obj is not None:
            self.queue.add(key_of(obj))

    def _on_set(self, kind: str, old: Json | None, new: Json | None) -> None:
        obj = new or old
        reference = None if obj is None else controller_of(obj)
        if obj is None or reference is None:
            return
        known = self._sets.setdefault(reference["uid"], set())
        if kind == "DELETED":
            known.discard(key_of(obj))
            self._compared.pop(obj["metadata"]["uid"], None)
        else:
            known.add(key_of(obj))
        self.queue.add((obj["metadata"]["namespace"], reference["name"]))

    def _on_pod(self, event: str, old: Json | None, _new: Json | None, reference: Json) -> None:
        """Recreate waits until the last old pod is gone."""
        if event != "DELETED" or old is None:
            return
        namespace = old["metadata"]["namespace"]
        owner = self._store.find(Kind.REPLICA_SET, namespace, reference["name"])
        above = None if owner is None else controller_of(owner)
        if above is not None:
            obj = self._store.find(Kind.DEPLOYMENT, namespace, above["name"])
            if obj is not None and self._strategy(obj) == "Recreate":
                self.queue.add((namespace, above["name"]))

    # ── one pass ──────────────────────────────────────────────────────────────────────────────────────────────

    def _sync(self, key: Key) -> float | None:
        obj = self._store.find(Kind.DEPLOYMENT, *key)
        if obj is None or podstate.terminating(obj):
            return None
        sets = self._sets_of(obj)
        new = next((one for one in sets if self._is_new(one, obj)), None)
        old = [one for one in sets if one is not new]
        paused = bool(obj["spec"].get("paused"))
        reason = (_progressing(obj.get("status") or {}) or {}).get("reason")
        if paused != (reason == PAUSED) and not (paused and reason == LATE):
            obj = self._say_progress(obj, "Unknown", PAUSED if paused else "DeploymentResumed")
        if new is None and not paused:
            if self._strategy(obj) == "Recreate" and self._old_pods_left(obj, old):
                self._scale_to_zero(obj, old)
                return self._write_status(key)
            new = self._create_set(obj, old)
        if new is not None and not paused:
            new = self._mark_revision(obj, new, old)
        if paused or self._scaled(obj, sets):
            self._scale(obj, new, old)
        elif new is not None and self._strategy(obj) == "Recreate":
            self._recreate(obj, new, old)
        elif new is not None:
            self._roll(obj, new, old)
        again_s = self._write_status(key)
        obj = self._store.find(Kind.DEPLOYMENT, *key) or obj
        if paused or is_complete(obj, obj.get("status") or {}):
            self._forget_history(obj)
        return again_s

    def _sets_of(self, obj: Json) -> list[Json]:
        """Its ReplicaSets, oldest first."""
        found = []
        for key in self._sets.get(obj["metadata"]["uid"], ()):
            one = self._store.find(Kind.REPLICA_SET, *key)
            if one is not None and not podstate.terminating(one):
                found.append(one)
        return sorted(found, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))

    def _is_new(self, one: Json, obj: Json) -> bool:
        """Whether this ReplicaSet has the Deployment's template; remembered while both stay the same objects."""
        have, wanted = one["spec"]["template"], obj["spec"]["template"]
        known = self._compared.get(one["metadata"]["uid"])
        if known is None or known[0] is not have or known[1] is not wanted:
            known = self._compared[one["metadata"]["uid"]] = (have, wanted, same_template(have, wanted))
        return known[2]

    @staticmethod
    def _strategy(obj: Json) -> str:
        return str((obj["spec"].get("strategy") or {}).get("type") or "RollingUpdate")

    @staticmethod
    def _wanted(obj: Json) -> int:
        return int(obj["spec"].get("replicas", 1))

    def _limits(self, obj: Json) -> tuple[int, int]:
        rolling = (obj["spec"].get("strategy") or {}).get("rollingUpdate") or {}
        return rollout.fence(rolling.get("maxSurge"), rolling.get("maxUnavailable"), self._wanted(obj))

    # ── ReplicaSets ───────────────────────────────────────────────────────────────────────────────────────────

    def _create_set(self, obj: Json, old: list[Json]) -> Json:
        template = obj["spec"]["template"]
        collisions = int((obj.get("status") or {}).get("collisionCount", 0))
        digest = template_hash(template, collisions)
        meta = template.get("metadata") or {}
        labels = {**(meta.get("labels") or {}), HASH_LABEL: digest}
        selector = obj["spec"].get("selector") or {}
        match_labels = {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}
        spec: Json = {
            "replicas": 0,
            "selector": {**selector, "matchLabels": match_labels},
            "template": {**template, "metadata": {**meta, "labels": labels}},
        }
        if obj["spec"].get("minReadySeconds"):
            spec["minReadySeconds"] = obj["spec"]["minReadySeconds"]
        metadata = {
            "namespace": obj["metadata"]["namespace"],
            "name": f"{obj['metadata']['name']}-{digest}",
            "labels": labels,
            "annotations": self._set_annotations(obj, self._next_revision(old)),
            "ownerReferences": [owner_reference(obj, "apps/v1", "Deployment")],
        }
        fresh: Json = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}
        try:
            made = self._store.create(Kind.REPLICA_SET, fresh)
        except AlreadyExistsError:
            self._update_status(obj, collisionCount=collisions + 1)
            raise
        self._say_progress(obj, "True", "NewReplicaSetCreated")
        return made

    def _say_progress(self, obj: Json, status: str, reason: str) -> Json:
        now = self._timeline.now()
        item = {**make_condition("Progressing", status, now, reason), "lastUpdateTime": rfc3339(now)}
        conditions = with_condition(list((obj.get("status") or {}).get("conditions") or ()), item)
        self._update_status(obj, conditions=conditions)
        return self._store.find(Kind.DEPLOYMENT, *key_of(obj)) or obj

    def _set_annotations(self, obj: Json, revision: int) -> dict[str, str]:
        wanted, (surge, _) = self._wanted(obj), self._limits(obj)
        most = wanted + surge if self._strategy(obj) == "RollingUpdate" else wanted
        return {REVISION: str(revision), DESIRED: str(wanted), MAX: str(most)}

    @staticmethod
    def _next_revision(old: list[Json]) -> int:
        return 1 + max((int(annotations_of(one).get(REVISION, 0)) for one in old), default=0)

    def _mark_revision(self, obj: Json, new: Json, old: list[Json]) -> Json:
        """A template used again gets the next number; the Deployment carries the number of its newest."""
        mine = int(annotations_of(new).get(REVISION, 0))
        wanted = self._next_revision(old)
        if mine < wanted:
            marks = {**annotations_of(new), REVISION: str(wanted)}
            new, mine = self._store.update(Kind.REPLICA_SET, with_meta(new, annotations=marks)), wanted
        if annotations_of(obj).get(REVISION) != str(mine):
            current = self._store.find(Kind.DEPLOYMENT, *key_of(obj)) or obj
            marks = {**annotations_of(current), REVISION: str(mine)}
            self._store.update(Kind.DEPLOYMENT, with_meta(current, annotations=marks), status=True)
        return new

    def _resize(self, obj: Json, one: Json, replicas: int) -> bool:
        revision = int(annotations_of(one).get(REVISION, 0))
        marks = {**annotations_of(one), **self._set_annotations(obj, revision)}
        if int(one["spec"].get("replicas", 1)) == replicas and marks == annotations_of(one):
            return False
        resized = int(one["spec"].get("replicas", 1)) != replicas
        self._store.update(Kind.REPLICA_SET, with_spec(with_meta(one, annotations=marks), replicas=replicas))
        return resized

    def _forget_history(self, obj: Json) -> None:
        limit = int(obj["spec"].get("revisionHistoryLimit", 10))
        if len(self._sets.get(obj["metadata"]["uid"], ())) <= limit:
            return
        empty = [
            one
            for one in self._sets_of(obj)
            if not self._is_new(one, obj)
            and int(one["spec"].get("replicas", 1)) == 0
            and int((one.get("status") or {}).get("replicas", 0)) == 0
        ]
        for one in empty[: max(0, len(empty) - limit)]:
            self._store.delete(Kind.REPLICA_SET, *key_of(one))

    # ── sizes ─────────────────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def _seen(one: Json) -> rollout.Revision:
        status = one.get("status") or {}
        replicas = int(one["spec"].get("replicas", 1))
        return rollout.Revision(one["metadata"]["name"], replicas, min(replicas, status.get("availableReplicas", 0)))

    def _scaled(self, obj: Json, sets: list[Json]) -> bool:
        """The user changed `replicas` since the ReplicaSets were last sized."""
        wanted = str(self._wanted(obj))
        return any(
            int(one["spec"].get("replicas", 1)) > 0 and annotations_of(one).get(DESIRED, wanted) != wanted
            for one in sets
        )

    def _scale(self, obj: Json, new: Json | None, old: list[Json]) -> None:
        wanted = self._wanted(obj)
        standing = [one for one in [*old, *([new] if new is not None else [])] if one["spec"].get("replicas", 1) > 0]
        if len(standing) <= 1:
            target = standing[0] if standing else (new or (old[-1] if old else None))
            if target is not None:
                self._resize(obj, target, wanted)
            return
        if new is not None and self._seen(new).available >= wanted and new["spec"]["replicas"] >= wanted:
            self._resize(obj, new, wanted)
            self._scale_to_zero(obj, old)
            return
        surge = self._limits(obj)[0] if self._strategy(obj) == "RollingUpdate" and wanted else 0
        sizes = rollout.proportional(wanted + surge, [self._seen(one) for one in standing])
        for one in standing:
            self._resize(obj, one, sizes.get(one["metadata"]["name"], int(one["spec"]["replicas"])))

    def _roll(self, obj: Json, new: Json, old: list[Json]) -> None:
        wanted, (surge, unavailable) = self._wanted(obj), self._limits(obj)
        standing = [one for one in old if int(one["spec"].get("replicas", 1)) > 0]
        seen = [self._seen(one) for one in standing]
        if self._resize(obj, new, rollout.grow_new(wanted, surge, self._seen(new), seen)):
            return  # the next pass sees what became of it
        sizes = rollout.shrink_old(wanted, unavailable, self._seen(new), seen)
        for one in standing:
            if one["metadata"]["name"] in sizes:
                self._resize(obj, one, sizes[one["metadata"]["name"]])

    def _recreate(self, obj: Json, new: Json, old: list[Json]) -> None:
        if self._old_pods_left(obj, old):
            self._scale_to_zero(obj, old)
        else:
            self._resize(obj, new, self._wanted(obj))

    def _scale_to_zero(self, obj: Json, old: list[Json]) -> None:
        for one in old:
            if int(one["spec"].get("replicas", 1)) > 0:
                self._resize(obj, one, 0)

    def _old_pods_left(self, _obj: Json, old: list[Json]) -> bool:
        return any(
            int(one["spec"].get("replicas", 1)) > 0
            or any(not podstate.terminal(pod) for pod in self._store.pods_of(one["metadata"]["uid"]))
            for one in old
        )

    # ── status ────────────────────────────────────────────────────────────────────────────────────────────────

    def _write_status(self, key: Key) -> float | None:
        obj = self._store.find(Kind.DEPLOYMENT, *key)
        if obj is None:
            return None
        sets = self._sets_of(obj)
        new = next((one for one in sets if self._is_new(one, obj)), None)
        status, again_s = deployment_status(obj, sets, new, self._limits(obj)[1], self._timeline.now())
        if status != (obj.get("status") or {}):
            self._store.update(Kind.DEPLOYMENT, {**obj, "status": status}, status=True)
        return again_s

    def _update_status(self, obj: Json, **fields: object) -> None:
        current = self._store.find(Kind.DEPLOYMENT, *key_of(obj))
        if current is not None:
            self._store.update(Kind.DEPLOYMENT, podstate.with_status(current, **fields), status=True)
