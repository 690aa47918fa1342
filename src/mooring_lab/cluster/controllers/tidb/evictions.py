"""What tidb-operator's pod controller does with `tidb.pingcap.com/evict-leader`: the shipped state machine.

annotated: entry in `status.tikv.evictLeader` → evict-leader scheduler in PD, on every pass → with `delete-pod`: zero
leaders → delete the pod (no uid precondition), else look again in 15 s. Not annotated, with an entry: `none` → the
scheduler and the entry go at once; `delete-pod` → when the pod is Ready, whether or not its store is Up. Every store
must be Up or Tombstone before anything begins; otherwise look again in a minute.
"""

from collections.abc import Mapping
from typing import Final

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import COMPONENT, MANAGED_BY
from mooring.core.model.times import rfc3339
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import annotations_of, key_of, labels_of
from mooring_lab.cluster.controllers.queue import Key, WorkQueue
from mooring_lab.cluster.controllers.tidb.operator import cluster_of
from mooring_lab.cluster.pd import requests
from mooring_lab.cluster.pd.driver import SandboxPd

EVICT_LEADER: Final = "tidb.pingcap.com/evict-leader"
RECHECK_S: Final = 15.0
NOT_UP_S: Final = 60.0


class TidbEvictions:
    """Off unless a scenario wants it: `acts` is what a cluster with a recent tidb-operator has."""

    def __init__(
        self,
        timeline: Timeline,
        store: ObjectStore,
        pd: Mapping[tuple[str, str], SandboxPd],
        *,
        acts: bool = False,
        latency_s: float = 0.05,
    ) -> None:
        self._timeline = timeline
        self._store = store
        self._pd = pd
        self.acts = acts
        self.queue = WorkQueue(timeline, self._sync, latency_s=latency_s, backoff_s=1.0, max_backoff_s=100.0)
        store.subscribe(Kind.POD, self._on_pod)

    def _on_pod(self, kind: str, _old: Json | None, new: Json | None) -> None:
        if self.acts and kind != "DELETED" and new is not None and labels_of(new).get(COMPONENT) == "tikv":
            self.queue.add(key_of(new))

    def _sync(self, key: Key) -> float | None:
        pod = self._store.find(Kind.POD, *key)
        if pod is None or labels_of(pod).get(MANAGED_BY) != "tidb-operator":
            return None
        cluster_key = cluster_of(pod)
        cluster, pd = self._store.find(Kind.TIDB_CLUSTER, *cluster_key), self._pd.get(cluster_key)
        if cluster is None or pd is None:
            return None
        value = annotations_of(pod).get(EVICT_LEADER)
        if value is None:
            return self._end(cluster, pod, pd)
        return self._begin(cluster, pod, pd, value) if value in {"none", "delete-pod"} else None

    def _begin(self, cluster: Json, pod: Json, pd: SandboxPd, value: str) -> float | None:
        name = pod["metadata"]["name"]
        entries = _entries(cluster)
        begun = (entries.get(name) or {}).get("beginTime") or rfc3339(self._timeline.now())
        entry = {"podCreateTime": pod["metadata"]["creationTimestamp"], "beginTime": begun, "value": value}
        self._write(cluster, {**entries, name: entry})
        found = pd.store_of(name)
        states = {pd.server.state_of(one) for one in pd.server.tikv.stores.values()}
        if found is None or pd.away or not states <= {"Up", "Tombstone"}:
            return NOT_UP_S
        requests.add_evict_leader(pd.server, found.id)
        if value == "none":
            return None
        if pd.server.tikv.led[found.id]:
            return RECHECK_S
        self._store.delete(Kind.POD, *key_of(pod))
        return None

    def _end(self, cluster: Json, pod: Json, pd: SandboxPd) -> float | None:
        name, entries = pod["metadata"]["name"], _entries(cluster)
        entry = entries.get(name)
        if entry is None or (entry["value"] == "delete-pod" and not podstate.ready(pod)):
            return None
        found = pd.store_of(name)
        if found is not None:
            requests.remove_evict_leader(pd.server, found.id)
        self._write(cluster, {key: value for key, value in entries.items() if key != name})
        return None

    def _write(self, cluster: Json, entries: Json) -> None:
        if entries == _entries(cluster):
            return

        def change(current: Json) -> Json:
            status = current.get("status") or {}
            return {**current, "status": {**status, "tikv": {**(status.get("tikv") or {}), "evictLeader": entries}}}

        self._store.mutate(Kind.TIDB_CLUSTER, *key_of(cluster), change)


def _entries(cluster: Json) -> Json:
    found: Json = ((cluster.get("status") or {}).get("tikv") or {}).get("evictLeader") or {}
    return found
