"""What a source has left on pods ends well: also a pod that was detached for its replacement."""

import msgspec

from mooring.capabilities.drain.request import before_detach, can_detach, detach, is_detached, leftovers
from mooring.core.model.cluster import Owner, Workload
from mooring.core.model.instructions import DeletePod, Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import LEAVING, Mark, write_mark

from .making import pod

HASH = {"pod-template-hash": "abc"}


def detached():
    owned = pod("web-1", labels=HASH, owner=Owner(Kind.REPLICA_SET, "web-abc", "rs"))
    before = {"workload": "Deployment/tidb/web", **before_detach(owned, Kind.DEPLOYMENT)}
    mark = Mark(
        operator="1", source="fleet", reason="retiring", step="leaving", since=1.0, pod_uid=owned.uid, before=before
    )
    written = detach(owned, mark).patch["metadata"]
    return pod("web-1", labels=written["labels"], annotations=written["annotations"])


def test_a_detached_pod_goes_back_to_its_replica_set():
    """O4, issue 20.12: cleanup gives it back, and deletes it where its ReplicaSet is gone."""
    one = detached()
    assert is_detached(one)
    (left,) = leftovers([one], ("fleet",), {"rs"})
    (write,) = left.writes
    assert isinstance(write, Patch)
    assert write.patch["metadata"]["labels"] == HASH
    (gone,) = leftovers([one], ("fleet",), set())
    assert isinstance(gone.writes[0], DeletePod)
    assert not list(leftovers([one], ("handoff",), {"rs"})), "another source's is not ours"


def test_a_plain_mark_is_dropped():
    mark = Mark(operator="1", source="fleet", reason="retiring", step="leaving", since=1.0)
    (left,) = leftovers([pod(annotations={LEAVING: write_mark(mark)})], ("fleet",), ())
    assert left.writes[0].patch == {"metadata": {"annotations": {LEAVING: None}}}


def test_only_a_deployments_pod_that_may_stand_beside_another_is_detached():
    """M8: not a bare pod, not a StatefulSet's, not one without a hash, and not where the strategy is Recreate."""
    rolling = Workload(Kind.DEPLOYMENT, "tidb", "web", "uid-web", "1")
    owner, other = Owner(Kind.REPLICA_SET, "web-abc", "rs"), Owner(Kind.STATEFUL_SET, "db", "sts")
    assert can_detach(pod(labels=HASH, owner=owner), rolling)
    assert not can_detach(pod(labels=HASH), rolling)
    assert not can_detach(pod(labels=HASH, owner=other), rolling)
    assert not can_detach(pod(owner=owner), rolling)
    assert not can_detach(pod(labels=HASH, owner=owner), msgspec.structs.replace(rolling, strategy="Recreate"))
