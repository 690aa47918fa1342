"""The facade, where the contract suite does not look: tables, selectors in watches, warnings, what it refuses."""

import asyncio
import json

import aiohttp
import pytest

from mooring.core.model.kinds import Kind
from mooring_lab.cluster.clock import WallDriver
from mooring_lab.cluster.http.facade import Facade
from mooring_lab.cluster.http.tables import duration
from tests.sandbox.certificates import make_certificates


def pod(name: str, app: str) -> dict:
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }


@pytest.fixture
async def web(api):
    """A client of a served sandbox: `await web(method, path, …)` answers (status, headers, body)."""
    async with (
        Facade(api.server, driver=WallDriver(api.store.timeline, speed=10)) as facade,
        aiohttp.ClientSession(facade.url) as session,
    ):

        async def call(method: str, path: str, body=None, **headers):
            async with session.request(method, path, json=body, headers=headers) as answer:
                text = await answer.text()
                return answer.status, answer.headers, json.loads(text) if text.startswith("{") else text

        call.session = session
        yield call


async def test_tables_are_what_kubectl_prints(api, web):
    """With `as=Table` the answer has columns and cells; without it, plain objects."""
    api.store.create(Kind.POD, pod("a", "web"))
    _, _, body = await web("GET", "/api/v1/pods", Accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert [c["name"] for c in body["columnDefinitions"]][:3] == ["Name", "Ready", "Status"]
    assert body["rows"][0]["cells"][:3] == ["a", "0/1", "Pending"]
    _, _, body = await web("GET", "/api/v1/pods")
    assert body["kind"] == "PodList" and body["items"][0]["metadata"]["name"] == "a"


async def test_selectors_narrow_lists(api, web):
    """Labels and fields, in the spellings of a query."""
    for name, app in (("a", "web"), ("b", "db"), ("c", "web")):
        api.store.create(Kind.POD, pod(name, app))

    async def names(query: str) -> list[str]:
        _, _, body = await web("GET", f"/api/v1/namespaces/default/pods?{query}")
        return [i["metadata"]["name"] for i in body["items"]]

    assert await names("labelSelector=app=web") == ["a", "c"]
    assert await names("labelSelector=app!=web") == ["b"]
    assert await names("labelSelector=app in (db,cache)") == ["b"]
    assert await names("labelSelector=!app") == []
    assert await names("fieldSelector=metadata.name=c") == ["c"]
    assert await names("fieldSelector=status.phase!=Pending") == []


async def test_a_watch_with_a_selector_tells_who_comes_and_goes(api, web):
    """An object that begins to match is ADDED, one that stops matching DELETED."""
    api.store.create(Kind.POD, pod("a", "web"))
    start = api.store.revision
    path = f"/api/v1/pods?watch=true&labelSelector=app=db&resourceVersion={start}&timeoutSeconds=10"
    async with web.session.get(path) as stream:
        for app in ("db", "db", "web"):
            labels = {"app": app, "turn": str(api.store.revision)}
            api.store.patch(Kind.POD, "default", "a", {"metadata": {"labels": labels}})
        lines = [json.loads(line) async for line in stream.content]
    assert [line["type"] for line in lines] == ["ADDED", "MODIFIED", "DELETED"]


async def test_a_webhooks_warning_is_a_header(api, web):
    """kubectl shows what stands in the Warning header (M2)."""
    url = "https://127.0.0.1:1/admit"
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    hook = {"name": "w.mooring.dev", "clientConfig": {"url": url}, "rules": [rule], "sideEffects": "None"}
    api.store.create(Kind.VALIDATING_WEBHOOK, {"metadata": {"name": "w"}, "webhooks": [hook]})
    api.admission.serve(
        url, lambda r: {"response": {"uid": r["request"]["uid"], "allowed": True, "warnings": ['floor "0"']}}
    )
    code, headers, _ = await web("POST", "/api/v1/namespaces/default/pods", pod("a", "web"))
    assert code == 201
    assert headers["Warning"] == "299 - \"floor '0'\""


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/unicorns", 404),
        ("GET", "/apis/apps/v1/namespaces/default/deployments/none", 404),
        ("POST", "/api/v1/namespaces/default/pods/a", 405),
        ("OPTIONS", "/api/v1/pods", 405),
        ("PATCH", "/api/v1/namespaces/default/configmaps/a", 415),
        ("DELETE", "/api/v1/namespaces/default", 403),
        ("GET", "/apis/nobody.example", 404),
    ],
)
async def test_what_it_does_not_serve_it_refuses_with_a_status(web, method, path, code):
    """Fails closed: a Status with the code, never a traceback."""
    got, _, body = await web(method, path, {} if method in {"POST", "PATCH"} else None)
    assert (got, body["kind"], body["code"]) == (code, "Status", code)


async def test_over_tls_with_a_kubeconfig(api, tmp_path):
    """The kubeconfig it writes names its own authority and is readable by its owner alone."""
    certificates = make_certificates(tmp_path / "pki")
    async with Facade(api.server, certificates=certificates) as facade:
        facade.write_kubeconfig(tmp_path / "kubeconfig")
        assert facade.url.startswith("https://127.0.0.1:")
        assert (tmp_path / "kubeconfig").stat().st_mode & 0o077 == 0
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            async with aiohttp.ClientSession() as session, session.get(f"{facade.url}/version"):
                pass
    await asyncio.sleep(0)


async def test_a_controller_that_fails_is_not_hidden(api):
    """When something in the cluster raises, time stands still; every answer then says why, and leaving raises it."""
    api.store.timeline.after(0.01, lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        async with (
            Facade(api.server, driver=WallDriver(api.store.timeline)) as facade,
            aiohttp.ClientSession(facade.url) as session,
        ):
            while True:
                async with session.get("/version") as answer:
                    status, body = answer.status, await answer.json()
                if status != 200:
                    break
                await asyncio.sleep(0.01)
            assert status == 500 and "ZeroDivisionError" in body["message"]


def test_ages_read_as_kubectl_writes_them():
    """45s, 3m20s, 15m, 5h, 3d."""
    ages = [duration(s) for s in (45, 119, 200, 900, 5 * 3600, 30 * 3600, 3 * 86400)]
    assert ages == ["45s", "119s", "3m20s", "15m", "5h", "30h", "3d"]
