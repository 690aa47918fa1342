"""A pod on the wire → a slim row plus a shape that it shares with its siblings.

The shape is looked up by the wire fields it is made of; its quantities and selectors are only worked out for the first
pod of a template.
"""

from collections.abc import Hashable
from typing import Final

from mooring.model.cluster import NO_LABELS, Owner, Pod, PodShape, Requirement, SelectorTerm, Toleration
from mooring.model.kinds import Kind
from mooring.wire import sharing
from mooring.wire.annotations import MIRROR, kept
from mooring.wire.fields import Amounts, Container, Expression, Meta, NodeSelector, PodSpec, Resources, WirePod
from mooring.wire.quantity import epoch, milli, whole

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
        annotations=sharing.labels(few) if few else NO_LABELS,
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
    empty_dir = any(v.empty_dir is not None for v in spec.volumes or ())
    key: Hashable = (
        sharing.pairs(labels),
        spec.containers,
        spec.init_containers,
        spec.resources,
        spec.overhead,
        spec.priority,
        spec.scheduler_name,
        spec.tolerations,
        sharing.pairs(spec.node_selector),
        spec.affinity,
        spec.termination_grace_period_seconds,
        empty_dir,
        spec.host_network,
    )
    found = sharing.shapes.get(key)
    if found is not None:
        return found
    cpu_milli, memory_bytes = requests(spec)
    affinity, anti = spec.affinity, None
    required = None
    if affinity is not None:
        required = affinity.node_affinity.required if affinity.node_affinity else None
        anti = affinity.pod_anti_affinity.required if affinity.pod_anti_affinity else None
    grace = spec.termination_grace_period_seconds
    made = PodShape(
        labels=sharing.labels(labels),
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        priority=spec.priority or 0,
        scheduler_name=sharing.text(spec.scheduler_name or "default-scheduler"),
        tolerations=tuple(
            Toleration(t.key or "", t.operator or "Equal", t.value or "", t.effect or "", t.toleration_seconds)
            for t in spec.tolerations or ()
        ),
        node_selector=sharing.labels(spec.node_selector),
        required_terms=None if required is None else terms(required),
        anti_affinity_keys=tuple(dict.fromkeys(t.topology_key for t in anti or ())),
        grace_s=30 if grace is None else grace,
        has_empty_dir=empty_dir,
        host_network=bool(spec.host_network),
    )
    return sharing.shapes.put(key, _canonical(made))


def _canonical(made: PodShape) -> PodShape:
    """Different spellings ("1" and "1000m") of one content end in one instance."""
    key: Hashable = (
        sharing.pairs(made.labels),
        made.cpu_milli,
        made.memory_bytes,
        made.priority,
        made.scheduler_name,
        made.tolerations,
        sharing.pairs(made.node_selector),
        made.required_terms,
        made.anti_affinity_keys,
        made.grace_s,
        made.has_empty_dir,
        made.host_network,
        "canonical",
    )
    return sharing.shapes.get(key) or sharing.shapes.put(key, made)


def terms(selector: NodeSelector) -> tuple[SelectorTerm, ...]:
    return tuple(
        SelectorTerm(expressions(t.match_expressions), expressions(t.match_fields))
        for t in selector.node_selector_terms or ()
    )


def expressions(wire: tuple[Expression, ...] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement(e.key, e.operator, e.values or ()) for e in wire or ())


# ── what a pod asks for ───────────────────────────────────────────────────────────────────────────────────────────


def requests(spec: PodSpec) -> tuple[int, int]:
    """Milli-CPU and bytes, as kube-scheduler counts them: containers and sidecars together, or the largest init
    container on top of the sidecars started before it; a request at pod level wins; overhead comes on top."""
    cpu = memory = 0
    for container in spec.containers or ():
        one_cpu, one_memory = _asked(container)
        cpu, memory = cpu + one_cpu, memory + one_memory
    side_cpu = side_memory = peak_cpu = peak_memory = 0
    for container in spec.init_containers or ():
        one_cpu, one_memory = _asked(container)
        if container.restart_policy == "Always":
            cpu, memory = cpu + one_cpu, memory + one_memory
            side_cpu, side_memory = side_cpu + one_cpu, side_memory + one_memory
            one_cpu = one_memory = 0
        peak_cpu, peak_memory = max(peak_cpu, side_cpu + one_cpu), max(peak_memory, side_memory + one_memory)
    cpu, memory = max(cpu, peak_cpu), max(memory, peak_memory)
    if spec.resources is not None:
        asked = _amounts(spec.resources)
        cpu = cpu if asked.cpu is None else milli(asked.cpu)
        memory = memory if asked.memory is None else whole(asked.memory)
    if spec.overhead is not None:
        cpu, memory = cpu + milli(spec.overhead.cpu), memory + whole(spec.overhead.memory)
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
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            found.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            # The claim that Kubernetes makes for a generic ephemeral volume.
            found.append(f"{meta.name}-{volume.name}")
    return tuple(found)
