"""What is shipped, in the hands of the tools it is for: Helm 3 and 4 render the chart, promtool runs the alerts."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from mooring.capabilities.registry import names
from mooring.cli import app
from mooring.install.agent import agent
from mooring.install.manifests import Install, manifests
from mooring.install.rights import rules
from mooring.process.metrics import Metrics

pytestmark = pytest.mark.e2e
DEPLOY = Path(__file__).parents[3] / "deploy"
CHART = DEPLOY / "chart/mooring"
SCHEDULER = "registry.k8s.io/kube-scheduler:v1.36.3"
ALWAYS = {"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"}


def template(helm: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [helm, "template", "m", str(CHART), "-n", "mooring-system", *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def bare(node, key=""):
    """Without what Helm adds to every object: its labels, which are in selectors too."""
    if isinstance(node, dict):
        found = {k: bare(v, k) for k, v in node.items()}
        return {k: v for k, v in found.items() if k not in ALWAYS}
    return [bare(v) for v in node] if isinstance(node, list) else node


def without_settings_file(deployment):
    """The chart brings a settings file along; `mooring manifests` has none."""
    pod = deployment["spec"]["template"]
    assert set(pod["metadata"].pop("annotations")) == {"checksum/config"}
    pod["spec"]["volumes"].remove({"name": "config", "configMap": {"name": "mooring-config"}})
    (container,) = pod["spec"]["containers"]
    container["args"].remove("--config=/etc/mooring/config.yaml")
    container["volumeMounts"].remove({"name": "config", "mountPath": "/etc/mooring", "readOnly": True})
    assert container.pop("imagePullPolicy") == "IfNotPresent"


def test_a_feature_that_observes_is_installed_observing(helm, capsys):
    """D9: `observe` reaches the process as it was asked, from the chart and from the manifests: never as `true`."""
    done = template(
        helm, *(f"--set=features.{name}=observe" for name in names()), "--set=networkPolicy.webhookOpenToAll=true"
    )
    assert done.returncode == 0, done.stderr
    expected = f"--features={','.join(f'{name}=observe' for name in sorted(names()))}"
    assert expected in done.stdout
    app(
        ["manifests", "--features", ",".join(f"{name}=observe" for name in names()), "--webhook-open-to-all"],
        result_action="return_value",
    )
    assert expected in capsys.readouterr().out
    refused = template(helm, "--set=features.mix=maybe")
    assert refused.returncode != 0 and "features" in refused.stderr


@pytest.mark.parametrize("on", [(), ("handoff",), ("mix", "home"), names()], ids=lambda on: "+".join(on) or "core")
@pytest.mark.parametrize(
    ("given", "more"),
    [
        ((), {}),
        (("pdClientSecrets.tidb={a,b}",), {"pd_client_secrets": ("tidb/a", "tidb/b")}),
        (("networkPolicy.nodeCidrs={10.0.0.0/16,fd00::/8}",), {"node_cidrs": ("10.0.0.0/16", "fd00::/8")}),
        (
            ("networkPolicy.nodeCidrs={10.0.0.0/16}", "networkPolicy.webhookOpenToAll=true"),
            {"node_cidrs": ("10.0.0.0/16",), "webhook_open_to_all": True},
        ),
        (("networkPolicy.prometheusNamespaces={ops,more}",), {"prometheus_namespaces": ("ops", "more")}),
        (("networkPolicy.prometheusNamespaces=null",), {"prometheus_namespaces": ()}),
        ((f"scheduler.image={SCHEDULER}",), {"scheduler_image": SCHEDULER}),
    ],
    ids=[
        "as it is",
        "PDs over TLS",
        "node CIDRs",
        "open to all",
        "Prometheus elsewhere",
        "no Prometheus",
        "second scheduler",
    ],
)
def test_the_chart_renders_what_the_manifests_say(helm, on, given, more):
    """Object by object, field by field: `helm template` is `mooring manifests`, but for the settings file."""
    values = (f"--set={value}" for value in given)
    ran = template(helm, *(f"--set=features.{name}=true" for name in on), *values)
    assert ran.returncode == 0, ran.stderr
    chart = {(o["kind"], o["metadata"]["name"]): bare(o) for o in yaml.safe_load_all(ran.stdout) if o}
    plain = {
        (o["kind"], o["metadata"]["name"]): bare(o)
        for o in manifests(Install(image="mooring:0.3.0", features=frozenset(on), **more))
        if o["kind"] != "Namespace"
    }
    assert set(chart) - set(plain) == {("ConfigMap", "mooring-config"), ("Pod", "mooring-doctor")}
    without_settings_file(chart["Deployment", "mooring"])
    for kind, own in (("ClusterRole", False), ("Role", True)):
        theirs, ours = chart[kind, "mooring"], plain[kind, "mooring"]
        assert flat(theirs.pop("rules")) == flat(ours.pop("rules")) == flat(rules(on, own=own))
    for key, ours in plain.items():
        assert chart[key] == ours, key


def test_the_chart_renders_the_agent_as_the_manifests_do(helm):
    """M13: off by default; on, it is the same objects; its options reach the DaemonSet."""
    assert "mooring-agent" not in template(helm).stdout
    plain = {(o["kind"], o["metadata"]["name"]): o for o in agent("mooring-system", "mooring:0.3.0")}

    def rendered(*more):
        ran = template(helm, "--set=agent.enabled=true", *more)
        assert ran.returncode == 0, ran.stderr
        found = {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(ran.stdout) if o}
        return {key: one for key, one in found.items() if key in plain}

    found = rendered()
    assert found["DaemonSet", "mooring-agent"]["spec"]["template"]["spec"]["containers"][0].pop("imagePullPolicy")
    assert found == plain
    more = ("rebootRequired=false", "cloud=aws", "nodeSelector.pool=spot", "resources.limits=null")
    found = rendered("--set=priorityClass.create=false", *(f"--set=agent.{one}" for one in more))
    pod = found["DaemonSet", "mooring-agent"]["spec"]["template"]["spec"]
    assert not {"volumes", "priorityClassName"} & set(pod) and pod["nodeSelector"] == {"pool": "spot"}
    assert pod["containers"][0]["env"][1] == {"name": "MOORING_AGENT_CLOUD", "value": "aws"}


def flat(found):
    return {
        (r["apiGroups"][0], r["resources"][0], verb, *r.get("resourceNames", ())) for r in found for verb in r["verbs"]
    }


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("featurs.mix=true", "featurs"),
        ("features.mixx=true", "mixx"),
        ("replicas=two", "replicas"),
        ("http.token=x", "token"),
        ("webhook.certManager.enable=true", "enable"),
    ],
)
def test_a_misspelt_value_is_refused(helm, wrong, named):
    """Strict at every level: the value's name is in the message."""
    ran = template(helm, f"--set={wrong}")
    assert ran.returncode != 0 and named in ran.stderr


def test_every_option_renders(helm):
    """cert-manager, monitoring, free-form maps and switched-off guards all give YAML; lint has nothing to say."""
    more = ("global.any.thing=1", "features.mix=true", "webhook.certManager.enabled=true")
    more += (
        "webhook.certManager.issuerRef.name=ca",
        "monitoring.prometheusRule=true",
        "monitoring.serviceMonitor=true",
    )
    more += ("nodeSelector.disk=ssd", "podAnnotations.a=b", "podLabels.c=d", "config.queue.MaxScheduleCost=10")
    more += ("priorityClass.create=false", "podDisruptionBudget.enabled=false", "networkPolicy.enabled=false")
    ran = template(helm, *(f"--set={word}" for word in more))
    assert ran.returncode == 0, ran.stderr
    found = {o["kind"]: o for o in yaml.safe_load_all(ran.stdout) if o}
    assert {"Certificate", "PrometheusRule", "ServiceMonitor"} <= set(found)
    assert not {"PriorityClass", "PodDisruptionBudget", "NetworkPolicy"} & set(found)
    assert found["PrometheusRule"]["spec"] == yaml.safe_load((DEPLOY / "monitoring/alerts.yaml").read_text())
    assert yaml.safe_load(found["ConfigMap"]["data"]["config.yaml"]) == {"queue": {"MaxScheduleCost": 10}}
    pod = found["Deployment"]["spec"]["template"]
    assert pod["metadata"]["annotations"]["a"] == "b" and pod["metadata"]["labels"]["c"] == "d"
    lint = subprocess.run([helm, "lint", "--strict", str(CHART)], capture_output=True, text=True, timeout=60)
    assert lint.returncode == 0, lint.stdout


def test_prometheus_and_the_helm_test_ask_over_tls(helm):
    """Off loopback there is nothing else: a certificate that a replica made is not checked, one of yours is."""

    def monitored(*more):
        ran = template(helm, "--set=monitoring.serviceMonitor=true", *more)
        found = {o["kind"]: o for o in yaml.safe_load_all(ran.stdout) if o}
        (endpoint,) = found["ServiceMonitor"]["spec"]["endpoints"]
        assert endpoint["scheme"] == "https"
        args = found["Pod"]["spec"]["containers"][0]["args"]
        assert "--server=https+unverified://mooring.mooring-system.svc:8390" in args
        return endpoint["tlsConfig"]

    assert monitored() == {"insecureSkipVerify": True}
    checked = {"serverName": "mooring.mooring-system.svc", "ca": {"secret": {"name": "page", "key": "ca.crt"}}}
    assert monitored("--set=http.tlsSecret=page") == checked


def test_alerts_are_valid_and_fire_when_they_should(promtool):
    """`promtool check rules`, and its unit tests: each alert fires, and none while all is well."""
    for words in (["check", "rules", "--lint=all", "alerts.yaml"], ["test", "rules", "alerts.test.yaml"]):
        ran = subprocess.run([promtool, *words], cwd=DEPLOY / "monitoring", capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_is_unit_tested():
    """No alert without a case in which it fires."""
    fired = {
        case["alertname"]
        for test in yaml.safe_load((DEPLOY / "monitoring/alerts.test.yaml").read_text())["tests"]
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    alerts = yaml.safe_load((DEPLOY / "monitoring/alerts.yaml").read_text())["groups"]
    assert fired == {rule["alert"] for group in alerts for rule in group["rules"]}


def test_queries_parse_and_scrapes_are_metrics(promtool):
    """Every query of the dashboard parses, and what `/metrics` answers passes promtool's linter."""
    board = json.loads((DEPLOY / "monitoring/dashboard.json").read_text())
    for query in {target["expr"] for panel in board["panels"] for target in panel["targets"]}:
        ran = subprocess.run(
            [promtool, "--experimental", "promql", "format", query], capture_output=True, text=True, timeout=30
        )
        assert ran.returncode == 0, (query, ran.stderr)
    ran = subprocess.run(
        [promtool, "check", "metrics"], input=Metrics().render(), capture_output=True, timeout=30, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
