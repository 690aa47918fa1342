"""Several label schemes in one cluster: all in use are written, and what none classifies is named."""

from mooring.capabilities.mix.labels import CUSTOM
from mooring.capabilities.mix.policy import MixPolicy
from mooring.capabilities.mix.schemes import examine
from mooring.core.model.capacity import CapacityLabel, CapacityRules
from mooring.core.model.cluster import Node, Pod, PodShape, Requirement, SelectorTerm
from mooring.core.model.descriptor import Examined
from mooring.core.model.kinds import Kind
from mooring.process.settings.config import Config
from mooring_lab.stage.scenarios.mix import NAMESPACE, physical
from tests.capabilities.mix.rebalance.mix_stage import Stage
from tests.sim.scenarios.mix import relabel

KARPENTER, EKS = "karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType"


def test_beside_a_node_group_and_karpenter_pods_use_both():
    """M11: on-demand nodes of an EKS node group and Karpenter's: the floor fills both, nobody stays Pending and nobody
    is relaxed; spot is preferred on either. Only the first configured label was written before."""

    async def scenario(stage: Stage) -> None:
        cluster = stage.cluster
        cluster.add_nodes(1, "group-", capacity="", cpu="2", labels={EKS: "ON_DEMAND"})
        cluster.add_nodes(1, "karp-", capacity="", cpu="2", labels={KARPENTER: "on-demand"})
        cluster.add_nodes(1, "spot-group-", capacity="", cpu="2", labels={EKS: "SPOT"})
        cluster.add_nodes(1, "spot-karp-", capacity="", cpu="2", labels={KARPENTER: "spot"})
        await stage.deployed("web", 24, "custom", 12)
        assert sorted(physical(stage.rig, "web")) == ["on-demand"] * 12 + ["spot"] * 12
        pods = cluster.pods(NAMESPACE, "web")
        on = {p["spec"]["nodeName"] for p in pods}
        assert on == {"group-0", "karp-0", "spot-group-0", "spot-karp-0"}
        assert not [p for p in pods if "vacant.io/relaxed" in p["metadata"]["annotations"]]
        relabel(stage.rig, Kind.DEPLOYMENT, "web", {CUSTOM: "13"})
        await stage.rig.until(lambda: physical(stage.rig, "web").count("on-demand") == 13, 120.0)

    Stage(on_demand=0, spot=0).play(scenario)


def test_the_first_label_is_written_while_no_node_has_any():
    """M3: an empty cluster, as before it is scaled up: the design's label, and another one once nodes have it."""

    async def scenario(stage: Stage) -> None:
        cluster = stage.cluster
        cluster.deployment(NAMESPACE, "web", 1, labels={"vacant.io/optimize-scheduling": "true", **_MODE})
        await stage.rig.until(lambda: len(cluster.pods(NAMESPACE, "web")) == 1)
        (pod,) = cluster.pods(NAMESPACE, "web")
        assert "node.kubernetes.io/capacity" in str(pod["spec"]["affinity"]) and KARPENTER not in str(pod["spec"])
        cluster.add_nodes(1, "karp-", capacity="", labels={KARPENTER: "on-demand"})
        await stage.rig.until(lambda: physical(stage.rig, "web") == ["on-demand"], 200.0)

    Stage(on_demand=0, spot=0).play(scenario)


_MODE = {"vacant.io/optimize-scheduling-mode": "all-in-on-demand"}


def _found(nodes: list[Node], pods: list[Pod], policy: MixPolicy | None = None) -> dict[str, str]:
    config = Config(policies=(policy or MixPolicy(),))
    found = examine(Examined(config=config, on=True, nodes=tuple(nodes), pods=tuple(pods)))
    return {finding.code or "": f"{finding.seen} {finding.fix}" for finding in found}


def test_the_doctor_names_nodes_that_no_scheme_classifies_and_pods_that_match_none():
    """M11: by name, with what to type; where every node is classified it says by which labels."""
    known = Node("a", "u1", "1", labels={EKS: "SPOT"})
    odd = Node("odd", "u2", "1", labels={"lifecycle": "spot"})
    tied = PodShape(
        labels={"vacant.io/affinity": "on-demand"},
        required_terms=(SelectorTerm((Requirement(KARPENTER, "In", ("on-demand",)),)),),
    )
    lost = Pod("shop", "web-1", "p1", "1", shape=tied)
    found = _found([known, odd], [lost])
    assert "what odd is" in found["MO404"] and "kubectl label node odd" in found["MO404"]
    assert "shop/web-1 requires" in found["MO405"]
    lifecycle = CapacityLabel("lifecycle", ("spot",), ("normal",))
    rules = CapacityRules((*CapacityRules().labels, lifecycle))
    assert set(_found([known, odd], [], MixPolicy(capacity=rules))) == {""}
