"""`mooring mix explain` finds a workload as `mooring why` does."""

import pytest

from mooring.cli import mix
from mooring.cli.server import HERE
from mooring.core.model.exits import Exit, UserError


@pytest.fixture
def server(monkeypatch):
    """A Mooring that knows these workloads."""
    known = ["workload/shop/Deployment/web", "workload/prod/Deployment/api", "workload/shop/Deployment/api"]

    def answers(_, path, **__):
        if "/find?" in path:
            return {"found": [*known, "pod/shop/web-1"]}
        kind, namespace, name = path.removeprefix("/api/v1/mix/").split("/")
        if f"workload/{namespace}/{kind}/{name}" not in known:
            raise UserError("it is not there", Exit.CHECK_FAILED)
        return {"namespace": namespace}

    monkeypatch.setattr(mix, "ask", answers)


@pytest.mark.parametrize("typed", ["web", "deploy/web", "deployments/web", "deployment.apps/web"])
def test_a_workload_is_found_where_it_is_unique(server, typed):
    """Without -n: any namespace, as kubectl spells the kind."""
    assert mix.asked(HERE, typed, "") == {"namespace": "shop"}


def test_several_and_none_are_said(server):
    """Two of one name: say which (2). None: where it was looked for (1)."""
    assert mix.asked(HERE, "api", "prod") == {"namespace": "prod"}
    with pytest.raises(UserError, match="api is in prod, shop; say which with -n") as two:
        mix.asked(HERE, "api", "")
    assert two.value.code is Exit.USAGE
    with pytest.raises(UserError, match="no StatefulSet web in any namespace") as none:
        mix.asked(HERE, "sts/web", "")
    assert none.value.code is Exit.CHECK_FAILED
