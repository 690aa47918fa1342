"""A stand-in for tidb-operator v2, as far as Mooring meets it: no StatefulSets, pods owned by instances.

- Groups of instances are kept here by name, not as objects: Mooring reads the Cluster and the pods. A pod that is gone
  is created again under the same name; nothing remembers its node.
- A TiKV pod that is being deleted: an evict-leader scheduler is added to PD, and the preStop waits until TiKV has no
  leaders, or gives up after so many looks without one less. **Every other eviction of a store ends on the next pass**,
  whoever began it.
- `status.pd`, `status.id` and the counts by component are written; while a pod is away or leaving, `Synced` is False.
- A paused or suspended cluster is left alone.
"""

import contextlib
import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from mooring.clients.ports import AlreadyExistsError, Json
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import V2_CLUSTER, V2_INSTANCE
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.controllers import manifests, podstate
from mooring_lab.cluster.controllers.podstate import key_of, labels_of
from mooring_lab.cluster.controllers.queue import Key, WorkQueue
from mooring_lab.cluster.controllers.tidb.manifests import component_labels
from mooring_lab.cluster.pd import requests
from mooring_lab.cluster.pd.driver import SandboxPd

API: Final = "core.pingcap.com/v1alpha1"
KINDS: Final = {"pd": "PD", "tikv": "TiKV", "tidb": "TiDB"}
GRACE_S: Final = 65_535
#: How often it looks at PD, and after how many looks of a second without progress the preStop gives up.
LOOK_S: Final = 5.0
MOST_LOOKS: Final = 30.0


def instances(group: str, component: str, count: int) -> list[str]:
    """Their names: the group's with a suffix that says no order."""
    suffixes = (hashlib.sha256(f"{group}/{component}/{i}".encode()).hexdigest()[:6] for i in range(count))
    return [f"{group}-{suffix}" for suffix in suffixes]


def pod_name(instance: str, component: str) -> str:
    group, _, suffix = instance.rpartition("-")
    return f"{group}-{component}-{suffix}"


def cluster_v2(namespace: str, name: str) -> Json:
    return {"apiVersion": API, "kind": "Cluster", "metadata": {"namespace": namespace, "name": name}, "spec": {}}


class _Stopping(msgspec.Struct):
    fewest: int
    since: float


class TidbOperatorV2:
    def __init__(self, timeline: Timeline, store: ObjectStore, pd: Mapping[tuple[str, str], SandboxPd]) -> None:
        self._timeline, self._store, self._pd = timeline, store, pd
        #: By cluster and component, the group's name and how many instances.
        self.groups: dict[Key, dict[str, tuple[str, int]]] = {}
        #: Further fields of every pod's spec, as an overlay of a group gives them.
        self.pod_spec: Json = {}
        #: Stands for a tidb-operator that is not running.
        self.stopped = False
        self.queue = WorkQueue(timeline, self._sync, latency_s=0.05)
        self._ready: set[Key] = set()
        self._stopping: dict[str, _Stopping] = {}
        store.subscribe(Kind.TIDB_V2, self._on_cluster)
        store.subscribe(Kind.POD, self._on_pod)

    def _on_cluster(self, _kind: str, old: Json | None, new: Json | None) -> None:
        obj = new or old
        if obj is not None:
            self.queue.add(key_of(obj))

    def _on_pod(self, kind: str, old: Json | None, new: Json | None) -> None:
        pod = new or old
        of = cluster_of(pod) if pod is not None else None
        if pod is None or of is None:
            return
        pd, name = self._pd.get(of), pod["metadata"]["name"]
        gone = kind == "DELETED" or podstate.terminal(pod)
        if pd is not None and component_of(pod) == "tikv":
            if gone and key_of(pod) in self._ready:
                self._ready.discard(key_of(pod))
                pd.pod_gone(name)
            elif not gone and podstate.ready(pod) and key_of(pod) not in self._ready:
                self._ready.add(key_of(pod))
                if pd.store_of(name) is None:
                    pd.attach(name, address=f"{name}.{self.groups[of]['tikv'][0]}-tikv-peer.{of[0]}:20160")
                pd.pod_ready(name)
        self.queue.add(of)

    def needs_time(self, pod: Json) -> bool:
        """Its preStop waits until it has no leaders, for as long as they become fewer; then it is told to end."""
        of = cluster_of(pod)
        pd = self._pd.get(of) if of is not None and component_of(pod) == "tikv" else None
        store = pd.store_of(pod["metadata"]["name"]) if pd is not None else None
        if pd is None or store is None:
            return False
        left, now = len(pd.server.tikv.led[store.id]), self._timeline.monotonic()
        seen = self._stopping.setdefault(pod["metadata"]["uid"], _Stopping(left + 1, now))
        if left < seen.fewest:
            seen.fewest, seen.since = left, now
        return bool(left) and (now - seen.since <= MOST_LOOKS or pd.pod_stopping(pod["metadata"]["name"]))

    # ── One pass ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _sync(self, key: Key) -> float | None:
        cluster = self._store.find(Kind.TIDB_V2, *key)
        if cluster is None or podstate.terminating(cluster) or self.stopped:
            return None
        spec = cluster.get("spec") or {}
        synced, groups = True, self.groups.get(key, {})
        if not spec.get("paused"):
            for component, (group, count) in groups.items():
                for instance in instances(group, component, count):
                    synced = self._keep(cluster, component, instance) and synced
        self._write_status(cluster, groups, synced=synced)
        return LOOK_S if key in self._pd else None

    def _keep(self, cluster: Json, component: str, instance: str) -> bool:
        """One instance; whether it is as it should be."""
        key = cluster["metadata"]["namespace"], pod_name(instance, component)
        pod = self._store.find(Kind.POD, *key)
        if component == "tikv":
            self._evict(key_of(cluster), key[1], leaving=pod is not None and podstate.terminating(pod))
        if pod is not None:
            return not podstate.terminating(pod)
        made = pod_of(cluster, component, instance)
        with contextlib.suppress(AlreadyExistsError):
            self._store.create(Kind.POD, {**made, "spec": {**made["spec"], **self.pod_spec}})
        return False

    def _evict(self, key: Key, name: str, *, leaving: bool) -> None:
        pd = self._pd.get(key)
        store = pd.store_of(name) if pd is not None and not pd.away else None
        if pd is None or store is None:
            return
        evicting = store.id in (pd.server.evict_list() or ())
        if leaving and not evicting:
            requests.add_evict_leader(pd.server, store.id)
        elif evicting and not leaving:
            requests.remove_evict_leader(pd.server, store.id)

    def _write_status(self, cluster: Json, groups: Mapping[str, tuple[str, int]], *, synced: bool) -> None:
        meta, old = cluster["metadata"], cluster.get("status") or {}
        group = groups.get("pd", next(iter(groups.values()), ("", 0)))[0]
        pd = self._pd.get(key_of(cluster))
        item = podstate.make_condition("Synced", str(synced), self._timeline.now(), "Synced" if synced else "Unsynced")
        status: Json = {
            "id": str(pd.cluster_id) if pd is not None else old.get("id", ""),
            "pd": f"http://{group}-pd.{meta['namespace']}:2379" if pd is not None else "",
            "components": [{"kind": KINDS[part], "replicas": count} for part, (_, count) in sorted(groups.items())],
            "conditions": podstate.with_condition(list(old.get("conditions") or ()), item),
        }
        if status != old:
            self._store.mutate(Kind.TIDB_V2, *key_of(cluster), lambda one: {**one, "status": status})


def component_of(pod: Json) -> str:
    return labels_of(pod).get("pingcap.com/component", "")


def cluster_of(pod: Json) -> Key | None:
    """None: no pod of v2."""
    name = labels_of(pod).get(V2_CLUSTER)
    return (pod["metadata"]["namespace"], name) if name is not None else None


def pod_of(cluster: Json, component: str, instance: str) -> Json:
    namespace, name = cluster["metadata"]["namespace"], cluster["metadata"]["name"]
    labels = {
        **component_labels(name, component),
        "pingcap.com/managed-by": "tidb-operator",
        "pingcap.com/component": component,
        "pingcap.com/group": instance.rpartition("-")[0],
        V2_CLUSTER: name,
        V2_INSTANCE: instance,
    }
    template = manifests.pod_template(labels, cpu="1", memory="2Gi", image=f"pingcap/{component}", container=component)
    uid = hashlib.sha256(f"{namespace}/{KINDS[component]}/{instance}".encode()).hexdigest()
    owner = {
        "apiVersion": API,
        "kind": KINDS[component],
        "name": instance,
        "uid": f"{uid[:8]}-{uid[8:12]}-{uid[12:16]}-{uid[16:20]}-{uid[20:32]}",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    meta = {**template["metadata"], "name": pod_name(instance, component), "namespace": namespace}
    spec = {**template["spec"], **({"terminationGracePeriodSeconds": GRACE_S} if component == "tikv" else {})}
    return {"metadata": {**meta, "ownerReferences": [owner]}, "spec": spec}
