"""What differs from pod to pod: anti-affinity, affinity, spread, volumes, nodes nominated for others.

Each answers with the nodes that are out, and why (kube-scheduler's words, since they end up in the pod's condition),
or with points to add. All of them look only at nodes and domains that matter, except spread, which has to know the
smallest domain.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.labels import selects
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.controllers.podstate import labels_of
from mooring_lab.cluster.scheduler.classes import is_selected, untolerated
from mooring_lab.cluster.scheduler.needs import (
    Needs,
    PodTerm,
    TopologySpread,
    claims_of,
    parse_required,
    with_label_keys,
)
from mooring_lab.cluster.scheduler.snapshot import ZONE, MatchCount, NodeState, PodUse, SchedulerSnapshot

#: Node index → why it is out.
Out = dict[int, str]
HOSTNAME: Final = "kubernetes.io/hostname"
ONE_POD: Final = "ReadWriteOncePod"
#: Labels of a volume that bind it to a zone or region.
ZONES: Final = (ZONE, "topology.kubernetes.io/region")


def _domain(node: NodeState, key: str) -> str | None:
    return node.labels.get(key)


def _in_domains(snapshot: SchedulerSnapshot, key: str, names: Iterable[str]) -> Iterable[NodeState]:
    """All nodes in the domains of these nodes."""
    nodes = [snapshot.nodes[name] for name in names if name in snapshot.nodes]
    if key == HOSTNAME:
        return [node for node in nodes if HOSTNAME in node.labels]
    domains = {domain for node in nodes if (domain := _domain(node, key)) is not None}
    return [node for node in snapshot.order if _domain(node, key) in domains]


class PodRules:
    """Affinity to pods and away from them, as one pod meets it."""

    def __init__(self, store: ObjectStore, snapshot: SchedulerSnapshot, use: PodUse) -> None:
        self._store, self._snapshot, self._use = store, snapshot, use

    def out(self) -> Out:
        snapshot, needs, labels = self._snapshot, self._use.needs, self._use.labels
        out: Out = {}
        for term in needs.anti:
            for node in _in_domains(snapshot, term.topology_key, self._count(term).by_node):
                out[node.index] = "node(s) didn't match pod anti-affinity rules"
        for (_, _, key), (term, owner, on) in snapshot.anti.items():
            if not on or self._use.key[0] not in self._namespaces(term, owner.key[0]):
                continue
            if selects(term.selector_for(owner.labels), labels):
                for node in _in_domains(snapshot, key, on):
                    out.setdefault(node.index, "node(s) didn't satisfy existing pods anti-affinity rules")
        if needs.affine:
            near = self._near()
            for node in snapshot.order:
                if node.index not in near:
                    out.setdefault(node.index, "node(s) didn't match pod affinity rules")
        return out

    def _namespaces(self, term: PodTerm, own: str) -> tuple[str, ...]:
        if term.namespace_selector is None:
            return term.namespaces or (own,)
        chosen = [
            one["metadata"]["name"]
            for one in self._store.list(Kind.NAMESPACE)
            if selects(term.namespace_selector, one["metadata"].get("labels") or {})
        ]
        return (*term.namespaces, *chosen)

    def _count(self, term: PodTerm) -> MatchCount:
        selector = term.selector_for(self._use.labels)
        return self._snapshot.count(self._namespaces(term, self._use.key[0]), selector)

    def _near(self) -> set[int]:
        """Nodes that every term allows, each by pods that all terms select; or, for the first pod of its kind, every
        node that has the labels."""
        terms, snapshot, use = self._use.needs.affine, self._snapshot, self._use
        if len(terms) == 1:
            on: Iterable[str] = self._count(terms[0]).by_node
        else:
            on = {pod.node for pod in snapshot.pods.values() if self._all_select(terms, pod.key[0], pod.labels)}
        near = [{node.index for node in _in_domains(snapshot, term.topology_key, on)} for term in terms]
        if not any(near) and self._all_select(terms, use.key[0], use.labels):
            near = [{n.index for n in snapshot.order if _domain(n, term.topology_key) is not None} for term in terms]
        return set.intersection(*near)

    def draws(self, candidates: list[int]) -> dict[int, int]:
        """Soft affinity: its own to pods that are there, and theirs to it."""
        snapshot, use, needs = self._snapshot, self._use, self._use.needs
        raw: dict[int, int] = {}
        own = [(1, term) for term in needs.affine_preferred] + [(-1, term) for term in needs.anti_preferred]
        for sign, term in own:
            self._draw(raw, term.topology_key, self._count(term).by_node, sign * term.weight, candidates)
        for (_, _, key), (term, owner, on) in snapshot.drawing.items():
            if use.key[0] in self._namespaces(term, owner.key[0]) and selects(
                term.selector_for(owner.labels), use.labels
            ):
                self._draw(raw, key, on, term.weight, candidates)
        return raw

    def _draw(
        self, raw: dict[int, int], key: str, by_node: Mapping[str, int], weight: int, candidates: list[int]
    ) -> None:
        nodes, per_domain = self._snapshot.nodes, dict[str, int]()
        for name, count in by_node.items():
            if name in nodes and (domain := _domain(nodes[name], key)) is not None:
                per_domain[domain] = per_domain.get(domain, 0) + count
        for i in candidates:
            domain = _domain(self._snapshot.order[i], key)
            raw[i] = raw.get(i, 0) + weight * per_domain.get(domain or "", 0)

    def _all_select(self, terms: Iterable[PodTerm], namespace: str, labels: Mapping[str, str]) -> bool:
        own = self._use
        return all(
            namespace in self._namespaces(term, own.key[0]) and selects(term.selector_for(own.labels), labels)
            for term in terms
        )


def spread(snapshot: SchedulerSnapshot, namespace: str, labels: dict[str, str], needs: Needs) -> Out:
    out: Out = {}
    rules = [rule for rule in needs.spread if rule.hard]
    for rule in rules:
        counts = _domain_counts(snapshot, namespace, labels, needs, rule, rules)
        least = min(counts.values(), default=0) if len(counts) >= rule.min_domains else 0
        more = 1 if selects(with_label_keys(rule.selector, labels, rule.label_keys), labels) else 0
        for node in snapshot.order:
            domain = _domain(node, rule.topology_key)
            if domain is None or counts.get(domain, 0) + more - least > rule.max_skew:
                out[node.index] = "node(s) didn't match pod topology spread constraints"
    return out


def _domain_counts(
    snapshot: SchedulerSnapshot,
    namespace: str,
    labels: dict[str, str],
    needs: Needs,
    rule: TopologySpread,
    rules: Iterable[TopologySpread],
) -> dict[str, int]:
    """Matching pods that are not leaving, per domain, over the nodes that count: they have the labels of all rules, and
    the pod's own selector and tolerations allow them where the rule says that this matters."""
    selector = with_label_keys(rule.selector, labels, rule.label_keys)
    # An empty selector counts no pod, as in kube-scheduler, although it selects every one.
    by_node = snapshot.count((namespace,), selector, leaving=False).by_node if selector else {}
    counts: dict[str, int] = {}
    for node in snapshot.order:
        if any(one.topology_key not in node.labels for one in rules):
            continue
        if (rule.honors_affinity and not is_selected(node, needs)) or (rule.honors_taints and untolerated(node, needs)):
            continue
        domain = node.labels[rule.topology_key]
        counts[domain] = counts.get(domain, 0) + by_node.get(node.name, 0)
    return counts


def volumes(
    store: ObjectStore, snapshot: SchedulerSnapshot, pod: Json, gone: Iterable[tuple[str, str]] = ()
) -> Out | str:
    """Nodes its bound volumes cannot reach, or why the pod cannot be placed at all. `gone`: imagined to be away."""
    out: Out = {}
    namespace = pod["metadata"]["namespace"]
    for name in claims_of(pod["spec"]):
        claim = store.find(Kind.PVC, namespace, name)
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        spec = claim.get("spec") or {}
        if ONE_POD in (spec.get("accessModes") or ()) and _is_used(store, pod, name, gone):
            return "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
        volume = store.find(Kind.PV, "", spec["volumeName"]) if spec.get("volumeName") else None
        if volume is None:
            continue
        terms = parse_required(_as_affinity(volume["spec"].get("nodeAffinity") or {}))
        zones = {key: value.split("__") for key in ZONES if (value := labels_of(volume).get(key))}
        for node in snapshot.order:
            if terms is not None and not any(term.matches(node.labels, node.name) for term in terms):
                out[node.index] = "node(s) had volume node affinity conflict"
            elif any(key in node.labels for key in ZONES) and any(
                node.labels.get(k) not in v for k, v in zones.items()
            ):
                out[node.index] = "node(s) had no available volume zone"
    return out


def _is_used(store: ObjectStore, pod: Json, claim: str, gone: Iterable[tuple[str, str]]) -> bool:
    others = (one for one in store.list(Kind.POD, pod["metadata"]["namespace"]) if one["spec"].get("nodeName"))
    users = {podstate.key_of(one) for one in others if claim in claims_of(one["spec"]) and not podstate.terminal(one)}
    return bool(users) and users.isdisjoint(gone)


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


def points(store: ObjectStore, snapshot: SchedulerSnapshot, use: PodUse, candidates: list[int]) -> dict[int, int]:
    """Points for spread and soft pod affinity, weight 2 each, over these candidates."""
    rules = [rule for rule in use.needs.spread if not rule.hard]
    raw: dict[int, int] = {}
    ignored: set[int] = set()
    if rules:
        raw = _spread_raw(snapshot, use, rules, candidates)
        ignored = set(candidates) - set(raw)
    elif not use.needs.spread:
        raw = _siblings_raw(snapshot, use.owner_uid, candidates)
    result: dict[int, int] = dict.fromkeys(ignored, 0)
    if raw:
        most, least = max(raw.values()), min(raw.values())
        for index, value in raw.items():
            result[index] = 2 * (100 * (most + least - value) // most if most else 100)
    soft = PodRules(store, snapshot, use).draws(candidates)
    if soft:
        most, least = max(soft.values()), min(soft.values())
        if most != least:
            for index, value in soft.items():
                result[index] = result.get(index, 0) + 2 * int(100.0 * ((value - least) / (most - least)))
    return result


def _siblings_raw(snapshot: SchedulerSnapshot, owner_uid: str, candidates: list[int]) -> dict[int, int]:
    """kube-scheduler's system defaults: replicas of one owner apart by host (skew 3) and by zone (skew 5), the latter
    among the nodes that have a zone. Whole numbers, as there."""
    on = snapshot.by_owner.get(owner_uid, {})
    nodes = snapshot.order
    if not owner_uid or not (on or snapshot.zoned):
        return {}
    zones: dict[str, int] = {}
    for name, count in on.items():
        node = snapshot.nodes.get(name)
        if node is not None and (zone := node.labels.get(ZONE)) is not None:
            zones[zone] = zones.get(zone, 0) + count
    host_weight = math.log(len(candidates) + 2)
    zone_weight = math.log(len({nodes[i].labels.get(ZONE) for i in candidates}) + 2)
    raw = {}
    for i in candidates:
        labels = nodes[i].labels
        value = on.get(nodes[i].name, 0) * host_weight + 2 if HOSTNAME in labels else 0.0
        if ZONE in labels:
            value += zones.get(labels[ZONE], 0) * zone_weight + 4
        raw[i] = round(value)
    return raw


def sibling_penalties(on: Mapping[str, int], feasible: int) -> dict[int, int]:
    """`points` of a pod with siblings and no rules of its own, relative to a node without a sibling, by how many
    siblings a node has. Right as long as zones are not in play and some candidate has no sibling."""
    weight = math.log(feasible + 2)
    most = round(max(on.values()) * weight + 2)
    return {count: 200 - 2 * (100 * (most + 2 - round(count * weight + 2)) // most) for count in set(on.values())}


def _spread_raw(
    snapshot: SchedulerSnapshot, use: PodUse, rules: list[TopologySpread], candidates: list[int]
) -> dict[int, int]:
    """Of those candidates that have the labels of all rules."""
    nodes = snapshot.order
    weighed = [i for i in candidates if all(rule.topology_key in nodes[i].labels for rule in rules)]
    raw = dict.fromkeys(weighed, 0.0)
    for rule in rules:
        key = rule.topology_key
        if key == HOSTNAME:  # every pod there counts, whatever the rule says of nodes
            selector = with_label_keys(rule.selector, use.labels, rule.label_keys)
            by_node = snapshot.count((use.key[0],), selector, leaving=False).by_node if selector else {}
            counts = {nodes[i].labels[key]: by_node.get(nodes[i].name, 0) for i in weighed}
            weight = math.log(len(weighed) + 2)
        else:
            counts = _domain_counts(snapshot, use.key[0], use.labels, use.needs, rule, rules)
            weight = math.log(len({nodes[i].labels[key] for i in weighed}) + 2)
        for i in weighed:
            raw[i] += counts.get(nodes[i].labels[key], 0) * weight + rule.max_skew - 1
    return {i: round(value) for i, value in raw.items()}
