"""Taints of ours on a node: added and removed without losing anybody else's, whatever happens in between."""

import pytest

from mooring.clients.ports import UnansweredError
from mooring.core.model.cluster import Taint
from mooring.core.model.instructions import EditTaints
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason
from mooring.process.act import Actor
from mooring_lab.cluster.cluster import Cluster

FOREIGN = {"key": "team/gpu", "effect": "NoExecute", "value": "yes", "timeAdded": "2026-01-01T00:00:00Z"}
OURS = Taint("mooring.dev/reserved", "NoSchedule", "demo-tidb-2")


class Fence:
    def may_write(self) -> bool:
        return True


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_node("n0")
    made.change(Kind.NODE, "", "n0", lambda n: {**n, "spec": {**n["spec"], "taints": [FOREIGN]}})
    return made


async def carry_out(cluster: Cluster, api=None, **how) -> Reason | None:
    uid = cluster.store.get(Kind.NODE, "", "n0")["metadata"]["uid"]
    write = EditTaints(**{"id": "i1", "node": "n0", "uid": uid, **how})
    return (await Actor(api or cluster.api, None, Fence()).carry_out(write)).reason


def node(cluster: Cluster) -> dict:
    return cluster.store.get(Kind.NODE, "", "n0")


async def test_others_taints_stay_as_they_were(cluster):
    """H8: a foreign taint keeps its every field through our coming and going; annotation and taint are one write."""
    before = node(cluster)["metadata"].get("annotations")
    assert await carry_out(cluster, add=(OURS,), annotations={"mooring.dev/reserved": "mark"}) is None
    ours = {"key": "mooring.dev/reserved", "effect": "NoSchedule", "value": "demo-tidb-2"}
    assert node(cluster)["spec"]["taints"] == [FOREIGN, ours]
    assert node(cluster)["metadata"]["annotations"]["mooring.dev/reserved"] == "mark"
    assert await carry_out(cluster, remove=(OURS,), annotations={"mooring.dev/reserved": None}) is None
    assert node(cluster)["spec"]["taints"] == [FOREIGN]
    assert (node(cluster)["metadata"].get("annotations") or {}) == (before or {})


async def test_done_already_writes_nothing(cluster):
    """Seen to be so: no second write."""
    await carry_out(cluster, add=(OURS,))
    version = node(cluster)["metadata"]["resourceVersion"]
    assert await carry_out(cluster, add=(OURS,)) is None
    assert node(cluster)["metadata"]["resourceVersion"] == version


async def test_another_node_of_that_name_is_left_alone(cluster):
    """Guarded by uid."""
    assert await carry_out(cluster, add=(OURS,), uid="an older n0") == Reason.CONFLICT
    assert node(cluster)["spec"]["taints"] == [FOREIGN]


class Between:
    """The sandbox's API, with something happening between reading and writing."""

    def __init__(self, cluster: Cluster, happen) -> None:
        self.cluster, self.happen = cluster, happen

    async def get(self, *args):
        return await self.cluster.api.get(*args)

    async def patch(self, *args, **how):
        return await self.happen(*args, **how)


async def test_a_change_in_between_is_never_overwritten(cluster):
    """A taint that somebody set between our reading and our writing stays, and ours is said not to be there."""
    newer = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}

    async def happen(*args, **how):
        cluster.change(Kind.NODE, "", "n0", lambda n: {**n, "spec": {**n["spec"], "taints": [FOREIGN, newer]}})
        return await cluster.api.patch(*args, **how)

    assert await carry_out(cluster, Between(cluster, happen), add=(OURS,)) == Reason.CONFLICT
    assert node(cluster)["spec"]["taints"] == [FOREIGN, newer]


async def test_a_lost_answer_is_looked_up(cluster):
    """The write happened and its answer was lost: seen to be done."""

    async def happen(*args, **how):
        await cluster.api.patch(*args, **how)
        raise UnansweredError("connection lost")

    assert await carry_out(cluster, Between(cluster, happen), add=(OURS,)) is None
