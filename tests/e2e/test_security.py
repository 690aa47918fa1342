"""What the account of an installation cannot do on a real API server, with its own token and nothing else."""

import json

import pytest
import yaml

from mooring.install.manifests import Install, manifests
from mooring.install.policy import policy
from mooring_lab.control.cluster import Lab
from mooring_lab.control.errors import LabError
from tests.e2e.test_install import as_account, namespace  # noqa: F401
from tests.e2e.waiting import until

pytestmark = pytest.mark.e2e

NODE = "victim-node"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "spec": {"containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}]},
}


def test_the_policy_limits_our_account(lab: Lab, namespace: str, tmp_path):  # noqa: F811
    """A stolen token: no foreign webhook, no other Service behind ours, no spec changed, kube-system left alone."""
    features = frozenset({"mix", "handoff"})
    objects = manifests(Install(image="m:1", namespace=namespace, features=features))
    lab.kubectl("apply", "-f", "-", input=yaml.safe_dump_all([o for o in objects if o["kind"] != "Deployment"]))
    account = as_account(lab, namespace, tmp_path)
    pods = {
        where: {**POD, "metadata": {"name": "victim", "namespace": where, "labels": {"k8s-app": "x"}}}
        for where in ("kube-system", "default")
    }
    for pod in pods.values():
        lab.kubectl("apply", "-f", "-", input=json.dumps(pod))
    lab.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}))

    def tried(*arguments: str, input: str | None = None) -> str:  # noqa: A002
        """What the API server says to our account; empty: it was done (dry)."""
        try:
            lab.kubectl("--kubeconfig", str(account), *arguments, "--dry-run=server", input=input)
        except LabError as error:
            return str(error)
        return ""

    def patched(patch: object, where: str = "default") -> str:
        return tried("-n", where, "patch", "pod", "victim", "--type=strategic", "-p", json.dumps(patch))

    def replaced(hook: str, **change: object) -> str:
        found = json.loads(lab.kubectl("get", hook, "mooring-mix", "-o", "json"))
        found["webhooks"][0] |= change
        return tried("replace", "-f", "-", input=json.dumps(found))

    def delete(where: str) -> str:
        return tried("-n", where, "delete", "pod", "victim", "--wait=false")

    def tainted(key: str, effect: str) -> str:
        spec = {"spec": {"taints": [{"key": key, "effect": effect, "value": "x"}]}}
        return tried("patch", "node", NODE, "--type=merge", "-p", json.dumps(spec))

    def labeled(key: str) -> str:
        return tried("patch", "node", NODE, "--type=merge", "-p", json.dumps({"metadata": {"labels": {key: "x"}}}))

    try:
        until(lambda: "leaves the pods of kube-system alone" in delete("kube-system"), "the policy", every_s=0.5)
        assert delete("default") == ""
        for metadata in ({"labels": {"k8s-app": None}}, {"annotations": {"mooring.dev/leaving": "{}"}}):
            assert "leaves the pods of kube-system alone" in patched({"metadata": metadata}, "kube-system")
        assert patched({"metadata": {"annotations": {"mooring.dev/leaving": "{}"}}}) == ""
        assert "metadata only" in patched({"spec": {"containers": [{"name": "c", "image": "evil"}]}})
        for hook in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
            assert "for its own Service" in replaced(hook, clientConfig={"url": "https://evil.example/x"})
            assert "for its own Service" in replaced(hook, failurePolicy="Fail")
            assert replaced(hook, timeoutSeconds=3) == ""
            wide = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"], "scope": "*"}
            for wider in ({"rules": [wide]}, {"rules": [wide | {"resources": ["secrets"]}]}, {"namespaceSelector": {}}):
                assert "outside kube-system, and nothing else" in replaced(hook, **wider), wider
            foreign = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": hook, "metadata": {"name": "evil"}}
            foreign["kind"] = {"m": "Mutating", "v": "Validating"}[hook[0]] + "WebhookConfiguration"
            assert "forbidden" in tried("create", "-f", "-", input=json.dumps(foreign))
        for spec, answer in (
            ({"unschedulable": True}, ""),
            ({"providerID": "evil://1"}, "changes no more of their spec"),
        ):
            said = tried("patch", "node", NODE, "--type=merge", "-p", json.dumps({"spec": spec}))
            assert answer in said and bool(answer) == bool(said)
        assert tainted("mooring.dev/reserved", "NoSchedule") == "" and labeled("mooring.dev/x") != ""
        for key, effect in (("evil", "NoExecute"), ("evil", "NoSchedule"), ("mooring.dev/reserved", "NoExecute")):
            assert "changes its own taints only" in tainted(key, effect), "M9"
        # Where fleet empties machines it says so on a pod of kube-system, and changes nothing else there.
        objects = policy(namespace, {"fleet"}, {})
        lab.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects))
        annotated = {"metadata": {"annotations": {"mooring.dev/leaving": "{}"}}}
        until(lambda: patched(annotated, "kube-system") == "", "the policy with fleet", every_s=0.5)
        for metadata in ({"labels": {"k8s-app": None}}, {"labels": {"more": "x"}}, {"finalizers": ["evil/x"]}):
            assert "leaves the pods of kube-system alone" in patched({"metadata": metadata}, "kube-system")
        assert "leaves the pods of kube-system alone" in delete("kube-system")
        assert tainted("cke.cybozu.com/state", "NoExecute") == "" and labeled("cke.cybozu.com/rack") == ""
        assert "changes its own taints only" in tainted("node.kubernetes.io/out-of-service", "NoExecute"), "M9"
        assert "leaves the labels of nodes alone" in labeled("kubernetes.io/hostname"), "M9"
    finally:
        lab.kubectl("delete", "node", NODE, "--ignore-not-found")
        for pod in pods.values():
            lab.kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", input=json.dumps(pod))
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            lab.kubectl("delete", kind, "mooring-own-account", "--ignore-not-found")
