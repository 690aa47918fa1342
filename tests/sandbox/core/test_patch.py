"""Patches: compared with a library that does nothing else, and never in place."""

import copy

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.clients.ports import PatchType, RefusedError
from mooring_lab.cluster.apiserver.patch import PatchError, apply_patch, json_patch, merge_patch, strategic_patch

names = st.sampled_from(["a", "b", "c/d", "e~f"])
leaves = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["x", "y"])
documents = st.recursive(
    st.dictionaries(names, leaves, max_size=3),
    lambda inner: st.dictionaries(names, inner | leaves | st.lists(leaves | inner, max_size=3), max_size=3),
    max_leaves=12,
)


@given(documents, documents)
@settings(max_examples=150)
def test_json_patch_turns_one_document_into_another(left, right):
    """The patch that a library computes from A to B, applied here, gives B, and A is as it was."""
    before = copy.deepcopy(left)
    operations = jsonpatch.make_patch(left, right).patch
    assert json_patch(left, operations) == right
    assert left == before


@given(documents, documents)
@settings(max_examples=150)
def test_merge_patch_is_idempotent_and_pure(left, patch):
    """Applying a merge patch twice is applying it once; the target is not touched."""
    before = copy.deepcopy(left)
    once = merge_patch(left, patch)
    assert merge_patch(once, patch) == once
    assert left == before


def test_what_a_patch_does_not_touch_stays_the_same_object():
    """Copy-on-write: untouched parts are shared, not copied (a deep copy per write is five times slower)."""
    spec = {"containers": [{"name": "a"}]}
    obj = {"metadata": {"labels": {"x": "1"}}, "spec": spec}
    for patch, how in (
        ({"metadata": {"labels": {"x": "2"}}}, PatchType.MERGE),
        ([{"op": "replace", "path": "/metadata/labels/x", "value": "2"}], PatchType.JSON),
        ({"metadata": {"labels": {"x": "2"}}}, PatchType.STRATEGIC),
    ):
        new = apply_patch(obj, patch, how)
        assert new["metadata"]["labels"] == {"x": "2"}
        assert new["spec"] is spec
    assert obj["metadata"]["labels"] == {"x": "1"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 1},
        {"op": "remove", "path": "/zzz"},
        {"op": "replace", "path": "/zzz", "value": 1},
        {"op": "add", "path": "/zzz/y", "value": 1},
        {"op": "add", "path": "/list/9", "value": 1},
        {"op": "remove", "path": "/list/-"},
    ],
)
def test_a_json_patch_that_does_not_fit_is_a_conflict(operation):
    """`true` is not 1, and what is not there cannot be removed: nothing is changed (E6)."""
    with pytest.raises(PatchError):
        json_patch({"a": True, "list": [1]}, [operation])


def test_strategic_directives():
    """What kubectl sends when it removes: $patch delete and replace, $retainKeys, $deleteFromPrimitiveList."""
    obj = {
        "spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}], "strategy": {"type": "X", "rolling": {}}}
    }
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "a"}],
            "containers": [{"name": "b", "$patch": "delete"}, {"name": "a", "image": "2"}],
            "strategy": {"$retainKeys": ["type"], "type": "Recreate"},
        }
    }
    after = strategic_patch(obj, patch)
    assert after == {"spec": {"containers": [{"name": "a", "image": "2"}], "strategy": {"type": "Recreate"}}}
    held = {"metadata": {"finalizers": ["a", "b"]}}
    assert strategic_patch(held, {"metadata": {"finalizers": ["c"]}})["metadata"]["finalizers"] == ["a", "b", "c"]
    gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert strategic_patch(held, gone)["metadata"]["finalizers"] == ["b"]


def test_a_patch_of_the_wrong_shape_is_refused():
    """A list is no merge patch, an object no JSON patch, and server-side apply is not served."""
    for patch, how in (([], PatchType.MERGE), ({}, PatchType.JSON), ({}, PatchType.APPLY)):
        with pytest.raises(RefusedError):
            apply_patch({}, patch, how)
