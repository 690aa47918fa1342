"""A stand-in for tidb-operator, as far as Mooring meets it.

- It keeps a StatefulSet and Services per component and scales them with the TidbCluster.
- It rewrites the status from what it sees, in its own types: fields that it does not know are lost (that is why no
  mark of ours lives there). A TiDB member's node is remembered while its pod is away, and forgotten when the member is
  scaled in.
- It tells PD which TiKV pods run.
- After an upgrade of TiKV it ends evictions on every store, also those it did not begin.
- What its upgrader does before a TiKV restart (evict, wait, end) is in `tidb_upgrades`, off unless a scenario wants it.
"""

from collections.abc import Callable, Mapping
from typing import Final

from mooring.clients.ports import AlreadyExistsError, Json
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import COMPONENT, MANAGED_BY
from mooring.core.model.times import rfc3339
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import key_of, labels_of
from mooring_lab.cluster.controllers.queue import Key, WorkQueue
from mooring_lab.cluster.controllers.tidb.manifests import COMPONENTS, component_services, component_set
from mooring_lab.cluster.controllers.tidb.upgrades import TikvUpgrades
from mooring_lab.cluster.pd import requests
from mooring_lab.cluster.pd.driver import SandboxPd

#: status.tikv fields that the operator's own types have; all others are dropped when it writes.
_TIKV_FIELDS: Final = ("tombstoneStores", "peerStores", "failureStores", "evictLeader", "image")
STATUS_S: Final = 30.0


class TidbOperator:
    def __init__(
        self,
        timeline: Timeline,
        store: ObjectStore,
        pd: Mapping[tuple[str, str], SandboxPd],
        *,
        latency_s: float = 0.05,
        ends_foreign_evictions: bool = True,
    ) -> None:
        self._timeline = timeline
        self._store = store
        self._pd = pd
        self.ends_foreign_evictions = ends_foreign_evictions
        #: Stands for a tidb-operator that is not running.
        self.stopped = False
        self.upgrades = TikvUpgrades(store, pd)
        self.queue = WorkQueue(timeline, self._sync, latency_s=latency_s)
        self._ready: dict[tuple[str, str], bool] = {}
        store.subscribe(Kind.TIDB_CLUSTER, self._on_cluster)
        store.subscribe(Kind.STATEFUL_SET, self._on_part)
        store.subscribe(Kind.POD, self._on_pod)

    def _on_cluster(self, _kind: str, old: Json | None, new: Json | None) -> None:
        obj = new or old
        if obj is not None:
            self.queue.add(key_of(obj))

    def _on_part(self, _kind: str, old: Json | None, new: Json | None) -> None:
        obj = new or old
        if obj is not None and labels_of(obj).get(MANAGED_BY) == "tidb-operator":
            self.queue.add(cluster_of(obj))

    def _on_pod(self, kind: str, old: Json | None, new: Json | None) -> None:
        pod = new or old
        if pod is None or labels_of(pod).get(MANAGED_BY) != "tidb-operator":
            return
        key = cluster_of(pod)
        if labels_of(pod).get(COMPONENT) == "tikv":
            self._tell_pd(key, pod, gone=kind == "DELETED")
        self.queue.add(key)

    def _tell_pd(self, key: Key, pod: Json, *, gone: bool) -> None:
        """A TiKV process runs from when its pod is ready until the pod is gone (or ended)."""
        pd = self._pd.get(key)
        name = pod["metadata"]["name"]
        runs = not gone and not podstate.terminal(pod) and podstate.ready(pod)
        before = self._ready.get(key_of(pod), False)
        if pd is None or runs == before or (before and not gone and not podstate.terminal(pod)):
            return
        self._ready[key_of(pod)] = runs
        if runs:
            pd.pod_ready(name, key)
        else:
            pd.pod_gone(name)

    def needs_time(self, pod: Json) -> bool:
        """A TiKV process that was told to end waits for its leaders to be taken off."""
        key = cluster_of(pod) if labels_of(pod).get(COMPONENT) == "tikv" else None
        pd = self._pd.get(key) if key is not None else None
        return pd is not None and pd.pod_stopping(pod["metadata"]["name"])

    # ── one pass ──────────────────────────────────────────────────────────────────────────────────────────────

    def _sync(self, key: Key) -> float | None:
        cluster = self._store.find(Kind.TIDB_CLUSTER, *key)
        if cluster is None or podstate.terminating(cluster) or self.stopped:
            return None
        for component in COMPONENTS:
            if cluster["spec"].get(component):
                self._ensure(cluster, component)
        status = self._status(cluster)
        if status != cluster.get("status"):
            self._store.mutate(Kind.TIDB_CLUSTER, *key, lambda one: {**one, "status": status})
        tikv = self._store.find(Kind.STATEFUL_SET, key[0], f"{key[1]}-tikv")
        again_s = self.upgrades.step(cluster, tikv)
        return again_s or (STATUS_S if key in self._pd else None)

    def _ensure(self, cluster: Json, component: str) -> None:
        wanted = component_set(cluster, component)
        key = key_of(wanted)
        current = self._store.find(Kind.STATEFUL_SET, *key)
        if current is None:
            for service in component_services(cluster, component):
                self._create(Kind.SERVICE, service)
            self._create(Kind.STATEFUL_SET, wanted)
            return
        if current["spec"]["replicas"] != wanted["spec"]["replicas"] or not _same_pods(current, wanted):
            changed: Json = {}
            if not _same_pods(current, wanted):
                changed = {"template": wanted["spec"]["template"], **self.upgrades.held_back(wanted, component)}
            self._store.update(
                Kind.STATEFUL_SET, podstate.with_spec(current, replicas=wanted["spec"]["replicas"], **changed)
            )

    def _create(self, kind: Kind, obj: Json) -> None:
        try:
            self._store.create(kind, obj)
        except AlreadyExistsError:
            return

    # ── status ────────────────────────────────────────────────────────────────────────────────────────────────

    def _status(self, cluster: Json) -> Json:
        old: Json = cluster.get("status") or {}
        pd = self._pd.get(key_of(cluster))
        own = f"7{int(cluster['metadata']['uid'][:8], 16):018d}"
        status: Json = {"clusterID": str(pd.cluster_id) if pd is not None else old.get("clusterID") or own}
        parts: dict[str, Callable[[Json, list[Json], Json], Json]] = {
            "pd": self._pd_status,
            "tikv": self._tikv_status,
            "tidb": self._tidb_status,
        }
        healthy = True
        for component in COMPONENTS:
            if not cluster["spec"].get(component):
                continue
            name = f"{cluster['metadata']['name']}-{component}"
            part = self._store.find(Kind.STATEFUL_SET, cluster["metadata"]["namespace"], name)
            pods = [] if part is None else self._store.pods_of(part["metadata"]["uid"])
            before = old.get(component) or {}
            phase = _phase(part)
            if component == "tikv" and before.get("phase") == "Upgrade" and phase == "Normal":
                self._end_evictions(cluster)
            counts = (part or {}).get("status") or {}
            status[component] = {
                "phase": phase,
                "statefulSet": {k: counts[k] for k in ("replicas", "readyReplicas", "updatedReplicas") if k in counts},
                **parts[component](cluster, pods, before),
            }
            healthy = healthy and phase == "Normal" and all(podstate.ready(pod) for pod in pods)
        word = "True" if healthy else "False"
        item = podstate.make_condition("Ready", word, self._timeline.now(), "Ready" if healthy else "NotReady")
        status["conditions"] = podstate.with_condition(list(old.get("conditions") or ()), item)
        return status

    def _moved(self, before: Json, healthy: bool) -> str:
        if before.get("health") == healthy and before.get("lastTransitionTime"):
            return str(before["lastTransitionTime"])
        return rfc3339(self._timeline.now())

    def _tidb_status(self, cluster: Json, pods: list[Json], before: Json) -> Json:
        known = before.get("members") or {}
        here = {pod["metadata"]["name"]: pod for pod in pods}
        name, wanted = cluster["metadata"]["name"], int(cluster["spec"]["tidb"].get("replicas", 1))
        members: Json = {}
        for member in (f"{name}-tidb-{ordinal}" for ordinal in range(wanted)):
            pod, was = here.get(member), known.get(member) or {}
            if pod is None and not was:
                continue
            healthy = pod is not None and podstate.ready(pod) and not podstate.terminating(pod)
            node = (podstate.node_of(pod) if pod is not None else "") or was.get("node", "")
            entry: Json = {"name": member, "health": healthy, "lastTransitionTime": self._moved(was, healthy)}
            if node:
                entry["node"] = node
            members[member] = entry
        return {"members": members}

    def _pd_status(self, _cluster: Json, pods: list[Json], before: Json) -> Json:
        known = before.get("members") or {}
        members: Json = {}
        for at, pod in enumerate(pods):
            name, healthy = pod["metadata"]["name"], podstate.ready(pod)
            members[name] = {
                "name": name,
                "id": str(1000 + at),
                "clientURL": f"http://{name}:2379",
                "health": healthy,
                "lastTransitionTime": self._moved(known.get(name) or {}, healthy),
            }
        leader = next((one for one in members.values() if one["health"]), None)
        return {"members": members, **({"leader": leader} if leader else {})}

    def _tikv_status(self, cluster: Json, pods: list[Json], before: Json) -> Json:
        kept = {field: before[field] for field in _TIKV_FIELDS if before.get(field)}
        known = before.get("stores") or {}
        pd = self._pd.get(key_of(cluster))
        name, namespace = cluster["metadata"]["name"], cluster["metadata"]["namespace"]
        stores: Json = {}
        for ordinal, pod in enumerate(pods):
            pod_name = pod["metadata"]["name"]
            entry = next((s for s in known.values() if s["podName"] == pod_name), None)
            store_id, leaders, state = ordinal + 1, 0, "Up" if podstate.ready(pod) else "Disconnected"
            if pd is not None:
                found = pd.store_of(pod_name)
                if found is None:
                    continue
                store_id, state = found.id, pd.server.state_of(found)
                leaders = len(pd.server.led_by(found.id))
            elif entry is not None:
                store_id = int(entry["id"])
            elif not podstate.ready(pod):
                continue  # registers when it runs
            fresh: Json = {
                "id": str(store_id),
                "podName": pod_name,
                "ip": f"{pod_name}.{name}-tikv-peer.{namespace}.svc",
                "leaderCount": leaders,
                "state": state,
            }
            same = entry is not None and entry["state"] == state
            fresh["lastTransitionTime"] = (
                entry["lastTransitionTime"] if same and entry else rfc3339(self._timeline.now())
            )
            stores[str(store_id)] = fresh
        return {"synced": True, "bootStrapped": bool(stores), "stores": stores, **kept}

    def _end_evictions(self, cluster: Json) -> None:
        pd = self._pd.get(key_of(cluster))
        if pd is None or not self.ends_foreign_evictions:
            return
        for store_id in pd.server.evict_list() or ():
            requests.remove_evict_leader(pd.server, store_id)


def cluster_of(obj: Json) -> Key:
    """The TidbCluster behind a StatefulSet or a pod of it, by its name: the instance label may say something else."""
    name = obj["metadata"]["name"].rpartition(f"-{labels_of(obj)[COMPONENT]}")[0]
    return obj["metadata"]["namespace"], name


def _phase(part: Json | None) -> str:
    if part is None:
        return "Normal"
    status, wanted = part.get("status") or {}, int(part["spec"].get("replicas", 1))
    if status.get("currentRevision") != status.get("updateRevision"):
        return "Upgrade"
    return "Scale" if status.get("replicas", wanted) != wanted else "Normal"


def _same_pods(one: Json, other: Json) -> bool:
    """The template, without what the API server filled in."""
    left, right = one["spec"]["template"], other["spec"]["template"]
    if (left.get("metadata") or {}) != (right.get("metadata") or {}):
        return False
    mine, wanted = left["spec"], right["spec"]
    if any(mine.get(field) != value for field, value in wanted.items() if field != "containers"):
        return False
    return all(
        have.get(field) == value
        for have, want in zip(mine["containers"], wanted["containers"], strict=True)
        for field, value in want.items()
    )
