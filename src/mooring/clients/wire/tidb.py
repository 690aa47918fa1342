"""A TidbCluster on the wire → the model.

The CRD of tidb-operator has changed its schema over the years and clusters run with validation switched off, so this
one is read from plain JSON, field by field, and assumes nothing about types.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from mooring.clients.wire import sharing
from mooring.clients.wire.annotations import kept
from mooring.clients.wire.fields import Meta
from mooring.clients.wire.quantity import epoch
from mooring.core.model.cluster import Key
from mooring.core.model.kinds import Kind
from mooring.core.model.limits import LONGEST_VALUE
from mooring.core.model.tidb import EvictLeaderEntry, TidbCluster

T = TypeVar("T")


def tidb_cluster(meta: Meta, obj: Mapping[str, Any]) -> TidbCluster:
    spec, status = _map(obj, "spec"), _map(obj, "status")
    tidb, tikv, pd = _map(status, "tidb"), _map(status, "tikv"), _map(status, "pd")
    members = _map(tidb, "members")
    return TidbCluster(
        namespace=sharing.text(meta.namespace or ""),
        name=meta.name,
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=sharing.labels(meta.labels),
        annotations=sharing.labels(kept(Kind.TIDB_CLUSTER, meta.annotations)),
        finalizers=tuple(meta.finalizers or ()),
        tls=_map(spec, "tlsCluster").get("enabled") is True,
        cluster_domain=_text(spec, "clusterDomain"),
        pd_of=_pd_of(spec, meta.namespace or ""),
        pd_addresses=tuple(a for a in _list(spec, "pdAddresses") if isinstance(a, str)),
        pd_id=_id(_text(status, "clusterID")),
        tidb_replicas=_replicas(spec, "tidb"),
        tikv_replicas=_replicas(spec, "tikv"),
        pd_replicas=_replicas(spec, "pd"),
        tidb_phase=_text(tidb, "phase"),
        tikv_phase=_text(tikv, "phase"),
        pd_phase=_text(pd, "phase"),
        tidb_member_nodes=_each(members, lambda m: sharing.text(_text(m, "node"))),
        tidb_members=tuple(sorted(members)),
        tikv_store_ids=_store_ids(_map(tikv, "stores")),
        evict_leader_status=_each(_map(tikv, "evictLeaderStatus"), _entry),
        operator_evict_leader=_each(_map(tikv, "evictLeader"), _entry),
        created_at=epoch(meta.creation_timestamp) or 0.0,
        deletion_at=epoch(meta.deletion_timestamp),
    )


def _map(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def _text(parent: Mapping[str, Any], key: str) -> str:
    value = parent.get(key)
    return value[:LONGEST_VALUE] if isinstance(value, str) else ""


def _list(parent: Mapping[str, Any], key: str) -> list[Any]:
    value = parent.get(key)
    return value if isinstance(value, list) else []


def _id(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _pd_of(spec: Mapping[str, Any], namespace: str) -> Key | None:
    """The TidbCluster that `spec.cluster` names, of this namespace where it names none."""
    other = _map(spec, "cluster")
    name = _text(other, "name")
    return Key(_text(other, "namespace") or namespace, name) if name else None


def _replicas(spec: Mapping[str, Any], component: str) -> int | None:
    """None when the component is absent; a component that does not say how many has none yet."""
    part = spec.get(component)
    if not isinstance(part, dict):
        return None
    replicas = part.get("replicas")
    return replicas if isinstance(replicas, int) and not isinstance(replicas, bool) else 0


def _each(parent: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T]) -> dict[str, T]:
    """What `read` makes of each entry, without those it makes nothing of."""
    found = ((name, read(entry)) for name, entry in sorted(parent.items()) if isinstance(entry, dict))
    return {name: value for name, value in found if value}


def _entry(entry: Mapping[str, Any]) -> EvictLeaderEntry:
    return EvictLeaderEntry(_text(entry, "value"), _text(entry, "podCreateTime"), _text(entry, "beginTime"))


def _store_ids(stores: Mapping[str, Any]) -> dict[str, int]:
    """Pod name → store id. Of two stores of one pod the one with the larger id is the newer."""
    found: dict[str, int] = {}
    for key, store in stores.items():
        if not isinstance(store, dict):
            continue
        pod, text = _text(store, "podName"), _text(store, "id") or key
        if pod and _id(text):
            found[pod] = max(found.get(pod, 0), _id(text))
    return dict(sorted(found.items()))
