"""From whole objects to a snapshot: cut down, pruned, and with what the objects tell about themselves written down.

Two things a template does not say are learnt from the pods that were made of it: the number of its priority class, and
how long such a pod takes from its node to Ready. The latter is the median of those that never restarted, and goes onto
the template as the annotation that the sandbox's kubelets read; a template that has it already keeps its own.
"""

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any, Final

import msgspec

import mooring
from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import Machine
from mooring.rehearse.snapshot.redact import redact
from mooring.rehearse.snapshot.schema import KINDS, PdShot, Snapshot
from mooring.sandbox.clock import parse_rfc3339
from mooring.sandbox.controllers.workloads.ownership import controller_of
from mooring.sandbox.kubelet import READY, START

#: A pod that took longer became unready and ready again, or waited for another pod.
LONGEST_START_S: Final = 900.0
_TEMPLATED: Final = (Kind.DEPLOYMENT, Kind.REPLICA_SET, Kind.STATEFUL_SET, Kind.DAEMON_SET)
#: Our own ConfigMaps: settings, the stored cluster, memories.
OUR_PREFIX: Final = "mooring-"

Whole = Mapping[Kind, Iterable[Json]]


def gather(
    whole: Whole,
    *,
    taken_at: str,
    source: str,
    namespace: str,
    pds: Iterable[PdShot] = (),
    machines: Iterable[Machine] | None = None,
    autoscalers: Iterable[str] = (),
    remarks: Iterable[str] = (),
) -> Snapshot:
    """`whole`: every object of every kind, as the API server has it."""
    found = {kind: sorted(whole.get(kind, ()), key=_place) for kind in KINDS}
    found[Kind.CONFIG_MAP] = [one for one in found[Kind.CONFIG_MAP] if _is_ours(one, namespace)]
    found[Kind.REPLICA_SET] = _in_use(found[Kind.REPLICA_SET], found[Kind.POD])
    roots = _roots(found[Kind.REPLICA_SET])
    times = _start_times(found[Kind.POD], roots)
    priorities = _priorities(found[Kind.POD])
    objects: dict[str, list[Json]] = {}
    for kind, these in found.items():
        made = [redact(kind, one) for one in these]
        if kind in _TEMPLATED:
            for one, was in zip(made, these, strict=True):
                uid = was["metadata"]["uid"]
                _tell(one["spec"]["template"], was["spec"]["template"], times.get(roots.get(uid, uid)), priorities)
        if made:
            objects[kind.value] = made
    return Snapshot(
        mooring=mooring.__version__,
        taken_at=taken_at,
        source=source,
        namespace=namespace,
        objects=objects,
        pds=tuple(sorted(pds, key=lambda pd: (pd.namespace, pd.cluster))),
        machines=None if machines is None else _machines(machines),
        autoscalers=tuple(sorted(autoscalers)),
        remarks=tuple(remarks),
    )


def _machines(machines: Iterable[Machine]) -> tuple[Machine, ...]:
    """In order, each with labels of its own kind: a client's may be a view that cannot be written down."""
    plain = (msgspec.structs.replace(one, labels=dict(one.labels)) for one in machines)
    return tuple(sorted(plain, key=lambda one: one.serial))


def _place(obj: Json) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _is_ours(obj: Json, namespace: str) -> bool:
    meta = obj["metadata"]
    return bool(meta.get("namespace") == namespace and str(meta["name"]).startswith(OUR_PREFIX))


def _in_use(sets: list[Json], pods: list[Json]) -> list[Json]:
    """Old revisions with no pod and none wanted are history; nothing in a rehearsal goes back to them."""
    owners = {reference["uid"] for reference in map(controller_of, pods) if reference is not None}
    return [one for one in sets if one["spec"].get("replicas", 1) or one["metadata"]["uid"] in owners]


def _roots(sets: list[Json]) -> dict[str, str]:
    """ReplicaSet → its Deployment, by uid."""
    owners = {one["metadata"]["uid"]: controller_of(one) for one in sets}
    return {uid: owner["uid"] for uid, owner in owners.items() if owner is not None}


def _start_times(pods: list[Json], roots: Mapping[str, str]) -> dict[str, float]:
    """Seconds from its node to Ready, by the uid of the owner of such pods."""
    seen: dict[str, list[float]] = {}
    for pod in pods:
        owner, took = controller_of(pod), start_time(pod)
        if owner is not None and took is not None:
            seen.setdefault(roots.get(owner["uid"], owner["uid"]), []).append(took)
    return {uid: float(median(times)) for uid, times in seen.items()}


def start_time(pod: Json) -> float | None:
    """How long this pod took from its node to Ready; None when that cannot be told any more."""
    status = pod.get("status") or {}
    if any(one.get("restartCount") for one in status.get("containerStatuses") or ()):
        return None
    at = {c["type"]: c.get("lastTransitionTime") for c in status.get("conditions") or () if c.get("status") == "True"}
    bound, ready = at.get("PodScheduled"), at.get("Ready")
    if not bound or not ready:
        return None
    took = parse_rfc3339(ready) - parse_rfc3339(bound)
    return took if 0.0 <= took <= LONGEST_START_S else None


def _priorities(pods: list[Json]) -> dict[str, int]:
    named = ((pod["spec"].get("priorityClassName"), pod["spec"].get("priority")) for pod in pods if pod.get("spec"))
    return {name: number for name, number in named if name and isinstance(number, int)}


def _tell(template: Json, was: Any, start_s: float | None, priorities: Mapping[str, int]) -> None:
    """Write what was learnt onto a template of ours (it is a fresh object)."""
    annotations = template["metadata"].get("annotations") or {}
    if start_s is not None and START not in annotations and READY not in annotations:
        template["metadata"]["annotations"] = {**annotations, START: f"{start_s:g}", READY: "0"}
    name = ((was or {}).get("spec") or {}).get("priorityClassName")
    number = priorities.get(str(name))
    if number is not None and "priority" not in template["spec"]:
        template["spec"]["priority"] = number
