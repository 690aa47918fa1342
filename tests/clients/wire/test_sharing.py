from mooring.clients.wire import sharing
from mooring.clients.wire.kube import decode, project
from mooring.core.model.cluster import NO_LABELS
from mooring.core.model.kinds import Kind


def sibling(number, cpu="1", **labels):
    ref = {"kind": "StatefulSet", "name": "db", "uid": "owner", "apiVersion": "apps/v1", "controller": True}
    own = {"statefulset.kubernetes.io/pod-name": f"db-{number}", "apps.kubernetes.io/pod-index": str(number)}
    return {
        "metadata": {
            "name": f"db-{number}",
            "namespace": "prod" + "uction",
            "uid": str(number),
            "labels": {"app": "db", **own, **labels},
            "ownerReferences": [dict(ref)],
        },
        "spec": {
            "nodeName": f"node-{number % 2}",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            "tolerations": [{"key": "spot", "operator": "Exists"}],
        },
    }


def test_siblings_share_what_they_have_in_common():
    """Pods of one template hold one shape, pods of one owner one owner, and repeated strings are one string."""
    first, second, third = (project(Kind.POD, sibling(n)) for n in range(3))
    assert first.shape is second.shape is third.shape
    assert first.owner is second.owner
    assert first.namespace is second.namespace
    assert first.node is third.node
    assert first.annotations is second.annotations is NO_LABELS


def test_spelling_does_not_matter():
    """`1` and `1000m` are the same request and end in the same shape; a different label does not."""
    assert project(Kind.POD, sibling(0, "1")).shape is project(Kind.POD, sibling(1, "1000m")).shape
    assert project(Kind.POD, sibling(0)).shape is not project(Kind.POD, sibling(1, tier="gold")).shape


def test_both_ways_in_share():
    """What comes as bytes and what comes as plain values share their shapes as well."""
    raw = b'{"metadata":{"name":"a","labels":{"app":"x"}},"spec":{"schedulerName":"s"}}'
    plain = {"metadata": {"name": "b", "labels": {"app": "x"}}, "spec": {"schedulerName": "s"}}
    assert decode(Kind.POD, raw).shape is project(Kind.POD, plain).shape


def test_tables_stay_bounded():
    """However many templates come and go, a table holds no more than twice its size, and the ones in use stay shared."""
    table: sharing.SharedValues[int, str] = sharing.SharedValues(100)
    for number in range(10_000):
        assert table.get(number) is None
        table.put(number, str(number))
        assert table.get(7) == "7" or number < 7
        assert len(table) <= 201


def test_values_of_pods_do_not_crowd_the_tables():
    """Annotations that are unique to a pod (slots, tokens) do not push what is shared out of the tables."""
    before = len(sharing._strings)
    for number in range(50):
        pod = sibling(0)
        pod["metadata"]["annotations"] = {"vacant.io/reservation": f"token-{number}"}
        project(Kind.POD, pod)
    assert len(sharing._strings) - before < 10
