"""The client on the real API server: what it answers is what `mooring.clients.kube.status` believes it answers."""

import base64
import sys

import msgspec
import pytest
import yaml

from mooring.clients.kube import HttpKubeApi, Scope, load
from mooring.clients.kube.config import Pem
from mooring.clients.ports import (
    AlreadyExistsError,
    ConflictError,
    EvictionBlockedError,
    NotFoundError,
    PatchType,
    RefusedError,
    UnansweredError,
)
from mooring.core.model.kinds import Kind
from mooring_lab.demo.onlab.rig import PATIENT_S
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e


@pytest.fixture
async def api(lab):
    async with HttpKubeApi(load(lab.kubeconfig), write_timeout_s=PATIENT_S) as api:
        yield api


@pytest.fixture
def namespace(lab):
    name = lab.namespace("api")
    yield name
    lab.kubectl("delete", "namespace", name, "--wait=false")


def pod(namespace: str, name: str) -> dict:
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": "x"}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "example.org/main:1"}]},
    }


async def test_writes_with_preconditions_that_do_not_hold_change_nothing(api, namespace):
    """uid, resourceVersion, a JSON patch's `test`: each is a Conflict, whatever status the server chooses for it."""
    made = await api.create(Kind.POD, pod(namespace, "p"))
    with pytest.raises(AlreadyExistsError):
        await api.create(Kind.POD, pod(namespace, "p"))
    uid = made["metadata"]["uid"]
    tested = [
        {"op": "test", "path": "/metadata/uid", "value": "other"},
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}},
    ]
    stale = {**made, "metadata": {**made["metadata"], "resourceVersion": "1"}}
    for attempt in (
        lambda: api.patch(Kind.POD, namespace, "p", tested, patch_type=PatchType.JSON),
        lambda: api.patch(Kind.POD, namespace, "p", {"metadata": {"uid": "other", "annotations": {"a": "b"}}}),
        lambda: api.patch(Kind.POD, namespace, "p", {"metadata": {"resourceVersion": "1", "annotations": {"a": "b"}}}),
        lambda: api.replace(Kind.POD, stale),
        lambda: api.delete(Kind.POD, namespace, "p", uid="other"),
        lambda: api.delete(Kind.POD, namespace, "p", resource_version="1"),
        lambda: api.bind(namespace, "p", "some-node", uid="other"),
    ):
        with pytest.raises(ConflictError):
            await attempt()
    now = await api.get(Kind.POD, namespace, "p")
    assert now["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    tested[0]["value"] = uid
    patched = await api.patch(Kind.POD, namespace, "p", tested, patch_type=PatchType.JSON)
    assert patched["metadata"]["annotations"] == {"a": "b"}
    assert patched["metadata"]["managedFields"][-1]["manager"] == "mooring"
    await api.delete(Kind.POD, namespace, "p", uid=uid, grace_s=0)
    with pytest.raises(NotFoundError):
        await api.get(Kind.POD, namespace, "p")


async def test_a_budget_blocks_an_eviction_and_two_budgets_do_too(api, namespace):
    """429 with its cause, and the 500 for a pod under two budgets, are both `EvictionBlockedError`: visible, nothing changed."""
    made = await api.create(Kind.POD, pod(namespace, "p"))
    # A pending pod may always be evicted: let it look as if it ran.
    await api.bind(namespace, "p", "no-such-node", uid=made["metadata"]["uid"])
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await api.patch(Kind.POD, namespace, "p", running, subresource="status")
    with pytest.raises(ConflictError):
        await api.evict(namespace, "p", uid="other")
    for name in ("one", "two"):
        budget = {
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
        }
        await api.create(Kind.PDB, budget)

        async def observed(name=name):
            return "observedGeneration" in (await api.get(Kind.PDB, namespace, name)).get("status", {})

        await eventually(observed, f"{name} is observed")
        with pytest.raises(EvictionBlockedError):
            await api.evict(namespace, "p", uid=made["metadata"]["uid"])
    assert "deletionTimestamp" not in (await api.get(Kind.POD, namespace, "p"))["metadata"]


async def test_refusals_are_told_apart_from_faults(lab, api, namespace):
    """Invalid, forbidden, unknown kinds and an untrusted server each have their own sentence."""
    with pytest.raises(RefusedError, match="422"):
        await api.create(Kind.POD, {"metadata": {"namespace": namespace, "name": "p"}, "spec": {"containers": []}})
    with pytest.raises(NotFoundError):
        await api.raw("GET", "/apis/example.org/v1/nothing")
    assert (await api.raw("GET", "/version"))["major"] == "1"
    assert await api.raw("GET", "/readyz") == "ok"
    untrusting = msgspec.structs.replace(load(lab.kubeconfig), ca=Pem())
    async with HttpKubeApi(untrusting) as stranger:
        with pytest.raises(UnansweredError, match="certificate is not trusted"):
            await stranger.list(Kind.POD)


@pytest.mark.parametrize("way", ["token", "tokenFile", "exec"])
async def test_tokens_and_plugins_are_who_they_say(lab, namespace, tmp_path, way):
    """A service account's token, given in three ways: the server knows us, and RBAC says what we may not."""
    lab.kubectl("create", "serviceaccount", "reader", "-n", namespace)
    token = lab.kubectl("create", "token", "reader", "-n", namespace).strip()
    config = yaml.safe_load(lab.kubeconfig.read_text())
    (tmp_path / "token").write_text(token)
    plugin = tmp_path / "plugin"
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token, "expirationTimestamp": "2099-01-01T00:00:00Z"},
    }
    plugin.write_text(f"#!{sys.executable}\nimport json\nprint(json.dumps({answer!r}))\n")
    plugin.chmod(0o700)
    users = {
        "token": {"token": token},
        "tokenFile": {"tokenFile": "token"},
        "exec": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin"}},
    }
    for user in config["users"]:
        user["user"] = users[way]
    for cluster in config["clusters"]:
        # The same authority, as data: the file's own directory is another one.
        ca = load(lab.kubeconfig).ca.read("ca")
        cluster["cluster"] = {
            "server": lab.apiserver,
            "certificate-authority-data": base64.b64encode(ca.encode()).decode(),
        }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    async with HttpKubeApi(load(file), write_timeout_s=PATIENT_S) as api:
        assert (await api.raw("GET", "/version"))["major"] == "1"
        with pytest.raises(RefusedError, match=f"system:serviceaccount:{namespace}:reader") as raised:
            await api.list(Kind.POD)
        assert raised.value.code == 403


async def test_lists_are_paged_and_scoped(lab, namespace):
    """Seven ConfigMaps in pages of three; a scope leaves out the others."""
    scope = {Kind.CONFIG_MAP: Scope(namespace=namespace, label_selector="mine=yes")}
    async with HttpKubeApi(load(lab.kubeconfig), scopes=scope, write_timeout_s=PATIENT_S) as api:
        for n in range(9):
            labels = {"mine": "yes" if n < 7 else "no"}
            await api.create(Kind.CONFIG_MAP, {"metadata": {"namespace": namespace, "name": f"c{n}", "labels": labels}})
        names, token, pages = [], "", 0
        while True:
            page = await api.list(Kind.CONFIG_MAP, limit=3, continue_token=token)
            names += [o.name for o in page.items]
            pages += 1
            if not (token := page.continue_token):
                break
    assert names == [f"c{n}" for n in range(7)]
    assert pages == 3
