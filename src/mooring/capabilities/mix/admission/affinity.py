"""Put a class into a pod's own scheduling rules without widening or breaking them.

Terms of a required node affinity are ORed, what stands inside one is ANDed, and the nodeSelector is ANDed on top. So:

- on-demand is *required*: its expression goes into every term of the user's. As a term of its own it would be an
  alternative to theirs, and both rules would be void;
- a term with nothing in it matches no node. It stays as it is: an expression inside it would make it match;
- spot is *preferred*: appended to the list, so that a pod finds its way to on-demand when spot is gone;
- what is there already is not added again;
- a pod that its own rules tie to spot cannot be on-demand: it is left as it is, and says so (`Conflict`).

Several label schemes in one cluster are alternatives: every term of the user's is written once for each of them.

The promise: a node that matches the pod afterwards matched it before, and a pod made on-demand matches only nodes
whose capacity label says on-demand.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from mooring.core.model.capacity import ANY, CapacityLabel, CapacityRules, NodeClass
from mooring.core.model.cluster import NO_LABELS, Requirement, SelectorTerm, Toleration

#: One operation: op, path, value.
Operation = dict[str, Any]


def pointer(*keys: str | int) -> str:
    """`/metadata/labels/vacant.io~1slot`: `~` and `/` inside a key are escaped."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> Operation:
    return {"op": "remove", "path": path}


def entries(
    parent: str, have: Mapping[str, str] | None, want: Mapping[str, str], unwanted: tuple[str, ...] = ()
) -> list[Operation]:
    """Make the map at `parent` say `want` and none of `unwanted`, and leave everything else in it as it is."""
    if have is None:
        return [add(parent, dict(want))] if want else []
    operations = [add(parent + pointer(key), value) for key, value in want.items() if have.get(key) != value]
    operations += [remove(parent + pointer(key)) for key in unwanted if key in have and key not in want]
    return operations


def append(parent: str, have: list[Any] | None, values: list[Any]) -> list[Operation]:
    """Append to the list at `parent`, which is made if there is none."""
    if not values:
        return []
    if have is None:
        return [add(parent, values)]
    return [add(f"{parent}/-", value) for value in values]


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
    topology_spread_constraints: list[dict[str, Any]] | None = None
    #: Not for placement: who responds to a request for its eviction (1.37).
    eviction_responders: list[dict[str, Any]] | None = None
    scheduling_group: dict[str, Any] | None = None


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


class Written(msgspec.Struct, frozen=True):
    """What is written for each class: alternatives, each a conjunction. A node may be told by one of several labels (an
    EKS node group beside Karpenter), so there is one for each scheme that the cluster's nodes use."""

    capacity: CapacityRules
    on_demand: tuple[tuple[Requirement, ...], ...]
    spot: tuple[tuple[Requirement, ...], ...]

    def of(self, node_class: NodeClass) -> tuple[tuple[Requirement, ...], ...]:
        return self.on_demand if node_class is NodeClass.ON_DEMAND else self.spot


def written(capacity: CapacityRules, schemes: Iterable[CapacityLabel] = ()) -> Written:
    """`schemes`: the labels in use, of those configured; without any, the first."""
    labels = [one for one in capacity.labels if one in tuple(schemes)] or [capacity.labels[0]]
    mine = [one for one in labels if one.ondemand_values] or labels[:1]
    on_demand = tuple((requirement(one, NodeClass.ON_DEMAND), *_not_spot(one, labels, capacity)) for one in mine)
    mine = [one for one in labels if one.spot_values] or labels[:1]
    return Written(capacity, on_demand, tuple((requirement(one, NodeClass.SPOT),) for one in mine))


def _not_spot(label: CapacityLabel, labels: list[CapacityLabel], capacity: CapacityRules) -> Iterator[Requirement]:
    """Spot by any label is spot. A label that stands on every node says nothing alone, whether or not there are spot
    nodes just now."""
    for other in capacity.labels if ANY in label.ondemand_values else labels:
        if other is not label and other.spot_values:
            if ANY in other.spot_values:
                yield Requirement(other.key, "DoesNotExist")
            else:
                yield Requirement(other.key, "NotIn", other.spot_values)


@lru_cache(maxsize=16)
def ours(capacity: CapacityRules) -> frozenset[Requirement]:
    """Every expression that may have been written into a pod's required terms."""
    alone = {requirement(one, NodeClass.ON_DEMAND) for one in capacity.labels}
    beside = {one for label in capacity.labels for one in _not_spot(label, list(capacity.labels), capacity)}
    return frozenset(alone | beside)


def own_terms(terms: tuple[SelectorTerm, ...] | None, capacity: CapacityRules) -> tuple[SelectorTerm, ...] | None:
    """What the user requires, without what we added when the pod was admitted."""
    if terms is None:
        return None
    left: dict[SelectorTerm, None] = {}
    for term in terms:
        theirs = tuple(one for one in term.expressions if one not in ours(capacity))
        if theirs != term.expressions and not theirs and not term.fields:
            return None
        left[SelectorTerm(theirs, term.fields)] = None
    return tuple(left)


def require(rules: PodRules, classes: Written) -> list[Operation] | AffinityConflict:
    """Bind the pod to on-demand nodes."""
    selector, capacity = rules.node_selector or NO_LABELS, classes.capacity
    possible = [one for one in classes.on_demand if not _selector_denies(selector, one, capacity, NodeClass.SPOT)]
    if not possible:
        return AffinityConflict("its nodeSelector asks for spot nodes, its slot is on-demand")
    required = _node_affinity(rules).get(REQUIRED)
    if required is None:
        return _set(rules, REQUIRED, {"nodeSelectorTerms": [{"matchExpressions": _plains(one)} for one in possible]})
    theirs = required.get("nodeSelectorTerms") or ()
    if not any(_is_filled(term) for term in theirs):
        return AffinityConflict("its required node affinity matches no node")
    places = [_places(term, possible, capacity) if _is_filled(term) else [] for term in theirs]
    if not any(places):
        return AffinityConflict("its required node affinity asks for spot nodes, its slot is on-demand")
    path = f"/spec/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms"
    if all(len(one) <= 1 for one in places):
        operations: list[Operation] = []
        for i, (term, one) in enumerate(zip(theirs, places, strict=True)):
            if _is_filled(term):
                have = term.get("matchExpressions")
                operations += append(f"{path}/{i}/matchExpressions", have, _missing(term, (one or possible)[0]))
        return operations
    crossed: list[Any] = []
    for term, mine in zip(theirs, places, strict=True):
        have = term.get("matchExpressions") or []
        # A term that only spot nodes match, or none, stays one that no on-demand pod can use.
        anyway = mine or (possible[:1] if _is_filled(term) else [])
        crossed += [{**term, "matchExpressions": [*have, *_missing(term, one)]} for one in anyway] or [term]
    return [{"op": "replace", "path": path, "value": crossed}]


def _is_filled(term: Mapping[str, Any]) -> bool:
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def _missing(term: Mapping[str, Any], wanted: Iterable[Requirement]) -> list[dict[str, Any]]:
    have = term.get("matchExpressions") or ()
    return [one for one in _plains(wanted) if one not in have]


def _places(
    term: Mapping[str, Any], possible: list[tuple[Requirement, ...]], capacity: CapacityRules
) -> list[tuple[Requirement, ...]]:
    """The alternatives that nodes of this term may satisfy; the one that is in it already, alone."""
    there = [one for one in possible if not _missing(term, one)]
    given = [_requirement(one) for one in term.get("matchExpressions") or ()]
    fits = [one for one in possible if not _denies(given, one, capacity, NodeClass.SPOT)]
    return there[:1] if there and there[0] in fits else fits


def stays_off_spot(rules: PodRules, classes: Written) -> bool:
    """Whether the pod's own rules let it onto no spot node: a preference for spot would have no effect."""
    selector, capacity, other = rules.node_selector or NO_LABELS, classes.capacity, NodeClass.ON_DEMAND
    possible = [one for one in classes.spot if not _selector_denies(selector, one, capacity, other)]
    if not possible:
        return True
    terms = (_node_affinity(rules).get(REQUIRED) or {}).get("nodeSelectorTerms") or ()
    filled = [[_requirement(e) for e in term.get("matchExpressions") or ()] for term in terms if term]
    return bool(filled) and all(_denies(given, one, capacity, other) for given in filled for one in possible)


def prefer(rules: PodRules, classes: Written, wanted: NodeClass) -> list[Operation]:
    """Draw the pod to nodes of this class; it may go elsewhere."""
    preferred = _node_affinity(rules).get(PREFERRED)
    asked = [{"matchExpressions": _plains(one)} for one in classes.of(wanted)]
    there = [term.get("preference") for term in preferred or ()]
    terms = [{"weight": WEIGHT, "preference": one} for one in asked if one not in there]
    if preferred is None:
        return _set(rules, PREFERRED, terms)
    return [add(f"/spec/affinity/nodeAffinity/{PREFERRED}/-", term) for term in terms]


def tolerate(rules: PodRules, tolerations: Iterable[Toleration]) -> list[Operation]:
    wanted = [_plain_toleration(toleration) for toleration in tolerations]
    have = rules.tolerations
    return append("/spec/tolerations", have, [t for t in wanted if t not in (have or ())])


# ── Contradictions ────────────────────────────────────────────────────────────────────────────────────────────────


def _selector_denies(
    selector: Mapping[str, str], wanted: tuple[Requirement, ...], capacity: CapacityRules, other: NodeClass
) -> bool:
    if any(one.key in selector and not one.matches(selector) for one in wanted):
        return True
    return any(label.class_of(selector) is other for label in capacity.labels)


def _denies(
    expressions: Iterable[Requirement], wanted: tuple[Requirement, ...], capacity: CapacityRules, other: NodeClass
) -> bool:
    """Whether only nodes of the other class can satisfy all of these."""
    return any(
        any(_denies_one(e, one) for one in wanted)
        or any(_only(other, e, label) for label in capacity.labels if label.key == e.key)
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


def _plains(wanted: Iterable[Requirement]) -> list[dict[str, Any]]:
    return [_plain(one) for one in wanted]


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
