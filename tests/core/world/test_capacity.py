import msgspec
import pytest

from mooring.core.model.capacity import CapacityLabel, CapacityRules, NodeClass


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"node.kubernetes.io/capacity": "spot"}, "spot"),
        ({"node.kubernetes.io/capacity": "on-demand"}, "on-demand"),
        ({"node.kubernetes.io/capacity": "SPOT"}, "unknown"),
        ({"karpenter.sh/capacity-type": "reserved"}, "on-demand"),
        ({"eks.amazonaws.com/capacityType": "SPOT"}, "spot"),
        ({"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-nodepool": "p"}, "spot"),
        ({"cloud.google.com/gke-preemptible": "true", "cloud.google.com/gke-nodepool": "p"}, "spot"),
        ({"cloud.google.com/gke-nodepool": "p"}, "on-demand"),
        ({"kubernetes.azure.com/scalesetpriority": "spot", "kubernetes.azure.com/agentpool": "p"}, "spot"),
        ({"kubernetes.azure.com/agentpool": "p"}, "on-demand"),
        ({"karpenter.sh/capacity-type": "spot", "node.kubernetes.io/capacity": "on-demand"}, "spot"),
        ({}, "unknown"),
    ],
)
def test_classes_by_label(labels, expected):
    """M3: each cloud's own labels tell the class; spot wins over on-demand, and silence is not an answer."""
    assert CapacityRules().class_of(labels) == expected


def test_rules_of_ones_own():
    """M3: other label schemes come by configuration, and so does the class of nodes that say nothing."""
    config = b'{"labels":[{"key":"lifecycle","spot_values":["Ec2Spot"]}],"unlabelled":"on-demand"}'
    rules = msgspec.json.decode(config, type=CapacityRules)
    assert rules.labels == (CapacityLabel("lifecycle", ("Ec2Spot",)),)
    assert rules.class_of({"lifecycle": "Ec2Spot"}) is NodeClass.SPOT
    assert rules.class_of({"node.kubernetes.io/capacity": "spot"}) is NodeClass.ON_DEMAND
