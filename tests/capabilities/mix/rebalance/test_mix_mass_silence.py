"""M8: nodes that fall silent together. The way to the API server may be gone, and every pod may still serve."""

import pytest

from mooring.core.model.reasons import Reason, State
from mooring_lab.stage.scenarios.mix import NAMESPACE, uids
from tests.capabilities.mix.rebalance.mix_stage import Stage


def _nodes(stage: Stage, *first: str) -> list[str]:
    leader = stage.rig.leader()
    assert leader is not None
    return sorted(n.name for n in leader.engine.world.nodes() if n.name.startswith(first))


def _said(stage: Stage, node: str):
    leader = stage.rig.leader()
    assert leader is not None
    return leader.engine.verdicts.get(("mix", f"node/{node}"))


def test_when_all_kubelets_are_silent_nothing_is_deleted():
    """M8: every kubelet loses the API server for 100 s, and comes back one after the other: no pod is replaced."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 12, "all-in-spot")
        before, writes = uids(stage.rig, "web"), len(stage.rig.writes)
        for node in _nodes(stage, "n", "s"):
            stage.cluster.kubelets.silence(node)
        await stage.rig.sleep(100.0)
        said = _said(stage, "s0")
        assert (said.state, said.reason) == (State.WAITING, Reason.NODE_NOT_READY)
        assert said.detail.endswith("nothing is deleted for silence alone")
        for node in _nodes(stage, "n", "s"):
            await stage.rig.sleep(3.0)
            stage.cluster.kubelets.resume(node)
        await stage.until_quiet()
        assert stage.moves(writes) == [] and uids(stage.rig, "web") == before
        assert _said(stage, "s0") is None

    Stage(on_demand=4, spot=4).play(scenario)


def test_when_most_of_a_zone_is_silent_it_is_given_up_ten_times_later():
    """M8: four of six: none is given up before 300 s of silence."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 8, "all-in-spot")
        writes = len(stage.rig.writes)
        for node in _nodes(stage, "s"):
            stage.cluster.kubelets.silence(node)
        await stage.rig.sleep(200.0)
        assert stage.moves(writes) == []
        assert "counts as lost after 300 s" in _said(stage, "s0").detail

    Stage(on_demand=2, spot=4).play(scenario)


@pytest.mark.parametrize("zones", [("a", "a"), ("a", "b")])
def test_one_of_many_is_lost_as_before(zones: tuple[str, str]):
    """M8: also the only node of its zone, when the rest of the cluster reports."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.add_nodes(1, "s", capacity="spot", zone=zones[1])
        await stage.deployed("web", 2, "all-in-spot")
        stage.cluster.kubelets.silence("s0")
        await stage.rig.until(
            lambda: (
                stage.cluster.ready(NAMESPACE, "web") == 2
                and "s0" not in stage.cluster.nodes_of(NAMESPACE, "web").values()
            ),
            limit_s=120,
        )

    Stage(on_demand=4, spot=0, zone=zones[0]).play(scenario)
