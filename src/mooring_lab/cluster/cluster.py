"""The embedded cluster, assembled: store, scheduler, controllers, kubelets and cloud on one timeline.

    cluster = Cluster(seed=7)
    cluster.add_nodes(3)
    cluster.deployment("shop", "web", 5)
    cluster.run_until_stable()
    assert cluster.ready("shop", "web") == 5

Nothing here sleeps: `run_for` moves virtual time. Two clusters with one seed and one script write the same event log,
byte for byte. `pd` and `sabakan` are places for the placement drivers and the machine registry of a scenario.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.api import SandboxKubeApi
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.cloud import Cloud
from mooring_lab.cluster.controllers import manifests, podstate
from mooring_lab.cluster.controllers.disruption import Disruption
from mooring_lab.cluster.controllers.endpoints import Endpoints
from mooring_lab.cluster.controllers.node_lifecycle import NodeLifecycle, PodGc, TaintEviction
from mooring_lab.cluster.controllers.podstate import annotations_of, key_of, with_spec, with_status
from mooring_lab.cluster.controllers.queue import Key, WorkQueue
from mooring_lab.cluster.controllers.tidb.evictions import TidbEvictions
from mooring_lab.cluster.controllers.tidb.manifests import tidb_cluster
from mooring_lab.cluster.controllers.tidb.operator import TidbOperator
from mooring_lab.cluster.controllers.tidb.operator_v2 import TidbOperatorV2, cluster_v2
from mooring_lab.cluster.controllers.workloads.daemonset import DaemonSets
from mooring_lab.cluster.controllers.workloads.deployment import Deployments
from mooring_lab.cluster.controllers.workloads.ownership import Orphans, OwnedPods
from mooring_lab.cluster.controllers.workloads.replicaset import ReplicaSets
from mooring_lab.cluster.controllers.workloads.statefulset import StatefulSets
from mooring_lab.cluster.kubelet import KubeletPace, Kubelets
from mooring_lab.cluster.leaders import LedSystems
from mooring_lab.cluster.nodes import HOSTNAME, node_object
from mooring_lab.cluster.pd.driver import SandboxPd
from mooring_lab.cluster.reading import Reading
from mooring_lab.cluster.scheduler.scheduler import Scheduler
from mooring_lab.cluster.scheduler.selection import Profile

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Everything that was written, one line each: what two runs with one seed are compared by.


class EventLog:
    def __init__(self, store: ObjectStore) -> None:
        self._timeline = store.timeline
        self._lines: list[str] = []
        store.listen(self._heard)

    def __len__(self) -> int:
        return len(self._lines)

    def text(self) -> str:
        return "".join(self._lines)

    def note(self, words: str) -> None:
        """Something that happened besides writes: a notice, a fault."""
        self._lines.append(f"{self._timeline.monotonic():.6f} NOTE {words}\n")

    def _heard(self, kind: Kind, event: str, old: Json | None, new: Json | None) -> None:
        obj = new or old
        if obj is None:
            return
        meta = obj["metadata"]
        where = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
        self._lines.append(
            f"{self._timeline.monotonic():.6f} {event} {kind.value} {where} rv={meta['resourceVersion']} "
            f"uid={meta['uid']}{_summary(kind, obj)}\n"
        )


def _summary(kind: Kind, obj: Json) -> str:
    status = obj.get("status") or {}
    match kind:
        case Kind.POD:
            words = f" node={podstate.node_of(obj) or '-'} phase={podstate.phase_of(obj)} ready={podstate.ready(obj)}"
            return f"{words} leaving" if podstate.terminating(obj) else words
        case Kind.NODE:
            ready = podstate.condition(obj, "Ready")
            taints = ",".join(f"{t['key']}:{t['effect']}" for t in obj["spec"].get("taints") or ())
            return f" ready={ready['status'] if ready else '-'} taints={taints or '-'}"
        case Kind.DEPLOYMENT | Kind.REPLICA_SET | Kind.STATEFUL_SET:
            wanted = (obj.get("spec") or {}).get("replicas")
            return f" wanted={wanted} have={status.get('replicas', 0)} ready={status.get('readyReplicas', 0)}"
        case _:
            return ""


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Volumes: a claim becomes bound where its first consumer goes.


SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"


class Volumes:
    def __init__(self, timeline: Timeline, store: ObjectStore, *, latency_s: float = 0.01) -> None:
        self._store = store
        self.queue = WorkQueue(timeline, self._sync, latency_s=latency_s)
        store.subscribe(Kind.PVC, self._on_claim)

    def _on_claim(self, kind: str, old: Json | None, new: Json | None) -> None:
        if kind == "DELETED":
            name = ((old or {}).get("spec") or {}).get("volumeName")
            if name:
                self._store.remove(Kind.PV, "", name)
        elif new is not None:
            self.queue.add(key_of(new))

    def _sync(self, key: Key) -> float | None:
        claim = self._store.find(Kind.PVC, *key)
        if claim is None or claim["spec"].get("volumeName"):
            return None
        node = annotations_of(claim).get(SELECTED_NODE)
        if not node:
            return None
        name = f"pvc-{claim['metadata']['uid']}"
        size = ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", "1Gi")
        spec: Json = {
            "capacity": {"storage": size},
            "accessModes": claim["spec"].get("accessModes") or ["ReadWriteOnce"],
            "storageClassName": claim["spec"].get("storageClassName", ""),
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": key[0], "name": key[1]},
        }
        if str(spec["storageClassName"]).startswith("local"):
            expression = {"key": HOSTNAME, "operator": "In", "values": [node]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
            spec["local"] = {"path": f"/mnt/disks/{name}"}
        self._store.create(Kind.PV, {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Bound"}})
        self._store.mutate(Kind.PVC, *key, lambda one: with_status(with_spec(one, volumeName=name), phase="Bound"))
        return None


#: How often `run_until_stable` looks.
LOOK_S = 0.25


class Cluster(Reading):
    def __init__(
        self,
        seed: int = 0,
        timeline: Timeline | None = None,
        *,
        profiles: tuple[Profile, ...] = (Profile(), Profile("tidb-scheduler", 100)),
        pace: KubeletPace | None = None,
        log: bool = True,
    ) -> None:
        self.seed = seed
        self.timeline = timeline or Timeline()
        self.store = ObjectStore(self.timeline, seed)
        self.log = EventLog(self.store) if log else None
        self.api = SandboxKubeApi(self.store, seed=seed)
        send = self.api.server.sender()
        owned, orphans = OwnedPods(self.store), Orphans(self.store)
        clock, store = self.timeline, self.store
        #: They are notified of writes in the order in which they are created here.
        self._controllers: list[object] = [
            Deployments(clock, store, owned),
            ReplicaSets(clock, store, owned, orphans, send),
            StatefulSets(clock, store, owned, orphans, send),
            DaemonSets(clock, store, owned, orphans, send),
        ]
        self.scheduler = Scheduler(clock, store, profiles=profiles)
        self.kubelets = Kubelets(clock, store, pace)
        self._controllers += [
            NodeLifecycle(clock, store, self.kubelets),
            TaintEviction(clock, store),
            PodGc(clock, store),
            Disruption(clock, store),
            Endpoints(clock, store),
            Volumes(clock, store),
        ]
        self.cloud = Cloud(clock, store, self.kubelets, note=None if self.log is None else self.log.note)
        #: Placement drivers by (namespace, cluster), and the machine registry, when a scenario has them.
        self.pd: dict[tuple[str, str], SandboxPd] = {}
        self.sabakan: Any = None
        self.tidb_operator = TidbOperator(clock, store, self.pd)
        self.tidb_v2 = TidbOperatorV2(clock, store, self.pd)
        self.kubelets.needs_time = lambda pod: self.tidb_operator.needs_time(pod) or self.tidb_v2.needs_time(pod)
        #: Systems with leaders, made from annotated StatefulSets as their pods come.
        self.led = LedSystems(clock, store)
        self.tidb_evictions = TidbEvictions(clock, store, self.pd)
        self._nodes_made = 0

    # ── building ──────────────────────────────────────────────────────────────────────────────────────────────

    def add_node(self, name: str, **how: Any) -> Json:
        """See `nodes.node_object` for what can be said: capacity, rack, zone, cpu, memory, pods, labels, taints."""
        obj = node_object(name, self._nodes_made, self.timeline.now(), **how)
        self._nodes_made += 1
        return self.store.create(Kind.NODE, obj)

    def add_nodes(self, count: int, prefix: str = "node-", **how: Any) -> list[str]:
        width = len(str(count - 1))
        names = [f"{prefix}{i:0{width}d}" for i in range(count)]
        for name in names:
            self.add_node(name, **how)
        return names

    def deployment(
        self, namespace: str, name: str, replicas: int, *, template: Json | None = None, **spec: Any
    ) -> Json:
        template = template or manifests.pod_template({"app": name})
        return self.store.create(Kind.DEPLOYMENT, manifests.deployment(namespace, name, replicas, template, **spec))

    def stateful_set(
        self, namespace: str, name: str, replicas: int, *, template: Json | None = None, **spec: Any
    ) -> Json:
        template = template or manifests.pod_template({"app": name})
        return self.store.create(Kind.STATEFUL_SET, manifests.stateful_set(namespace, name, replicas, template, **spec))

    def daemon_set(self, namespace: str, name: str, *, template: Json | None = None, **spec: Any) -> Json:
        template = template or manifests.pod_template({"app": name})
        return self.store.create(Kind.DAEMON_SET, manifests.daemon_set(namespace, name, template, **spec))

    def service(self, namespace: str, name: str, selector: Mapping[str, str], **how: Any) -> Json:
        return self.store.create(Kind.SERVICE, manifests.service(namespace, name, selector, **how))

    def pdb(self, namespace: str, name: str, match_labels: Mapping[str, str], **how: Any) -> Json:
        return self.store.create(Kind.PDB, manifests.pdb(namespace, name, match_labels, **how))

    def quota(self, namespace: str, name: str, **hard: str | int) -> Json:
        return self.store.create(Kind.RESOURCE_QUOTA, manifests.quota(namespace, name, **hard))

    def tidb_cluster(
        self,
        namespace: str,
        name: str,
        *,
        tidb: int = 3,
        tikv: int = 3,
        pd: int = 3,
        scheduler: str = "tidb-scheduler",
        with_pd: bool = False,
        **components: Json,
    ) -> Json:
        """A TidbCluster; the operator's stand-in makes StatefulSets and Services of it. `with_pd`: a placement driver
        under `cluster.pd[namespace, name]` whose stores follow the TiKV pods. Further fields by component."""
        counts = {"tidb": tidb, "tikv": tikv, "pd": pd}
        spec = {part: {"replicas": count, **components.get(part, {})} for part, count in counts.items() if count}
        if with_pd:
            self.pd[namespace, name] = SandboxPd(self.timeline, seed=self.seed, cluster=name, namespace=namespace)
        return self.store.create(Kind.TIDB_CLUSTER, tidb_cluster(namespace, name, scheduler=scheduler, **spec))

    def tidb_cluster_v2(self, namespace: str, name: str, *, group: str = "basic", **counts: int) -> Json:
        """A Cluster of tidb-operator v2 with that many instances of `tikv`, `pd` and `tidb`."""
        self.tidb_v2.groups[namespace, name] = {part: (group, count) for part, count in counts.items() if count}
        return self.store.create(Kind.TIDB_V2, cluster_v2(namespace, name))

    def change(self, kind: Kind, namespace: str, name: str, fn: Callable[[Json], Json]) -> Json:
        """What a user does with `kubectl edit`: read, change, write."""
        return self.store.update(kind, fn(self.store.get(kind, namespace, name)))

    def scale(self, kind: Kind, namespace: str, name: str, replicas: int) -> None:
        self.change(kind, namespace, name, lambda obj: podstate.with_spec(obj, replicas=replicas))

    def set_image(self, kind: Kind, namespace: str, name: str, image: str) -> None:
        """A new template: a rolling update begins."""

        def renewed(obj: Json) -> Json:
            template = obj["spec"]["template"]
            containers = [{**one, "image": image} for one in template["spec"]["containers"]]
            return podstate.with_spec(
                obj, template={**template, "spec": {**template["spec"], "containers": containers}}
            )

        self.change(kind, namespace, name, renewed)

    def annotate(self, kind: Kind, namespace: str, name: str, annotations: Mapping[str, str | None]) -> None:
        """None removes an annotation."""
        self.store.patch(kind, namespace, name, {"metadata": {"annotations": dict(annotations)}})

    def cordon(self, node: str, *, on: bool = True) -> None:
        self.change(Kind.NODE, "", node, lambda obj: podstate.with_spec(obj, unschedulable=on))

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run_for(self, seconds: float) -> None:
        self.timeline.run_for(seconds)

    def run_until(self, holds: Callable[[], bool], limit_s: float = 600.0) -> bool:
        """True: it held in time."""
        return self.timeline.run_while(lambda: not holds(), limit_s)

    def run_until_stable(self, limit_s: float = 600.0) -> bool:
        """Until every workload has what it wants and nothing leaves or starts; False when that takes too long."""
        end = self.timeline.monotonic() + limit_s
        quiet = 0
        while quiet < 2:  # twice in a row: endpoints and statuses follow a moment later
            if self.timeline.monotonic() >= end:
                return False
            self.timeline.run_for(LOOK_S)
            quiet = quiet + 1 if self.stable() else 0
        return True

    def stable(self) -> bool:
        for kind in (Kind.DEPLOYMENT, Kind.STATEFUL_SET):
            for obj in self.store.list(kind):
                if not _settled(kind, obj):
                    return False
        return not any(
            podstate.terminating(pod) or (podstate.active(pod) and not podstate.ready(pod))
            for pod in self.store.list(Kind.POD)
        )


def _settled(kind: Kind, obj: Json) -> bool:
    status, wanted = obj.get("status") or {}, int(obj["spec"].get("replicas", 1))
    if status.get("observedGeneration") != obj["metadata"].get("generation"):
        return False
    counts = [status.get(name, 0) for name in ("replicas", "readyReplicas", "updatedReplicas")]
    if kind is Kind.STATEFUL_SET:
        partition = ((obj["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}).get("partition", 0)
        if partition or (obj["spec"].get("updateStrategy") or {}).get("type") == "OnDelete":
            counts.pop()
    return all(count == wanted for count in counts)
