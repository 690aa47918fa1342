"""What differs from pod to pod: anti-affinity, affinity, spread, volumes, nodes nominated for others.

Each answers with the nodes that are out, and why (kube-scheduler's words, since they end up in the pod's condition),
or with points to add. All of them look only at nodes and domains that matter, except spread, which has to know the
smallest domain.
"""

import math
from collections.abc import Iterable, Mapping

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.sandbox.apiserver.labels import selects
from mooring.sandbox.apiserver.store import ObjectStore
from mooring.sandbox.scheduler.classes import refuses
from mooring.sandbox.scheduler.needs import Needs, PodTerm, TopologySpread, claims_of, parse_required
from mooring.sandbox.scheduler.snapshot import ZONE, NodeState, PodUse, SchedulerSnapshot

#: Node index → why it is out.
Out = dict[int, str]
HOSTNAME = "kubernetes.io/hostname"


def _domain(node: NodeState, key: str) -> str | None:
    return node.labels.get(key, node.name if key == HOSTNAME else None)


def _domains(snapshot: SchedulerSnapshot, key: str, names: Iterable[str]) -> set[str]:
    nodes = (snapshot.nodes.get(name) for name in names)
    return {domain for node in nodes if node is not None and (domain := _domain(node, key)) is not None}


def _in_domains(snapshot: SchedulerSnapshot, key: str, names: Iterable[str]) -> Iterable[NodeState]:
    """All nodes in the domains of these nodes."""
    if key == HOSTNAME:
        return [snapshot.nodes[name] for name in names if name in snapshot.nodes]
    domains = _domains(snapshot, key, names)
    return [node for node in snapshot.order if _domain(node, key) in domains]


def pod_affinity(snapshot: SchedulerSnapshot, namespace: str, labels: dict[str, str], needs: Needs) -> Out:
    out: Out = {}
    for term in needs.anti:
        count = snapshot.count(term.namespaces or (namespace,), term.selector)
        for node in _in_domains(snapshot, term.topology_key, count.by_node):
            out[node.index] = "node(s) didn't match pod anti-affinity rules"
    for (namespaces, _, key), (term, on) in snapshot.anti.items():
        if on and namespace in namespaces and selects(term.selector, labels):
            for node in _in_domains(snapshot, key, on):
                out.setdefault(node.index, "node(s) didn't satisfy existing pods anti-affinity rules")
    for term in needs.affine:
        _affine(snapshot, namespace, labels, term, out)
    return out


def _affine(snapshot: SchedulerSnapshot, namespace: str, labels: dict[str, str], term: PodTerm, out: Out) -> None:
    count = snapshot.count(term.namespaces or (namespace,), term.selector)
    if not count.by_node and selects(term.selector, labels):
        near = {n.index for n in snapshot.order if _domain(n, term.topology_key) is not None}  # the first of its kind
    else:
        near = {n.index for n in _in_domains(snapshot, term.topology_key, count.by_node)}
    for node in snapshot.order:
        if node.index not in near:
            out.setdefault(node.index, "node(s) didn't match pod affinity rules")


def spread(snapshot: SchedulerSnapshot, namespace: str, labels: dict[str, str], needs: Needs) -> Out:
    out: Out = {}
    for rule in needs.spread:
        if rule.hard:
            counts = _domain_counts(snapshot, namespace, labels, needs, rule)
            least = min(counts.values(), default=0) if len(counts) >= rule.min_domains else 0
            more = 1 if selects(rule.selector, labels) else 0
            for node in snapshot.order:
                domain = _domain(node, rule.topology_key)
                if domain is None or counts.get(domain, 0) + more - least > rule.max_skew:
                    out[node.index] = "node(s) didn't match pod topology spread constraints"
    return out


def _domain_counts(
    snapshot: SchedulerSnapshot, namespace: str, labels: dict[str, str], needs: Needs, rule: TopologySpread
) -> dict[str, int]:
    """Matching pods per domain, over domains that the pod's own selector and affinity allow."""
    selector = rule.selector
    if rule.label_keys:
        extra = {key: labels[key] for key in rule.label_keys if key in labels}
        selector = {**(selector or {}), "matchLabels": {**((selector or {}).get("matchLabels") or {}), **extra}}
    by_node = snapshot.count((namespace,), selector).by_node
    faces = Needs(selector=needs.selector, required=needs.required, tolerations=needs.tolerations)
    counts: dict[str, int] = {}
    for node in snapshot.order:
        domain = _domain(node, rule.topology_key)
        if domain is None or (refuses(node, faces) and "affinity" in refuses(node, faces)):
            continue
        counts[domain] = counts.get(domain, 0) + by_node.get(node.name, 0)
    return counts


def volumes(store: ObjectStore, snapshot: SchedulerSnapshot, pod: Json) -> Out | str:
    """Nodes its bound volumes cannot reach, or why the pod cannot be placed at all."""
    out: Out = {}
    namespace = pod["metadata"]["namespace"]
    for name in claims_of(pod["spec"]):
        claim = store.find(Kind.PVC, namespace, name)
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        volume_name = (claim.get("spec") or {}).get("volumeName")
        volume = store.find(Kind.PV, "", volume_name) if volume_name else None
        if volume is None:
            continue
        terms = parse_required(_as_affinity(volume["spec"].get("nodeAffinity") or {}))
        if terms is None:
            continue
        for node in snapshot.order:
            if not any(term.matches(node.labels, node.name) for term in terms):
                out[node.index] = "node(s) had volume node affinity conflict"
    return out


def _as_affinity(node_affinity: Json) -> Json:
    required = node_affinity.get("required")
    return {} if required is None else {"requiredDuringSchedulingIgnoredDuringExecution": required}


def promised(snapshot: SchedulerSnapshot, nominated: dict[str, dict[str, PodUse]], uid: str, needs: Needs) -> Out:
    """Nodes where a pod of no lower priority was nominated whose room this one would take."""
    out: Out = {}
    for name, pods in nominated.items():
        node = snapshot.nodes.get(name)
        others = [
            p for u, p in pods.items() if u != uid and p.needs.priority >= needs.priority and p.key not in snapshot.pods
        ]
        if node is not None and others and not node.fits(needs, plus=others):
            out[node.index] = "Insufficient resources (promised to a nominated pod)"
    return out


def points(
    snapshot: SchedulerSnapshot,
    namespace: str,
    labels: dict[str, str],
    needs: Needs,
    owner_uid: str,
    candidates: list[int],
) -> dict[int, int]:
    """Points (to subtract where negative) for spread and soft pod affinity, weight 2 each, over these candidates."""
    rules = [rule for rule in needs.spread if not rule.hard]
    if needs.spread:
        raw = _spread_raw(snapshot, namespace, labels, needs, rules, candidates) if rules else {}
    else:
        raw = _siblings_raw(snapshot, owner_uid, candidates)
    result: dict[int, int] = {}
    if raw:
        most, least = max(raw.values()), min(raw.values())
        if most > 0 and most != least:
            for index, value in raw.items():
                result[index] = 2 * (100 * (most + least - value) // most)
    soft = _soft_affinity(snapshot, namespace, needs, candidates)
    if soft:
        most, least = max(soft.values()), min(soft.values())
        if most != least:
            for index, value in soft.items():
                result[index] = result.get(index, 0) + 2 * int(100 * (value - least) / (most - least))
    return result


def _siblings_raw(snapshot: SchedulerSnapshot, owner_uid: str, candidates: list[int]) -> dict[int, int]:
    """kube-scheduler's system defaults: replicas of one owner apart by host (skew 3) and by zone (skew 5). Whole
    numbers, as there."""
    on = snapshot.by_owner.get(owner_uid)
    if not on:
        return {}
    nodes = snapshot.order
    zones: dict[str, int] = {}
    for name, count in on.items():
        node = snapshot.nodes.get(name)
        if node is not None and (zone := node.labels.get(ZONE)) is not None:
            zones[zone] = zones.get(zone, 0) + count
    host_weight = math.log(len(candidates) + 2)
    if not zones:
        return {i: round(on.get(nodes[i].name, 0) * host_weight + 2) for i in candidates}
    zone_weight = math.log(len({nodes[i].labels.get(ZONE) for i in candidates}) + 2)
    return {
        i: round(
            on.get(nodes[i].name, 0) * host_weight + 2 + zones.get(nodes[i].labels.get(ZONE, ""), 0) * zone_weight + 4
        )
        for i in candidates
    }


def sibling_penalties(on: Mapping[str, int], feasible: int) -> dict[int, int]:
    """`points` of a pod with siblings and no rules of its own, relative to a node without a sibling, by how many
    siblings a node has. Right as long as zones are not in play and some candidate has no sibling."""
    weight = math.log(feasible + 2)
    most = round(max(on.values()) * weight + 2)
    return {count: 200 - 2 * (100 * (most + 2 - round(count * weight + 2)) // most) for count in set(on.values())}


def _spread_raw(
    snapshot: SchedulerSnapshot,
    namespace: str,
    labels: dict[str, str],
    needs: Needs,
    rules: list[TopologySpread],
    candidates: list[int],
) -> dict[int, int]:
    raw = dict.fromkeys(candidates, 0.0)
    for rule in rules:
        counts = _domain_counts(snapshot, namespace, labels, needs, rule)
        weight = math.log(len(counts) + 2)
        for i in candidates:
            domain = _domain(snapshot.order[i], rule.topology_key)
            raw[i] += counts.get(domain or "", 0) * weight + rule.max_skew - 1
    return {i: round(value) for i, value in raw.items()}


def _soft_affinity(snapshot: SchedulerSnapshot, namespace: str, needs: Needs, candidates: list[int]) -> dict[int, int]:
    raw: dict[int, int] = {}
    for sign, terms in ((1, needs.affine_preferred), (-1, needs.anti_preferred)):
        for term in terms:
            by_node = snapshot.count(term.namespaces or (namespace,), term.selector).by_node
            per_domain: dict[str, int] = {}
            for name, count in by_node.items():
                node = snapshot.nodes.get(name)
                domain = None if node is None else _domain(node, term.topology_key)
                if domain is not None:
                    per_domain[domain] = per_domain.get(domain, 0) + count
            for i in candidates:
                domain = _domain(snapshot.order[i], term.topology_key)
                raw[i] = raw.get(i, 0) + sign * term.weight * per_domain.get(domain or "", 0)
    return raw
