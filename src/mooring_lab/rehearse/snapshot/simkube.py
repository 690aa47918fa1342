"""A snapshot out of a trace of SimKube: workloads of a cluster that somebody recorded, on nodes that are made up.

A trace (format 2 or 3, MessagePack) is a list of moments, each with the objects that were applied and deleted. It has
no nodes, and no pods but what their owners make. So the workloads as of a moment are put into the sandbox, on as many
nodes as asked for, and its controllers and its scheduler place them; the snapshot is what stands then.
"""

from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec

from mooring.clients.ports import Json, PortError
from mooring.core.model.kinds import RESOURCES, Kind
from mooring.core.model.times import rfc3339
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.rehearse.snapshot.capture import gather
from mooring_lab.rehearse.snapshot.schema import KINDS, BadSnapshotError, Snapshot

FORMATS: Final = range(2, 4)
#: What a rehearsal plays of a trace, in the order in which it is made.
_TAKEN: Final = (Kind.NAMESPACE, Kind.PDB, Kind.DEPLOYMENT, Kind.STATEFUL_SET, Kind.DAEMON_SET)
_META: Final = ("name", "namespace", "labels", "annotations")
#: Until every workload has what it wants; what finds no room then stays Pending.
STABLE_S: Final = 1200.0


class _Event(msgspec.Struct):
    ts: int
    applied_objs: list[Json] = []
    deleted_objs: list[Json] = []


class _Trace(msgspec.Struct):
    version: int
    events: list[_Event]
    initial_state: list[Json] = []


class MadeNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that are made up, each zone having as many as the others."""

    count: int = 10
    cpu: str = "16"
    memory: str = "64Gi"
    zones: int = 3
    #: Percent of them that are spot.
    spot: int = 0


def import_trace(path: Path, nodes: MadeNodes, after_s: float | None = None) -> Snapshot:
    """As of so many seconds after its first moment; None: as of its end. Raises BadSnapshotError."""
    trace = _read(path)
    began = trace.events[0].ts if trace.events else 0
    kept: dict[tuple[str, str, str], Json] = {_key(one): one for one in trace.initial_state}
    now = float(began)
    for event in trace.events:
        if after_s is not None and event.ts - began > after_s:
            break
        now = float(event.ts)
        kept.update((_key(one), one) for one in event.applied_objs)
        for one in event.deleted_objs:
            kept.pop(_key(one), None)
    return _placed(list(kept.values()), nodes, now, path.name)


def _read(path: Path) -> _Trace:
    try:
        found = msgspec.msgpack.decode(path.read_bytes(), type=_Trace)
    except OSError as error:
        raise BadSnapshotError(f"{path}: {error.strerror or error}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadSnapshotError(f"{path}: not a trace of SimKube, as `skctl export` writes it: {error}") from None
    if found.version not in FORMATS:
        raise BadSnapshotError(
            f"{path}: a trace of format {found.version}; format {FORMATS[0]} and {FORMATS[-1]} are read"
        )
    return found


def _key(obj: Json) -> tuple[str, str, str]:
    metadata: Any = obj.get("metadata") or {}
    return str(obj.get("kind", "")), str(metadata.get("namespace") or ""), str(metadata.get("name", ""))


def _placed(objects: list[Json], nodes: MadeNodes, now: float, name: str) -> Snapshot:
    cluster = Cluster(1, Timeline(now), log=False)
    width = len(str(nodes.count - 1))
    for at in range(nodes.count):
        capacity = "spot" if at * nodes.spot // 100 != (at + 1) * nodes.spot // 100 else "on-demand"
        zone = f"zone-{at % nodes.zones}"
        cluster.add_node(f"n{at:0{width}d}", capacity=capacity, zone=zone, cpu=nodes.cpu, memory=nodes.memory)
    left = Counter[str]()
    by_kind: dict[str, list[Json]] = {}
    for one in sorted(objects, key=_key):
        by_kind.setdefault(str(one.get("kind", "")), []).append(one)
    for kind in _TAKEN:
        for one in by_kind.pop(kind.value, ()):
            if kind is Kind.NAMESPACE and cluster.store.find(kind, "", _key(one)[2]) is not None:
                continue
            try:
                cluster.store.create(kind, _bare(kind, one))
            except (PortError, LookupError, TypeError, ValueError, AttributeError) as error:
                raise BadSnapshotError(f"{name}: {'/'.join(filter(None, _key(one)))}: {error}") from None
    left.update({kind: len(these) for kind, these in by_kind.items()})
    cluster.run_until_stable(STABLE_S)
    remarks = [
        f"the nodes are made up: {nodes.count} with cpu {nodes.cpu}, memory {nodes.memory}, in {nodes.zones} zones"
    ]
    remarks += [f"{count} {kind} of the trace left out: not played" for kind, count in sorted(left.items())]
    return gather(
        {kind: cluster.store.list(kind) for kind in KINDS},
        taken_at=rfc3339(cluster.timeline.now()),
        source=name,
        namespace="mooring-system",
        remarks=remarks,
    )


def _bare(kind: Kind, obj: Json) -> Json:
    """As somebody would apply it: what the API server and controllers wrote stays behind."""
    metadata: Any = obj["metadata"]
    made = {field: metadata[field] for field in _META if metadata.get(field)}
    return {
        "apiVersion": RESOURCES[kind].api_version,
        "kind": kind.value,
        "metadata": made,
        "spec": obj.get("spec") or {},
    }
