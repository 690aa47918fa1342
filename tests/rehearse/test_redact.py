"""What goes into a snapshot, and what never does."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mooring.core.model.kinds import Kind
from mooring_lab.cluster.kubelet import READY, SLOWEST, START
from mooring_lab.rehearse.snapshot.capture import gather, start_time
from mooring_lab.rehearse.snapshot.redact import redact
from mooring_lab.rehearse.snapshot.schema import KINDS

SECRET = "s3cr3t"
META = {"name": "web", "namespace": "shop", "uid": "u-1", "labels": {"app": "web"}}
POD_SPEC: dict[str, Any] = {
    "nodeName": "n1",
    "serviceAccountName": SECRET,
    "imagePullSecrets": [{"name": SECRET}],
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "containers": [
        {
            "name": "c",
            "image": f"registry/{SECRET}",
            "command": [SECRET],
            "args": [SECRET],
            "env": [{"name": "PASSWORD", "value": SECRET}],
            "envFrom": [{"secretRef": {"name": SECRET}}],
            "resources": {"requests": {"cpu": "500m"}},
            "volumeMounts": [{"name": "x", "mountPath": SECRET}],
        }
    ],
    "volumes": [
        {"name": "secret", "secret": {"secretName": SECRET}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}},
        {"name": "tmp", "emptyDir": {"medium": SECRET}},
    ],
}
ANNOTATIONS = {
    "kubectl.kubernetes.io/last-applied-configuration": SECRET,
    "example.com/token": SECRET,
    "vacant.io/slot": "3",
}
WHOLE: dict[Kind, dict[str, Any]] = {
    Kind.POD: {"metadata": {**META, "annotations": ANNOTATIONS, "managedFields": [SECRET]}, "spec": POD_SPEC},
    Kind.DEPLOYMENT: {
        "metadata": {**META, "annotations": ANNOTATIONS},
        "spec": {"replicas": 2, "template": {"metadata": {"annotations": ANNOTATIONS}, "spec": POD_SPEC}},
    },
    Kind.ROLLOUT: {
        "metadata": META,
        "spec": {
            "replicas": 2,
            "strategy": {"canary": {"maxSurge": 1, "steps": [SECRET]}},
            "template": {"spec": POD_SPEC},
        },
    },
    Kind.PV: {"metadata": META, "spec": {"csi": {"volumeAttributes": {"k": SECRET}}, "capacity": {"storage": "1Gi"}}},
    Kind.TIDB_CLUSTER: {"metadata": META, "spec": {"tikv": {"replicas": 3, "config": SECRET, "env": [SECRET]}}},
    Kind.NODE: {"metadata": META, "spec": {"providerID": SECRET}, "status": {"images": [SECRET], "nodeInfo": SECRET}},
    Kind.CONFIG_MAP: {"metadata": META, "data": {"url": f"http://admin:{SECRET}@sabakan:10080/graphql"}},
}


def test_no_secret_environment_or_command_is_in_a_snapshot() -> None:
    """O4: only fields that placement reads; whatever else an object holds stays behind."""
    for kind, obj in WHOLE.items():
        assert SECRET not in json.dumps(redact(kind, obj)), kind


def test_what_placement_reads_is_kept() -> None:
    """O4: requests, tolerations, claims, labels, our own annotations."""
    pod = redact(Kind.POD, WHOLE[Kind.POD])
    assert pod["metadata"]["labels"] == {"app": "web"}
    assert pod["metadata"]["annotations"] == {"vacant.io/slot": "3"}
    assert pod["spec"]["containers"] == [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]
    assert pod["spec"]["tolerations"] == POD_SPEC["tolerations"]
    assert [v["name"] for v in pod["spec"]["volumes"]] == ["data", "tmp"]
    assert redact(Kind.ROLLOUT, WHOLE[Kind.ROLLOUT])["spec"] == {"replicas": 2, "strategy": {"canary": {"maxSurge": 1}}}
    assert redact(Kind.CONFIG_MAP, WHOLE[Kind.CONFIG_MAP])["data"] == {"url": "http://sabakan:10080/graphql"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(KINDS)), st.dictionaries(st.text(min_size=1, max_size=8), json_values, max_size=4))
def test_a_field_nobody_has_heard_of_stays_behind(kind: Kind, more: dict[str, Any]) -> None:
    """O4: the next version of Kubernetes cannot smuggle anything in."""
    plain: dict[str, Any] = {"metadata": dict(META), "spec": {"template": {"spec": {"containers": []}}}}
    odd = {f"x-{key}": value for key, value in more.items()}
    dressed = {**plain, **odd, "metadata": {**plain["metadata"], **odd}, "spec": {**plain["spec"], **odd}}
    if kind in {Kind.POD, Kind.NODE, Kind.PV, Kind.PVC, Kind.PDB, Kind.RESOURCE_QUOTA, Kind.CONFIG_MAP}:
        plain["spec"].pop("template")
        dressed["spec"].pop("template")
    assert redact(kind, dressed) == redact(kind, plain)


def test_two_revisions_that_differ_in_an_image_still_differ() -> None:
    """O4: a rollout under way goes on in a rehearsal, although images are left behind."""

    def revision(number: str) -> dict[str, Any]:
        meta = {**META, "annotations": {"deployment.kubernetes.io/revision": number}}
        return redact(Kind.REPLICA_SET, {"metadata": meta, "spec": {"template": {"spec": POD_SPEC}}})

    assert revision("1")["spec"]["template"] != revision("2")["spec"]["template"]
    assert revision("2")["spec"]["template"] == revision("2")["spec"]["template"]


def pod(name: str, bound: str, ready: str, restarts: int = 0) -> dict[str, Any]:
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": bound},
        {"type": "Ready", "status": "True", "lastTransitionTime": ready},
    ]
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u-db", "controller": True}
    return {
        "metadata": {"name": name, "namespace": "data", "uid": f"u-{name}", "ownerReferences": [owner]},
        "spec": {"containers": [], "priority": 1000, "priorityClassName": "gold"},
        "status": {"conditions": conditions, "containerStatuses": [{"name": "c", "restartCount": restarts}]},
    }


def test_how_long_a_pod_takes_to_start_is_learnt_from_those_that_run() -> None:
    """O4: the median from node to Ready of pods that never restarted, and the number of their priority class."""
    pods = [
        pod("db-0", "2026-01-01T00:00:00Z", "2026-01-01T00:00:20Z"),
        pod("db-1", "2026-01-01T00:00:00Z", "2026-01-01T00:00:40Z"),
        pod("db-2", "2026-01-01T00:00:00Z", "2026-01-01T00:00:30Z"),
        pod("db-3", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", restarts=4),
        pod("db-4", "2026-01-01T00:00:00Z", "2026-01-01T09:00:00Z"),
    ]
    assert [start_time(one) for one in pods] == [20.0, 40.0, 30.0, None, None]
    template = {"metadata": {}, "spec": {"containers": [], "priorityClassName": "gold"}}
    owner = {"metadata": {"name": "db", "namespace": "data", "uid": "u-db"}, "spec": {"template": template}}
    made = gather(
        {Kind.POD: pods, Kind.STATEFUL_SET: [owner]}, taken_at="2026-01-02T00:00:00Z", source="test", namespace="m"
    )
    found = made.of(Kind.STATEFUL_SET)[0]["spec"]["template"]
    assert found["metadata"]["annotations"] == {START: "30", SLOWEST: "40", READY: "0"}
    assert found["spec"]["priority"] == 1000
