"""What a pod asks of a node, parsed once per template.

The store shares equal parts between the pods of a template, so the parts' identity is the key; a class of pods that
ask for the same is scheduled from one table (`classes.py`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from mooring.clients.ports import Json
from mooring.clients.wire.quantity import milli, readable, whole
from mooring.core.model.cluster import Requirement, SelectorTerm, Toleration

#: What a container without requests counts as when nodes are compared (not when they are filtered).
DEFAULT_CPU_MILLI: Final = 100
DEFAULT_MEMORY: Final = 200 * 1024 * 1024
_NONE: Final[Mapping[str, str]] = {}
_DEFAULTS: Final = {"cpu": f"{DEFAULT_CPU_MILLI}m", "memory": str(DEFAULT_MEMORY)}
EVERY_ADDRESS: Final = "0.0.0.0"
#: What a pod as a whole may ask for.
_OF_PODS: Final = frozenset({"cpu", "memory"})


class PodTerm(msgspec.Struct, frozen=True):
    """A pod (anti-)affinity term. Neither `namespaces` nor a selector of them: the pod's own."""

    selector: Any
    topology_key: str
    namespaces: tuple[str, ...] = ()
    weight: int = 0
    namespace_selector: Any = None
    label_keys: tuple[str, ...] = ()
    other_label_keys: tuple[str, ...] = ()

    def selector_for(self, labels: Mapping[str, str]) -> Any:
        """With what its label keys add for a pod with these labels."""
        return with_label_keys(self.selector, labels, self.label_keys, self.other_label_keys)


class TopologySpread(msgspec.Struct, frozen=True):
    max_skew: int
    topology_key: str
    hard: bool
    selector: Any
    min_domains: int = 1
    label_keys: tuple[str, ...] = ()
    honors_affinity: bool = True
    honors_taints: bool = False


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
    #: (address, protocol, port); "0.0.0.0" is every address.
    host_ports: tuple[tuple[str, str, int], ...] = ()
    #: What it counts as when nodes are compared: once it is there, and while a node is sought for it. kube-scheduler
    #: then overlooks what the pod as a whole asks for.
    score_cpu_milli: int = DEFAULT_CPU_MILLI
    score_memory: int = DEFAULT_MEMORY
    sought_cpu_milli: int = DEFAULT_CPU_MILLI
    sought_memory: int = DEFAULT_MEMORY


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


def with_label_keys(
    selector: Any, labels: Mapping[str, str], same: Iterable[str], other: Iterable[str] = ()
) -> dict[str, Any] | None:
    """`matchLabelKeys` and `mismatchLabelKeys`: the pod's own value of a label, or any but that."""
    asked = [(key, "In") for key in same if key in labels] + [(key, "NotIn") for key in other if key in labels]
    if selector is None or not asked:
        return selector  # type: ignore[no-any-return]
    more = [{"key": key, "operator": how, "values": [labels[key]]} for key, how in asked]
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *more]}


def _amounts(asked: Json | None) -> Counter[str]:
    if odd := [value for value in (asked or {}).values() if not readable(value)]:
        raise ValueError(f"{odd[0]!r} is not a quantity")  # an API server stores no such pod
    return Counter({name: milli(v) if name == "cpu" else whole(v) for name, v in (asked or {}).items()})


def _asked(resources: Json | None, missing: Mapping[str, str] = _NONE) -> Counter[str]:
    """A limit without a request is a request of as much."""
    given = resources or {}
    return _amounts({**missing, **(given.get("limits") or {}), **(given.get("requests") or {})})


def _requests(spec: Json, missing: Mapping[str, str] = _NONE) -> dict[str, int]:
    """Kubernetes' rule: containers and sidecars together, or the moment of starting up that needs most if that is more;
    what the pod as a whole asks for counts instead; and its overhead. `missing`: of a container that does not say."""
    together, sidecars, start = Counter[str](), Counter[str](), Counter[str]()
    for container in spec.get("containers") or ():
        together += _asked(container.get("resources"), missing)
    for container in spec.get("initContainers") or ():
        asked = _asked(container.get("resources"), missing)
        if is_sidecar(container):
            together += asked
            sidecars += asked
            start |= sidecars
        else:
            start |= asked + sidecars
    total = together | start
    total.update({name: value - total[name] for name, value in _whole(spec).items()})
    return dict(total + _amounts(spec.get("overhead")))


def _whole(spec: Json) -> dict[str, int]:
    return {name: value for name, value in _asked(spec.get("resources")).items() if name in _OF_PODS}


def is_sidecar(container: Json) -> bool:
    return container.get("restartPolicy") == "Always"


def _host_ports(spec: Json) -> tuple[tuple[str, str, int], ...]:
    running = [*(spec.get("containers") or ()), *filter(is_sidecar, spec.get("initContainers") or ())]
    ports = [port for container in running for port in container.get("ports") or ()]
    if spec.get("hostNetwork"):
        ports = [{**port, "hostPort": port.get("hostPort") or port.get("containerPort")} for port in ports]
    return tuple(
        (port.get("hostIP") or EVERY_ADDRESS, port.get("protocol") or "TCP", int(port["hostPort"]))
        for port in ports
        if port.get("hostPort")
    )


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
                term.get("namespaceSelector"),
                tuple(term.get("matchLabelKeys") or ()),
                tuple(term.get("mismatchLabelKeys") or ()),
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
        one.get("nodeAffinityPolicy", "Honor") == "Honor",
        one.get("nodeTaintsPolicy", "Ignore") == "Honor",
    )


def parse_needs(spec: Json) -> Needs:
    requests = _requests(spec)
    missing = {name: of for name, of in _DEFAULTS.items() if name not in requests} if _whole(spec) else _DEFAULTS
    weighed, sought = _requests(spec, missing), _requests({**spec, "resources": None}, _DEFAULTS)
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
        _host_ports(spec),
        weighed.get("cpu", 0),
        weighed.get("memory", 0),
        sought.get("cpu", 0),
        sought.get("memory", 0),
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
    "resources",
    "overhead",
)


class NeedsCache:
    """Needs by the identity of the spec's parts; the parts are kept, so an identity cannot be reused meanwhile."""

    def __init__(self, limit: int = 20_000) -> None:
        self._limit = limit
        self._known: dict[tuple[Any, ...], tuple[Needs, list[Any]]] = {}

    def of(self, spec: Json) -> Needs:
        plain = spec.get("priority"), spec.get("preemptionPolicy"), spec.get("hostNetwork")
        key = (*[id(spec.get(part)) for part in _PARTS], *plain)
        hit = self._known.get(key)
        if hit is not None:
            return hit[0]
        if len(self._known) >= self._limit:
            self._known.clear()
        needs = parse_needs(spec)
        self._known[key] = (needs, [spec.get(part) for part in _PARTS])
        return needs
