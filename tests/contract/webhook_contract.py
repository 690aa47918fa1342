"""What the API server does with admission webhooks over TLS: run on the sandbox's facade and on a real API server."""

import base64
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from mooring.clients.ports import Json, PortError, RefusedError, UnansweredError
from mooring.core.model.kinds import Kind
from tests.contract.kube_contract import Bench, pod, refusal, until
from tests.sandbox.certificates import make_certificates

Answer = Callable[[Json], dict[str, Any]]
WebhookCase = Callable[[Bench, Path], Awaitable[None]]
CASES: list[WebhookCase] = []


def case(fn: WebhookCase) -> WebhookCase:
    CASES.append(fn)
    return fn


class Hooks:
    """A webhook server on loopback: what it was asked, path by path, and what it answers."""

    def __init__(self, url: str, ca: bytes) -> None:
        self.url = url
        self.ca = base64.b64encode(ca).decode()
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, Json]] = []

    async def serve(self, request: web.Request) -> web.Response:
        review = await request.json()
        self.asked.append((request.path, review["request"]))
        answer = {"allowed": True} | self.answers.get(request.path, lambda _: {})(review["request"])
        if "patch" in answer:
            packed = base64.b64encode(json.dumps(answer["patch"]).encode()).decode()
            answer |= {"patchType": "JSONPatch", "patch": packed}
        answer["uid"] = review["request"]["uid"]
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})

    def requests(self, path: str, name: str) -> list[Json]:
        """What was asked at a path about pods of this name (or generated from it)."""
        found = [r for p, r in self.asked if p == path]
        return [r for r in found if name in {r.get("name"), r["object"]["metadata"].get("generateName")}]


@asynccontextmanager
async def webhooks(directory: Path):
    certificates = make_certificates(directory)
    app = web.Application()
    runner = web.AppRunner(app)
    hooks = Hooks("", certificates.ca_pem)
    app.router.add_post("/{tail:.*}", hooks.serve)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificates.server_context()).start()
    hooks.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield hooks
    finally:
        await runner.cleanup()


@asynccontextmanager
async def configured(bench: Bench, hooks: Hooks, kind: Kind, *paths: str, **webhook: Any):
    """Webhooks on pod creation in our namespace, in this order, once the server has taken notice of them."""
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    mine = {"matchLabels": {"kubernetes.io/metadata.name": bench.namespace}}
    body = {
        "metadata": {"name": f"contract-{bench.namespace}"},
        "webhooks": [
            {
                "name": f"w{i}.mooring.dev",
                "clientConfig": {"url": f"{hooks.url}{path}", "caBundle": hooks.ca},
                "rules": [rule],
                "namespaceSelector": mine,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 5,
            }
            | webhook
            for i, path in enumerate(paths)
        ],
    }
    await bench.api.create(kind, body)
    try:

        async def noticed() -> bool:
            try:
                await bench.api.create(Kind.POD, pod(bench, "probe"), dry_run=True)
            except PortError:
                return True
            return bool(hooks.asked)

        await until(noticed)
        hooks.asked.clear()
        yield
    finally:
        await bench.api.delete(kind, "", body["metadata"]["name"])


def label(key: str) -> dict[str, Any]:
    return {"patch": [{"op": "add", "path": f"/metadata/labels/{key}", "value": "yes"}]}


@case
async def a_mutating_webhook_is_asked_in_full(bench: Bench, tmp: Path) -> None:
    """The shape of an AdmissionReview, an object with defaults and without uid or generated name, a patch that counts."""
    async with webhooks(tmp) as hooks, configured(bench, hooks, Kind.MUTATING_WEBHOOK, "/m"):
        hooks.answers["/m"] = lambda _: label("mutated")
        body = pod(bench, "p")
        del body["metadata"]["name"]
        made = await bench.api.create(Kind.POD, {**body, "metadata": {**body["metadata"], "generateName": "g-"}})
        assert made["metadata"]["labels"]["mutated"] == "yes"
        (asked,) = hooks.requests("/m", "g-")
        assert {
            "uid",
            "kind",
            "resource",
            "requestKind",
            "requestResource",
            "namespace",
            "operation",
            "userInfo",
            "object",
            "oldObject",
            "dryRun",
            "options",
        } <= set(asked)
        assert asked["operation"] == "CREATE" and asked["dryRun"] is False and asked["oldObject"] is None
        assert asked["kind"] == {"group": "", "version": "v1", "kind": "Pod"}
        assert asked["namespace"] == bench.namespace and not asked.get("name")
        assert asked["options"]["kind"] == "CreateOptions"
        seen = asked["object"]
        assert "uid" not in seen["metadata"] and "name" not in seen["metadata"]
        assert seen["metadata"]["namespace"] == bench.namespace
        assert seen["spec"]["terminationGracePeriodSeconds"] == 30 and len(seen["spec"]["tolerations"]) == 2


@case
async def a_validating_webhook_sees_what_will_be(bench: Bench, tmp: Path) -> None:
    async with webhooks(tmp) as hooks, configured(bench, hooks, Kind.VALIDATING_WEBHOOK, "/v"):
        made = await bench.api.create(Kind.POD, pod(bench, "p"))
        (asked,) = hooks.requests("/v", "p")
        assert asked["object"]["metadata"]["uid"] == made["metadata"]["uid"]
        assert asked["object"]["status"]["phase"] == "Pending"


@case
async def a_denial_carries_code_and_words(bench: Bench, tmp: Path) -> None:
    async with webhooks(tmp) as hooks, configured(bench, hooks, Kind.VALIDATING_WEBHOOK, "/v"):
        hooks.answers["/v"] = lambda _: {"allowed": False, "status": {"code": 422, "message": "not like this"}}
        error = await refusal(bench.api.create(Kind.POD, pod(bench, "p")), RefusedError)
        assert error.code == 422
        assert 'admission webhook "w0.mooring.dev" denied the request: not like this' in str(error)
        hooks.answers["/v"] = lambda _: {"allowed": False}
        error = await refusal(bench.api.create(Kind.POD, pod(bench, "p")), RefusedError)
        assert error.code == 400 and "without explanation" in str(error)


@case
async def failure_policy_counts_when_nobody_listens(bench: Bench, tmp: Path) -> None:
    """Fail is a 500 (look before trying again), Ignore admits."""
    async with webhooks(tmp) as hooks:
        nowhere = {"url": "https://127.0.0.1:1/m", "caBundle": hooks.ca}
        async with configured(bench, hooks, Kind.MUTATING_WEBHOOK, "/m", clientConfig=nowhere, failurePolicy="Fail"):
            error = await refusal(bench.api.create(Kind.POD, pod(bench, "p")), UnansweredError)
            assert "failed calling webhook" in str(error)
        async with configured(bench, hooks, Kind.VALIDATING_WEBHOOK, "/seen", failurePolicy="Ignore"):
            hooks.answers["/seen"] = lambda _: {"patch": "nonsense"}
            await until(lambda: _admitted(bench))


async def _admitted(bench: Bench) -> bool:
    """The webhook that failed is forgotten a moment after its configuration is gone."""
    try:
        await bench.api.create(Kind.POD, pod(bench, "p"))
    except UnansweredError:
        return False
    return True


@case
async def reinvocation_happens_once(bench: Bench, tmp: Path) -> None:
    """One after another, each on the work of those before; asked again only who was followed by a change (M4)."""
    async with (
        webhooks(tmp) as hooks,
        configured(bench, hooks, Kind.MUTATING_WEBHOOK, "/1", "/2", reinvocationPolicy="IfNeeded"),
    ):
        hooks.answers = {"/1": lambda _: label("one"), "/2": lambda _: label("two")}
        made = await bench.api.create(Kind.POD, pod(bench, "p", {"app": "p"}))
        assert sorted(made["metadata"]["labels"]) == ["app", "one", "two"]
        order = [(path, sorted(r["object"]["metadata"]["labels"])) for path, r in hooks.asked if r["name"] == "p"]
        assert order == [("/1", ["app"]), ("/2", ["app", "one"]), ("/1", ["app", "one", "two"])]


@case
async def a_dry_run_asks_with_dry_run(bench: Bench, tmp: Path) -> None:
    async with webhooks(tmp) as hooks, configured(bench, hooks, Kind.MUTATING_WEBHOOK, "/m"):
        await bench.api.create(Kind.POD, pod(bench, "dry"), dry_run=True)
        assert [r["dryRun"] for r in hooks.requests("/m", "dry")] == [True]
