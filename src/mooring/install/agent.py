"""What installs the agent (`mooring agent`): a DaemonSet in a namespace of its own, and the policy that holds it.

The agent sees the host's network, since a cloud's metadata service answers nobody else, and the host's /var/run, where
a required reboot is noted. Pod Security's `restricted` allows neither, so it is kept apart from the control plane.

Its account may patch Nodes and nothing else, and cannot even read them. RBAC knows neither "its own Node" nor "this
annotation": a ValidatingAdmissionPolicy does, by the node that the API server wrote into the pod's token (Kubernetes
1.32 and later; 1.30 with the default feature gates). It is not optional, and fails closed.
"""

from typing import Any, Final

from mooring.core.model.marks import AGENT

NAME: Final = "mooring-agent"
NODE_CLAIM: Final = "authentication.kubernetes.io/node-name"
#: In the container: where the host's /var/run is.
HOST_RUN: Final = "/host/run"
USER: Final = 65532

Json = dict[str, Any]
_GROUP: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {"app.kubernetes.io/name": NAME}


def agent(namespace: str, image: str) -> list[Json]:
    """`namespace`: the control plane's; the agent's own is beside it."""
    own = f"{namespace}-agent"
    role = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": NAME}
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": own}]
    privileged = {"pod-security.kubernetes.io/enforce": "privileged"}
    return [
        _object("v1", "Namespace", name=own, labels=privileged),
        _object("v1", "ServiceAccount", own, automountServiceAccountToken=False),
        _object(f"{_GROUP}/v1", "ClusterRole", rules=[{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}]),
        _object(f"{_GROUP}/v1", "ClusterRoleBinding", roleRef=role, subjects=subjects),
        *_policy(own),
        _object("apps/v1", "DaemonSet", own, spec=_daemon_set(image)),
    ]


def _object(
    api: str, kind: str, namespace: str = "", *, name: str = NAME, labels: Json | None = None, **rest: Any
) -> Json:
    metadata: Json = {"name": name, "labels": {**_LABELS, **(labels or {})}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}


def _daemon_set(image: str) -> Json:
    return {
        "selector": {"matchLabels": _LABELS},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
        "template": {"metadata": {"labels": _LABELS}, "spec": _pod(image)},
    }


def _pod(image: str) -> Json:
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": True,
        "priorityClassName": "mooring",
        # One hop further, AWS's metadata service no longer answers.
        "hostNetwork": True,
        "enableServiceLinks": False,
        # Also where nothing else may run any more: there the notice counts most.
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "agent",
                "image": image,
                # Not `mooring agent`: the parser of the command line takes more memory than the agent.
                "command": ["python", "-m", "mooring.agent.watch"],
                "env": [
                    {"name": "MOORING_AGENT_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "MOORING_AGENT_CLOUD", "value": "auto"},
                ],
                "resources": {"requests": {"cpu": "5m", "memory": "25Mi"}, "limits": {"memory": "64Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "run", "mountPath": HOST_RUN, "readOnly": True}],
            }
        ],
        "volumes": [{"name": "run", "hostPath": {"path": "/var/run", "type": "Directory"}}],
    }


def _policy(own: str) -> list[Json]:
    api = "admissionregistration.k8s.io/v1"
    claim = f"request.userInfo.extra['{NODE_CLAIM}']"
    return [
        _object(
            api,
            "ValidatingAdmissionPolicy",
            spec={
                "failurePolicy": "Fail",
                "matchConstraints": {
                    "resourceRules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["*"],
                            "resources": ["nodes", "nodes/*"],
                            "operations": ["*"],
                        }
                    ]
                },
                "matchConditions": [
                    {
                        "name": "the-agent",
                        "expression": f"request.userInfo.username == 'system:serviceaccount:{own}:{NAME}'",
                    }
                ],
                "validations": [
                    {
                        "expression": f"request.operation == 'UPDATE' && '{NODE_CLAIM}' in request.userInfo.extra && "
                        f"{claim}.size() == 1 && {claim}[0] == request.name",
                        "message": "the agent writes its own Node only",
                    },
                    {
                        "expression": "object.spec == oldObject.spec && object.status == oldObject.status && "
                        + " && ".join(map(_same, ("labels", "finalizers", "ownerReferences"))),
                        "message": "the agent writes an annotation and nothing else",
                    },
                    {
                        "expression": f"{_others('object', 'oldObject')} && {_others('oldObject', 'object')}",
                        "message": f"the agent writes the annotation {AGENT} only",
                    },
                ],
            },
        ),
        _object(
            api,
            "ValidatingAdmissionPolicyBinding",
            spec={"policyName": NAME, "validationActions": ["Deny"]},
        ),
    ]


def _same(field: str) -> str:
    now, before = f"object.metadata.{field}", f"oldObject.metadata.{field}"
    return f"has({now}) == has({before}) && (!has({now}) || {now} == {before})"


def _others(one: str, other: str) -> str:
    """Each annotation of one but ours is the other's, too."""
    notes, theirs = f"{one}.metadata.annotations", f"{other}.metadata.annotations"
    same = f"has({theirs}) && k in {theirs} && {theirs}[k] == {notes}[k]"
    return f"(!has({notes}) || {notes}.all(k, k == '{AGENT}' || ({same})))"
