"""Opt-in by selector: `mix.policies`."""

import pytest

from mooring.capabilities.mix.explain import all_workloads
from mooring.capabilities.mix.labels import AFFINITY, ENABLED, MODE, RESERVATION
from mooring.capabilities.mix.policy import MixPolicy, Policy
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.controllers import podstate
from mooring_lab.stage.scenarios.mix import NAMESPACE, given, physical, uids
from tests.capabilities.mix.rebalance.mix_stage import Stage
from tests.sim.scenarios.mix import relabel

POLICIES = (
    Policy(name="trial", namespaces=(NAMESPACE,), labels=("trial=yes",), mode="all-in-spot", observe=True),
    Policy(name="shops", namespaces=("sh*",), kind="Deployment", mode="custom:50%"),
)


def _rows(stage: Stage) -> dict[str, dict[str, str]]:
    leader = stage.rig.leader()
    assert leader is not None
    steps, rows = all_workloads(leader.engine, None), []
    while True:
        try:
            next(steps)
        except StopIteration as done:
            rows = done.value["workloads"]
            break
    return {row.name: {"policy": row.policy, "gives": row.gives, "because": row.because} for row in rows}


def test_a_policy_switches_on_what_it_selects_and_labels_win():
    """M11: by namespace and labels, the first that selects; a workload's own labels win, also a plain `false`; one that
    only observes touches nothing and says what it would give."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 4, "off")
        await stage.deployed("own", 4, "all-in-on-demand")
        stage.cluster.deployment(NAMESPACE, "mine", 4, labels={MODE: "all-in-spot"})
        stage.cluster.deployment(NAMESPACE, "not", 2, labels={ENABLED: "false"})
        stage.cluster.deployment(NAMESPACE, "trial", 2, labels={"trial": "yes"})
        stage.cluster.stateful_set(NAMESPACE, "db", 2)
        stage.cluster.deployment("elsewhere", "web", 2)
        await stage.rig.sleep(30.0)
        assert given(stage.rig, "web") == ["on-demand", "on-demand", "spot", "spot"] == physical(stage.rig, "web")
        assert given(stage.rig, "own") == ["on-demand"] * 4
        assert given(stage.rig, "mine") == ["spot"] * 4
        pods = [*stage.cluster.store.list(Kind.POD, NAMESPACE), *stage.cluster.store.list(Kind.POD, "elsewhere")]
        assert len([p for p in pods if AFFINITY not in podstate.labels_of(p)]) == 2 + 2 + 2 + 2
        rows = _rows(stage)
        assert rows["web"] == {"policy": "shops", "gives": "custom 50%", "because": "the policy"}
        assert "wins" in rows["own"]["because"] and rows["own"]["gives"] == "all-in-on-demand"
        assert MODE in rows["mine"]["because"] and rows["mine"]["gives"] == "all-in-spot"
        assert rows["trial"]["policy"] == "trial" and "observes" in rows["trial"]["because"]
        assert "db" not in rows

    Stage(MixPolicy(policies=POLICIES)).play(scenario)


def test_a_policy_that_no_longer_selects_a_workload_gives_its_pods_back():
    """M5, M11: a label that a policy selects by is taken away: as if it were switched off, one by one, nothing of ours
    stays; notices and moves hold for it while it is selected."""

    async def scenario(stage: Stage) -> None:
        stage.cluster.deployment(NAMESPACE, "web", 3, labels={"tier": "front"})
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 3)
        await stage.rig.sleep(15.0)
        assert given(stage.rig, "web") == ["on-demand", "on-demand", "spot"]
        stage.cluster.cloud.notice_all_spot()
        await stage.rig.until(lambda: physical(stage.rig, "web") == ["on-demand"] * 3, 60.0)
        await stage.until_quiet()
        before = uids(stage.rig, "web")
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {"tier": None})
        await stage.rig.until(lambda: not set(uids(stage.rig, "web")) & set(before), 300.0)
        await stage.until_quiet()
        pods = stage.cluster.pods(NAMESPACE, "web")
        assert not [p for p in pods if RESERVATION in podstate.annotations_of(p)]

    front = Policy(name="front", labels=("tier=front",), mode="majority-in-on-demand")
    Stage(MixPolicy(policies=(front,))).play(scenario)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": "a"}, "selects nothing"),
        ({"name": "a", "labels": ("tier",)}, "write key=value"),
        ({"name": "a", "namespaces": ("*",), "mode": "custom"}, "mode is 'custom'"),
        ({"name": "a", "namespaces": ("*",), "kind": "Job"}, "must be one of Deployment, StatefulSet"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused_by_name(wrong, words):
    """M11: what, where, and what would be right."""
    with pytest.raises(ValueError, match=words):
        Policy(**wrong)
    same = Policy(name="a", namespaces=("x",))
    with pytest.raises(ValueError, match="same name"):
        MixPolicy(policies=(same, same))
