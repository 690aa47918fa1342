"""What people type: bare names, kinds without a namespace, names that are unique elsewhere."""

import pytest

from mooring.core.engine.why.names import resolve
from mooring.process.http.why import not_found
from tests.core.why.situations import Environment


@pytest.fixture(scope="module")
def replica():
    environment = Environment()
    kept = []

    async def scenario(_):
        await environment.build()
        environment.cluster.deployment("prod", "web", 1)
        environment.cluster.deployment("default", "api", 1)
        environment.cluster.deployment("shop", "api", 1)
        await environment.rig.sleep(30.0)
        kept.append(next(iter(environment.rig.replicas.values())).replica)

    environment.rig.play(scenario)
    return kept[0]


@pytest.mark.parametrize(
    ("typed", "namespace", "meant"),
    [
        ("demo-tikv-0", "", ("pod/tidb/demo-tikv-0",)),
        ("n1", "", ("node/n1",)),
        ("demo", "", ("cluster/tidb/demo",)),
        ("pod/demo-tikv-0", "", ("pod/tidb/demo-tikv-0",)),
        ("pod/demo-tikv-0", "shop", ()),
        ("store/demo/1", "", ("store/tidb/demo/1",)),
        ("store/1", "", ("store/tidb/demo/1",)),
        ("workload/web", "", ("workload/prod/web", "workload/shop/web")),
        ("workload/web", "prod", ("workload/prod/web",)),
        ("workload/Deployment/web", "prod", ("workload/prod/Deployment/web",)),
        ("workload/StatefulSet/web", "prod", ()),
        ("workload/api", "", ("workload/default/api",)),
        ("nothing", "", ()),
    ],
)
def test_a_name_is_found_where_it_is_unique(replica, typed, namespace, meant):
    """Any namespace when unique; `default` first; with -n only there."""
    assert resolve(replica.engine, typed, namespace) == meant


def test_several_and_none_are_said(replica):
    """Which ones there are, or which are near."""
    assert not_found(replica.engine, "workload/web") == (
        "workload/web may be workload/prod/web, workload/shop/web; write one of them"
    )
    assert not_found(replica.engine, "demo-tkv-0").startswith(
        "nothing is called demo-tkv-0; did you mean pod/tidb/demo-tikv-0"
    )
    assert "did you mean pod/tidb/demo-tikv-0" in not_found(replica.engine, "pod/demo-tikv-0", "shop")
    assert not_found(replica.engine, "n11").startswith("nothing is called n11; did you mean node/n1")
    assert not_found(replica.engine, "pod/demo-tikv-9").startswith("pod/demo-tikv-9 not found in any namespace; did")
    assert not_found(replica.engine, "store/99").startswith("store/99 not found in any cluster")
