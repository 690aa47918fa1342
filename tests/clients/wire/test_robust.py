import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.clients.wire.kube import KINDS, decode, decode_list, project
from mooring.core.model.kinds import RESOURCES, Kind

words = st.text("a1-/%.", max_size=6)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["name", "labels", "annotations", "ownerReferences", "replicas", "containers", "conditions", "taints", "tikv"]
FIELDS += ["members", "stores", "selector", "volumes", "affinity", "tolerations", "allocatable", "strategy", "data"]
part = st.dictionaries(st.sampled_from(FIELDS), anything, max_size=5) | anything
objects = st.fixed_dictionaries({}, optional={"metadata": part, "spec": part, "status": part, "data": anything})


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_nothing_given_nothing_broken(kind):
    """An object without a single field, or with nulls for all of them, becomes a row of defaults."""
    for given_object in ({}, {"metadata": None, "spec": None, "status": None}, {"metadata": {}, "spec": {}}):
        assert project(kind, given_object) == project(kind, {})
        assert decode(kind, json.dumps(given_object).encode()) == project(kind, {})


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(KINDS)), objects)
def test_no_object_raises(kind, obj):
    """Whatever the types inside, an object becomes a row, and alike from bytes and from plain values."""
    assert decode(kind, json.dumps(obj).encode()) == project(kind, obj)


def test_one_odd_object_does_not_cost_the_page():
    """The neighbours of an odd object are read in full, and of the odd one whatever makes sense."""
    items = [
        {"metadata": {"name": "odd", "uid": "1"}, "spec": {"nodeName": "n1", "containers": "many"}},
        {"metadata": {"name": "even", "uid": "2"}, "spec": {"nodeName": "n2"}},
    ]
    raw = json.dumps({"metadata": {"resourceVersion": "7"}, "items": items}).encode()
    found, version, token = decode_list(Kind.POD, raw)
    assert [(p.name, p.node) for p in found] == [("odd", "n1"), ("even", "n2")]
    assert (version, token) == ("7", "")


def test_an_empty_list():
    """Go writes an empty list as null; both forms are an empty page."""
    assert decode_list(Kind.NODE, b'{"metadata":{"resourceVersion":"7"},"items":null}') == ((), "7", "")
    assert decode_list(Kind.TIDB_CLUSTER, b'{"items":[]}') == ((), "", "")


def test_what_is_no_json_raises():
    """Half an answer is not an empty one."""
    with pytest.raises(msgspec.DecodeError):
        decode_list(Kind.POD, b'{"metadata":{"resourceVersion":"7"},"items":[{"meta')


def test_other_kinds_are_refused_by_name():
    """Asking for a kind that the world does not keep is a mistake of the caller, and says so."""
    with pytest.raises(ValueError, match="Lease is not a kind that the world keeps"):
        decode(Kind.LEASE, b"{}")
    assert set(KINDS) < set(RESOURCES)
