"""Installing on the real control plane: manifests applied, rights exactly those, doctor green, nothing left behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from mooring import __version__ as version
from mooring.capabilities.registry import names
from mooring.clients.kube import HttpKubeApi, load
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import CORDONED_BY, Mark, write_mark
from mooring.core.model.reasons import Reason
from mooring.install.doctor.cluster import rights as doctors_rights
from mooring.install.rights import CORE, rights_of, rights_table
from mooring.process import metrics
from mooring_lab.control.build import find_tools
from mooring_lab.control.cluster import Lab
from mooring_lab.control.errors import LabError
from mooring_lab.control.loopback import free_ports
from mooring_lab.demo.onlab.rig import PATIENT_S
from tests.e2e.definitions import define
from tests.e2e.waiting import eventually, until
from tests.process.page.chromium import Chromium, NoBrowser

pytestmark = pytest.mark.e2e

ON = ("handoff", "home", "mix")
#: Rights that no feature may ever have.
NEVER = (
    ("list", "secrets", "all"),
    ("get", "secrets", "all"),
    ("create", "pods", "all"),
    ("delete", "nodes", "all"),
    ("create", "pods/exec", "all"),
    ("update", "deployments.apps", "all"),
    ("delete", "configmaps", "own"),
    ("impersonate", "users", "all"),
    ("bind", "clusterroles.rbac.authorization.k8s.io", "all"),
    ("delete", "mutatingwebhookconfigurations.admissionregistration.k8s.io/other", "all"),
    ("create", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "all"),
    ("create", "validatingwebhookconfigurations.admissionregistration.k8s.io", "all"),
)


def mooring(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mooring", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


def switches(names) -> str:
    return ",".join(f"{name}=true" for name in names)


@pytest.fixture
def namespace(lab: Lab) -> Iterator[str]:
    """A namespace for one installation; cluster-wide objects of ours are removed afterwards."""
    name = f"mooring-{os.getpid()}-{time.monotonic_ns() % 100_000}"
    define(lab, Kind.TIDB_CLUSTER)
    yield name
    for kind in ("clusterrole", "clusterrolebinding", "priorityclass"):
        lab.kubectl("delete", kind, "mooring", "--ignore-not-found")
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        lab.kubectl("delete", kind, "mooring-mix", "--ignore-not-found")
    policies = "validatingadmissionpolicies,validatingadmissionpolicybindings"
    lab.kubectl("delete", policies, "mooring-own-account", "--ignore-not-found")
    lab.kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=false")


def install(lab: Lab, namespace: str, features) -> None:
    ran = mooring("manifests", "--namespace", namespace, "--features", switches(features), "--replicas", "1")
    assert ran.returncode == 0, ran.stderr
    # The process runs outside the cluster, so its webhook has a URL, which the policy for our account forbids.
    objects = [o for o in yaml.safe_load_all(ran.stdout) if not o["kind"].startswith("ValidatingAdmissionPolicy")]
    lab.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects))
    # The pods themselves have no image here; what they may do is what counts.
    lab.kubectl("-n", namespace, "scale", "deploy/mooring", "--replicas", "0")


def as_account(lab: Lab, namespace: str, directory: Path, name: str = "mooring") -> Path:
    """A kubeconfig with nothing but the ServiceAccount's own token."""
    config = yaml.safe_load(lab.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": lab.kubectl("-n", namespace, "create", "token", name).strip()}
    path = directory / "account.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def may(api: HttpKubeApi, namespace: str, verb: str, resource: str, where: str) -> bool:
    """`resource` as kubectl spells it: resource[.group][/name], or pods/subresource."""
    what, _, rest = resource.partition("/")
    kind, _, group = what.partition(".")
    attributes = {"verb": verb, "group": group, "resource": kind}
    attributes |= {"subresource" if kind == "pods" else "name": rest} if rest else {}
    attributes |= {"namespace": namespace} if where == "own" else {}
    spec = {"resourceAttributes": attributes, "user": f"system:serviceaccount:{namespace}:mooring"}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = await api.raw("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return answer["status"]["allowed"]


async def rules_of(kubeconfig: Path, namespace: str) -> set[tuple[str, str, str, str]]:
    """Everything that an account may do in a namespace, by the API server's own account: verb, group, resource, name."""
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}
    async with HttpKubeApi(load(kubeconfig), write_timeout_s=PATIENT_S) as api:
        answer = await api.raw("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body)
    return {
        (verb, group, resource, name)
        for rule in answer["status"]["resourceRules"]
        for verb in rule["verbs"]
        for group in rule.get("apiGroups", [""])
        for resource in rule["resources"]
        for name in rule.get("resourceNames") or [""]
    }


def table(features, *, own: bool) -> set[tuple[str, str, str, str]]:
    """What the table of rights says holds in our own namespace, or in any other."""
    return {
        (verb, group, resource, name)
        for _, right in rights_of(features)
        if own or not right.own
        for group, resource, verb in right.each()
        for name in right.names or [""]
    }


@pytest.mark.parametrize("feature", [CORE, *names()])
async def test_a_feature_brings_its_rights_and_no_other(lab: Lab, namespace: str, tmp_path: Path, feature: str):
    """With one feature on, the API server's list of what the account may do is the table, row by row; what nobody may
    have is refused; and each right that is cut off is named by doctor, and only that one."""
    on = () if feature == CORE else (feature,)
    await asyncio.to_thread(install, lab, namespace, on)
    account = as_account(lab, namespace, tmp_path)
    # What everybody who has a name may do (ask about themselves) is known from an account without any rights.
    lab.kubectl("-n", namespace, "create", "serviceaccount", "nobody")
    (tmp_path / "nobody").mkdir()
    nobody = as_account(lab, namespace, tmp_path / "nobody", "nobody")
    for where, own in ((namespace, True), ("default", False)):
        differs = set()

        async def as_in_the_table(where=where, own=own, differs=differs) -> bool:
            """The authorizer hears of roles by a watch."""
            found = await rules_of(account, where) - await rules_of(nobody, where)
            differs.clear()
            differs.update(found ^ table(on, own=own))
            return not differs

        await eventually(as_in_the_table, f"the rights in {where}", tell=lambda differs=differs: sorted(differs))
    async with HttpKubeApi(load(lab.kubeconfig), write_timeout_s=PATIENT_S) as api:
        for verb, resource, where in NEVER:
            assert not await may(api, namespace, verb, resource, where), (feature, verb, resource)
        mine = rights_table()[feature]
        for cut in [(right, verb) for right in mine for _, _, verb in right.each()]:
            await cut_and_named(api, lab, namespace, on, *cut)


async def cut_and_named(api: HttpKubeApi, lab: Lab, namespace: str, on, right, verb: str) -> None:
    """One verb of one right taken away: doctor's words for it, and for nothing else."""
    kind, path = ("Role", f"/namespaces/{namespace}/roles") if right.own else ("ClusterRole", "/clusterroles")
    where = f"/apis/rbac.authorization.k8s.io/v1{path}/mooring"
    role = await api.raw("GET", where)
    names = list(right.names)
    rest = []
    for rule in role["rules"]:
        same = (rule["apiGroups"], rule["resources"], rule.get("resourceNames", [])) == (
            [right.group],
            [right.resource],
            names,
        )
        verbs = [v for v in rule["verbs"] if not same or v != verb]
        rest += [{**rule, "verbs": verbs}] if verbs else []
    assert rest != role["rules"], (kind, right, verb)
    await api.raw("PUT", where, {**role, "rules": rest, "metadata": {"name": "mooring"}})

    async def missed() -> set[str]:
        return {f.seen for f in await doctors_rights(api, namespace, on, "mooring") if f.code == "MO202"}

    seen = await eventually(missed, "the authorizer, which hears of it by a watch, misses a right")
    spelled = f"{right.resource}.{right.group}" if right.group else right.resource
    scope = f"in {namespace}" if right.own else "in all namespaces"
    assert seen == {f"serviceaccount {namespace}/mooring may not {verb} {spelled} {scope}"}
    await api.raw("PUT", where, {**role, "metadata": {"name": "mooring"}})

    async def back() -> bool:
        return not any(f.code for f in await doctors_rights(api, namespace, on, "mooring"))

    await eventually(back, f"{spelled} is given back")


class Replica:
    """`mooring run` as the ServiceAccount would run it."""

    def __init__(self, lab: Lab, namespace: str, kubeconfig: Path) -> None:
        self.http, extender, webhook = free_ports(3)
        self.url = f"http://127.0.0.1:{self.http}"
        self.extender = f"127.0.0.1:{extender}"
        self.log = (lab.dir / "logs" / f"install-{self.http}.log").open("ab")
        command = [sys.executable, "-m", "mooring", "run", "--kubeconfig", str(kubeconfig), "--namespace", namespace]
        command += ["--features", switches(ON), "--listen-http", f"127.0.0.1:{self.http}"]
        command += ["--listen-extender", self.extender, "--listen-webhook", f"127.0.0.1:{webhook}"]
        command += ["--webhook-url", f"https://127.0.0.1:{webhook}"]
        self._process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(120)
        self.log.close()
        return code


def test_installed_doctor_green_page_up_and_nothing_left(lab: Lab, namespace: str, tmp_path: Path):
    """With the ServiceAccount's rights alone it runs, doctor finds nothing wrong, the page shows the cluster; a right
    cut off is named; after cleanup nothing of ours is left."""
    pre = mooring("doctor", "--pre", "--kubeconfig", str(lab.kubeconfig), "--short")
    assert pre.returncode == 0, pre.stdout + pre.stderr
    install(lab, namespace, ON)
    lab.add_nodes(3, labels={"node.kubernetes.io/capacity": "on-demand"})
    kubeconfig = as_account(lab, namespace, tmp_path)
    replica = Replica(lab, namespace, kubeconfig)
    common = ["--kubeconfig", str(lab.kubeconfig), "--namespace", namespace]
    doctor = ["doctor", *common, "--features", switches(ON), "--server", replica.url, "-o", "json"]
    try:
        ran = mooring(*doctor, "--wait", "60", MOORING_LISTEN_EXTENDER=replica.extender)
        assert ran.returncode == 0, ran.stdout
        whole = json.loads(ran.stdout)
        assert whole["well"], whole
        # This control plane's scheduler is not set up to ask us, and nobody has named its addresses: that is all there
        # is to say; then one asks, and they are named.
        assert sorted(f["code"] for f in whole["findings"] if f["code"]) == ["MO502", "MO807"], whole
        names_the_addresses(lab, namespace, doctor, replica.extender)
        ask_as_a_scheduler(replica.extender)
        reached = [f["what"] for f in whole["findings"] if f["group"] == "webhooks"]
        assert any("reaches the webhook" in what for what in reached), whole
        assert not refused(replica), "a right is missing that the doctor does not know of"
        # As `helm test` runs it, with the account's own rights; and not one warning either.
        alone = ["doctor", "--strict", "--kubeconfig", str(kubeconfig), "--namespace", namespace, "--service-account="]
        ran = mooring(
            *alone, "--features", switches(ON), "--server", replica.url, MOORING_LISTEN_EXTENDER=replica.extender
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        page_shows(replica.url)
        scrape_is_sound(replica.url)
        ends_what_fleet_began(lab, doctor, [*common, "--server", replica.url], replica.extender)
        cut_one_right(lab)
        ran = mooring(*doctor, MOORING_LISTEN_EXTENDER=replica.extender)
        codes = {(f["code"], f["seen"]) for f in json.loads(ran.stdout)["findings"] if f["level"] == "error"}
        assert ran.returncode == 1 and len(codes) >= 1
        assert all(code == "MO202" and "may not create pods/eviction" in seen for code, seen in codes), codes
        (fix,) = {f["fix"] for f in json.loads(ran.stdout)["findings"] if f["code"] == "MO202"}
        lab.kubectl("apply", "-f", "-", input=mooring(*fix.partition(" | ")[0].split()[1:]).stdout)
        ran = mooring(*doctor, "--wait", "30", MOORING_LISTEN_EXTENDER=replica.extender)
        assert ran.returncode == 0, ran.stdout
        held = mooring("cleanup", "--yes", *common)
        assert held.returncode == 3 and "stop it first" in held.stderr
    finally:
        code = replica.stop()
    assert code == 0
    listed = mooring("cleanup", "--dry-run", *common, "-o", "json")
    assert f"Lease {namespace}/mooring" in json.loads(listed.stdout)["found"], listed.stdout + listed.stderr
    done = mooring("cleanup", "--yes", *common)
    assert done.returncode == 0, done.stderr
    again = mooring("cleanup", "--dry-run", *common, "-o", "json")
    assert json.loads(again.stdout)["found"] == []
    ran = mooring("manifests", "--namespace", namespace, "--features", switches(ON))
    lab.kubectl("delete", "--wait=false", "--ignore-not-found", "-f", "-", input=ran.stdout)
    for kind in ("clusterrole", "clusterrolebinding", "priorityclass"):
        assert lab.kubectl("get", kind, "-l", "app.kubernetes.io/name=mooring", "-o", "name") == ""
    hooks = lab.kubectl("get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "-o", "name")
    assert "mooring" not in hooks


def scrape_is_sound(url: str) -> None:
    """What Prometheus gets from a replica at work: the names of the tables and no others, reasons of the one vocabulary,
    nothing that promtool complains about."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    families = list(text_string_to_metric_families(text))
    tables = metrics.tables()
    assert {f.name + ("_total" if f.type == "counter" else "") for f in families} == set(tables)
    assert sum(s.value for f in families if f.name == "mooring_extender_requests" for s in f.samples) > 0
    words = {s.labels["reason"] for f in families for s in f.samples if "reason" in s.labels}
    assert words and words <= {str(reason) for reason in Reason}
    lint = [str(find_tools()["promtool"]), "check", "metrics"]
    ran = subprocess.run(lint, input=text, capture_output=True, text=True, timeout=180)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr


def ask_as_a_scheduler(extender: str) -> None:
    body = json.dumps({"Pod": {"metadata": {"name": "p", "namespace": "default"}, "spec": {}}, "NodeNames": []})
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://{extender}/scheduler/filter", body.encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def names_the_addresses(lab: Lab, namespace: str, doctor: list[str], extender: str) -> None:
    """As the doctor's fix says: its policy then lets in nobody else, and the finding is gone."""
    given = ("--namespace", namespace, "--features", switches(ON), "--node-cidrs", "127.0.0.0/8")
    objects = yaml.safe_load_all(mooring("manifests", *given).stdout)
    lab.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(o for o in objects if o["kind"] == "NetworkPolicy"))
    whole = json.loads(mooring(*doctor, MOORING_LISTEN_EXTENDER=extender).stdout)
    assert [f["code"] for f in whole["findings"] if f["code"]] == ["MO502"], whole


def ends_what_fleet_began(lab: Lab, doctor: list[str], common: list[str], extender: str) -> None:
    """A cordon of fleet's, which is off here: doctor names it, and the command that it names ends it while we run."""
    (node, *_) = lab.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split()
    mark = Mark(operator="9", source="fleet", reason="r", step="s", since=0.0, before={"unschedulable": "false"})
    lab.kubectl("annotate", "node", node, f"{CORDONED_BY}={write_mark(mark)}")
    lab.kubectl("cordon", node)
    ran = mooring(*doctor, MOORING_LISTEN_EXTENDER=extender)
    (found,) = [f for f in json.loads(ran.stdout)["findings"] if f["code"]]
    assert ran.returncode == 1 and found["code"] == "MO703" and f"node {node}" in found["seen"], found
    on = mooring("cleanup", "--feature", "mix", "--yes", *common)
    assert on.returncode == 3 and "mix is on" in on.stderr
    command, *_ = found["fix"].split("   ")
    done = mooring(*command.split()[1:], *common)
    assert done.returncode == 0 and f"node {node}" in done.stdout, done.stderr
    after = json.loads(lab.kubectl("get", "node", node, "-o", "json"))
    assert not after["spec"].get("unschedulable") and CORDONED_BY not in after["metadata"].get("annotations", {})
    assert mooring(*doctor, MOORING_LISTEN_EXTENDER=extender).returncode == 0


def refused(replica: Replica) -> list[str]:
    """What the API server has refused this replica so far."""
    text = Path(replica.log.name).read_text()
    return [line for line in text.splitlines() if "forbidden" in line.lower()]


def page_shows(url: str) -> None:
    """The page in Chromium has the cluster's nodes, live."""
    with urllib.request.urlopen(f"{url}/api/v1/frame", timeout=30) as answer:
        frame = json.load(answer)
    assert frame["tables"]["nodes"]["total"] >= 3
    asyncio.run(look_at(url))


async def look_at(url: str) -> None:
    try:
        async with Chromium() as browser:
            tab = await browser.tab(url)
            await tab.until("document.getElementById('pulse').dataset.state === 'live'")
            await tab.until("document.querySelector('#nodes .body').innerText.includes('with no news')")
            assert browser.complaints == []
    except NoBrowser as error:
        pytest.fail(str(error))


def cut_one_right(lab: Lab) -> None:
    role = json.loads(lab.kubectl("get", "clusterrole", "mooring", "-o", "json"))
    role["rules"] = [rule for rule in role["rules"] if rule["resources"] != ["pods/eviction"]]
    lab.kubectl("replace", "-f", "-", input=json.dumps(role))


def test_on_the_network_the_page_is_encrypted(lab: Lab, namespace: str, tmp_path: Path):
    """Issue 21, line 10: with the container's own arguments, loopback answers plainly, as for who forwards a port; the
    pod's address answers by TLS only, and doctor reads there as `helm test` does."""
    install(lab, namespace, ("handoff",))
    deployment = json.loads(lab.kubectl("-n", namespace, "get", "deploy", "mooring", "-o", "json"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    plain, tls, webhook = free_ports(3)
    # Every address of this machine stands for the pod's own.
    places = {"127.0.0.1:8390": f"127.0.0.1:{plain}", "$(MOORING_ADVERTISE_ADDRESS):8390": f"0.0.0.0:{tls}"}
    places |= {"0.0.0.0:9443": f"127.0.0.1:{webhook}", "/var/lib/mooring/blackbox": "none"}
    words = "\n".join(container["args"])
    for place, here in places.items():
        assert place in words
        words = words.replace(place, here)
    command = [sys.executable, "-m", "mooring", *words.split("\n")]
    command += ["--kubeconfig", str(as_account(lab, namespace, tmp_path))]
    token = {"MOORING_HTTP_TOKEN": "t"}
    doctor = ["doctor", "--kubeconfig", str(lab.kubeconfig), "--namespace", namespace, "--features", "handoff=true"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **token})
    try:
        for server in (f"http://127.0.0.1:{plain}", f"https+unverified://127.0.0.1:{tls}"):
            ran = mooring(*doctor, "--server", server, "--wait", "60", **token)
            assert ran.returncode == 0, ran.stdout + ran.stderr + (tmp_path / "log").read_text()
            assert mooring("queue", "--server", server, **token).returncode == 0
            assert "401" in mooring("queue", "--server", server).stderr
        for server, why in ((f"http://127.0.0.1:{tls}", ""), (f"https://127.0.0.1:{tls}", "https+unverified://")):
            ran = mooring("queue", "--server", server, **token)
            assert ran.returncode == 4 and why in ran.stderr, ran.stdout + ran.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0


def test_pods_are_admitted_under_the_restricted_standard(lab: Lab, namespace: str):
    """Applied for real where Pod Security enforces `restricted`: both replicas are created; a plain pod is refused."""
    text = mooring("manifests", "--namespace", namespace, "--features", "mix=true").stdout
    lab.kubectl("apply", "-f", "-", input=text.partition("---")[0])
    lab.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
    lab.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", input=text)
    lab.kubectl("apply", "--server-side", "-f", "-", input=text)
    label = "app.kubernetes.io/name=mooring,app.kubernetes.io/component!=doctor"
    pods = ("get", "pods", "-n", namespace, "-l", label, "-o", "name")
    until(lambda: len(lab.kubectl(*pods).split()) == 2, "both replicas")
    with pytest.raises(LabError, match="PodSecurity"):
        lab.kubectl("run", "plain", "--image=example.org/c:1", "-n", namespace)


def test_kubectl_finds_its_plug_in(lab: Lab):
    """`kubectl mooring …` runs us, and its Tab asks us: by the two programs that the package installs."""
    programs = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "KUBECONFIG": str(lab.kubeconfig)}

    def kubectl(*words: str) -> str:
        command = [str(lab.binaries["kubectl"]), *words]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert kubectl("mooring", "--version").strip() == version
    assert kubectl("__complete", "mooring", "doc").splitlines() == ["doctor", ":4"]
    assert kubectl("__complete", "mooring", "doctor", "--sho").splitlines()[0] == "--short"
    # The cluster is the one kubectl talks to.
    assert '"well":true' in kubectl("mooring", "doctor", "--pre", "-o", "json").replace(" ", "")
