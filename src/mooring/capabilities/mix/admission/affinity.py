"""Put a class into a pod's own scheduling rules without widening or breaking them.

Terms of a required node affinity are ORed, what stands inside one is ANDed, and the nodeSelector is ANDed on top. So:

- on-demand is *required*: its expression goes into every term of the user's. As a term of its own it would be an
  alternative to theirs, and both rules would be void;
- a term with nothing in it matches no node. It stays as it is: an expression inside it would make it match;
- spot is *preferred*: appended to the list, so that a pod finds its way to on-demand when spot is gone;
- what is there already is not added again;
- a pod that its own rules tie to spot cannot be on-demand: it is left as it is, and says so (`Conflict`).

The promise: a node that matches the pod afterwards matched it before, and a pod made on-demand matches only nodes
whose capacity label says on-demand.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from mooring.capabilities.mix.admission.patching import Operation, add, append
from mooring.core.model.capacity import ANY, CapacityLabel, CapacityRules, NodeClass
from mooring.core.model.cluster import NO_LABELS, Requirement, Toleration

#: Against the user's own preferences; alone, any weight is the same.
WEIGHT: Final = 100
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class PodRules(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a pod's spec that says where it may go, as it came."""

    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: dict[str, Any] | None = None
    tolerations: list[dict[str, Any]] | None = None


class AffinityConflict(msgspec.Struct, frozen=True):
    """Why the class cannot be given, in words."""

    why: str


def requirement(label: CapacityLabel, wanted: NodeClass) -> Requirement:
    """The expression that says `wanted` in terms of one node label. A class without a value of its own is the rest."""
    mine, others = label.ondemand_values, label.spot_values
    if wanted is NodeClass.SPOT:
        mine, others = others, mine
    if ANY in mine:
        return Requirement(label.key, "Exists")
    if mine:
        return Requirement(label.key, "In", mine)
    if ANY in others:
        return Requirement(label.key, "DoesNotExist")
    return Requirement(label.key, "NotIn", others)


def require(rules: PodRules, capacity: CapacityRules) -> list[Operation] | AffinityConflict:
    """Bind the pod to on-demand nodes."""
    wanted = requirement(capacity.labels[0], NodeClass.ON_DEMAND)
    expression = _plain(wanted)
    if _selector_denies(rules.node_selector or NO_LABELS, wanted, capacity, NodeClass.SPOT):
        return AffinityConflict("its nodeSelector asks for spot nodes, its slot is on-demand")
    required = _node_affinity(rules).get(REQUIRED)
    if required is None:
        return _set(rules, REQUIRED, {"nodeSelectorTerms": [{"matchExpressions": [expression]}]})
    operations: list[Operation] = []
    possible = False
    terms = f"/spec/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms"
    filled = [
        (i, term)
        for i, term in enumerate(required.get("nodeSelectorTerms") or ())
        if term.get("matchExpressions") or term.get("matchFields")
    ]
    if not filled:
        return AffinityConflict("its required node affinity matches no node")
    for i, term in filled:
        expressions = term.get("matchExpressions")
        if expression not in (expressions or ()):
            operations += append(f"{terms}/{i}/matchExpressions", expressions, [expression])
        possible = possible or not _denies(map(_requirement, expressions or ()), wanted, capacity, NodeClass.SPOT)
    if not possible:
        return AffinityConflict("its required node affinity asks for spot nodes, its slot is on-demand")
    return operations


def stays_off_spot(rules: PodRules, capacity: CapacityRules) -> bool:
    """Whether the pod's own rules let it onto no spot node: a preference for spot would have no effect."""
    wanted, other = requirement(capacity.labels[0], NodeClass.SPOT), NodeClass.ON_DEMAND
    if _selector_denies(rules.node_selector or NO_LABELS, wanted, capacity, other):
        return True
    terms = (_node_affinity(rules).get(REQUIRED) or {}).get("nodeSelectorTerms") or ()
    filled = [map(_requirement, term.get("matchExpressions") or ()) for term in terms if term]
    return bool(filled) and all(_denies(expressions, wanted, capacity, other) for expressions in filled)


def prefer(rules: PodRules, capacity: CapacityRules, wanted: NodeClass) -> list[Operation]:
    """Draw the pod to nodes of this class; it may go elsewhere."""
    preference = {"matchExpressions": [_plain(requirement(capacity.labels[0], wanted))]}
    preferred = _node_affinity(rules).get(PREFERRED)
    if any(term.get("preference") == preference for term in preferred or ()):
        return []
    term = {"weight": WEIGHT, "preference": preference}
    if preferred is None:
        return _set(rules, PREFERRED, [term])
    return [add(f"/spec/affinity/nodeAffinity/{PREFERRED}/-", term)]


def tolerate(rules: PodRules, tolerations: Iterable[Toleration]) -> list[Operation]:
    wanted = [_plain_toleration(toleration) for toleration in tolerations]
    have = rules.tolerations
    return append("/spec/tolerations", have, [t for t in wanted if t not in (have or ())])


# ── Contradictions ────────────────────────────────────────────────────────────────────────────────────────────────


def _selector_denies(
    selector: Mapping[str, str], wanted: Requirement, capacity: CapacityRules, other: NodeClass
) -> bool:
    if wanted.key in selector and not wanted.matches(selector):
        return True
    return any(label.class_of(selector) is other for label in capacity.labels)


def _denies(expressions: Iterable[Requirement], wanted: Requirement, capacity: CapacityRules, other: NodeClass) -> bool:
    """Whether only nodes of the other class can satisfy all of these."""
    return any(
        _denies_one(e, wanted) or any(_only(other, e, label) for label in capacity.labels if label.key == e.key)
        for e in expressions
    )


def _denies_one(given: Requirement, wanted: Requirement) -> bool:
    if given.key != wanted.key:
        return False
    match given.operator:
        case "In":
            return not any(wanted.matches({given.key: value}) for value in given.values)
        case "NotIn":
            return wanted.operator == "In" and set(wanted.values) <= set(given.values)
        case "DoesNotExist":
            return not wanted.matches(NO_LABELS)
        case "Exists":
            return wanted.operator == "DoesNotExist"
        case _:
            return False


def _only(node_class: NodeClass, given: Requirement, label: CapacityLabel) -> bool:
    """Whether every node that satisfies `given` is of this class by this label."""
    if given.operator == "Exists":
        return ANY in (label.spot_values if node_class is NodeClass.SPOT else label.ondemand_values)
    return (
        given.operator == "In"
        and bool(given.values)
        and all(label.class_of({label.key: value}) is node_class for value in given.values)
    )


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _node_affinity(rules: PodRules) -> dict[str, Any]:
    found: dict[str, Any] = (rules.affinity or {}).get("nodeAffinity") or {}
    return found


def _set(rules: PodRules, key: str, value: Any) -> list[Operation]:
    """Add one key of the node affinity, with whatever parents are absent."""
    if rules.affinity is None:
        return [add("/spec/affinity", {"nodeAffinity": {key: value}})]
    if rules.affinity.get("nodeAffinity") is None:
        return [add("/spec/affinity/nodeAffinity", {key: value})]
    return [add(f"/spec/affinity/nodeAffinity/{key}", value)]


def _plain(requirement: Requirement) -> dict[str, Any]:
    plain: dict[str, Any] = {"key": requirement.key, "operator": requirement.operator}
    if requirement.values:
        plain["values"] = list(requirement.values)
    return plain


def _requirement(plain: Mapping[str, Any]) -> Requirement:
    return Requirement(plain.get("key", ""), plain.get("operator", ""), tuple(plain.get("values") or ()))


def _plain_toleration(toleration: Toleration) -> dict[str, Any]:
    plain: dict[str, Any] = {"key": toleration.key, "operator": toleration.operator}
    if toleration.operator != "Exists":
        plain["value"] = toleration.value
    if toleration.effect:
        plain["effect"] = toleration.effect
    if toleration.seconds is not None:
        plain["tolerationSeconds"] = toleration.seconds
    return plain
