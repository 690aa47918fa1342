"""Admission webhooks, called as kube-apiserver calls them.

Which ones: the Mutating- and ValidatingWebhookConfigurations in the store, by name, their webhooks in order. How: a
URL that is served in this process (`serve`) is a function call; any other goes over TLS with the caBundle, which
needs an ordinary event loop. Either way an AdmissionReview goes out and one comes back.

    mutating: one after another, each sees what the ones before it did; when a later one changed something, those with
    reinvocationPolicy IfNeeded are asked once more  →  validating: all must allow

A webhook that cannot be asked (no answer, time-out, nonsense) counts by its failurePolicy: Ignore passes it over,
Fail refuses the request (500). A webhook that says no refuses it with its own words.
"""

import asyncio
import base64
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import msgspec

from mooring.clients.ports import Json, PatchType, PortError, RefusedError, ThrottledError, UnansweredError
from mooring.core.model.kinds import RESOURCES, Kind
from mooring_lab.cluster.apiserver.labels import selects
from mooring_lab.cluster.apiserver.patch import apply_patch
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.http.tls import call_over_tls
from mooring_lab.cluster.randomness import SeededRandomness

#: AdmissionReview in, AdmissionReview out.
Webhook = Callable[[Json], Json | Awaitable[Json]]
#: Stands for a CEL expression of matchConditions: sees the AdmissionReview's request.
Condition = Callable[[Json], bool]

_CONFIGURATIONS: Final = {True: Kind.MUTATING_WEBHOOK, False: Kind.VALIDATING_WEBHOOK}


class WebhookCallError(Exception):
    """The webhook could not be asked, or did not answer with an AdmissionReview."""


class AdmissionRequest(msgspec.Struct, frozen=True):
    """What is about to be written. `old` None: a creation; `new` None: a deletion."""

    operation: str
    kind: Kind
    new: Json | None
    old: Json | None = None
    user: str = "admin"
    dry_run: bool = False
    subresource: str = ""

    @property
    def subject(self) -> Json:
        return self.new if self.new is not None else self.old or {}


class Admitted(msgspec.Struct, frozen=True):
    """What may be written, and what the webhooks want the user to read."""

    obj: Json
    warnings: tuple[str, ...] = ()


class Admission:
    def __init__(self, store: ObjectStore, randomness: SeededRandomness) -> None:
        self._store = store
        self._randomness = randomness.fork("admission")
        self._served: dict[str, Webhook] = {}
        self._conditions: dict[str, Condition] = {}
        #: What rules name; None: they have changed.
        self._resources: frozenset[str] | None = None
        for kind in _CONFIGURATIONS.values():
            store.subscribe(kind, self._changed)

    def serve(self, url: str, webhook: Webhook | None) -> None:
        """Answer calls to this URL in process; None: no longer (calls to it fail on virtual time)."""
        if webhook is None:
            self._served.pop(url, None)
        else:
            self._served[url] = webhook

    def condition(self, expression: str, fn: Condition) -> None:
        """What a matchConditions expression means. An undefined one is an error of its webhook."""
        self._conditions[expression] = fn

    def concerns(self, request: AdmissionRequest) -> bool:
        """Is there any webhook to ask?"""
        if self._resources is None:
            self._resources = frozenset(self._named())
        named = RESOURCES[request.kind].plural in self._resources or "*" in self._resources
        return named and any(self._matching(mutating, request) for mutating in (True, False))

    def _named(self) -> Iterator[str]:
        """Plurals of the kinds that any rule names, without subresources; "*": all."""
        for kind in _CONFIGURATIONS.values():
            for configuration in self._store.list(kind):
                for webhook in configuration.get("webhooks") or ():
                    for rule in webhook.get("rules") or ():
                        yield from (name.partition("/")[0] for name in rule.get("resources") or ())

    def _changed(self, *_: object) -> None:
        self._resources = None

    def answers_at_once(self, request: AdmissionRequest) -> bool:
        """All webhooks to ask are plain functions of this process: no event loop is needed."""
        hooks = [w for mutating in (True, False) for w in self._matching(mutating, request)]
        return all((fn := self._served.get(url_of(w))) and not inspect.iscoroutinefunction(fn) for w in hooks)

    async def mutate(self, request: AdmissionRequest) -> Admitted:
        webhooks = self._matching(True, request)
        obj, warnings = request.new or {}, []
        last_change: dict[int, int] = {}
        for turn, webhook in enumerate(webhooks):
            changed, said = await self._ask(webhook, request, obj)
            warnings += said
            if changed != obj:
                obj, last_change[turn] = changed, turn
        for turn, webhook in enumerate(webhooks):
            later = any(t > turn for t in last_change)
            if later and webhook.get("reinvocationPolicy") == "IfNeeded":
                obj, said = await self._ask(webhook, request, obj)
                warnings += said
        return Admitted(obj, tuple(warnings))

    async def validate(self, request: AdmissionRequest) -> tuple[str, ...]:
        warnings: list[str] = []
        for webhook in self._matching(False, request):
            _, said = await self._ask(webhook, request, request.new or {})
            warnings += said
        return tuple(warnings)

    # ── Which ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _matching(self, mutating: bool, request: AdmissionRequest) -> list[Json]:
        if request.kind in _CONFIGURATIONS.values():
            return []
        return [
            webhook
            for configuration in self._store.list(_CONFIGURATIONS[mutating])
            for webhook in configuration.get("webhooks") or ()
            if self._applies(webhook, request)
        ]

    def _applies(self, webhook: Json, request: AdmissionRequest) -> bool:
        if not any(_rule_matches(rule, request) for rule in webhook.get("rules") or ()):
            return False
        namespace = request.subject["metadata"].get("namespace")
        if namespace and webhook.get("namespaceSelector"):
            holder = self._store.find(Kind.NAMESPACE, "", namespace)
            labels = (holder or {"metadata": {}})["metadata"].get("labels") or {
                "kubernetes.io/metadata.name": namespace
            }
            if not selects(webhook["namespaceSelector"], labels):
                return False
        if selector := webhook.get("objectSelector"):
            sides = [o["metadata"].get("labels") or {} for o in (request.new, request.old) if o is not None]
            return any(selects(selector, labels) for labels in sides)
        return True

    # ── Asking one ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self, webhook: Json, request: AdmissionRequest, obj: Json) -> tuple[Json, list[str]]:
        name = webhook["name"]
        try:
            if not self._conditions_hold(webhook, request):
                return obj, []
            if request.dry_run and webhook.get("sideEffects") not in {"None", "NoneOnDryRun"}:
                raise RefusedError(f'admission webhook "{name}" does not support dry run', 400)
            review = self._review(request, obj)
            response = _response(await self._call(webhook, review), review["request"]["uid"])
        except WebhookCallError as error:
            if webhook.get("failurePolicy") == "Ignore":
                return obj, []
            raise UnansweredError(f'Internal error occurred: failed calling webhook "{name}": {error}') from error
        warnings = [str(w) for w in response.get("warnings") or ()]
        if not response.get("allowed"):
            raise _denied(name, response.get("status") or {})
        return self._patched(name, webhook, obj, response), warnings

    def _conditions_hold(self, webhook: Json, request: AdmissionRequest) -> bool:
        for condition in webhook.get("matchConditions") or ():
            test = self._conditions.get(condition["expression"])
            if test is None:
                raise WebhookCallError(f"cannot evaluate the match condition {condition.get('name')!r}")
            if not test(self._review(request, request.new or {})["request"]):
                return False
        return True

    def _patched(self, name: str, webhook: Json, obj: Json, response: Json) -> Json:
        patch = response.get("patch")
        if not patch:
            return obj
        try:
            operations = msgspec.json.decode(base64.b64decode(patch)) if isinstance(patch, str) else patch
            return apply_patch(obj, operations, PatchType.JSON)
        except (ValueError, PortError) as error:
            if webhook.get("failurePolicy") == "Ignore":
                return obj
            raise UnansweredError(f'Internal error occurred: webhook "{name}": {error}') from error

    async def _call(self, webhook: Json, review: Json) -> Json:
        url = url_of(webhook)
        served = self._served.get(url)
        timeout_s = float(webhook.get("timeoutSeconds") or 10)
        try:
            if served is None:
                return await call_over_tls(url, webhook["clientConfig"].get("caBundle", ""), review, timeout_s)
            answer = served(review)
            if not inspect.isawaitable(answer):
                return answer
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as error:
            raise WebhookCallError(f"Post {url!r}: context deadline exceeded") from error
        except (OSError, ValueError, PortError) as error:
            raise WebhookCallError(f"Post {url!r}: {error}") from error

    def _review(self, request: AdmissionRequest, obj: Json) -> Json:
        resource = RESOURCES[request.kind]
        kind = {"group": resource.group, "version": resource.version, "kind": request.kind.value}
        if request.subresource == "eviction":
            kind = {"group": "policy", "version": "v1", "kind": "Eviction"}
        where = {"group": resource.group, "version": resource.version, "resource": resource.plural}
        metadata = request.subject["metadata"]
        body: Json = {
            "uid": self._randomness.uuid(),
            "kind": kind,
            "resource": where,
            "requestKind": kind,
            "requestResource": where,
            "name": metadata.get("name", ""),
            "operation": request.operation,
            "userInfo": {"username": request.user, "groups": ["system:authenticated"]},
            "object": obj if request.new is not None else None,
            "oldObject": request.old,
            "dryRun": request.dry_run,
            "options": {"kind": f"{request.operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"},
        }
        if metadata.get("namespace"):
            body["namespace"] = metadata["namespace"]
        if request.subresource:
            body["subResource"] = body["requestSubResource"] = request.subresource
        return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": body}


def url_of(webhook: Json) -> str:
    """Where it is served; a service becomes its address inside the cluster."""
    config = webhook.get("clientConfig") or {}
    if config.get("url"):
        return str(config["url"])
    service: Json = config.get("service") or {}
    port = service.get("port") or 443
    return f"https://{service.get('name')}.{service.get('namespace')}.svc:{port}{service.get('path', '/')}"


def _response(answer: Json, uid: str) -> Json:
    response = answer.get("response")
    if not isinstance(response, dict) or response.get("uid") != uid:
        raise WebhookCallError("expected an AdmissionReview with the request's uid")
    return response


def _rule_matches(rule: Json, request: AdmissionRequest) -> bool:
    resource = RESOURCES[request.kind]
    wanted = f"{resource.plural}/{request.subresource}" if request.subresource else resource.plural
    return (
        (_listed(rule.get("resources"), wanted) or "*/*" in (rule.get("resources") or ()))
        and _listed(rule.get("operations"), request.operation)
        and _listed(rule.get("apiGroups"), resource.group)
        and _listed(rule.get("apiVersions"), resource.version)
        and rule.get("scope", "*") in {"*", "Namespaced" if resource.namespaced else "Cluster"}
    )


def _listed(values: Any, value: str) -> bool:
    return bool(values) and ("*" in values or value in values)


def _denied(name: str, status: Json) -> PortError:
    words = status.get("message") or status.get("reason")
    said = f": {words}" if words else " without explanation"
    code = status.get("code") or 0
    if code == 429:
        wish = (status.get("details") or {}).get("retryAfterSeconds") or 0
        return ThrottledError(f'admission webhook "{name}" denied the request{said}', wish)
    return RefusedError(f'admission webhook "{name}" denied the request{said}', max(code, 400))
