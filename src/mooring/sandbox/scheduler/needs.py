"""What a pod asks of a node, parsed once per template.

The store shares equal parts between the pods of a template, so the parts' identity is the key; a class of pods that
ask for the same is scheduled from one table (`classes.py`).
"""

from typing import Any, Final

import msgspec

from mooring.clients.ports import Json
from mooring.core.model.cluster import Requirement, SelectorTerm, Toleration
from mooring.sandbox.scheduler.quantity import milli, whole

#: What a pod without requests counts as when nodes are compared (not when they are filtered).
DEFAULT_CPU_MILLI: Final = 100
DEFAULT_MEMORY: Final = 200 * 1024 * 1024


class PodTerm(msgspec.Struct, frozen=True):
    """A pod (anti-)affinity term. `namespaces` empty: the pod's own."""

    selector: Any
    topology_key: str
    namespaces: tuple[str, ...] = ()
    weight: int = 0


class TopologySpread(msgspec.Struct, frozen=True):
    max_skew: int
    topology_key: str
    hard: bool
    selector: Any
    min_domains: int = 1
    label_keys: tuple[str, ...] = ()


class Needs(msgspec.Struct, frozen=True):
    cpu_milli: int = 0
    memory: int = 0
    others: tuple[tuple[str, int], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    required: tuple[SelectorTerm, ...] | None = None
    preferred: tuple[tuple[int, SelectorTerm], ...] = ()
    anti: tuple[PodTerm, ...] = ()
    affine: tuple[PodTerm, ...] = ()
    anti_preferred: tuple[PodTerm, ...] = ()
    affine_preferred: tuple[PodTerm, ...] = ()
    spread: tuple[TopologySpread, ...] = ()
    priority: int = 0
    preempts: bool = True

    @property
    def score_cpu_milli(self) -> int:
        return self.cpu_milli or DEFAULT_CPU_MILLI

    @property
    def score_memory(self) -> int:
        return self.memory or DEFAULT_MEMORY


def parse_term(term: Json) -> SelectorTerm:
    def requirements(field: str) -> tuple[Requirement, ...]:
        return tuple(
            Requirement(one["key"], one["operator"], tuple(one.get("values") or ())) for one in term.get(field) or ()
        )

    return SelectorTerm(requirements("matchExpressions"), requirements("matchFields"))


def parse_required(affinity: Json) -> tuple[SelectorTerm, ...] | None:
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return None
    return tuple(parse_term(term) for term in required.get("nodeSelectorTerms") or ())


def _requests(spec: Json) -> dict[str, int]:
    """Kubernetes' rule: the sum of the containers, or the largest init container if that is more."""

    def of(container: Json) -> dict[str, int]:
        asked = (container.get("resources") or {}).get("requests") or {}
        return {name: milli(value) if name == "cpu" else whole(value) for name, value in asked.items()}

    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for name, value in of(container).items():
            total[name] = total.get(name, 0) + value
    for container in spec.get("initContainers") or ():
        for name, value in of(container).items():
            total[name] = max(total.get(name, 0), value)
    return total


def _pod_terms(kind: Json, field: str) -> tuple[PodTerm, ...]:
    found = []
    for one in kind.get(field) or ():
        term = one.get("podAffinityTerm") or one
        found.append(
            PodTerm(
                term.get("labelSelector"),
                term.get("topologyKey", ""),
                tuple(term.get("namespaces") or ()),
                int(one.get("weight", 0)),
            )
        )
    return tuple(found)


def _spread(one: Json) -> TopologySpread:
    return TopologySpread(
        int(one.get("maxSkew", 1)),
        one["topologyKey"],
        one.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule",
        one.get("labelSelector"),
        int(one.get("minDomains") or 1),
        tuple(one.get("matchLabelKeys") or ()),
    )


def parse_needs(spec: Json) -> Needs:
    requests = _requests(spec)
    cpu, memory = requests.pop("cpu", 0), requests.pop("memory", 0)
    affinity = spec.get("affinity") or {}
    node = affinity.get("nodeAffinity") or {}
    near, apart = affinity.get("podAffinity") or {}, affinity.get("podAntiAffinity") or {}
    hard, soft = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
    return Needs(
        cpu,
        memory,
        tuple(sorted((k, v) for k, v in requests.items() if v)),
        tuple(
            Toleration(t.get("key", ""), t.get("operator", "Equal"), t.get("value", ""), t.get("effect", ""))
            for t in spec.get("tolerations") or ()
        ),
        tuple(sorted((spec.get("nodeSelector") or {}).items())),
        parse_required(node),
        tuple((int(one["weight"]), parse_term(one["preference"])) for one in node.get(soft) or ()),
        _pod_terms(apart, hard),
        _pod_terms(near, hard),
        _pod_terms(apart, soft),
        _pod_terms(near, soft),
        tuple(_spread(one) for one in spec.get("topologySpreadConstraints") or ()),
        int(spec.get("priority") or 0),
        spec.get("preemptionPolicy", "PreemptLowerPriority") != "Never",
    )


def claims_of(spec: Json) -> tuple[str, ...]:
    """Names of the claims it mounts; apart from the needs, since a StatefulSet's pods differ in nothing else."""
    return tuple(
        volume["persistentVolumeClaim"]["claimName"]
        for volume in spec.get("volumes") or ()
        if volume.get("persistentVolumeClaim")
    )


def pinned_to(needs: Needs) -> tuple[str, ...] | None:
    """The only nodes that can match, when every term names nodes (a DaemonSet's pods). None: any."""
    if not needs.required:
        return None
    names: list[str] = []
    for term in needs.required:
        fields = [f for f in term.fields if f.key == "metadata.name" and f.operator == "In"]
        if not fields:
            return None
        names.extend(fields[0].values)
    return tuple(sorted(set(names)))


_PARTS: Final = (
    "containers",
    "initContainers",
    "affinity",
    "tolerations",
    "nodeSelector",
    "topologySpreadConstraints",
)


class NeedsCache:
    """Needs by the identity of the spec's parts; the parts are kept, so an identity cannot be reused meanwhile."""

    def __init__(self, limit: int = 20_000) -> None:
        self._limit = limit
        self._known: dict[tuple[Any, ...], tuple[Needs, list[Any]]] = {}

    def of(self, spec: Json) -> Needs:
        key = (*[id(spec.get(part)) for part in _PARTS], spec.get("priority"), spec.get("preemptionPolicy"))
        hit = self._known.get(key)
        if hit is not None:
            return hit[0]
        if len(self._known) >= self._limit:
            self._known.clear()
        needs = parse_needs(spec)
        self._known[key] = (needs, [spec.get(part) for part in _PARTS])
        return needs
