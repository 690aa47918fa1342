"""A second kube-scheduler that asks home: the objects beside Mooring's own.

It runs in Mooring's namespace under the name that pods ask for (`schedulerName: tidb-scheduler`) and reaches the
extender by Mooring's Service. Its settings hold the extender's token, so they are in no ConfigMap: an init container
writes them from the Secret into memory, as `mooring home scheduler-config` prints them for this version.
"""

import re
from typing import Any, Final

from mooring.core.model.exits import UserError

# ── Schedulerconfig ─────────────────────────────────────────────────────────────────────────────────────────────────
#
# The kube-scheduler configuration that makes a scheduler ask Home, for a given Kubernetes version.
#
# Three settings carry the promise. `percentageOfNodesToScore: 100`: from 100 nodes on, kube-scheduler stops looking
# once it has found enough feasible nodes, and a member's home may then never be offered. `nodeCacheCapable: true`: only
# names travel, and scores are computed from the scheduler's own view of nodes. `ignorable: true`: when there is no
# answer, pods are scheduled all the same.

PROFILE: Final = "tidb-scheduler"
URL: Final = "http://127.0.0.1:10262/scheduler"
#: The first minor version of each configuration API, newest first.
_APIS: Final = ((25, "v1"), (23, "v1beta3"), (22, "v1beta2"), (19, "v1beta1"))
OLDEST: Final = "1.19"


class TooOldError(UserError, ValueError):
    """No configuration of ours works there."""


def minor_of(version: str) -> int:
    """`v1.36.3`, `1.30`, `1.28+` → 36, 30, 28."""
    found = re.match(r"v?1\.(\d+)", version.strip())
    if found is None:
        raise TooOldError(f"Kubernetes version {version!r} is not understood; write it as 1.36")
    return int(found[1])


def config_api(version: str) -> str:
    """The newest apiVersion of the configuration that this Kubernetes reads."""
    for first, api in _APIS:
        if minor_of(version) >= first:
            return f"kubescheduler.config.k8s.io/{api}"
    raise TooOldError(
        f"Kubernetes {version} has no KubeSchedulerConfiguration with extenders in it; {OLDEST} is the first"
    )


def scheduler_config(
    version: str,
    *,
    profile: str = PROFILE,
    url: str = URL,
    prefer: bool = False,
    namespace: str = "mooring-system",
) -> dict[str, Any]:
    """`prefer` adds the prioritize verb: needed where members only prefer to go home."""
    api = config_api(version)
    # Before 1.26 the percentage is known only for all profiles together.
    per_profile = minor_of(version) >= 26
    extender: dict[str, Any] = {
        "urlPrefix": url,
        "filterVerb": "filter",
        "preemptVerb": "preempt",
        "enableHTTPS": url.startswith("https:"),
        "httpTimeout": "5s",
        "nodeCacheCapable": True,
        "ignorable": True,
    }
    if prefer:
        extender |= {"prioritizeVerb": "prioritize", "weight": 10}
    document: dict[str, Any] = {
        "apiVersion": api,
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": True, "resourceNamespace": namespace, "resourceName": profile},
        "profiles": [{"schedulerName": profile, **({"percentageOfNodesToScore": 100} if per_profile else {})}],
        "extenders": [extender],
    }
    if not per_profile:
        document["percentageOfNodesToScore"] = 100
    return document


Json = dict[str, Any]
#: The key of Mooring's token Secret.
TOKEN_KEY: Final = "extender-token"  # noqa: S105
SETTINGS: Final = "/etc/mooring-scheduler"
GROUP: Final = "rbac.authorization.k8s.io"
#: What every kube-scheduler may do, as Kubernetes ships it.
ROLES: Final = ("system:kube-scheduler", "system:volume-scheduler")
LABELS: Final = {"app.kubernetes.io/name": PROFILE, "mooring.dev/asks-extender": "true"}


def version_of(image: str) -> str:
    """`registry.k8s.io/kube-scheduler:v1.36.3` → v1.36.3; UserError where the tag names no version that can ask."""
    found = re.search(r":(v?1\.\d+(?:\.\d+)?)(?:@|$|[-+])", image)
    if found is None:
        raise UserError(
            f"--scheduler-image {image}: name it with its version, e.g. registry.k8s.io/kube-scheduler:v1.36.3"
        )
    config_api(found[1])
    return found[1]


def objects(image: str, mooring: str, namespace: str, token_secret: str, port: int) -> list[Json]:
    """`image`: of kube-scheduler; `mooring`: of Mooring."""
    account = {"kind": "ServiceAccount", "name": PROFILE, "namespace": namespace}
    lease = [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["get", "update"],
            "resourceNames": [PROFILE],
        },
    ]
    bindings = [
        _object(
            f"{GROUP}/v1",
            "ClusterRoleBinding",
            f"mooring:{role.removeprefix('system:')}",
            "",
            roleRef={"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
            subjects=[account],
        )
        for role in ROLES
    ]
    role = {"apiGroup": GROUP, "kind": "Role", "name": PROFILE}
    return [
        _object("v1", "ServiceAccount", PROFILE, namespace),
        *bindings,
        _object(f"{GROUP}/v1", "Role", PROFILE, namespace, rules=lease),
        _object(f"{GROUP}/v1", "RoleBinding", PROFILE, namespace, roleRef=role, subjects=[account]),
        _object(
            "apps/v1",
            "Deployment",
            PROFILE,
            namespace,
            spec={
                "replicas": 2,
                "selector": {"matchLabels": {"app.kubernetes.io/name": PROFILE}},
                "template": {
                    "metadata": {"labels": LABELS},
                    "spec": _pod(image, mooring, namespace, token_secret, port),
                },
            },
        ),
    ]


def _pod(image: str, mooring: str, namespace: str, token_secret: str, port: int) -> Json:
    locked = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mount = {"name": "settings", "mountPath": SETTINGS}
    token = {"secretKeyRef": {"name": token_secret, "key": TOKEN_KEY}}
    probe = {"httpGet": {"path": "/healthz", "port": 10259, "scheme": "HTTPS"}, "periodSeconds": 10}
    return {
        "serviceAccountName": PROFILE,
        "priorityClassName": "mooring",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [
            {
                "name": "settings",
                "image": mooring,
                "args": [
                    "home",
                    "scheduler-config",
                    f"--k8s={version_of(image)}",
                    f"--namespace={namespace}",
                    f"--url=http://mooring:$(MOORING_EXTENDER_TOKEN)@mooring.{namespace}.svc:{port}/scheduler",
                    f"--to={SETTINGS}/scheduler.yaml",
                ],
                "env": [{"name": "MOORING_EXTENDER_TOKEN", "valueFrom": token}],
                "securityContext": locked,
                "volumeMounts": [mount],
            }
        ],
        "containers": [
            {
                "name": "kube-scheduler",
                "image": image,
                "command": ["kube-scheduler", f"--config={SETTINGS}/scheduler.yaml"],
                "livenessProbe": probe,
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                "securityContext": locked,
                "volumeMounts": [mount | {"readOnly": True}],
            }
        ],
        "volumes": [{"name": "settings", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
    }


def _object(api: str, kind: str, name: str, namespace: str, **rest: Any) -> Json:
    metadata: Json = {"name": name, "labels": {"app.kubernetes.io/name": PROFILE}}
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": metadata | ({"namespace": namespace} if namespace else {}),
        **rest,
    }
