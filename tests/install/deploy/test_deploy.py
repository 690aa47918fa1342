"""What is shipped for installing agrees with the code: rights, manifests, chart, alerts, dashboard, runbooks."""

import functools
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mooring.capabilities.registry import names
from mooring.core.model.exits import UserError
from mooring.core.model.tidb import TidbCluster
from mooring.install.manifests import USER, Install, labels, manifests
from mooring.install.rights import CORE, rights_of, rights_table, rules
from mooring.install.scheduler import version_of
from mooring.process import metrics
from mooring.process.pd_directory import endpoints

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy/chart/mooring"
ALERTS = yaml.safe_load((ROOT / "deploy/monitoring/alerts.yaml").read_text())["groups"]
DASHBOARD = json.loads((ROOT / "deploy/monitoring/dashboard.json").read_text())
NAMES = set(metrics.tables())


def known(query: str) -> set[str]:
    """The metrics that a query names, without the suffixes of a histogram."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\b(?:mooring|cke)_\w+", query)}


def test_what_is_made_from_code_is_up_to_date():
    """The chart's rights and alerts and the dashboard are what `python deploy/render.py` writes."""
    for path, text in runpy.run_path(str(ROOT / "deploy/render.py"))["rendered"]().items():
        assert (ROOT / "deploy" / path).read_text() == text, f"{path}: run python deploy/render.py"


def test_pods_are_locked_down():
    """Non-root, read-only root, no capabilities, probes, two replicas, a grace longer than our own stopping."""
    deployment = next(o for o in manifests(Install(image="m:1")) if o["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert deployment["spec"]["replicas"] == 2
    assert (
        pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    )
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    # With a read-only root, the webhook's key can be loaded from nowhere else.
    # The black box records into a volume of its own: what it writes is bounded by us, not by the kubelet.
    assert container["volumeMounts"] == [
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "blackbox", "mountPath": "/var/lib/mooring/blackbox"},
    ]
    assert pod["volumes"] == [
        {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        {"name": "blackbox", "emptyDir": {}},
    ]
    assert "--blackbox=/var/lib/mooring/blackbox" in container["args"]
    assert {"livenessProbe", "readinessProbe"} <= set(container)
    assert pod["terminationGracePeriodSeconds"] > container["lifecycle"]["preStop"]["sleep"]["seconds"] + 10


def test_the_agent_is_locked_down_and_kept_apart():
    """M13: non-root, read-only, no capabilities, patch on Nodes and nothing else, in a namespace of its own; it is off
    unless asked for, and no selector of the control plane takes it in."""
    assert not [o for o in manifests(Install(image="m:1")) if "agent" in o["metadata"]["name"]]
    found = {o["kind"]: o for o in manifests(Install(image="m:1", agent=True)) if "agent" in o["metadata"]["name"]}
    pod = found["DaemonSet"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert found["ClusterRole"]["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}]
    assert pod["spec"]["securityContext"]["runAsNonRoot"] and container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert found["DaemonSet"]["metadata"]["namespace"] == found["Namespace"]["metadata"]["name"] != "mooring-system"
    assert not labels().items() <= pod["metadata"]["labels"].items()
    assert found["ValidatingAdmissionPolicy"]["spec"]["failurePolicy"] == "Fail"


def test_the_network_policy_lets_in_what_we_listen_on_and_out_where_we_go():
    """In: the container's three ports. Out: DNS, API servers, a PD where tidb-operator puts it, the other replica."""
    found = {o["kind"]: o for o in manifests(Install(image="m:1", features=frozenset(names())))}
    pod, policy = found["Deployment"]["spec"]["template"], found["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
    assert {p["port"] for rule in policy["ingress"] for p in rule["ports"]} == set(ports.values())
    out = {p["port"] for rule in policy["egress"] for p in rule["ports"]}
    cluster = TidbCluster(namespace="tidb", name="demo", uid="u", resource_version="1")
    pd = {int(url.rpartition(":")[2]) for url in endpoints(cluster, {})}
    assert out == {53, 443, 6443, 10080, ports["webhook"], ports["http"]} | pd


def test_the_page_is_on_the_network_with_tls_only():
    """Issue 21, line 10: loopback for who forwards a port, the pod's own address for others: by HTTPS, so are probes."""
    for secret in ("", "page-tls"):
        found = {o["kind"]: o for o in manifests(Install(image="m:1", http_tls_secret=secret))}
        (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
        (listens,) = [a.partition("=")[2] for a in container["args"] if a.startswith("--listen-http=")]
        assert listens == "127.0.0.1:8390,$(MOORING_ADVERTISE_ADDRESS):8390"
        (pod_address,) = [e for e in container["env"] if e["name"] == "MOORING_ADVERTISE_ADDRESS"]
        assert pod_address["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
        probes = [container[f"{kind}nessProbe"]["httpGet"] for kind in ("live", "readi")]
        assert [probe["scheme"] for probe in probes] == ["HTTPS", "HTTPS"]


def test_a_rollout_leads_nobody_to_a_replica_that_is_not_there():
    """The API server is led to replicas that are ready, one goes at a time, and one that goes serves on until those who
    call it have heard."""
    found = {
        (o["kind"], o["metadata"]["name"]): o for o in manifests(Install(image="m:1", features=frozenset({"mix"})))
    }
    service, deployment = found["Service", "mooring-webhook"], found["Deployment", "mooring"]
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert not service["spec"].get("publishNotReadyAddresses"), "it listens before it has certificates"
    assert pod["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"] >= 5
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] < deployment["spec"]["replicas"]
    assert found["PodDisruptionBudget", "mooring"]["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("feature", [CORE, *names()])
def test_rights_are_least(feature):
    """No wildcard, no escalation, no reading of Secrets beyond our own by name; own rights stay in a Role."""
    for right in rights_table()[feature]:
        assert "*" not in (right.group, right.resource, *right.verbs)
        assert not {"escalate", "bind", "impersonate"} & set(right.verbs)
        if right.resource == "secrets":
            assert right.own and (right.names or right.verbs == ("create",))
    on = () if feature == CORE else (feature,)
    asked = {(r.group, r.resource, v, r.own) for _, r in rights_of(on) for v in r.verbs}
    given = {
        (rule["apiGroups"][0], rule["resources"][0], verb, own)
        for own in (True, False)
        for rule in rules(on, own=own)
        for verb in rule["verbs"]
    }
    assert given == asked


def test_every_query_names_a_metric_that_exists():
    """Alerts and dashboard ask only for what is exported."""
    queries = [rule["expr"] for group in ALERTS for rule in group["rules"]]
    queries += [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    for query in queries:
        assert known(query) and known(query) <= NAMES, query
    assert all(p["datasource"]["uid"] == "${datasource}" for p in DASHBOARD["panels"])


def test_labels_in_queries_exist():
    """What a query groups by or selects on is a label of that metric."""
    tables = metrics.tables()
    for query in [r["expr"] for g in ALERTS for r in g["rules"]] + [
        t["expr"] for p in DASHBOARD["panels"] for t in p["targets"]
    ]:
        labels = {"le"}.union(*(tables[name][1] for name in known(query)))
        used = {w.strip() for by in re.findall(r"by \(([^)]*)\)", query) for w in by.split(",")}
        used |= set(re.findall(r"[{,]\s*(\w+)\s*=", query))
        assert used <= labels, (query, used - labels)


def test_every_alert_has_a_severity_a_static_summary_and_a_runbook_that_resolves():
    """Whoever is woken up finds a section that says what to do."""
    text = (ROOT / "docs/operations.md").read_text()
    anchors = {
        re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-")
        for h in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }
    names = []
    for rule in (rule for group in ALERTS for rule in group["rules"]):
        names.append(rule["alert"])
        assert rule["alert"].startswith("Mooring")
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert "{{" not in rule["annotations"]["summary"]
        file, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert (ROOT / file).exists() and anchor in anchors, rule["alert"]
    assert len(names) == len(set(names))
    assert not any("waiting" in rule["expr"] for group in ALERTS for rule in group["rules"]), "never page on what waits"


def test_every_metric_is_documented():
    """docs/metrics.md has a line for each metric, and none for one that is gone."""
    told = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE))
    assert told == NAMES


def test_the_values_schema_is_strict_everywhere():
    """A misspelt value is refused; only `global` and free-form maps are open; every value has its place in the schema."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    open_maps = {
        "pdClientSecrets",
        "global",
        "config",
        "resources",
        "nodeSelector",
        "affinity",
        "podAnnotations",
        "podLabels",
    }

    def walk(node, value, path):
        if node.get("type") != "object":
            return
        if path.rpartition(".")[2] in open_maps:
            return
        assert node.get("additionalProperties") is False, path
        assert set(value) <= set(node["properties"]), path
        for name, inner in node["properties"].items():
            walk(inner, value.get(name, {}) if isinstance(value, dict) else {}, f"{path}.{name}")

    walk(schema, values, "values")
    assert set(values["features"]) == set(names())


def test_the_container_is_small_and_harmless():
    """A fixed base image, a user that is not root and is the manifests' own, nothing fetched by hand, nothing secret."""
    lines = [line for line in (ROOT / "deploy/Containerfile").read_text().splitlines() if line.strip()]
    words = [line.split() for line in lines if not line.startswith("#")]
    bases = [w[1] for w in words if w[0] == "FROM"]
    # One base for both stages, which a release names by its digest.
    assert set(bases) == {"${BASE}"}
    bases = [w[1].removeprefix("BASE=") for w in words if w[0] == "ARG"]
    assert "--require-hashes -r /tmp/uv.txt" in "\n".join(lines), "pinned, like everything that it installs"
    assert bases and all(re.search(r":\d+\.\d+(\.\d+)?-\w+@sha256:[0-9a-f]{64}$", base) for base in bases), bases
    last = max(n for n, w in enumerate(words) if w[0] == "FROM")
    final = words[last:]
    assert [w[1] for w in final if w[0] == "USER"] == [f"{USER}:{USER}"]
    assert not any(w[0] in {"ADD", "RUN"} for w in final), "the last stage only takes over what was built"
    assert not re.search(r"(?i)secret|token|password|curl|wget|sudo|chmod", "\n".join(lines))
    for copied in (w for w in words if w[0] == "COPY" and not w[1].startswith("--from")):
        assert all((ROOT / name).exists() for name in copied[1:-1]), copied


def test_the_network_policy_says_from_whom():
    """Each port names who may come; the webhook's only where the nodes' addresses are known."""
    on = frozenset({"home", "mix"})
    policy = next(
        o
        for o in manifests(Install(image="m:1", features=on, node_cidrs=("10.0.0.0/16",)))
        if o["kind"] == "NetworkPolicy"
    )
    by_port = {rule["ports"][0]["port"]: rule.get("from") for rule in policy["spec"]["ingress"]}
    assert set(by_port) == {8390, 10262, 9443}
    assert all({"ipBlock": {"cidr": "10.0.0.0/16"}} in peers for peers in by_port.values())
    off = next(o for o in manifests(Install(image="m:1")) if o["kind"] == "NetworkPolicy")
    assert [rule["ports"][0]["port"] for rule in off["spec"]["ingress"]] == [8390]
    assert off["spec"]["ingress"][0]["from"]


def test_the_second_scheduler_asks_our_extender_with_the_token(tmp_path):
    """H2: what `--scheduler-image` installs is locked down like Mooring, may do what every kube-scheduler may and hold
    its own lease, is let in by the network policy, and its settings are those that `home scheduler-config` writes, with
    the extender's address and token."""
    install = Install(
        image="m:1", features=frozenset({"home"}), scheduler_image="registry.k8s.io/kube-scheduler:v1.36.3"
    )
    plain = manifests(Install(image="m:1", features=frozenset({"home"})))
    more = [one for one in manifests(install) if one not in plain]
    assert {one["metadata"]["name"] for one in more if one["kind"] == "ClusterRoleBinding"} == {
        "mooring:kube-scheduler",
        "mooring:volume-scheduler",
    }
    (deployment,) = (one for one in more if one["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    assert template["metadata"]["labels"]["mooring.dev/asks-extender"] == "true"
    pod = template["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert all(c["securityContext"]["readOnlyRootFilesystem"] for c in (*pod["initContainers"], *pod["containers"]))
    (writer,), (runs,) = pod["initContainers"], pod["containers"]
    assert writer["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "mooring-http", "key": "extender-token"}
    written = tmp_path / "scheduler.yaml"
    said = {"$(MOORING_EXTENDER_TOKEN)": "s3cret", "/etc/mooring-scheduler/scheduler.yaml": str(written)}
    args = [functools.reduce(lambda text, pair: text.replace(*pair), said.items(), arg) for arg in writer["args"]]
    ran = subprocess.run([sys.executable, "-m", "mooring", *args], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    settings = yaml.safe_load(written.read_text())
    (extender,) = settings["extenders"]
    assert extender["urlPrefix"] == "http://mooring:s3cret@mooring.mooring-system.svc:10262/scheduler"
    assert settings["leaderElection"]["resourceNamespace"] == deployment["metadata"]["namespace"] == "mooring-system"
    assert written.stat().st_mode & 0o077 == 0
    assert runs["command"] == ["kube-scheduler", "--config=/etc/mooring-scheduler/scheduler.yaml"]


@pytest.mark.parametrize("image", ["kube-scheduler", "kube-scheduler:latest", "kube-scheduler:v1.18.2"])
def test_a_scheduler_of_no_known_version_is_refused(image):
    """Its settings depend on its version: refused in words, before anything is printed."""
    with pytest.raises(UserError, match=r"1\.\d+"):
        version_of(image)
