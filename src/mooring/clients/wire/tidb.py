"""A TidbCluster, or the Cluster of tidb-operator v2, on the wire → the model.

Clusters run with other versions of the CRD and with validation switched off: any field may be missing, and one that
does not fit counts as missing (`kube._forgiving`).
"""

from collections.abc import Mapping

from mooring.clients.wire import sharing
from mooring.clients.wire.annotations import kept
from mooring.clients.wire.fields import (
    Component,
    EvictLeader,
    OtherCluster,
    TidbClusterStatus,
    TidbSpec,
    TidbStatus,
    TikvStatus,
    TikvStore,
    V2Spec,
    V2Status,
    WireTidbCluster,
    WireV2Cluster,
)
from mooring.clients.wire.quantity import epoch
from mooring.core.model.cluster import Key
from mooring.core.model.kinds import Kind
from mooring.core.model.limits import LONGEST_VALUE
from mooring.core.model.tidb import EvictLeaderEntry, TidbCluster


def tidb_cluster(wire: WireTidbCluster) -> TidbCluster:
    meta, spec, status = wire.metadata, wire.spec or TidbSpec(), wire.status or TidbClusterStatus()
    tidb, tikv = status.tidb or TidbStatus(), status.tikv or TikvStatus()
    members = tidb.members or {}
    return TidbCluster(
        namespace=sharing.text(meta.namespace or ""),
        name=meta.name,
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=sharing.labels(meta.labels),
        annotations=sharing.labels(kept(Kind.TIDB_CLUSTER, meta.annotations)),
        tls=bool(spec.tls_cluster and spec.tls_cluster.enabled),
        cluster_domain=_cut(spec.cluster_domain),
        pd_of=_pd_of(spec.cluster, meta.namespace or ""),
        pd_addresses=spec.pd_addresses or (),
        pd_id=_id(status.cluster_id or ""),
        tidb_replicas=_replicas(spec.tidb),
        tikv_replicas=_replicas(spec.tikv),
        pd_replicas=_replicas(spec.pd),
        tidb_phase=_cut(tidb.phase),
        tikv_phase=_cut(tikv.phase),
        pd_phase=_cut(status.pd.phase) if status.pd else "",
        tidb_member_nodes={name: sharing.text(_cut(m.node)) for name, m in sorted(members.items()) if m.node},
        tidb_members=tuple(sorted(members)),
        tikv_store_ids=_store_ids(tikv.stores or {}),
        evict_leader_status=_entries(tikv.evict_leader_status),
        operator_evict_leader=_entries(tikv.evict_leader),
        created_at=epoch(meta.creation_timestamp) or 0.0,
        deletion_at=epoch(meta.deletion_timestamp),
    )


def v2_cluster(wire: WireV2Cluster) -> TidbCluster:
    meta, spec, status = wire.metadata, wire.spec or V2Spec(), wire.status or V2Status()
    replicas = {(c.kind or "").lower(): c.replicas for c in status.components or ()}
    suspended = spec.suspend_action is not None and bool(spec.suspend_action.suspend_compute)
    dns = spec.dns
    return TidbCluster(
        namespace=sharing.text(meta.namespace or ""),
        name=meta.name,
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=sharing.labels(meta.labels),
        annotations=sharing.labels(kept(Kind.TIDB_V2, meta.annotations)),
        tls=bool(spec.tls_cluster and spec.tls_cluster.enabled),
        cluster_domain=(_cut(dns.cluster_domain) or "cluster.local") if dns is not None and dns.mode == "FQDN" else "",
        pd_id=_id(status.id or ""),
        tidb_replicas=replicas.get("tidb"),
        tikv_replicas=replicas.get("tikv"),
        pd_replicas=replicas.get("pd"),
        created_at=epoch(meta.creation_timestamp) or 0.0,
        deletion_at=epoch(meta.deletion_timestamp),
        v2=True,
        pd_url=_cut(status.pd),
        unattended="spec.paused" if spec.paused else "spec.suspendAction" if suspended else "",
        updating=any(c.type == "Synced" and c.status == "False" for c in status.conditions or ()),
    )


def _cut(text: str | None) -> str:
    return (text or "")[:LONGEST_VALUE]


def _id(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _pd_of(other: OtherCluster | None, namespace: str) -> Key | None:
    """The TidbCluster that `spec.cluster` names, of this namespace where it names none."""
    name = _cut(other.name) if other else ""
    return Key(_cut(other.namespace) or namespace, name) if other and name else None


def _replicas(part: Component | None) -> int | None:
    """None when the component is absent; a component that does not say how many has none yet."""
    return None if part is None else part.replicas or 0


def _entries(found: Mapping[str, EvictLeader] | None) -> dict[str, EvictLeaderEntry]:
    return {
        name: EvictLeaderEntry(_cut(one.value), _cut(one.pod_create_time), _cut(one.begin_time))
        for name, one in sorted((found or {}).items())
        if one != EvictLeader()
    }


def _store_ids(stores: Mapping[str, TikvStore]) -> dict[str, int]:
    """Pod name → store id. Of two stores of one pod the one with the larger id is the newer."""
    found: dict[str, int] = {}
    for key, store in stores.items():
        pod, number = _cut(store.pod_name), _id(store.id or key)
        if pod and number:
            found[pod] = max(found.get(pod, 0), number)
    return dict(sorted(found.items()))
