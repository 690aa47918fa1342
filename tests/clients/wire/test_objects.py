import pytest

from mooring.clients.wire.kube import project
from mooring.core.model.cluster import Key, Requirement, SelectorTerm, Taint
from mooring.core.model.kinds import Kind


def deployment(replicas, surge=None, unavailable=None, kind="RollingUpdate"):
    rolling = {k: v for k, v in (("maxSurge", surge), ("maxUnavailable", unavailable)) if v is not None}
    strategy = {"type": kind, "rollingUpdate": rolling}
    return project(Kind.DEPLOYMENT, {"metadata": {"name": "d"}, "spec": {"replicas": replicas, "strategy": strategy}})


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (10, "25%", "25%", (3, 2)),
        (1, "25%", "25%", (1, 0)),
        (4, 0, "10%", (0, 1)),
        (4, 0, 0, (0, 1)),
        (4, 2, 3, (2, 3)),
        (3, "100%", "100%", (3, 3)),
        (3, 1, 9, (1, 3)),
        (8, None, None, (2, 2)),
        (0, "25%", "25%", (0, 1)),
    ],
)
def test_rollout_limits(replicas, surge, unavailable, expected):
    """M6: surge rounds up, unavailable down, and a rollout that could do neither may take one."""
    found = deployment(replicas, surge, unavailable)
    assert (found.max_surge, found.max_unavailable) == expected


def test_recreate_takes_all():
    """The Recreate strategy adds none and takes all."""
    found = deployment(5, kind="Recreate")
    assert (found.strategy, found.max_surge, found.max_unavailable) == ("Recreate", 0, 5)


def test_a_stateful_set():
    """Ordinals, revisions and the pace of a StatefulSet are kept."""
    found = project(
        Kind.STATEFUL_SET,
        {
            "metadata": {"name": "s", "generation": 4},
            "spec": {
                "replicas": 3,
                "ordinals": {"start": 2},
                "podManagementPolicy": "Parallel",
                "updateStrategy": {"type": "OnDelete"},
            },
            "status": {"observedGeneration": 3, "currentRevision": "s-1", "updateRevision": "s-2", "readyReplicas": 2},
        },
    )
    assert (found.ordinals_start, found.pod_management, found.strategy) == (2, "Parallel", "OnDelete")
    assert (found.current_revision, found.update_revision, found.ready_replicas) == ("s-1", "s-2", 2)
    assert (found.generation, found.observed_generation) == (4, 3)


def test_a_replica_set():
    """A ReplicaSet leads to its Deployment, and its revision is a number whatever is written there."""
    ref = {"kind": "Deployment", "name": "web", "uid": "d", "apiVersion": "apps/v1", "controller": True}
    meta = {"name": "web-1", "namespace": "a", "labels": {"pod-template-hash": "1"}, "ownerReferences": [ref]}
    meta["annotations"] = {"deployment.kubernetes.io/revision": "12"}
    found = project(Kind.REPLICA_SET, {"metadata": meta, "spec": {"replicas": 0}})
    assert (found.replicas, found.pod_template_hash, found.revision) == (0, "1", 12)
    assert found.owner is not None
    assert found.owner.uid == "d"
    for text in ("twelve", "²", "9" * 5000):
        meta["annotations"] = {"deployment.kubernetes.io/revision": text}
        assert project(Kind.REPLICA_SET, {"metadata": meta}).revision == 0


def test_a_budget_without_a_selector_selects_nothing():
    """policy/v1: no selector selects no pod, an empty one every pod."""
    meta = {"name": "b", "namespace": "a"}
    none = project(Kind.PDB, {"metadata": meta, "spec": {}})
    every = project(Kind.PDB, {"metadata": meta, "spec": {"selector": {}}})
    some = project(
        Kind.PDB,
        {
            "metadata": meta,
            "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}},
            "status": {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2},
        },
    )
    assert [b.selects({"app": "web"}) for b in (none, every, some)] == [False, True, True]
    assert [b.selects({"app": "db"}) for b in (none, every, some)] == [False, True, False]
    assert (some.disruptions_allowed, some.current_healthy, some.desired_healthy) == (1, 3, 2)


def test_a_node_on_its_way_out():
    """M8: taints, the cordon, further conditions and the annotations of a notice are all there."""
    node = project(
        Kind.NODE,
        {
            "metadata": {
                "name": "n",
                "annotations": {"vacant.io/interrupt-at": "x", "cke.cybozu.com/serial": "s", "z": "z"},
            },
            "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {
                "conditions": [
                    {"type": "Ready", "status": "False", "reason": "KubeletNotReady"},
                    {"type": "VMEventScheduled", "status": "True"},
                    {"type": "DiskPressure", "status": "False"},
                ]
            },
        },
    )
    assert node.taints == (Taint("k", "NoSchedule"),)
    assert (node.unschedulable, node.ready, node.ready_reason) == (True, "False", "KubeletNotReady")
    assert node.conditions == ("VMEventScheduled",)
    assert node.annotations == {"vacant.io/interrupt-at": "x", "cke.cybozu.com/serial": "s"}
    assert node.pods_limit == 110


def test_volumes_and_claims():
    """A local volume says which nodes can take it, and a claim which volume it has."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
    volume = project(
        Kind.PV,
        {
            "metadata": {"name": "pv1"},
            "spec": {
                "claimRef": {"namespace": "a", "name": "data-0"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
            },
        },
    )
    assert volume.claim == Key("a", "data-0")
    assert volume.required_terms == (SelectorTerm((Requirement("kubernetes.io/hostname", "In", ("n1",)),)),)
    assert project(Kind.PV, {"metadata": {"name": "pv2"}, "spec": {}}).required_terms is None
    claim = project(Kind.PVC, {"metadata": {"name": "data-0", "namespace": "a"}, "spec": {"volumeName": "pv1"}})
    assert claim.volume == "pv1"


def test_a_config_map():
    """ConfigMaps of ours are kept whole."""
    found = project(Kind.CONFIG_MAP, {"metadata": {"name": "m", "annotations": {"a": "b"}}, "data": {"k": "v"}})
    assert (found.data, found.annotations) == ({"k": "v"}, {"a": "b"})


@pytest.mark.parametrize(
    ("condition", "failure"),
    [
        (
            (
                "ReplicaFailure",
                "True",
                'pods "web-7d-x2x" is forbidden: exceeded quota: small, used: pods=3, limited: pods=3',
            ),
            "exceeded quota: small, used: pods=3, limited: pods=3",
        ),
        (("ReplicaFailure", "True", "admission webhook denied the request"), "admission webhook denied the request"),
        (("ReplicaFailure", "False", "exceeded quota: small"), ""),
        (("Available", "True", "Deployment has minimum availability."), ""),
    ],
)
def test_why_a_replica_set_cannot_create_pods(condition, failure):
    """O3: a quota that is in the way can be named; each try names another pod, so the name is left out."""
    type_, status, message = condition
    obj = {
        "metadata": {"namespace": "shop", "name": "web"},
        "status": {"conditions": [{"type": type_, "status": status, "message": message}]},
    }
    assert project(Kind.DEPLOYMENT, obj).failure == failure
