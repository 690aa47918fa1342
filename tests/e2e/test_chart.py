"""The chart on the real API server, by Helm 3 and by Helm 4: installed, upgraded, rolled back, and gone without a trace."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mooring.install.manifests import Install, network_policies
from mooring.install.rights import rules
from mooring_lab.control.build import find_tools
from mooring_lab.control.cluster import Lab
from tests.e2e.waiting import until

pytestmark = pytest.mark.e2e
CHART = Path(__file__).parents[2] / "deploy/chart/mooring"
KINDS = "deployments,pods,services,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies"
EVERYWHERE = "clusterroles,clusterrolebindings,priorityclasses"
OURS = "app.kubernetes.io/instance=m"


@pytest.fixture(params=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest, lab: Lab, tmp_path: Path) -> Callable[..., str]:
    """Helm, with a home of its own."""
    program = find_tools()[request.param]
    homes = {f"HELM_{what}_HOME": str(tmp_path / what.lower()) for what in ("CACHE", "CONFIG", "DATA")}

    def call(*words: str) -> str:
        environment = os.environ | homes | {"KUBECONFIG": str(lab.kubeconfig)}
        ran = subprocess.run([program, *words], env=environment, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return call


@pytest.fixture
def namespace(lab: Lab) -> Iterator[str]:
    """One where Pod Security enforces `restricted`."""
    name = f"mooring-chart-{time.monotonic_ns() % 100_000}"
    lab.kubectl("create", "namespace", name)
    lab.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    yield name
    lab.kubectl("delete", EVERYWHERE, "-l", OURS, "--ignore-not-found")
    lab.kubectl("delete", "namespace", name, "--wait=false")


def may(lab: Lab, *features: str) -> bool:
    """The rights are those of these features."""
    role = json.loads(lab.kubectl("get", "clusterrole", "mooring", "-o", "json"))
    return flat(role["rules"]) == flat(rules(features, own=False))


def flat(found) -> set[tuple[str, ...]]:
    return {
        (g, r, verb) for rule in found for g in rule["apiGroups"] for r in rule["resources"] for verb in rule["verbs"]
    }


def test_a_release_comes_changes_goes_back_and_goes(lab: Lab, namespace: str, helm: Callable[..., str]):
    """Under the restricted standard both replicas are created; a feature switched on brings its rights, a rollback takes
    them back, and uninstalling leaves nothing."""
    there = ("-n", namespace)
    listed = "kubectl get endpointslices -n default"
    notes = helm("install", "m", str(CHART), *there, "--set=features.mix=true")
    assert listed in notes, "an open webhook port is a visible choice"
    pods = ("get", "pods", *there, "-l", OURS, "-o", "name")
    until(lambda: len(lab.kubectl(*pods).split()) == 2)
    assert may(lab, "mix")
    more = ("--set=features.home=true", "--set=networkPolicy.nodeCidrs={10.0.0.0/16}")
    assert listed not in helm("upgrade", "m", str(CHART), *there, "--set=features.mix=true", *more)
    assert may(lab, "home", "mix")
    helm("rollback", "m", "1", *there)
    assert may(lab, "mix")
    helm("uninstall", "m", *there)
    until(lambda: not lab.kubectl("get", KINDS, *there, "-l", OURS, "-o", "name").strip())
    assert not lab.kubectl("get", EVERYWHERE, "-l", OURS, "-o", "name").strip()
    assert json.loads(helm("list", "-A", "-o", "json")) == []


@pytest.fixture
def api_servers(lab: Lab) -> Iterator[tuple[str, ...]]:
    """This control plane does not say where its API servers are: said in its place, with others that are none."""
    for name, kind, service, address in (
        ("four", "IPv4", "kubernetes", "10.0.0.2"),
        ("six", "IPv6", "kubernetes", "fd00::1"),
        ("other", "IPv4", "other", "10.0.0.9"),
    ):
        made = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service, "chart": "test"}},
            "addressType": kind,
            "endpoints": [{"addresses": [address]}],
        }
        lab.kubectl("apply", "-n", "default", "-f", "-", input=json.dumps(made))
    yield "10.0.0.2/32", "fd00::1/128"
    lab.kubectl("delete", "endpointslices", "-n", "default", "-l", "chart=test")


def webhook_peers(policy) -> list[dict] | None:
    (rule,) = [rule for rule in policy["spec"]["ingress"] if rule["ports"][0]["port"] == 9443]
    return rule.get("from")


def test_the_webhook_is_open_to_the_api_servers_that_the_cluster_names(
    lab: Lab, namespace: str, helm: Callable[..., str], api_servers: tuple[str, ...]
):
    """Line 10 of issue 21: as `mooring manifests` makes it; what an administrator says goes before it."""
    there = ("m", str(CHART), "-n", namespace, "--set=features.mix=true")

    def installed():
        policy = json.loads(lab.kubectl("get", "networkpolicy", "mooring", "-n", namespace, "-o", "json"))
        for peer in webhook_peers(policy) or ():
            peer.get("podSelector", {}).get("matchLabels", {}).pop("app.kubernetes.io/instance", None)
        return webhook_peers(policy)

    def wanted(**more):
        (policy,) = network_policies(Install(image="x", features=frozenset({"mix"}), **more))
        return webhook_peers(policy)

    notes = helm("install", *there)
    assert "open to these API servers alone: 10.0.0.2/32,fd00::1/128" in notes
    assert installed() == wanted(api_servers=api_servers)
    helm("upgrade", *there, "--set=networkPolicy.nodeCidrs={10.0.0.0/16}")
    assert installed() == wanted(node_cidrs=("10.0.0.0/16",))
    assert "9443" not in helm("upgrade", *there, "--set=networkPolicy.webhookOpenToAll=true")
    assert installed() is None
    helm("uninstall", "m", "-n", namespace)
