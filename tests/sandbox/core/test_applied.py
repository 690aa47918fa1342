"""Server-side apply on the sandbox: what the applied set no longer has goes, what others applied stays theirs."""

import asyncio

import pytest

from mooring.clients.ports import ConflictError, RefusedError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.http.applied import Applied


class Bench:
    def __init__(self):
        self.cluster = Cluster(seed=1)
        self.applied = Applied(self.cluster.api.server)

    def apply(self, obj, manager="kubectl", *, kind=Kind.DEPLOYMENT, force=False):
        return asyncio.run(self.applied.apply(kind, obj, "", manager, "kubectl", force=force))


@pytest.fixture
def bench():
    return Bench()


def web(labels, containers, replicas=2):
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    spec |= {} if replicas is None else {"replicas": replicas}
    return {"metadata": {"namespace": "default", "name": "web", "labels": labels}, "spec": spec}


def container(name, **env):
    return {"name": name, "image": "x:1", "env": [{"name": k, "value": v} for k, v in env.items()]}


def test_what_is_left_out_of_the_next_apply_goes(bench):
    """Labels, elements of keyed lists and their fields; what others wrote meanwhile stays."""
    bench.apply(web({"a": "1", "b": "2"}, [container("web", A="1", B="2"), container("side")]))
    bench.cluster.annotate(Kind.DEPLOYMENT, "default", "web", {"c": "3"})
    made = bench.apply(web({"a": "1"}, [container("web", A="1")]))
    assert (made["metadata"]["labels"], made["metadata"]["annotations"]["c"]) == ({"a": "1"}, "3")
    (left,) = made["spec"]["template"]["spec"]["containers"]
    assert (left["name"], left["env"]) == ("web", [{"name": "A", "value": "1"}])


def test_another_managers_value_is_a_conflict_unless_it_is_forced(bench):
    """As the real API server has it: the field is named, nothing is changed; forced, it is taken."""
    bench.apply(web({}, [container("web")], replicas=2))
    with pytest.raises(ConflictError, match=r'conflict with "kubectl": \.spec\.replicas'):
        bench.apply(web({}, [container("web")], replicas=3), "other")
    assert bench.cluster.store.get(Kind.DEPLOYMENT, "default", "web")["spec"]["replicas"] == 2
    assert bench.apply(web({}, [container("web")], replicas=3), "other", force=True)["spec"]["replicas"] == 3


def test_what_two_managers_applied_goes_with_the_second(bench):
    bench.apply(web({"a": "1"}, [container("web")]))
    bench.apply(web({"a": "1"}, [container("web")]), "other")
    assert bench.apply(web({}, [container("web")]))["metadata"]["labels"] == {"a": "1"}
    assert not bench.apply(web({}, [container("web")]), "other")["metadata"].get("labels")


def test_a_custom_resource_is_applied_too_and_a_manager_must_be_named(bench):
    """Lists of a custom resource are replaced whole."""
    tc = {"metadata": {"namespace": "default", "name": "demo"}, "spec": {"tikv": {"replicas": 3}, "version": "v8"}}
    bench.apply(tc, kind=Kind.TIDB_CLUSTER)
    made = bench.apply({**tc, "spec": {"tikv": {"replicas": 4}}}, kind=Kind.TIDB_CLUSTER)
    assert made["spec"] == {"tikv": {"replicas": 4}}
    with pytest.raises(RefusedError, match="fieldManager is required"):
        bench.apply(tc, "", kind=Kind.TIDB_CLUSTER)
