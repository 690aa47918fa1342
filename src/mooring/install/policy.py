"""What RBAC cannot say: a ValidatingAdmissionPolicy (Kubernetes 1.30 and later) for our own account alone.

Whatever holds the account's token has its rights. RBAC knows neither fields nor "not in this namespace", so the API
server also checks each write of the account:

- a webhook configuration is ours by name, calls our own Service only, and asks about nothing but new pods and
  workloads outside kube-system: a foreign or a wider one would see and change all that is created in the cluster;
- pods, StatefulSets and TidbClusters keep their spec, nodes theirs but for cordon and taints: what we write is metadata
  (and the status of a TidbCluster);
- kube-system is left out: its pods are neither deleted nor changed; where fleet empties machines they are evicted, and
  annotated with that, but keep their labels, owners and finalizers.
"""

from collections.abc import Collection
from typing import Any, Final

from mooring.capabilities.registry import descriptors

NAME: Final = "mooring-own-account"
HOOKS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
CONFIGURATION: Final = "mooring-mix"

Json = dict[str, Any]


def policy(namespace: str, features: Collection[str], labels: Json) -> list[Json]:
    """The policy and its binding."""
    api = "admissionregistration.k8s.io/v1"
    metadata = {"name": NAME, "labels": labels}
    return [
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata,
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {
                    "resourceRules": [
                        _rule("", ["pods"], ["UPDATE", "DELETE"]),
                        _rule("", ["pods/eviction"], ["CREATE"]),
                        _rule("", ["nodes"], ["UPDATE"]),
                        _rule("apps", ["statefulsets"], ["UPDATE"]),
                        _rule("pingcap.com", ["tidbclusters"], ["UPDATE"]),
                        _rule("admissionregistration.k8s.io", list(HOOKS), ["CREATE", "UPDATE", "DELETE"]),
                    ]
                },
                "matchConditions": [
                    {
                        "name": "our-account",
                        "expression": f"request.userInfo.username == 'system:serviceaccount:{namespace}:mooring'",
                    }
                ],
                "validations": _validations(namespace, features),
            },
        },
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": NAME, "validationActions": ["Deny"]},
        },
    ]


def _rule(group: str, resources: list[str], operations: list[str]) -> Json:
    return {"apiGroups": [group], "apiVersions": ["*"], "resources": resources, "operations": operations}


def _same(field: str, part: str = "metadata") -> str:
    """The object has this field as before, or still has none."""
    now, before = f"object.{part}.{field}", f"oldObject.{part}.{field}"
    return f"has({now}) == has({before}) && (!has({now}) || {now} == {before})"


def _validations(namespace: str, features: Collection[str]) -> list[Json]:
    hook = f"request.resource.resource in {list(HOOKS)!r}"
    ours = (
        "has(w.clientConfig.service) && w.failurePolicy == 'Ignore' && "
        f"w.clientConfig.service.namespace == '{namespace}' && w.clientConfig.service.name == 'mooring-webhook'"
    )
    elsewhere = (
        "has(w.namespaceSelector.matchExpressions) && w.namespaceSelector.matchExpressions.exists(e, e.operator == "
        "'NotIn' && e.key == 'kubernetes.io/metadata.name' && e.values.exists(v, v == 'kube-system'))"
    )
    pods = "r.resources.all(x, x == 'pods') && r.operations.all(x, x == 'CREATE')"
    workloads = "r.resources.all(x, x in ['deployments', 'statefulsets'])"
    asked = f"w.rules.all(r, request.resource.resource == '{HOOKS[0]}' ? ({pods}) : ({workloads}))"
    node = "request.resource.resource == 'nodes'"
    identity = " && ".join(_same(field, "spec") for field in ("providerID", "podCIDR", "podCIDRs"))
    emptied = "false"
    if any(one.empties_kube_system for one in descriptors() if one.name in features):
        kept = " && ".join(map(_same, ("labels", "ownerReferences", "finalizers")))
        evicted = "has(request.subResource) && request.subResource == 'eviction'"
        emptied = f"({evicted}) || (request.operation == 'UPDATE' && {kept})"
    return [
        {
            "expression": f"!({hook}) || (request.name == '{CONFIGURATION}' && (request.operation == 'DELETE' || "
            f"!has(object.webhooks) || object.webhooks.all(w, {ours})))",
            "message": f"mooring writes no webhook configuration but {CONFIGURATION}, for its own Service",
        },
        {
            "expression": f"!({hook}) || request.operation == 'DELETE' || !has(object.webhooks) || "
            f"object.webhooks.all(w, {elsewhere} && {asked})",
            "message": "mooring is asked about new pods and workloads outside kube-system, and nothing else",
        },
        {
            "expression": f"({hook}) || {node} || request.operation != 'UPDATE' || object.spec == oldObject.spec",
            "message": "mooring changes metadata only, no spec",
        },
        {
            "expression": f"!({node}) || ({identity})",
            "message": "mooring cordons and taints nodes, and changes no more of their spec",
        },
        {
            "expression": "request.resource.resource != 'pods' || request.namespace != 'kube-system' || " + emptied,
            "message": "mooring leaves the pods of kube-system alone",
        },
    ]
