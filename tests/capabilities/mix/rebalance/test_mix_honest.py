"""M10: honest words: what keeps a workload during back-off, and a pod that only prefers on-demand."""

from mooring.capabilities.mix.labels import MODE, RELAXED
from mooring.core.engine.why import explain
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason
from mooring_lab.cluster.controllers import podstate
from mooring_lab.stage.scenarios.mix import NAMESPACE, switched_on
from tests.capabilities.mix.rebalance.mix_stage import Stage
from tests.capabilities.mix.rebalance.test_mix_circles import SOFT
from tests.capabilities.mix.rebalance.test_mix_shortage import full
from tests.sim.scenarios.mix import relabel

WEB = "workload/Deployment/shop/web"


def test_back_off_names_the_budget_and_what_to_type():
    """M10: attempts failed, and now a budget is in the way as well: said during the back-off, with what would help, and
    not only `1 attempt failed (wrong-class)`."""

    async def scenario(stage: Stage) -> None:
        await stage.deployed("web", 3, "all-in-spot")
        for node in ("n0", "n1", "n2", "n3"):
            stage.cluster.store.patch(Kind.NODE, "", node, {"spec": {"taints": [SOFT]}})
        stage.rig.webhook_away = True
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {MODE: "all-in-on-demand"})
        await stage.rig.until(lambda: "failed (" in detail(stage), 900.0)
        stage.cluster.pdb(NAMESPACE, "web", {"app": "web"}, max_unavailable=0)
        stage.rig.webhook_away = False
        stage.cluster.deployment(NAMESPACE, "other", 1, labels=switched_on("all-in-on-demand"))
        await stage.rig.until(lambda: "pdb/web allows 0" in detail(stage) and "failed (" in detail(stage), 900.0)
        said = stage.rig.leader().engine.verdicts["mix", WEB]
        assert said.reason is Reason.BACK_OFF and "failed (" in said.detail and "again in" in said.detail
        assert "budget" in said.remedy

    Stage().play(scenario)


def detail(stage: Stage) -> str:
    found = stage.rig.leader().engine.verdicts.get(("mix", WEB))
    return "" if found is None else found.detail


def test_a_relaxed_pod_says_so():
    """M10: `why` of a pod that found no on-demand node, and of which a floor does not hold any more."""

    async def scenario(stage: Stage) -> None:
        full(stage)
        stage.cluster.deployment(NAMESPACE, "web", 1, labels=switched_on("all-in-on-demand"))
        await stage.rig.until(lambda: stage.cluster.ready(NAMESPACE, "web") == 1, 600.0)
        (pod,) = stage.cluster.pods(NAMESPACE, "web")
        assert RELAXED in podstate.annotations_of(pod)
        found = explain(stage.rig.leader().engine, f"pod/{NAMESPACE}/{pod['metadata']['name']}")
        assert "it only prefers on-demand, which was full when it was created" in str(found)

    Stage(on_demand=2, spot=2).play(scenario)
