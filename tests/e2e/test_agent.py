"""The agent's account on a real API server: its own Node and its own annotation, and nothing besides. M13."""

import base64
import http.client
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from mooring.agent.watch import KEY, Agent, ApiError, NodeApi, Settings
from mooring.install.agent import NAME, agent
from mooring_lab.control.cluster import Lab
from mooring_lab.control.errors import LabError
from tests.agent.services import Aws, served
from tests.e2e.waiting import until

pytestmark = pytest.mark.e2e
OWN, OTHER = "agent-own-node", "agent-other-node"
TERMINATE = (200, {}, '{"action": "terminate", "time": "2027-01-15T08:02:00Z"}')
NOW = 1_800_000_000.0


@pytest.fixture
def namespace(lab: Lab) -> Iterator[str]:
    """The agent is installed but for its DaemonSet; one pod of it stands on its node, which no kubelet runs."""
    control = f"agent-test-{time.monotonic_ns() % 100_000}"
    objects = [o for o in agent(control, "m:1") if o["kind"] != "DaemonSet"]
    for node in (OWN, OTHER):
        provider = {"providerID": "aws:///eu-central-1a/i-0abc"} if node == OWN else {}
        made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": provider}
        lab.kubectl("apply", "-f", "-", input=json.dumps(made))
    lab.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects))
    yield f"{control}-agent"
    lab.kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", input=yaml.safe_dump_all(objects))
    lab.kubectl("delete", "node", OWN, OTHER, "--ignore-not-found")


def token(lab: Lab, namespace: str, node: str) -> str:
    """As the kubelet of this node mounts it: bound to the pod, with the node that it is on."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-on-{node}", "namespace": namespace},
        "spec": {
            "serviceAccountName": NAME,
            "nodeName": node,
            "containers": [{"name": "c", "image": "m:1"}],
            "tolerations": [{"operator": "Exists"}],
        },
    }
    lab.kubectl("apply", "-f", "-", input=json.dumps(pod))
    bound = ("--bound-object-kind=Pod", f"--bound-object-name=pod-on-{node}")
    return lab.kubectl("-n", namespace, "create", "token", NAME, *bound).strip()


def account(lab: Lab, directory: Path, text: str) -> Path:
    """What is mounted into the agent's container."""
    config = yaml.safe_load(lab.kubeconfig.read_text())
    authority = config["clusters"][0]["cluster"]
    data = authority.get("certificate-authority-data")
    ca = base64.b64decode(data) if data else Path(authority["certificate-authority"]).read_bytes()
    directory.mkdir(exist_ok=True)
    (directory / "ca.crt").write_bytes(ca)
    (directory / "token").write_text(text)
    config["users"][0]["user"] = {"token": text}
    (directory / "kubeconfig").write_text(yaml.safe_dump(config))
    return directory


def api(lab: Lab, node: str, mounted: Path) -> NodeApi:
    server = urlsplit(yaml.safe_load(lab.kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
    return NodeApi(Settings(node, account=str(mounted)), server.hostname, server.port)


def annotations(lab: Lab, node: str) -> dict[str, str]:
    return json.loads(lab.kubectl("get", "node", node, "-o", "json"))["metadata"].get("annotations", {})


def test_the_agent_writes_what_it_reads_on_its_own_node(lab: Lab, namespace: str, tmp_path: Path):
    """The whole way: its token, the cloud by spec.providerID, AWS's answer, the annotation."""
    mounted = account(lab, tmp_path / "own", token(lab, namespace, OWN))
    aws = Aws()
    aws.spot = TERMINATE
    with served(aws) as metadata:
        one = Agent(Settings(OWN, reboot_file=""), api(lab, OWN, mounted), metadata, lambda: NOW)
        assert "AWS spot terminate" in one.turn()
        written = json.loads(annotations(lab, OWN)[KEY])
        assert written["cloud"] == "aws" and written["notices"]["spot"]["at"] == "2027-01-15T08:02:00Z"


def test_the_policy_refuses_another_node_another_key_and_everything_else(lab: Lab, namespace: str, tmp_path: Path):
    """A stolen token of one node's agent empties no other node, and hides or forges nothing on its own."""
    mounted = account(lab, tmp_path / "own", token(lab, namespace, OWN))
    lab.kubectl("annotate", "node", OWN, "theirs=1")
    for node in (OWN, OTHER):
        lab.kubectl("label", "node", node, "theirs=1")

    def refused() -> str:
        try:
            api(lab, OTHER, mounted).patch("{}")
        except ApiError as error:
            return str(error)
        return ""

    until(lambda: "its own Node only" in refused(), "the policy", every_s=0.5)
    # Until the API server had compiled the policy, what was tried was done.
    lab.kubectl("annotate", "node", OTHER, f"{KEY}-")
    with pytest.raises(ApiError, match="its own Node only"):
        api(lab, OTHER, mounted).patch(None)

    def tried(*arguments: str) -> str:
        try:
            lab.kubectl("--kubeconfig", str(mounted / "kubeconfig"), *arguments)
        except LabError as error:
            return str(error)
        return ""

    def patched(patch: object, path: str = "") -> str:
        """Sent as the agent would: kubectl reads the object first, and this account may not read."""
        server = urlsplit(yaml.safe_load(lab.kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
        context = ssl.create_default_context(cafile=str(mounted / "ca.crt"))
        connection = http.client.HTTPSConnection(server.hostname, server.port, timeout=30, context=context)
        bearer = f"Bearer {(mounted / 'token').read_text()}"
        headers = {"Authorization": bearer, "Content-Type": "application/merge-patch+json"}
        connection.request("PATCH", f"/api/v1/nodes/{OWN}{path}", json.dumps(patch), headers)
        answer = connection.getresponse()
        said = json.loads(answer.read())
        connection.close()
        return "" if answer.status == 200 else said["message"]

    only = f"the annotation {KEY} only"
    for notes in ({"vacant.io/interrupt-at": "2027-01-15T08:02:00Z"}, {"theirs": "2"}, {"theirs": None}):
        assert only in patched({"metadata": {"annotations": notes}}), notes
    assert only in patched({"metadata": {"annotations": {KEY: "x", "mooring.dev/drain": "now"}}})
    for change in (
        {"metadata": {"labels": {"theirs": None}}},
        {"metadata": {"labels": {"more": "x"}}},
        {"metadata": {"finalizers": ["evil/x"]}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "evil", "effect": "NoExecute"}]}},
    ):
        assert "an annotation and nothing else" in patched(change), change
    assert "forbidden" in patched({"status": {"phase": "Terminated"}}, "/status")
    for words in (("get", "node", OWN), ("delete", "node", OWN), ("get", "pods", "-A"), ("get", "secrets", "-A")):
        assert "forbidden" in tried(*words), words
    assert annotations(lab, OWN)["theirs"] == "1" and KEY not in annotations(lab, OTHER)


def test_a_token_that_names_no_node_writes_none(lab: Lab, namespace: str, tmp_path: Path):
    """One that somebody asked for by hand is bound to no pod."""
    loose = lab.kubectl("-n", namespace, "create", "token", NAME).strip()
    unbound = api(lab, OWN, account(lab, tmp_path / "loose", loose))

    def said() -> str:
        try:
            unbound.patch("{}")
        except ApiError as error:
            return str(error)
        return ""

    until(lambda: "its own Node only" in said(), "the policy", every_s=0.5)
