"""PodDisruptionBudget status: how many pods are healthy, how many must be, how many may go now.

`minAvailable` as a number counts the selected pods; a percentage or `maxUnavailable` counts what their controllers
want, so that a pod which is missing takes from the allowance just as one which is not ready.
"""

from typing import Final

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.times import moment
from mooring_lab.cluster.apiserver.labels import selects
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import key_of, labels_of, make_condition, with_condition
from mooring_lab.cluster.controllers.queue import Key, WorkQueue
from mooring_lab.cluster.controllers.workloads.ownership import controller_of
from mooring_lab.cluster.controllers.workloads.rollout import resolve

#: An eviction that was granted but whose pod never began to leave is forgotten after so long.
DISRUPTED_S: Final = 120.0
_KINDS: Final = {"ReplicaSet": Kind.REPLICA_SET, "StatefulSet": Kind.STATEFUL_SET, "Deployment": Kind.DEPLOYMENT}


#: Nobody can say how many pods these want.
_WITHOUT_SCALE: Final = frozenset({"DaemonSet", "Job", "Node"})


class _NoScaleError(Exception):
    """A budget that counts by what controllers want covers a pod whose controller does not say."""


class Disruption:
    def __init__(self, timeline: Timeline, store: ObjectStore, *, latency_s: float = 0.01) -> None:
        self._timeline = timeline
        self._store = store
        self.queue = WorkQueue(timeline, self._sync, latency_s=latency_s)
        store.subscribe(Kind.PDB, self._on_budget)
        store.subscribe(Kind.POD, self._on_pod)
        for kind in (Kind.DEPLOYMENT, Kind.STATEFUL_SET, Kind.REPLICA_SET):
            store.subscribe(kind, self._on_workload)

    def _on_budget(self, kind: str, _old: Json | None, new: Json | None) -> None:
        if kind != "DELETED" and new is not None:
            self.queue.add(key_of(new))

    def _on_pod(self, _kind: str, old: Json | None, new: Json | None) -> None:
        pod = new or old
        if pod is None or not self._store.count(Kind.PDB):
            return
        for budget in self._store.list(Kind.PDB, pod["metadata"]["namespace"]):
            if any(one is not None and selects(budget["spec"].get("selector"), labels_of(one)) for one in (old, new)):
                self.queue.add(key_of(budget))

    def _on_workload(self, _kind: str, old: Json | None, new: Json | None) -> None:
        if old is not None and new is not None and old["spec"].get("replicas") == new["spec"].get("replicas"):
            return
        obj = new or old
        if obj is not None:
            for budget in self._store.list(Kind.PDB, obj["metadata"]["namespace"]):
                self.queue.add(key_of(budget))

    def _sync(self, key: Key) -> float | None:
        budget = self._store.find(Kind.PDB, *key)
        if budget is None:
            return None
        now = self._timeline.now()
        selector = budget["spec"].get("selector")
        pods = [
            pod
            for pod in self._store.list(Kind.POD, key[0])
            if selects(selector, labels_of(pod)) and not podstate.terminal(pod)
        ]
        disrupted = {
            name: at
            for name, at in ((budget.get("status") or {}).get("disruptedPods") or {}).items()
            if now - (moment(at) or 0.0) < DISRUPTED_S and any(_not_leaving(pod, name) for pod in pods)
        }
        healthy = sum(
            podstate.ready(pod) and not podstate.terminating(pod) and pod["metadata"]["name"] not in disrupted
            for pod in pods
        )
        status: Json = dict(budget.get("status") or {})
        try:
            expected, desired = self._desired(budget, pods)
        except _NoScaleError:  # only what must not be is written: nobody may go
            status["disruptionsAllowed"], reason = 0, "SyncFailed"
        else:
            status |= {
                "observedGeneration": budget["metadata"].get("generation", 1),
                "expectedPods": expected,
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "disruptionsAllowed": max(0, healthy - desired) if expected > 0 else 0,
            }
            status.pop("disruptedPods", None)
            if disrupted:
                status["disruptedPods"] = disrupted
            reason = "SufficientPods" if status["disruptionsAllowed"] else "InsufficientPods"
        allowed = make_condition("DisruptionAllowed", str(reason == "SufficientPods"), now, reason)
        status["conditions"] = with_condition(list(status.get("conditions") or ()), allowed)
        if status != budget.get("status"):
            self._store.mutate(Kind.PDB, *key, lambda one: {**one, "status": status})
        return DISRUPTED_S if disrupted else None

    def _desired(self, budget: Json, pods: list[Json]) -> tuple[int, int]:
        """(expected pods, how many of them must be healthy)."""
        spec = budget["spec"]
        least, most_away = spec.get("minAvailable"), spec.get("maxUnavailable")
        if isinstance(least, int):
            return len(pods), least
        expected = self._wanted_by_controllers(pods)
        if least is not None:
            return expected, resolve(least, expected, up=True, default=0)
        return expected, max(0, expected - resolve(most_away, expected, up=True, default=0))

    def _wanted_by_controllers(self, pods: list[Json]) -> int:
        total, seen = 0, set()
        for pod in pods:
            owner = controller_of(pod)
            if owner is None or owner["uid"] in seen:
                continue  # a bare pod is not recreated, so it is not expected
            seen.add(owner["uid"])
            if owner["kind"] in _WITHOUT_SCALE:
                raise _NoScaleError
            kind = _KINDS.get(owner["kind"])
            obj = None if kind is None else self._store.find(kind, pod["metadata"]["namespace"], owner["name"])
            if obj is None:
                continue
            above = controller_of(obj)
            if above is not None and above["kind"] in _KINDS:
                if above["uid"] in seen:
                    continue
                seen.add(above["uid"])
                obj = self._store.find(_KINDS[above["kind"]], pod["metadata"]["namespace"], above["name"]) or obj
            total += int(obj["spec"].get("replicas", 1))
        return total


def _not_leaving(pod: Json, name: str) -> bool:
    return bool(pod["metadata"]["name"] == name) and not podstate.terminating(pod)
