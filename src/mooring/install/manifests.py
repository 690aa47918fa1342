"""Everything that installs Mooring, as plain Kubernetes objects: what `mooring manifests` prints.

Two replicas, non-root, a read-only root file system, no capabilities, and the rights of the switched-on features only.
Certificates are not here: the leader issues and rotates them, and writes the caBundle of the webhook configurations.
"""

import re
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec

from mooring.capabilities.registry import hooks, serving
from mooring.core.model.exits import UserError
from mooring.install import scheduler
from mooring.install.agent import agent
from mooring.install.policy import policy
from mooring.install.rights import rules
from mooring.process.admission.configurations import WebhookAddress, configurations
from mooring.process.settings.config import is_namespace
from mooring.process.settings.features import Switch, UnknownFeatureError, parse_features

NAME: Final = "mooring"
#: The Role, in each namespace with such a Secret, that lets Mooring read it.
PD_SECRETS: Final = "mooring-pd-client"
HTTP, EXTENDER, WEBHOOK = 8390, 10262, 9443
#: Where we go: DNS, API servers, PD, sabakan, the other replica, and from `helm test` its page.
EGRESS: Final = (443, 6443, 2379, 10080, WEBHOOK, HTTP)
USER: Final = 65532
TLS: Final = "/etc/mooring-http-tls"
#: What was decided from what is recorded there; it goes with the pod.
BLACKBOX: Final = "/var/lib/mooring/blackbox"
#: The kinds that say who we are and what we may do.
RIGHTS: Final = frozenset({"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"})
NETWORK: Final = frozenset({"NetworkPolicy"})
#: Pods that carry the calls of API servers where these reach the cluster through a tunnel; one label or the other.
TUNNELS: Final = ("k8s-app", "app")

Json = dict[str, Any]


class Install(msgspec.Struct, frozen=True, kw_only=True):
    image: str
    namespace: str = "mooring-system"
    features: frozenset[str] = frozenset()
    #: Those of them that only decide and show what they would do.
    observing: frozenset[str] = frozenset()
    replicas: int = 2
    sabakan_url: str = ""
    #: Where nodes are: API servers call the webhook, and kubelets and schedulers on the host ask, from there.
    node_cidrs: tuple[str, ...] = ()
    #: Without `node_cidrs`: where the cluster said that its API servers are. Neither: every pod reaches the webhook.
    api_servers: tuple[str, ...] = ()
    webhook_open_to_all: bool = False
    #: Prometheus reaches the metrics from these namespaces alone: its label is anybody's to set.
    prometheus_namespaces: tuple[str, ...] = ("monitoring",)
    #: A Secret in the namespace with tls.crt and tls.key for the page; without it each replica makes a certificate.
    http_tls_secret: str = ""
    #: Of a kube-scheduler that asks home, installed beside Mooring; "": none is.
    scheduler_image: str = ""
    #: NAMESPACE/SECRET: client certificates for PDs over TLS, to be read by these names alone.
    pd_client_secrets: tuple[str, ...] = ()
    #: A Secret in the namespace whose key `token` readers of the page must bring.
    token_secret: str = "mooring-http"  # noqa: S105
    #: The DaemonSet that reads the cloud's notices.
    agent: bool = False


def checked(features: str, replicas: int, namespace: str) -> dict[str, Switch]:
    """The features that are on or observe; what cannot be installed is refused in words."""
    try:
        switches, _ = parse_features(features)
    except UnknownFeatureError as error:
        raise UserError(f"--features: {error}") from None
    if not 1 <= replicas <= 5:
        raise UserError(f"--replicas {replicas}: between 1 and 5; one leads, the others stand by")
    if not is_namespace(namespace):
        raise UserError(f"--namespace {namespace!r}: small letters, digits and -, e.g. mooring-system")
    return {name: switch for name, switch in switches.items() if switch}


def secrets_of(given: str) -> tuple[str, ...]:
    """`NAMESPACE/SECRET[,…]`, checked."""
    found = tuple(filter(None, (one.strip() for one in given.split(","))))
    for one in found:
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?", one):
            raise UserError(f"--pd-client-secrets {one}: write NAMESPACE/SECRET, e.g. tidb/demo-cluster-client-secret")
    return found


def manifests(install: Install, kinds: Collection[str] = ()) -> list[Json]:
    """In the order in which they can be applied. `kinds`: these only."""
    return [made for made in _manifests(install) if not kinds or made["kind"] in kinds]


def _manifests(install: Install) -> list[Json]:
    return [
        _object("v1", "Namespace", install, cluster=True, name=install.namespace, labels=_restricted()),
        _object("v1", "ServiceAccount", install, automountServiceAccountToken=False),
        *_rbac(install),
        *_second_scheduler(install),
        _object(
            "scheduling.k8s.io/v1",
            "PriorityClass",
            install,
            cluster=True,
            value=1_000_000,
            description="Mooring moves other pods; it should not be the first to be evicted.",
        ),
        _deployment(install),
        _service(install, "mooring", {"http": (HTTP, "http"), "extender": (EXTENDER, "extender")}),
        *([_service(install, "mooring-webhook", {"webhook": (443, "webhook")})] if hooks(install.features) else []),
        _object(
            "policy/v1",
            "PodDisruptionBudget",
            install,
            spec={"maxUnavailable": 1, "selector": {"matchLabels": labels()}},
        ),
        *network_policies(install),
        *policy(install.namespace, install.features, labels()),
        *(webhooks(install.namespace, hooks(install.features)) if hooks(install.features) else []),
        *(agent(install.namespace, install.image) if install.agent else []),
    ]


def _second_scheduler(install: Install) -> list[Json]:
    image, own = install.scheduler_image, install.namespace
    if not (image and serving("extender", install.features)):
        return []
    return scheduler.objects(image, install.image, own, install.token_secret, EXTENDER)


def webhooks(namespace: str, serves: Collection[str]) -> list[Json]:
    """Without a caBundle, and ignored until the leader writes one: it may change these two, and create no others."""
    return list(configurations(WebhookAddress(namespace), b"", serves=serves).values())


def labels() -> dict[str, str]:
    return {"app.kubernetes.io/name": NAME}


def _restricted() -> dict[str, str]:
    return {"pod-security.kubernetes.io/enforce": "restricted"}


def _object(
    api: str,
    kind: str,
    install: Install,
    *,
    cluster: bool = False,
    name: str = NAME,
    labels: Json | None = None,
    **rest: Any,
) -> Json:
    metadata: Json = {"name": name, "labels": {"app.kubernetes.io/name": NAME, **(labels or {})}}
    if not cluster:
        metadata["namespace"] = install.namespace
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}


def _rbac(install: Install) -> Iterable[Json]:
    group = "rbac.authorization.k8s.io"
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": install.namespace}]
    for kind, own in (("ClusterRole", False), ("Role", True)):
        yield _object(f"{group}/v1", kind, install, cluster=not own, rules=rules(install.features, own=own))
        yield _object(
            f"{group}/v1",
            f"{kind}Binding",
            install,
            cluster=not own,
            roleRef={"apiGroup": group, "kind": kind, "name": NAME},
            subjects=subjects,
        )
    for namespace, secrets in _by_namespace(install.pd_client_secrets).items():
        there = msgspec.structs.replace(install, namespace=namespace)
        rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": secrets}
        yield _object(f"{group}/v1", "Role", there, name=PD_SECRETS, rules=[rule])
        role = {"apiGroup": group, "kind": "Role", "name": PD_SECRETS}
        yield _object(f"{group}/v1", "RoleBinding", there, name=PD_SECRETS, roleRef=role, subjects=subjects)


def _by_namespace(secrets: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in sorted(secrets):
        namespace, _, name = one.partition("/")
        found.setdefault(namespace, []).append(name)
    return found


def arguments(install: Install) -> list[str]:
    features = ",".join(f"{n}={'observe' if n in install.observing else 'true'}" for n in sorted(install.features))
    return [
        "run",
        f"--namespace={install.namespace}",
        # Loopback for `kubectl port-forward`, without TLS; the pod's own address, with TLS, for all others.
        f"--listen-http=127.0.0.1:{HTTP},$(MOORING_ADVERTISE_ADDRESS):{HTTP}",
        *([f"--listen-extender=0.0.0.0:{EXTENDER}"] if serving("extender", install.features) else []),
        f"--listen-webhook=0.0.0.0:{WEBHOOK}",
        f"--blackbox={BLACKBOX}",
        *([f"--features={features}"] if features else []),
        *([f"--sabakan-url={install.sabakan_url}"] if install.sabakan_url else []),
    ]


def _secret(variable: str, name: str, key: str) -> Json:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key, "optional": True}}}


def _deployment(install: Install) -> Json:
    return _object(
        "apps/v1",
        "Deployment",
        install,
        spec={
            "replicas": install.replicas,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}},
            "selector": {"matchLabels": labels()},
            "template": {"metadata": {"labels": labels()}, "spec": _pod_spec(install)},
        },
    )


def _container(install: Install) -> Json:
    extender, tls = serving("extender", install.features), bool(install.http_tls_secret)
    return {
        "name": NAME,
        "image": install.image,
        "args": arguments(install),
        "env": [
            {"name": "MOORING_ADVERTISE_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            _secret("MOORING_HTTP_TOKEN", install.token_secret, "token"),
            *([_secret("MOORING_EXTENDER_TOKEN", install.token_secret, "extender-token")] if extender else []),
            *([{"name": "MOORING_HTTP_CERTIFICATES", "value": TLS}] if tls else []),
        ],
        "ports": [
            {"name": "http", "containerPort": HTTP},
            {"name": "extender", "containerPort": EXTENDER},
            {"name": "webhook", "containerPort": WEBHOOK},
        ],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTPS"},
            "periodSeconds": 10,
            "failureThreshold": 6,
        },
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http", "scheme": "HTTPS"}, "periodSeconds": 5},
        # API servers learn a little late that a pod is leaving: meanwhile it serves as before.
        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
        "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        # The root is read-only, and OpenSSL loads a certificate's key from a file: one that is in memory only.
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            {"name": "blackbox", "mountPath": BLACKBOX},
            *([{"name": "http-tls", "mountPath": TLS, "readOnly": True}] if tls else []),
        ],
    }


def _pod_spec(install: Install) -> Json:
    tls = bool(install.http_tls_secret)
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "priorityClassName": NAME,
        # After those 5 s SIGTERM: nothing new is begun, the lease is given back within 10 s.
        "terminationGracePeriodSeconds": 20,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": labels()},
            }
        ],
        "containers": [_container(install)],
        "volumes": [
            {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
            # Without a sizeLimit: blackbox.size limits it, and the kubelet would evict the pod.
            {"name": "blackbox", "emptyDir": {}},
            *([{"name": "http-tls", "secret": {"secretName": install.http_tls_secret}}] if tls else []),
        ],
    }


def _service(install: Install, name: str, ports: dict[str, tuple[int, str]]) -> Json:
    listed = [{"name": n, "port": port, "targetPort": target} for n, (port, target) in ports.items()]
    return _object("v1", "Service", install, name=name, spec={"selector": labels(), "ports": listed})


def network_policies(install: Install) -> Iterable[Json]:
    """In: schedulers, Prometheus and replicas by their pods; the API server, schedulers on the host and kubelets come
    from addresses of nodes, which `node_cidrs` names (none: the API servers by theirs, the others are not told apart).
    Out: what a feature talks to."""
    ours = {"podSelector": {"matchLabels": labels()}}
    nodes = [{"ipBlock": {"cidr": cidr}} for cidr in install.node_cidrs]
    scrapers = [_prometheus(install.prometheus_namespaces)] if install.prometheus_namespaces else []
    scheduler = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"mooring.dev/asks-extender": "true"}}}
    ingress = [_from([ours, *scrapers, *nodes], HTTP)]
    if serving("extender", install.features):
        ingress.append(_from([scheduler, *nodes], EXTENDER))
    if hooks(install.features):
        callers = [{"ipBlock": {"cidr": cidr}} for cidr in callers_of(install)]
        ingress.append(_from([ours, *map(_tunnel, TUNNELS), *callers] if callers else [], WEBHOOK))
    yield _object(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        install,
        spec={
            "podSelector": {"matchLabels": labels()},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": [
                {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]},
                {"ports": [{"port": port, "protocol": "TCP"} for port in EGRESS]},
            ],
        },
    )


def _prometheus(namespaces: tuple[str, ...]) -> Json:
    among = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
    return {
        "namespaceSelector": {"matchExpressions": [among]},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
    }


def callers_of(install: Install) -> tuple[str, ...]:
    """The addresses that may call the webhook; none: all may."""
    return () if install.webhook_open_to_all else install.node_cidrs or install.api_servers


def asks_for_callers(install: Install) -> bool:
    """Whether it is left to the cluster to say where its API servers are."""
    return not (install.node_cidrs or install.webhook_open_to_all) and bool(hooks(install.features))


def _tunnel(label: str) -> Json:
    system = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
    return {"namespaceSelector": system, "podSelector": {"matchLabels": {label: "konnectivity-agent"}}}


def remark(install: Install, why: str) -> str:
    """Who reaches the webhook's port, where that was left to the cluster; `why` it did not say it."""
    if install.api_servers:
        return (
            f"the webhook's port {WEBHOOK} is open to the API servers of the kubeconfig's cluster alone:"
            f" {', '.join(install.api_servers)}; apply it there, and again when they move (doctor says when: MO807)"
        )
    return (
        f"every pod reaches the webhook's port {WEBHOOK}: {why};\n"
        "  name the cluster (--kubeconfig, --context), or where API servers call from (--node-cidrs), mostly these:\n"
        "  kubectl get endpointslices -n default -l kubernetes.io/service-name=kubernetes"
        " -o jsonpath='{.items[*].endpoints[*].addresses[*]}'"
    )


def _from(peers: list[Json], port: int) -> Json:
    """No peers: from anywhere."""
    return ({"from": peers} if peers else {}) | {"ports": [{"port": port, "protocol": "TCP"}]}
