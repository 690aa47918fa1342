"""Which of the configured label schemes the nodes of this cluster use: an EKS node group tells spot by another label
than Karpenter beside it, and what is written into pods names both. And what the doctor says of nodes that no scheme
classifies, and of pods that can match none."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mooring.capabilities.mix.admission.affinity import PodRules, Written, written
from mooring.capabilities.mix.labels import AFFINITY
from mooring.capabilities.mix.policy import MixPolicy
from mooring.core.model.capacity import CapacityLabel, CapacityRules, NodeClass
from mooring.core.model.cluster import NO_LABELS, Node, Pod, Toleration, Workload
from mooring.core.model.descriptor import Examined
from mooring.core.model.events import Change, Trigger
from mooring.core.model.finding import Finding, ill, well
from mooring.core.model.kinds import Kind
from mooring.core.world.read import WorldRead

#: It may make nodes before there is one.
_KARPENTER: Final = "karpenter"
_KARPENTERS: Final = "karpenter.sh/"
_HOSTNAME: Final = "kubernetes.io/hostname"
_SHOWN: Final = 3
CODES: Final[Mapping[str, str]] = {
    "MO404": "Nodes are neither spot nor on-demand by any label",
    "MO405": "Pods can match no node by the labels that they require",
}


def in_use(labels: Mapping[str, str], capacity: CapacityRules) -> tuple[CapacityLabel, ...]:
    """The schemes that classify a node with these labels."""
    return tuple(one for one in capacity.labels if one.class_of(labels) is not NodeClass.UNKNOWN)


class Schemes:
    """An index of the world: what is written into pods, by the labels that nodes have now."""

    observes: frozenset[object] = frozenset({Kind.NODE, Kind.DEPLOYMENT})

    def __init__(self, policy: MixPolicy) -> None:
        self._policy = policy
        self._nodes: Counter[CapacityLabel] = Counter()
        self._karpenters: set[str] = set()
        self._write(())

    def _write(self, schemes: Iterable[CapacityLabel]) -> None:
        self._schemes = tuple(schemes)
        self.written: Written = written(self._policy.capacity, self._schemes)
        self.tolerations: tuple[Toleration, ...] = self._policy.tolerations(self._schemes)

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        assert isinstance(trigger, Change)
        old, new = trigger.old, trigger.new
        if trigger.kind is Kind.NODE:
            before = old.labels if isinstance(old, Node) else NO_LABELS
            after = new.labels if isinstance(new, Node) else NO_LABELS
            if before is after:
                return
            self._nodes.subtract(in_use(before, self._policy.capacity))
            self._nodes.update(in_use(after, self._policy.capacity))
        elif trigger.key.name == _KARPENTER:
            uids = {row.uid for row in (old, new) if isinstance(row, Workload)}
            self._karpenters -= uids
            self._karpenters |= uids if new is not None else set()
        else:
            return
        found = tuple(
            one
            for one in self._policy.capacity.labels
            if self._nodes[one] > 0 or (self._karpenters and one.key.startswith(_KARPENTERS))
        )
        if found != self._schemes:
            self._write(found)

    def advance(self) -> bool:
        return False


def narrowed(rules: PodRules, world: WorldRead) -> Mapping[str, tuple[int, int]]:
    """Of the topology keys that a template spreads over: how many domains on-demand nodes have, of how many, where
    those are fewer."""
    keys = {one.get("topologyKey", "") for one in rules.topology_spread_constraints or ()}
    found = {}
    for key in keys:
        all_ = {node.labels[key] for node in world.nodes() if key in node.labels}
        few = {node.labels[key] for node in world.nodes_of_class(NodeClass.ON_DEMAND) if key in node.labels}
        if len(few) < len(all_) and key != _HOSTNAME:
            found[key] = (len(few), len(all_))
    return found


def examine(seen: Examined) -> Iterator[Finding]:
    """Nodes that no scheme classifies are never counted and never chosen."""
    if not seen.on or not seen.nodes:
        return
    policy = seen.config.policy(MixPolicy)
    capacity: CapacityRules = policy.capacity
    unknown = [n.name for n in seen.nodes if capacity.class_of(n.labels) is NodeClass.UNKNOWN]
    if unknown:
        told = f"no label of mix.capacity.labels says what {_named(unknown)} is: mix counts on none of them"
        fix = f"kubectl label node {unknown[0]} {capacity.labels[0].key}=on-demand   (or spot)"
        yield ill("mix", "MO404", "every node is spot or on-demand", told, fix, warning=True)
    else:
        keys = {one.key for node in seen.nodes for one in in_use(node.labels, capacity)}
        yield well("mix", f"{len(seen.nodes)} nodes are told apart by {', '.join(sorted(keys)) or 'mix.capacity'}")
    lost = [str(pod.key) for pod in seen.pods if _matches_none(pod, seen.nodes)]
    if lost:
        told = f"no node has the labels that {_named(lost)} require{'s' if len(lost) == 1 else ''}"
        fix = "kubectl get nodes --show-labels   (then label nodes, or correct mix.capacity.labels)"
        yield ill("mix", "MO405", "every pod of mix has nodes that it may go to", told, fix, warning=True)


def _matches_none(pod: Pod, nodes: tuple[Node, ...]) -> bool:
    terms = pod.shape.required_terms
    if pod.node or not pod.active or AFFINITY not in pod.labels or terms is None:
        return False
    return not any(term.matches(node.labels, node.name) for node in nodes for term in terms)


def _named(names: list[str]) -> str:
    return ", ".join(sorted(names)[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
