"""Stores, regions and times as PD's HTTP API prints them."""

from datetime import UTC, datetime
from typing import Any

from mooring.core.model.tidb import Peer, Region, Store


def go_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def store(store: Store, version: str) -> dict[str, Any]:
    meta: dict[str, Any] = {
        "id": store.id,
        "address": store.address,
        "version": version.removeprefix("v"),
        "peer_address": store.address,
        "status_address": store.address.replace(":20160", ":20180"),
        "start_timestamp": int(store.started_at or 0),
        "last_heartbeat": int((store.last_heartbeat_at or 0) * 1e9),
        "node_state": {"Offline": 2, "Tombstone": 3}.get(store.state, 1),
        "state_name": store.state,
    }
    if store.labels:
        meta["labels"] = [{"key": k, "value": v} for k, v in store.labels.items()]
    if store.state in ("Offline", "Tombstone"):
        meta["state"] = {"Offline": 1, "Tombstone": 2}[store.state]
    status = {
        "capacity": f"{store.capacity_bytes / (1 << 30):.4g}GiB",
        "available": f"{store.available_bytes / (1 << 30):.4g}GiB",
        "used_size": f"{(store.capacity_bytes - store.available_bytes) / (1 << 30):.4g}GiB",
        "leader_count": store.leader_count,
        "leader_weight": 1,
        "leader_score": store.leader_count,
        "leader_size": store.leader_size_mib,
        "region_count": store.region_count,
        "region_weight": 1,
        "region_score": store.region_size_mib,
        "region_size": store.region_size_mib,
        "start_ts": go_time(store.started_at or 0),
        "last_heartbeat_ts": go_time(store.last_heartbeat_at or 0),
        "uptime": f"{(store.last_heartbeat_at or 0) - (store.started_at or 0):.6f}s",
    }
    return {"store": meta, "status": status}


def region(region: Region) -> dict[str, Any]:
    peers = [_peer(p) for p in region.peers]
    leader = next((p for p in peers if p["store_id"] == region.leader_store), {"role_name": ""})
    return {
        "id": region.id,
        "start_key": region.start_key,
        "end_key": region.end_key,
        "epoch": {"conf_ver": region.conf_ver, "version": region.version},
        "peers": peers,
        "leader": leader,
        "cpu_usage": 0,
        "written_bytes": 0,
        "read_bytes": 0,
        "written_keys": 0,
        "read_keys": 0,
        "approximate_size": region.size_mib,
        "approximate_keys": region.keys,
    }


def _peer(peer: Peer) -> dict[str, Any]:
    if peer.role == "Witness":
        return {"role_name": "Voter", "id": peer.id, "store_id": peer.store_id, "is_witness": True}
    return {"role_name": peer.role, "id": peer.id, "store_id": peer.store_id}
