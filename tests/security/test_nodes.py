"""A compromised node: what its kubelet may write on its own Node makes us undo nothing that it may not undo itself."""

import msgspec

from mooring.capabilities.fleet.live.node_metadata import APPLIED, SEAL, bring_up_to_date
from mooring.core.model.cluster import Node, Taint
from mooring.core.model.instructions import Patch

GUARDED = "node-restriction.kubernetes.io/pci"
WANTED = {"labels": {"team": "a"}, "annotations": {}, "taints": []}


def test_a_record_that_a_kubelet_wrote_strips_nothing():
    """mooring.dev/fleet: forged, it names a guarded label and a taint; both stay, and the record is written anew."""
    forged = f'{{"labels":["{GUARDED}"],"taints":["dedicated:NoSchedule"]}}'
    node = Node(
        "n1", "u", "1", {GUARDED: "yes", "team": "a"}, taints=(Taint("dedicated", "NoSchedule", ""),),
        annotations={APPLIED: forged},
    )  # fmt: skip
    (write, _) = bring_up_to_date(node, WANTED, ())
    assert isinstance(write, Patch)
    metadata = write.patch["metadata"]
    assert set(metadata["labels"]) == {SEAL}
    labels, annotations = {**node.labels, **metadata["labels"]}, metadata["annotations"]
    settled = msgspec.structs.replace(node, labels=labels, annotations=annotations)
    assert bring_up_to_date(settled, WANTED, ()) == (None, None), "the taint stays"
    # What we sealed is taken away again when the template no longer has it.
    (write, _) = bring_up_to_date(settled, {**WANTED, "labels": {}}, ())
    assert write.patch["metadata"] == {"labels": {"team": None, SEAL: None}, "annotations": {APPLIED: None}}
