"""A cordon carries a mark, and only what the mark says we did is lifted."""

import msgspec

from mooring.capabilities.drain.cordon import cordon, cordon_mark, is_ours, lift_cordon
from mooring.core.model.cluster import Node
from mooring.core.model.marks import CORDONED_BY, Mark

MARK = Mark(operator="1", source="fleet", reason="retiring", step="cordoned", since=1.0)


def node(*, unschedulable=False, annotations=None):
    return Node("n1", "uid", "7", unschedulable=unschedulable, annotations=annotations or {})


def after(before, patch):
    return msgspec.structs.replace(
        before,
        annotations={**before.annotations, **patch.patch["metadata"]["annotations"]},
        unschedulable=bool(patch.patch.get("spec", {}).get("unschedulable", before.unschedulable)),
    )


def test_our_own_cordon_is_lifted_and_a_persons_stays():
    """O4: we undo only what a mark says we did."""
    ours = after(node(), cordon(node(), MARK, "x"))
    assert is_ours(cordon_mark(ours, "fleet"))
    assert lift_cordon(ours, "fleet", "y").patch["spec"] == {"unschedulable": None}
    theirs = after(node(unschedulable=True), cordon(node(unschedulable=True), MARK, "x"))
    lifted = lift_cordon(theirs, "fleet", "y")
    assert "spec" not in lifted.patch
    assert lifted.patch["metadata"]["annotations"] == {CORDONED_BY: None}


def test_a_second_mark_keeps_what_was_there_before_the_first():
    """Two of ours in a row: the second one's cordon was not there before us either."""
    first = after(node(), cordon(node(), MARK, "x"))
    second = after(first, cordon(first, msgspec.structs.replace(MARK, source="spot"), "x"))
    assert is_ours(cordon_mark(second, "spot"))
    assert cordon_mark(second, "fleet") is None


def test_a_mark_of_another_source_is_not_dropped():
    spot = after(node(), cordon(node(), msgspec.structs.replace(MARK, source="spot"), "x"))
    assert CORDONED_BY not in lift_cordon(spot, "fleet", "y").patch["metadata"]["annotations"]
