"""The snapshot: one versioned file that holds what placement reads of a cluster, and nothing else.

Objects are plain Kubernetes JSON, cut down by `redact`; a PD is its stores and how many regions stand on which of them;
machines are the registry's rows. A file of a newer version, a damaged one or another program's is refused in a
sentence: a rehearsal of half a cluster would mislead.
"""

import os
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from mooring.clients.ports import Json
from mooring.core.model.exits import UserError
from mooring.core.model.kinds import RESOURCES, Kind
from mooring.core.model.machine import Machine

FORMAT: Final = "mooring-rehearsal"
#: 2: with namespaces and the ports that pods take on their nodes.
VERSION: Final = 2

#: What is in a snapshot, owners before what they own.
KINDS: Final = (
    Kind.NAMESPACE,
    Kind.NODE,
    Kind.PV,
    Kind.PVC,
    Kind.TIDB_CLUSTER,
    Kind.ROLLOUT,
    Kind.CLONE_SET,
    Kind.DEPLOYMENT,
    Kind.REPLICA_SET,
    Kind.STATEFUL_SET,
    Kind.DAEMON_SET,
    Kind.RESOURCE_QUOTA,
    Kind.CONFIG_MAP,
    Kind.POD,
    Kind.PDB,
)


_ENDED: Final = frozenset({"Succeeded", "Failed"})


class BadSnapshotError(UserError, ValueError):
    """What is wrong with the file, and what would be right."""


class StoreShot(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    address: str
    state: str = "Up"
    labels: dict[str, str] = {}


class PlacementShot(msgspec.Struct, frozen=True, kw_only=True):
    """So many regions have their voters on these stores and are led by that one (0: by none)."""

    peers: tuple[int, ...]
    leader: int
    regions: int


class PdShot(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    cluster: str
    leader: str = ""
    members: tuple[str, ...] = ()
    #: Seconds since the epoch.
    started_at: int = 0
    stores: tuple[StoreShot, ...] = ()
    evicting: tuple[int, ...] = ()
    placements: tuple[PlacementShot, ...] = ()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    format: str = FORMAT
    version: int = VERSION
    #: The version of Mooring that took it.
    mooring: str = ""
    #: RFC 3339; virtual time begins here.
    taken_at: str
    #: The API server, or "demo".
    source: str
    #: Our own namespace there.
    namespace: str = "mooring-system"
    #: Kind → objects, in the order of their names.
    objects: dict[str, list[Json]]
    pds: tuple[PdShot, ...] = ()
    #: None: no registry was asked.
    machines: tuple[Machine, ...] | None = None
    #: "HorizontalPodAutoscaler shop/web", "CronJob shop/report": there, and not played.
    autoscalers: tuple[str, ...] = ()
    #: What could not be looked at, in words; a rehearsal repeats them.
    remarks: tuple[str, ...] = ()

    def of(self, kind: Kind) -> list[Json]:
        return self.objects.get(kind.value, [])

    @property
    def not_played(self) -> tuple[str, ...]:
        """What changes replicas or pods of its own accord in that cluster, and does not here."""
        jobs = {
            f"Job {pod['metadata']['namespace']}/{owner['name']}"
            for pod in self.of(Kind.POD)
            if (pod.get("status") or {}).get("phase") not in _ENDED
            for owner in pod["metadata"].get("ownerReferences") or ()
            if owner.get("controller") and owner.get("kind") == "Job"
        }
        return (*sorted(jobs), *self.autoscalers)

    def counts(self) -> dict[str, int]:
        return {kind.value: len(self.of(kind)) for kind in KINDS if self.of(kind)}


class _Head(msgspec.Struct):
    format: str = ""
    version: int = 0


def found(snapshot: Snapshot) -> str:
    """How much of what is in it."""
    kinds = ", ".join(f"{count} {kind}s" for kind, count in snapshot.counts().items())
    machines = "" if snapshot.machines is None else f", {len(snapshot.machines)} machines"
    return f"{kinds}, {len(snapshot.pds)} PDs{machines}"


def write(snapshot: Snapshot, path: Path) -> int:
    """All of it or nothing: the file appears under its name when it is whole. Answers with its size."""
    body = msgspec.json.format(msgspec.json.encode(snapshot, order="deterministic"), indent=1) + b"\n"
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return len(body)


def read(path: Path) -> Snapshot:
    try:
        body = path.read_bytes()
    except OSError as error:
        raise BadSnapshotError(
            f"{path}: {error.strerror or error}; take one with: mooring rehearse snapshot --to FILE"
        ) from None
    return parse(body, str(path))


def parse(body: bytes, where: str) -> Snapshot:
    try:
        head = msgspec.json.decode(body, type=_Head)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadSnapshotError(f"{where}: not a snapshot: {error}; take it again") from None
    if head.format != FORMAT:
        raise BadSnapshotError(f"{where}: not a snapshot: its format is {head.format!r}, not {FORMAT!r}")
    if head.version > VERSION:
        raise BadSnapshotError(
            f"{where}: a snapshot of version {head.version}; this Mooring reads up to {VERSION}: "
            "use the Mooring that took it, or a newer one"
        )
    try:
        found = msgspec.json.decode(body, type=Snapshot)
        _check(found)
    except (msgspec.MsgspecError, BadSnapshotError, UnicodeDecodeError, RecursionError) as error:
        raise BadSnapshotError(f"{where}: damaged: {error}; take it again") from None
    return found


def _check(snapshot: Snapshot) -> None:
    try:
        datetime.fromisoformat(snapshot.taken_at)
    except ValueError:
        raise BadSnapshotError(f"taken_at {snapshot.taken_at!r} is not a time") from None
    known = {kind.value: kind for kind in KINDS}
    for name, objects in snapshot.objects.items():
        if name not in known:
            raise BadSnapshotError(f"objects.{name}: must be one of {', '.join(known)}")
        for at, obj in enumerate(objects):
            problem = _problem(known[name], obj)
            if problem:
                raise BadSnapshotError(f"objects.{name}[{at}]: {problem}")


def _problem(kind: Kind, obj: Json) -> str:
    metadata: Any = obj.get("metadata")
    if not isinstance(metadata, dict):
        return "no metadata"
    wanted = ("name", "uid", "namespace") if RESOURCES[kind].namespaced else ("name", "uid")
    for field in wanted:
        if not isinstance(metadata.get(field), str) or not metadata[field]:
            return f"no metadata.{field}"
    body = "data" if kind is Kind.CONFIG_MAP else "spec"
    if not isinstance(obj.get(body, {}), dict):
        return f"{body} is not an object"
    spec: Any = obj.get("spec", {})
    if not isinstance(spec, dict):
        return "spec is not an object"
    template: Any = spec.get("template", {"spec": {}})
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        return "no spec.template.spec"
    return ""
