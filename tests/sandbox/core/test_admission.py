"""Admission webhooks: asked as kube-apiserver asks them, in process and over TLS."""

import asyncio
import base64
import json

import pytest
from aiohttp import web

from mooring.clients.ports import RefusedError, UnansweredError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.server import HEARD
from mooring_lab.cluster.clock import WallDriver
from tests.sandbox.certificates import make_certificates

URL = "https://127.0.0.1:9443/admit/pods"
POD = {
    "metadata": {"name": "p", "namespace": "default", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "x"}]},
}


def configuration(name: str = "mix", *, url: str = URL, kind: str = "pods", **webhook) -> dict:
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [kind]}
    base = {
        "name": f"{name}.mooring.dev",
        "clientConfig": {"url": url},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {"metadata": {"name": name}, "webhooks": [base | webhook]}


def answer(review: dict, *operations: dict, **response) -> dict:
    body = {"uid": review["request"]["uid"], "allowed": True} | response
    if operations:
        body |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": body}


def label(key: str, value: str) -> dict:
    return {"op": "add", "path": f"/metadata/labels/{key}", "value": value}


def test_a_review_looks_as_the_real_one(api, play):
    """A mutating webhook sees defaults and no uid, a validating one sees the object as it will be stored."""
    reviews = []
    api.admission.serve(URL, lambda review: reviews.append(review) or answer(review))
    api.store.create(Kind.MUTATING_WEBHOOK, configuration("a"))
    api.store.create(Kind.VALIDATING_WEBHOOK, configuration("b"))
    made = play(lambda: api.create(Kind.POD, POD))
    mutating, validating = (r["request"] for r in reviews)
    assert mutating["operation"] == "CREATE" and mutating["name"] == "p" and mutating["namespace"] == "default"
    assert mutating["kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert mutating["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert mutating["oldObject"] is None and mutating["dryRun"] is False
    assert "uid" not in mutating["object"]["metadata"]
    assert mutating["object"]["spec"]["tolerations"]
    assert validating["object"]["metadata"]["uid"] == made["metadata"]["uid"]


def test_patches_add_up_and_reinvocation_happens_once(api, play):
    """Each webhook sees what those before it did; IfNeeded is asked again when a later one changed something (M4)."""
    seen = []

    def first(review):
        labels = review["request"]["object"]["metadata"]["labels"]
        seen.append(("first", sorted(labels)))
        return answer(review, label("one", "1"))

    def second(review):
        seen.append(("second", sorted(review["request"]["object"]["metadata"]["labels"])))
        return answer(review, label("two", "2"))

    api.admission.serve(f"{URL}/1", first)
    api.admission.serve(f"{URL}/2", second)
    api.store.create(Kind.MUTATING_WEBHOOK, configuration("a", url=f"{URL}/1", reinvocationPolicy="IfNeeded"))
    api.store.create(Kind.MUTATING_WEBHOOK, configuration("b", url=f"{URL}/2", reinvocationPolicy="IfNeeded"))
    made = play(lambda: api.create(Kind.POD, POD))
    assert made["metadata"]["labels"] == {"app": "web", "one": "1", "two": "2"}
    assert seen == [("first", ["app"]), ("second", ["app", "one"]), ("first", ["app", "one", "two"])]


def test_a_denial_speaks_the_webhooks_words(api, play):
    """The refusal carries code and message; nothing is stored (M1)."""
    status = {"code": 422, "message": "30% is not a label value: use 30pct"}
    api.admission.serve(URL, lambda review: answer(review, allowed=False, status=status))
    api.store.create(Kind.VALIDATING_WEBHOOK, configuration("mix"))
    with pytest.raises(
        RefusedError, match=r'admission webhook "mix\.mooring\.dev" denied the request: 30% is no'
    ) as caught:
        play(lambda: api.create(Kind.POD, POD))
    assert caught.value.code == 422
    assert api.store.find(Kind.POD, "default", "p") is None


def test_failure_policy_decides_when_nobody_answers(api, play):
    """Ignore admits unchanged, Fail refuses; a time-out counts as no answer."""

    async def slow(review):
        await asyncio.sleep(60)

    api.admission.serve(URL, slow)
    hook = api.store.create(Kind.MUTATING_WEBHOOK, configuration("mix", failurePolicy="Ignore", timeoutSeconds=3))
    made = play(lambda: api.create(Kind.POD, POD))
    assert made["metadata"]["labels"] == {"app": "web"}
    assert api.store.timeline.monotonic() == pytest.approx(3, abs=0.1)
    api.admission.serve(URL, None)
    hook = {**hook, "webhooks": [{**hook["webhooks"][0], "failurePolicy": "Fail"}]}
    api.store.update(Kind.MUTATING_WEBHOOK, hook)
    other = {**POD, "metadata": {**POD["metadata"], "name": "q"}}
    with pytest.raises(UnansweredError, match="failed calling webhook"):
        play(lambda: api.create(Kind.POD, other))


@pytest.mark.parametrize(
    ("webhook", "asked"),
    [
        ({}, True),
        ({"objectSelector": {"matchLabels": {"app": "web"}}}, True),
        ({"objectSelector": {"matchLabels": {"app": "db"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, True),
        ({"namespaceSelector": {"matchExpressions": [{"key": "skip", "operator": "Exists"}]}}, False),
        ({"matchConditions": [{"name": "c", "expression": "yes"}]}, True),
        ({"matchConditions": [{"name": "c", "expression": "no"}]}, False),
        ({"rules": [{"operations": ["UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]}, False),
    ],
)
def test_who_is_asked(api, play, webhook, asked):
    """Rules, selectors and conditions decide together."""
    calls = []
    api.admission.condition("yes", lambda request: request["operation"] == "CREATE")
    api.admission.condition("no", lambda request: False)
    api.admission.serve(URL, lambda review: calls.append(review) or answer(review))
    api.store.create(Kind.MUTATING_WEBHOOK, configuration("mix", **webhook))
    play(lambda: api.create(Kind.POD, POD))
    assert bool(calls) is asked


def test_a_dry_run_says_so_and_asks_only_who_can(api, play):
    """dryRun reaches the webhook; one with side effects makes the dry run impossible (M4)."""
    seen = []
    api.admission.serve(URL, lambda review: seen.append(review["request"]["dryRun"]) or answer(review))
    hook = api.store.create(Kind.MUTATING_WEBHOOK, configuration("mix"))
    play(lambda: api.create(Kind.POD, POD, dry_run=True))
    assert seen == [True]
    api.store.update(Kind.MUTATING_WEBHOOK, {**hook, "webhooks": [{**hook["webhooks"][0], "sideEffects": "Some"}]})
    with pytest.raises(RefusedError, match="dry run"):
        play(lambda: api.create(Kind.POD, POD, dry_run=True))


def test_warnings_reach_the_user(api, play):
    """What a webhook wants said is heard by whoever serves the request (M2)."""
    api.admission.serve(URL, lambda review: answer(review, warnings=["the guaranteed floor is 0"]))
    api.store.create(Kind.MUTATING_WEBHOOK, configuration("mix"))

    async def main():
        heard: list[str] = []
        HEARD.set(heard)
        await api.create(Kind.POD, POD)
        return heard

    assert play(main) == ["the guaranteed floor is 0"]


def test_controllers_send_pods_through_admission(api, play):
    """A controller's pod is mutated too: at once by a plain function, later by one that waits."""
    answers = []
    api.admission.serve(URL, lambda review: answer(review, label("class", "spot")))
    api.store.create(Kind.MUTATING_WEBHOOK, configuration("mix"))
    send = api.server.sender(by="system:serviceaccount:kube-system:replicaset-controller")
    send(POD, answers.append)
    assert answers == [None]
    assert api.store.get(Kind.POD, "default", "p")["metadata"]["labels"]["class"] == "spot"

    async def waiting_on(review):
        await asyncio.sleep(0.3)
        return answer(review, allowed=False)

    async def main():
        api.admission.serve(URL, waiting_on)
        send({**POD, "metadata": {**POD["metadata"], "name": "q"}}, answers.append)
        assert len(answers) == 1
        await asyncio.sleep(1)

    play(main)
    assert isinstance(answers[1], RefusedError)


async def test_over_tls_with_the_ca_bundle(api, tmp_path):
    """On a real loop the webhook is called by URL over TLS, and only the caBundle's authority is believed."""

    async def admit(request: web.Request) -> web.Response:
        assert request.query["timeout"] == "10s"
        return web.json_response(answer(await request.json(), label("tls", "yes")))

    app = web.Application()
    app.router.add_post("/admit/pods", admit)
    ours, foreign = make_certificates(tmp_path / "ours"), make_certificates(tmp_path / "foreign")
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ours.server_context()).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}/admit/pods"
    driver = asyncio.create_task(WallDriver(api.store.timeline).run())
    try:
        client = {"url": url, "caBundle": base64.b64encode(ours.ca_pem).decode()}
        hook = api.store.create(Kind.MUTATING_WEBHOOK, configuration("mix", clientConfig=client))
        assert (await api.create(Kind.POD, POD))["metadata"]["labels"]["tls"] == "yes"
        client = {**client, "caBundle": base64.b64encode(foreign.ca_pem).decode()}
        webhooks = [{**hook["webhooks"][0], "clientConfig": client}]
        api.store.update(Kind.MUTATING_WEBHOOK, {**hook, "webhooks": webhooks})
        with pytest.raises(UnansweredError, match="failed calling webhook"):
            await api.create(Kind.POD, {**POD, "metadata": {**POD["metadata"], "name": "q"}})
    finally:
        driver.cancel()
        await runner.cleanup()
