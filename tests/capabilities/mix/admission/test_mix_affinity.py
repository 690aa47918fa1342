"""Merging a class into arbitrary scheduling rules, checked against the meaning of those rules."""

import json

import jsonpatch
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.capabilities.mix.admission.affinity import (
    PREFERRED,
    REQUIRED,
    AffinityConflict,
    PodRules,
    entries,
    own_terms,
    pointer,
    prefer,
    require,
    stays_off_spot,
    tolerate,
    written,
)
from mooring.core.model.capacity import CapacityLabel, CapacityRules, NodeClass
from mooring.core.model.cluster import Requirement, SelectorTerm, Toleration

CAPACITY = "node.kubernetes.io/capacity"
RULES = written(CapacityRules())
ON_DEMAND = {"key": CAPACITY, "operator": "In", "values": ["on-demand"]}
SPOT = {"key": CAPACITY, "operator": "In", "values": ["spot"]}


def expressions():
    keys = st.sampled_from([CAPACITY, "zone", "karpenter.sh/capacity-type"])
    values = st.lists(st.sampled_from(["spot", "on-demand", "a"]), min_size=1, max_size=2, unique=True)
    listed = st.builds(
        lambda k, o, v: {"key": k, "operator": o, "values": v}, keys, st.sampled_from(["In", "NotIn"]), values
    )
    bare = st.builds(lambda k, o: {"key": k, "operator": o}, keys, st.sampled_from(["Exists", "DoesNotExist"]))
    return st.one_of(listed, bare)


def terms():
    some = st.lists(expressions(), max_size=2)
    fields = st.just([{"key": "metadata.name", "operator": "In", "values": ["n1"]}])
    return st.one_of(
        st.just({}),
        st.builds(lambda e: {"matchExpressions": e}, some),
        st.builds(lambda e, f: {"matchExpressions": e, "matchFields": f}, some, fields),
        st.builds(lambda f: {"matchFields": f}, fields),
    )


def specs():
    required = st.one_of(
        st.none(), st.builds(lambda t: {"nodeSelectorTerms": t}, st.lists(terms(), min_size=1, max_size=3))
    )
    preferred = st.one_of(
        st.none(),
        st.lists(
            st.builds(lambda e: {"weight": 1, "preference": {"matchExpressions": [e]}}, expressions()), max_size=2
        ),
    )
    node_affinity = st.builds(
        lambda r, p: ({REQUIRED: r} if r is not None else {}) | ({PREFERRED: p} if p is not None else {}),
        required,
        preferred,
    )
    affinity = st.one_of(
        st.none(), st.just({"podAffinity": {}}), st.builds(lambda n: {"nodeAffinity": n}, node_affinity)
    )
    selector = st.one_of(
        st.none(), st.dictionaries(st.sampled_from([CAPACITY, "zone"]), st.sampled_from(["spot", "a"]))
    )
    return st.builds(
        lambda a, s: (
            {"containers": []} | ({"affinity": a} if a is not None else {}) | ({"nodeSelector": s} if s else {})
        ),
        affinity,
        selector,
    )


NODES = [
    (name, {k: v for k, v in {CAPACITY: capacity, "zone": zone, "karpenter.sh/capacity-type": karpenter}.items() if v})
    for name in ("n1", "n2")
    for capacity in ("spot", "on-demand", None)
    for zone in ("a", "spot", None)
    for karpenter in ("spot", "on-demand", None)
]


def matches(spec, name, labels) -> bool:
    """What kube-scheduler requires of a node."""
    if any(labels.get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()):
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    if required is None:
        return True

    def side(found):
        return tuple(Requirement(e["key"], e["operator"], tuple(e.get("values", ()))) for e in found or ())

    return any(
        SelectorTerm(side(t.get("matchExpressions")), side(t.get("matchFields"))).matches(labels, name)
        for t in required["nodeSelectorTerms"]
    )


def rules_of(spec) -> PodRules:
    return PodRules(
        node_selector=spec.get("nodeSelector"), affinity=spec.get("affinity"), tolerations=spec.get("tolerations")
    )


def applied(spec, operations):
    return jsonpatch.apply_patch({"spec": json.loads(json.dumps(spec))}, json.loads(json.dumps(operations)))["spec"]


@settings(max_examples=300, deadline=None)
@given(spec=specs())
def test_on_demand_never_widens_and_always_binds(spec):
    """M3: a node that matches afterwards matched before and says on-demand; nothing satisfiable becomes impossible."""
    found = require(rules_of(spec), RULES)
    could = [n for n in NODES if matches(spec, *n) and n[1].get(CAPACITY) == "on-demand"]
    if isinstance(found, AffinityConflict):
        assert not [n for n in could if n[1].get("karpenter.sh/capacity-type") != "spot"]
        return
    after = applied(spec, found)
    assert [n for n in NODES if matches(after, *n)] == could
    assert require(rules_of(after), RULES) == []


@settings(max_examples=200, deadline=None)
@given(spec=specs())
def test_spot_changes_no_requirement(spec):
    """M3: prefer-spot leaves what is required as it was, keeps the user's preferences in order, and is added once."""
    after = applied(spec, prefer(rules_of(spec), RULES, NodeClass.SPOT))
    assert [matches(after, *n) for n in NODES] == [matches(spec, *n) for n in NODES]
    before = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(PREFERRED) or []
    preferred = after["affinity"]["nodeAffinity"][PREFERRED]
    assert preferred[: len(before)] == before
    assert sum(t["preference"] == {"matchExpressions": [SPOT]} for t in preferred) >= 1
    assert prefer(rules_of(after), RULES, NodeClass.SPOT) == []
    assert {k: v for k, v in after.items() if k != "affinity"} == {k: v for k, v in spec.items() if k != "affinity"}


@settings(max_examples=200, deadline=None)
@given(spec=specs())
def test_who_is_said_to_stay_off_spot_does(spec):
    """M9: the warning about rules that exclude spot is never raised where a spot node would do."""
    if stays_off_spot(rules_of(spec), RULES):
        spot = [n for n in NODES if n[1].get(CAPACITY) == "spot" and n[1].get("karpenter.sh/capacity-type") == "spot"]
        assert not [n for n in spot if matches(spec, *n)]


def test_rules_that_exclude_spot():
    """M9: by selector, by every term, by another scheme's label; not by one term of two, nor by a preference."""

    def required(*terms):
        return PodRules(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}})

    on_demand, zone = {"matchExpressions": [ON_DEMAND]}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    not_spot = {"matchExpressions": [{"key": CAPACITY, "operator": "NotIn", "values": ["spot"]}]}
    assert stays_off_spot(PodRules(node_selector={CAPACITY: "on-demand"}), RULES)
    assert stays_off_spot(PodRules(node_selector={"karpenter.sh/capacity-type": "reserved"}), RULES)
    assert stays_off_spot(required(on_demand), RULES) and stays_off_spot(required(on_demand, not_spot), RULES)
    assert not stays_off_spot(required(on_demand, zone), RULES)
    assert not stays_off_spot(PodRules(node_selector={"zone": "a"}), RULES)
    assert not stays_off_spot(PodRules(), RULES)


def test_what_is_written_is_the_designs():
    """M3: required In [on-demand], preferred In [spot] with weight 100, where a pod has no rules of its own."""
    assert applied({}, require(PodRules(), RULES))["affinity"]["nodeAffinity"] == {
        REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [ON_DEMAND]}]}
    }
    assert applied({}, prefer(PodRules(), RULES, NodeClass.SPOT))["affinity"]["nodeAffinity"] == {
        PREFERRED: [{"weight": 100, "preference": {"matchExpressions": [SPOT]}}]
    }


def test_every_term_is_bound_and_an_empty_one_stays_empty():
    """M3: the requirement goes into each of the user's terms, since terms are ORed; an empty term is left alone."""
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [z]}]} for z in ("a", "b")]
    spec = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [zones[0], {}, zones[1]]}}}}
    after = applied(spec, require(rules_of(spec), RULES))
    found = after["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert found == [
        {"matchExpressions": [*zones[0]["matchExpressions"], ON_DEMAND]},
        {},
        {"matchExpressions": [*zones[1]["matchExpressions"], ON_DEMAND]},
    ]


def test_a_pod_tied_to_spot_is_a_conflict():
    """M9: the user's own word wins: by nodeSelector, by every term, by another scheme's label, or by matching nothing."""
    tied = [
        {"nodeSelector": {CAPACITY: "spot"}},
        {"nodeSelector": {"karpenter.sh/capacity-type": "spot"}},
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [SPOT]}]}}}},
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}},
    ]
    for spec in tied:
        assert isinstance(require(rules_of(spec), RULES), AffinityConflict), spec


def test_other_label_schemes():
    """M3: a scheme that labels only its spot nodes makes on-demand `NotIn`; a label by mere presence, `DoesNotExist`."""
    gke = CapacityRules(labels=(CapacityLabel("cloud.google.com/gke-spot", ("true",)),))
    after = applied({}, require(PodRules(), written(gke)))["affinity"]["nodeAffinity"]
    expression = {"key": "cloud.google.com/gke-spot", "operator": "NotIn", "values": ["true"]}
    assert after == {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    role = CapacityRules(labels=(CapacityLabel("node-role.kubernetes.io/spot-worker", ("*",)),))
    after = applied({}, require(PodRules(), written(role)))["affinity"]["nodeAffinity"]
    expression = {"key": "node-role.kubernetes.io/spot-worker", "operator": "DoesNotExist"}
    assert after == {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


KARPENTER, EKS, POOL = "karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType", "cloud.google.com/gke-nodepool"
BOTH = [one for one in CapacityRules().labels if one.key in {CAPACITY, KARPENTER}]


@settings(max_examples=300, deadline=None)
@given(spec=specs())
def test_with_two_schemes_on_demand_is_any_of_them_in_every_term(spec):
    """M11: a node matches afterwards if and only if it matched before and one of the schemes says on-demand, none spot;
    a second call adds nothing."""
    two = written(CapacityRules(), BOTH)
    could = [n for n in NODES if matches(spec, *n) and CapacityRules().class_of(n[1]) is NodeClass.ON_DEMAND]
    found = require(rules_of(spec), two)
    if isinstance(found, AffinityConflict):
        assert not could
        return
    after = applied(spec, found)
    assert [n for n in NODES if matches(after, *n)] == could
    assert require(rules_of(after), two) == []


def test_a_scheme_for_each_kind_of_node_there_is():
    """M11: an EKS node group beside Karpenter: alternatives, once per term of the user's; spot is preferred by either."""
    capacity = CapacityRules()
    eks = written(capacity, [one for one in capacity.labels if one.key in {KARPENTER, EKS}])
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    spec = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}}}
    after = applied(spec, require(rules_of(spec), eks))["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert after == [
        {
            "matchExpressions": [
                zone,
                {"key": KARPENTER, "operator": "In", "values": ["on-demand", "reserved"]},
                {"key": EKS, "operator": "NotIn", "values": ["SPOT"]},
            ]
        },
        {
            "matchExpressions": [
                zone,
                {"key": EKS, "operator": "In", "values": ["ON_DEMAND", "CAPACITY_BLOCK"]},
                {"key": KARPENTER, "operator": "NotIn", "values": ["spot"]},
            ]
        },
    ]
    preferred = applied({}, prefer(PodRules(), eks, NodeClass.SPOT))["affinity"]["nodeAffinity"][PREFERRED]
    assert [one["preference"]["matchExpressions"][0]["key"] for one in preferred] == [KARPENTER, EKS]


def test_a_label_that_every_node_has_counts_only_beside_what_says_spot():
    """M11: GKE labels its spot nodes, and every node with its pool; spot nodes may come after the pod."""
    capacity = CapacityRules()
    gke = written(capacity, [one for one in capacity.labels if one.key == POOL])
    spot = {POOL: "p", "cloud.google.com/gke-spot": "true"}
    after = applied({}, require(PodRules(), gke))
    assert matches(after, "n", {POOL: "p"}) and not matches(after, "s", spot) and not matches(after, "x", {})


def test_what_we_wrote_is_told_from_what_the_user_wrote():
    """M11, M10: the room check and a rehearsal ask by the user's own rules, whichever schemes were in use."""
    zone = Requirement("zone", "In", ("a",))
    for schemes in (BOTH, (), [one for one in CapacityRules().labels if one.key == POOL]):
        two = written(CapacityRules(), schemes)
        theirs = tuple(SelectorTerm((zone, *one)) for one in two.on_demand)
        assert own_terms(theirs, CapacityRules()) == (SelectorTerm((zone,)),)
        assert own_terms(tuple(SelectorTerm(one) for one in two.on_demand), CapacityRules()) is None


def test_tolerations_are_appended_once():
    """M3: tolerations come on top of the user's, and not twice."""
    wanted = [Toleration(CAPACITY, "Equal", "spot", "NoSchedule")]
    for have in (None, [{"operator": "Exists"}]):
        spec = {} if have is None else {"tolerations": have}
        after = applied(spec, tolerate(rules_of(spec), wanted))
        assert after["tolerations"] == [
            *(have or []),
            {"key": CAPACITY, "operator": "Equal", "value": "spot", "effect": "NoSchedule"},
        ]
        assert tolerate(rules_of(after), wanted) == []


@settings(deadline=None)
@given(
    have=st.one_of(st.none(), st.dictionaries(st.sampled_from(["a/b", "c~d", "~1", "x"]), st.text(max_size=3))),
    want=st.dictionaries(st.sampled_from(["a/b", "c~d", "e~/f"]), st.text(max_size=3)),
)
def test_patching_a_map(have, want):
    """A patch of labels sets what is wanted, removes what is not, and keeps the rest, whatever the keys look like."""
    before = {"metadata": {} if have is None else {"labels": dict(have)}}
    operations = entries("/metadata/labels", have, want, ("x", "c~d"))
    after = jsonpatch.apply_patch(before, operations)["metadata"].get("labels") or {}
    unwanted = {"x", "c~d"} - set(want)
    assert after == {k: v for k, v in ((have or {}) | want).items() if k not in unwanted}


def test_pointer_escapes():
    """RFC 6901: ~ becomes ~0 and / becomes ~1, in this order."""
    assert pointer("metadata", "annotations", "vacant.io/a~b", 0) == "/metadata/annotations/vacant.io~1a~0b/0"
