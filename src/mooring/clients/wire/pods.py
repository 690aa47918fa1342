"""A pod on the wire → a slim row plus a shape that it shares with its siblings.

Its quantities and selectors are worked out for the first pod of a template only; its siblings find the shape by its
content. One template is one shape per ReplicaSet, since `pod-template-hash` is a label.
"""

from typing import Final

from mooring.clients.wire import sharing
from mooring.clients.wire.annotations import MIRROR, kept
from mooring.clients.wire.fields import (
    Affinity,
    Amounts,
    Container,
    Expression,
    Meta,
    NodeSelector,
    PodSpec,
    Resources,
    TolerationRef,
    WirePod,
)
from mooring.clients.wire.quantity import epoch, milli, whole
from mooring.core.model.cluster import NO_LABELS, Owner, Pod, PodShape, Requirement, SelectorTerm, Toleration
from mooring.core.model.kinds import Kind
from mooring.core.model.limits import LONGEST_VALUE, MIB, MOST_LABELS, MOST_PARTS, MOST_TERMS, SharedValues, weight

#: Labels that differ from pod to pod and would make every shape unique. Their values follow from the pod's name.
PER_POD_LABELS: Final = frozenset(
    {"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index"}
)


def pod(wire: WirePod) -> Pod:
    meta, spec, status = wire.metadata, wire.spec, wire.status
    ready, ready_since, schedulable = False, None, True
    phase = nominated = ""
    if status is not None:
        phase, nominated = status.phase or "", status.nominated_node_name or ""
        for condition in status.conditions or ():
            if condition.type == "Ready":
                ready = condition.status == "True"
                ready_since = epoch(condition.last_transition_time)
            elif condition.type == "PodScheduled" and condition.reason == "Unschedulable":
                schedulable = condition.status != "False"
    annotations = meta.annotations
    few = kept(Kind.POD, annotations)
    return Pod(
        namespace=sharing.text(meta.namespace or ""),
        name=meta.name,
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        shape=shape(meta, spec),
        owner=controller(meta),
        generate_name=sharing.text(meta.generate_name) if meta.generate_name else "",
        node=sharing.text(spec.node_name) if spec.node_name else "",
        phase=sharing.text(phase) if phase else "Pending",
        ready=ready,
        ready_since=ready_since,
        created_at=epoch(meta.creation_timestamp) or 0.0,
        deletion_at=epoch(meta.deletion_timestamp),
        schedulable=schedulable,
        claims=_claims(meta, spec) if spec.volumes else (),
        # Their values (slots, tokens) are the pod's own: a shared table would fill up with them.
        annotations={sharing.text(k): v for k, v in few.items()} if few else NO_LABELS,
        is_mirror=annotations is not None and MIRROR in annotations,
        nominated_node=sharing.text(nominated) if nominated else "",
    )


def controller(meta: Meta) -> Owner | None:
    """The one owner reference with `controller: true`."""
    for ref in meta.owner_references or ():
        if ref.controller:
            return sharing.owner(ref.kind, ref.name, ref.uid, ref.api_version)
    return None


def shape(meta: Meta, spec: PodSpec) -> PodShape:
    labels = meta.labels
    if labels and not PER_POD_LABELS.isdisjoint(labels):
        labels = {k: v for k, v in labels.items() if k not in PER_POD_LABELS}
    label_pairs, selector_pairs = sharing.pairs(labels), sharing.pairs(spec.node_selector)
    # Worked out once per distinct spelling; what remains for a known template is hashing and one lookup.
    asked = requests(spec.containers, spec.init_containers, spec.resources, spec.overhead)
    tolerations = _tolerations(spec.tolerations)
    affinity = _affinity(spec.affinity)
    grace_s = spec.termination_grace_period_seconds
    grace_s = 30 if grace_s is None else grace_s
    priority, scheduler = spec.priority or 0, (spec.scheduler_name or "default-scheduler")[:LONGEST_VALUE]
    empty_dir = any(v.empty_dir is not None for v in spec.volumes or ())
    network = bool(spec.host_network)
    rest = (asked, tolerations, selector_pairs, affinity, grace_s, priority, scheduler, empty_dir, network)
    found = sharing.shapes.get((label_pairs, rest))
    if found is not None:
        return found
    label_pairs = tuple([(sharing.text(k), sharing.text(v)) for k, v in label_pairs])
    return sharing.shapes.put(
        (label_pairs, rest),
        PodShape(
            labels=dict(label_pairs) if label_pairs else NO_LABELS,
            cpu_milli=asked[0],
            memory_bytes=asked[1],
            priority=priority,
            scheduler_name=sharing.text(scheduler),
            tolerations=tolerations,
            node_selector=sharing.labels(spec.node_selector),
            required_terms=affinity[0],
            anti_affinity_keys=affinity[1],
            grace_s=grace_s,
            has_empty_dir=empty_dir,
            host_network=network,
        ),
    )


#: By their spelling on the wire.
_known_tolerations: SharedValues[tuple[TolerationRef, ...], tuple[Toleration, ...]] = SharedValues(4096, 2 * MIB)
_known_affinities: SharedValues[Affinity, "NodeRules"] = SharedValues(4096, 2 * MIB)
_known_requests: SharedValues["Asking", tuple[int, int]] = SharedValues(4096, 2 * MIB)

#: The required node terms, and the topology keys of required anti-affinity.
NodeRules = tuple[tuple[SelectorTerm, ...] | None, tuple[str, ...]]
_NO_RULES: Final[NodeRules] = (None, ())
Asking = tuple[tuple[Container, ...] | None, tuple[Container, ...] | None, Resources | None, Amounts | None]


def _tolerations(wire: tuple[TolerationRef, ...] | None) -> tuple[Toleration, ...]:
    if not wire:
        return ()
    return _known_tolerations.get(wire) or _known_tolerations.put(
        wire,
        tuple(
            Toleration(t.key or "", t.operator or "Equal", t.value or "", t.effect or "", t.toleration_seconds)
            for t in wire[:MOST_PARTS]
        ),
    )


def _affinity(wire: Affinity | None) -> NodeRules:
    if wire is None:
        return _NO_RULES
    return _known_affinities.get(wire) or _known_affinities.put(wire, _rules(wire))


def _rules(wire: Affinity) -> NodeRules:
    required = wire.node_affinity.required if wire.node_affinity else None
    anti = wire.pod_anti_affinity.required if wire.pod_anti_affinity else None
    topology_keys = dict.fromkeys(t.topology_key for t in (anti or ())[:MOST_PARTS])
    return None if required is None else _few(terms(required)), tuple(topology_keys)


def _few(found: tuple[SelectorTerm, ...]) -> tuple[SelectorTerm, ...]:
    """Terms are alternatives: a pod that loses some is thought to fit fewer nodes than it does."""
    left, kept_terms = MOST_TERMS, list[SelectorTerm]()
    for term in found[:MOST_PARTS]:
        if (left := left - weight(term)) >= 0:
            kept_terms.append(term)
    return tuple(kept_terms)


def terms(selector: NodeSelector) -> tuple[SelectorTerm, ...]:
    return tuple(
        SelectorTerm(expressions(t.match_expressions), expressions(t.match_fields))
        for t in selector.node_selector_terms or ()
    )


def expressions(wire: tuple[Expression, ...] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement(e.key, e.operator, e.values or ()) for e in wire or ())


# ── what a pod asks for ───────────────────────────────────────────────────────────────────────────────────────────


def requests(
    containers: tuple[Container, ...] | None,
    init_containers: tuple[Container, ...] | None,
    pod_level: Resources | None,
    overhead: Amounts | None,
) -> tuple[int, int]:
    spelled = (containers, init_containers, pod_level, overhead)
    return _known_requests.get(spelled) or _known_requests.put(spelled, _requests(*spelled))


def _requests(
    containers: tuple[Container, ...] | None,
    init_containers: tuple[Container, ...] | None,
    pod_level: Resources | None,
    overhead: Amounts | None,
) -> tuple[int, int]:
    """Milli-CPU and bytes, as kube-scheduler counts them: containers and sidecars together, or the largest init
    container on top of the sidecars started before it; a request at pod level wins; overhead comes on top."""
    cpu = memory = 0
    for container in containers or ():
        one_cpu, one_memory = _asked(container)
        cpu, memory = cpu + one_cpu, memory + one_memory
    side_cpu = side_memory = peak_cpu = peak_memory = 0
    for container in init_containers or ():
        one_cpu, one_memory = _asked(container)
        if container.restart_policy == "Always":
            cpu, memory = cpu + one_cpu, memory + one_memory
            side_cpu, side_memory = side_cpu + one_cpu, side_memory + one_memory
            one_cpu = one_memory = 0
        peak_cpu, peak_memory = max(peak_cpu, side_cpu + one_cpu), max(peak_memory, side_memory + one_memory)
    cpu, memory = max(cpu, peak_cpu), max(memory, peak_memory)
    if pod_level is not None:
        asked = _amounts(pod_level)
        cpu = cpu if asked.cpu is None else milli(asked.cpu)
        memory = memory if asked.memory is None else whole(asked.memory)
    if overhead is not None:
        cpu, memory = cpu + milli(overhead.cpu), memory + whole(overhead.memory)
    return cpu, memory


def _asked(container: Container) -> tuple[int, int]:
    if container.resources is None:
        return 0, 0
    amounts = _amounts(container.resources)
    return milli(amounts.cpu), whole(amounts.memory)


def _amounts(resources: Resources) -> Amounts:
    """A limit without a request is the request (the API server's own default)."""
    requests, limits = resources.requests or Amounts(), resources.limits or Amounts()
    return Amounts(
        cpu=limits.cpu if requests.cpu is None else requests.cpu,
        memory=limits.memory if requests.memory is None else requests.memory,
    )


def _claims(meta: Meta, spec: PodSpec) -> tuple[str, ...]:
    found: list[str] = []
    for volume in (spec.volumes or ())[:MOST_LABELS]:
        if volume.persistent_volume_claim is not None:
            found.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            # The claim that Kubernetes makes for a generic ephemeral volume.
            found.append(f"{meta.name}-{volume.name}")
    return tuple(found)
