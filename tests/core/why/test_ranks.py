"""O3: every reason has its place in the order of `why`, and commands fit the cluster that they are typed for."""

import pytest

from mooring.capabilities.handoff.descriptor import commands
from mooring.core.engine.why.findings import ranks
from mooring.core.model.descriptor import About
from mooring.core.model.reasons import Reason
from mooring.core.model.tidb import TidbCluster


def test_a_reason_without_a_rank_fails_at_import():
    """A reason that nobody has ranked would stand in line 1 by accident."""
    assert set(ranks({0: Reason})) == set(Reason)
    with pytest.raises(ValueError, match="no rank for pdb"):
        ranks({0: [one for one in Reason if one is not Reason.PDB]})


@pytest.mark.parametrize(("replicas", "typed"), [(1, '"replicas":3'), (2, '"replicas":3'), (5, "get pods")])
def test_a_cluster_is_never_told_to_shrink(replicas, typed):
    """O3: "add stores" with `replicas: 3` removed two stores of a cluster with five, of which one was Up."""
    cluster = TidbCluster(namespace="tidb", name="demo", uid="tc", resource_version="1", tikv_replicas=replicas)
    ((_, command),) = commands(Reason.ONE_STORE, About(cluster=cluster))
    assert typed in command
