import pytest

from mooring.clients.wire.kube import project
from mooring.core.model.cluster import NO_LABELS, Requirement, SelectorTerm
from mooring.core.model.kinds import Kind


def pod(spec=None, status=None, **metadata):
    return project(Kind.POD, {"metadata": {"name": "p", **metadata}, "spec": spec or {}, "status": status or {}})


def asks(cpu, memory="0", **more):
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


@pytest.mark.parametrize(
    ("spec", "cpu_milli"),
    [
        ({"containers": [asks("100m"), asks("200m")]}, 300),
        ({"containers": [asks("100m")], "initContainers": [asks("500m"), asks("300m")]}, 500),
        ({"containers": [asks("100m")], "initContainers": [asks("50m", restartPolicy="Always")]}, 150),
        ({"containers": [asks("100m")], "initContainers": [asks("50m", restartPolicy="Always"), asks("400m")]}, 450),
        ({"containers": [asks("100m")], "initContainers": [asks("400m"), asks("50m", restartPolicy="Always")]}, 400),
        ({"containers": [asks("100m")], "overhead": {"cpu": "250m"}}, 350),
        ({"containers": [asks("100m")], "resources": {"requests": {"cpu": "1"}}}, 1000),
        ({"containers": [{"name": "c", "resources": {"limits": {"cpu": "700m"}}}]}, 700),
        ({"containers": [{"name": "c"}]}, 0),
        ({}, 0),
    ],
)
def test_what_a_pod_asks_for(spec, cpu_milli):
    """Requests are counted as kube-scheduler counts them: sidecars add, init containers peak, pod level wins."""
    assert pod(spec).shape.cpu_milli == cpu_milli


def test_conditions():
    """Ready with its moment, Unschedulable, and the nominated node are read from the status."""
    waiting = pod(
        status={
            "phase": "Pending",
            "nominatedNodeName": "n1",
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
                {"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:01:00Z"},
            ],
        }
    )
    assert (waiting.schedulable, waiting.ready, waiting.ready_since, waiting.nominated_node) == (
        False,
        False,
        60.0,
        "n1",
    )
    running = pod(
        status={
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
        }
    )
    assert (running.schedulable, running.ready, running.ready_since) == (True, True, None)


def test_scheduling_gates_are_not_unschedulable():
    """Only the scheduler's own verdict counts as unschedulable, not a gate that holds the pod back."""
    gated = pod(status={"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]})
    assert gated.schedulable


def test_annotations_that_stay():
    """Only annotations that placement reads are kept; everything else costs no memory."""
    kept = {"mooring.dev/leaving": "{}", "vacant.io/slot": "3", "tidb.pingcap.com/restart": "x"}
    cost = {"controller.kubernetes.io/pod-deletion-cost": "100"}
    dropped = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "prometheus.io/scrape": "true"}
    assert pod(annotations={**kept, **cost, **dropped}).annotations == {**kept, **cost}
    assert pod(annotations=dropped).annotations is NO_LABELS


def test_mirror_pods():
    """A static pod's mirror is known as one: deleting it would do nothing."""
    assert pod(annotations={"kubernetes.io/config.mirror": "abc"}).is_mirror
    assert not pod().is_mirror


def test_volumes():
    """Claims are listed by name, those of generic ephemeral volumes too; emptyDir is a fact of its own."""
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data-p"}},
        {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "c", "emptyDir": {}},
    ]
    found = pod({"volumes": volumes})
    assert found.claims == ("data-p", "p-b")
    assert found.shape.has_empty_dir
    assert not pod({"volumes": volumes[:2]}).shape.has_empty_dir


def test_affinity():
    """No requirement, one that matches nothing, and real terms stay three different things."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"

    def terms(*given):
        return pod({"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": list(given)}}}}).shape.required_terms

    assert pod().shape.required_terms is None
    assert terms({}) == (SelectorTerm(),)
    assert terms({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}) == (
        SelectorTerm((Requirement("zone", "In", ("a",)),)),
    )
    apart = {"podAntiAffinity": {required: [{"topologyKey": "kubernetes.io/hostname"}] * 2}}
    assert pod({"affinity": apart}).shape.anti_affinity_keys == ("kubernetes.io/hostname",)


def test_only_the_controller_owns():
    """An owner reference that does not control the pod is not its owner."""
    refs = [
        {"kind": "Node", "name": "n", "uid": "1", "apiVersion": "v1"},
        {"kind": "ReplicaSet", "name": "web-1", "uid": "2", "apiVersion": "apps/v1", "controller": True},
    ]
    assert pod(ownerReferences=refs[:1]).owner is None
    owner = pod(ownerReferences=refs).owner
    assert owner is not None
    assert owner.uid == "2"


def test_a_terminating_pod():
    """The moment the grace period ends is kept, and zero grace is not mistaken for none given."""
    leaving = pod({"terminationGracePeriodSeconds": 0}, deletionTimestamp="1970-01-01T00:00:30Z")
    assert (leaving.deletion_at, leaving.terminating, leaving.shape.grace_s) == (30.0, True, 0)
    assert pod().shape.grace_s == 30
