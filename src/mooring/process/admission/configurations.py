"""The webhook configurations: what the API server asks us about, and how it finds us.

Four questions: about new pods and about workloads (Mix), about evictions and, where the API server has Kubernetes' own
Evictions, about who responds to them (the gate of drain).

Safe by construction: failurePolicy Ignore (Mooring never keeps a pod from being created; the rebalancer
corrects what was missed), a timeout of two seconds, kube-system and our own namespace left out, and match conditions by
labels, so that the API server does not even call for pods that cannot be ours. The leader keeps them as they should be
and takes them away when nothing that asks is on; outside a cluster also when it stops, since then nothing serves the
URL. They belong to our namespace: when that is deleted they are garbage-collected.
"""

import base64
import contextlib
from collections.abc import Collection
from typing import Any, Final

import msgspec

from mooring.clients.ports import AlreadyExistsError, ConflictError, Json, KubeApi, NotFoundError
from mooring.core.model.kinds import RESOURCES, Kind

NAME: Final = "mooring-mix"
LABELS: Final = {"app.kubernetes.io/name": "mooring", "app.kubernetes.io/managed-by": "mooring"}
TIMEOUT_S: Final = 2
#: Looks at a configuration that others write too, before the next round has its turn.
TRIES: Final = 3
#: Pods of a ReplicaSet, a StatefulSet or a CloneSet. By labels: of metadata, CEL promises little more.
OWNED: Final = (
    "pod-template-hash",
    "statefulset.kubernetes.io/pod-name",
    "rollouts-pod-template-hash",
    "apps.kruise.io/cloneset-instance-id",
)
OWNED_PODS: Final = (
    f"has(object.metadata.labels) && ({' || '.join(f'{key!r} in object.metadata.labels' for key in OWNED)})"
)
#: Workloads that have settings for Mix, or had them before this change.
SPEAKING_WORKLOADS: Final = " || ".join(
    f"({side} != null && has({side}.metadata.{part}) && {side}.metadata.{part}.exists(k, k.startsWith('vacant.io/')))"
    for side in ("object", "oldObject")
    for part in ("labels", "annotations")
)


#: What a feature serves → the webhooks that it needs.
PODS: Final = "webhook"
EVICTIONS: Final = "gate"
#: Where drain is on and the API server has Evictions of `lifecycle.k8s.io`.
RESPONDERS: Final = "responders"


class WebhookAddress(msgspec.Struct, frozen=True):
    """How the API server reaches us: a URL (outside a cluster), or a Service of our namespace."""

    namespace: str
    url: str = ""
    service: str = "mooring-webhook"

    def client_config(self, path: str, ca_bundle: bytes) -> Json:
        config: Json = {}
        if self.url:
            config["url"] = self.url.rstrip("/") + path
        else:
            config["service"] = {"namespace": self.namespace, "name": self.service, "path": path, "port": 443}
        if ca_bundle:
            config["caBundle"] = base64.b64encode(ca_bundle).decode()
        return config

    def names(self) -> list[str]:
        """The names a certificate must carry."""
        if self.url:
            host = self.url.partition("://")[2].partition("/")[0]
            return [host.rpartition(":")[0].strip("[]") if ":" in host else host]
        return [f"{self.service}.{self.namespace}.svc", f"{self.service}.{self.namespace}.svc.cluster.local"]


def others(namespace: str) -> str:
    """By others than our own account: what we evict ourselves was decided already."""
    return f"request.userInfo.username != 'system:serviceaccount:{namespace}:mooring'"


def configurations(
    address: WebhookAddress, ca_bundle: bytes, namespace_uid: str = "", serves: Collection[str] = (PODS, EVICTIONS)
) -> dict[Kind, Json]:
    """Both of them, complete. `namespace_uid`: of our own namespace; "" where it is not known. `serves`: what is on."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "name": address.namespace, "uid": namespace_uid}
    elsewhere = {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [address.namespace, "kube-system"]}
        ]
    }
    shared: Json = {
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "timeoutSeconds": TIMEOUT_S,
        "namespaceSelector": elsewhere,
        "objectSelector": {},
    }
    pods = shared | {
        "name": "pods.mooring.dev",
        "clientConfig": address.client_config("/admit/pods", ca_bundle),
        "rules": [_rule("", ["pods"], ["CREATE"])],
        "matchConditions": [{"name": "owned", "expression": OWNED_PODS}],
        "sideEffects": "NoneOnDryRun",
        "reinvocationPolicy": "IfNeeded",
    }
    workloads = shared | {
        "name": "workloads.mooring.dev",
        "clientConfig": address.client_config("/admit/workloads", ca_bundle),
        "rules": [
            _rule("apps", ["deployments", "statefulsets"], ["CREATE", "UPDATE"]),
            *[
                _rule(RESOURCES[kind].group, [RESOURCES[kind].plural], ["CREATE", "UPDATE"], RESOURCES[kind].version)
                for kind in (Kind.ROLLOUT, Kind.CLONE_SET)
            ],
        ],
        "matchConditions": [{"name": "speaks-to-mix", "expression": SPEAKING_WORKLOADS}],
        "sideEffects": "None",
    }
    evictions = shared | {
        "name": "evictions.mooring.dev",
        "clientConfig": address.client_config("/admit/evictions", ca_bundle),
        "rules": [_rule("", ["pods/eviction"], ["CREATE"])],
        "matchConditions": [{"name": "by-others", "expression": others(address.namespace)}],
        "sideEffects": "NoneOnDryRun",
    }
    responders = shared | {
        "name": "responders.mooring.dev",
        "clientConfig": address.client_config("/admit/responders", ca_bundle),
        "rules": [_rule("", ["pods"], ["CREATE"])],
        "matchConditions": [{"name": "owned", "expression": OWNED_PODS}],
        "sideEffects": "None",
        "reinvocationPolicy": "Never",
    }
    mutating = [*([pods] if PODS in serves else []), *([responders] if RESPONDERS in serves else [])]
    validating = [*([workloads] if PODS in serves else []), *([evictions] if EVICTIONS in serves else [])]
    return {
        kind: {
            "apiVersion": RESOURCES[kind].api_version,
            "kind": kind.value,
            "metadata": {"name": NAME, "labels": dict(LABELS)}
            | ({"ownerReferences": [namespace]} if namespace_uid else {}),
            "webhooks": webhooks,
        }
        for kind, webhooks in ((Kind.MUTATING_WEBHOOK, mutating), (Kind.VALIDATING_WEBHOOK, validating))
    }


def _rule(group: str, resources: list[str], operations: list[str], version: str = "v1") -> Json:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": resources,
        "operations": operations,
        "scope": "Namespaced",
    }


async def stand(api: KubeApi, wanted: dict[Kind, Json]) -> bool:
    """Are they there, exactly as they should be?"""
    for kind, configuration in wanted.items():
        try:
            current = await api.get(kind, "", NAME)
        except NotFoundError:
            return False
        if current != _as_it_should_be(configuration, current):
            return False
    return True


def webhooks_of(serves: Collection[str]) -> frozenset[str]:
    """The names of the webhooks that features need which serve this."""
    both = configurations(WebhookAddress(""), b"", serves=serves)
    return frozenset(webhook["name"] for one in both.values() for webhook in one["webhooks"])


async def install(api: KubeApi, wanted: dict[Kind, Json]) -> list[str]:
    """Write them where they differ; returns what was written. Called again and again."""
    return [what for kind, configuration in wanted.items() if (what := await _install(api, kind, configuration))]


async def _install(api: KubeApi, kind: Kind, configuration: Json) -> str:
    """A conflict with another writer (a replica that stops removes its own) costs another read, not another round."""
    for _ in range(TRIES):
        try:
            current = await api.get(kind, "", NAME)
        except NotFoundError:
            with contextlib.suppress(AlreadyExistsError):
                await api.create(kind, configuration)
                return f"create {kind}"
            continue
        following = _as_it_should_be(configuration, current)
        if current == following:
            return ""
        with contextlib.suppress(ConflictError, NotFoundError):
            await api.replace(kind, following)
            return f"replace {kind}"
    return ""


async def uninstall(api: KubeApi, address: WebhookAddress | None = None) -> list[str]:
    """Remove them; returns what was removed. Only ours: by name and by our label, and where an address is given only
    while they still point to it: another process may have replaced them."""
    removed = []
    for kind in (Kind.MUTATING_WEBHOOK, Kind.VALIDATING_WEBHOOK):
        try:
            current = await api.get(kind, "", NAME)
            metadata: dict[str, Any] = current["metadata"]
            if (metadata.get("labels") or {}).get("app.kubernetes.io/managed-by") != "mooring":
                continue
            if address is not None and not _leads_to(current, address):
                continue
            await api.delete(kind, "", NAME, uid=metadata.get("uid", ""))
        except (NotFoundError, ConflictError):
            continue
        removed.append(f"delete {kind}")
    return removed


def _leads_to(configuration: Json, address: WebhookAddress) -> bool:
    base = address.url.rstrip("/") + "/"
    return any(w.get("clientConfig", {}).get("url", "").startswith(base) for w in configuration.get("webhooks") or ())


def _as_it_should_be(configuration: Json, current: Json) -> Json:
    """What is there, with our webhooks in it, and ours."""
    owners = configuration["metadata"].get("ownerReferences") or current["metadata"].get("ownerReferences")
    metadata = current["metadata"] | ({"ownerReferences": owners} if owners else {})
    return current | {"metadata": metadata, "webhooks": [_keep_bundle(w, current) for w in configuration["webhooks"]]}


def _keep_bundle(webhook: Json, current: Json) -> Json:
    """Where we know no authority (cert-manager's injector writes the caBundle), the one that stands there stays."""
    if "caBundle" in webhook["clientConfig"]:
        return webhook
    for other in current.get("webhooks") or ():
        if other.get("name") == webhook["name"] and (bundle := other.get("clientConfig", {}).get("caBundle")):
            return webhook | {"clientConfig": webhook["clientConfig"] | {"caBundle": bundle}}
    return webhook
