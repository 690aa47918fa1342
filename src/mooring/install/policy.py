"""What RBAC cannot say: a ValidatingAdmissionPolicy (Kubernetes 1.30 and later) for our own account alone.

Whatever holds the account's token has its rights. RBAC knows neither fields nor "not in this namespace", so the API
server also checks each write of the account:

- a webhook configuration is ours by name, calls our own Service only, and asks about nothing but new pods,
  workloads and evictions outside kube-system: a foreign or a wider one would see and change all that is created in the
  cluster;
- pods, StatefulSets, TidbClusters and v2's Clusters keep their spec, nodes theirs but for cordon and taints: what we
  write is metadata (and the status of a TidbCluster);
- the taints it adds or removes are ours (`mooring.dev/…`, no NoExecute), and labels of nodes stay; with fleet, which
  follows the templates of an administrator, any but those by which Kubernetes itself tells nodes apart;
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
                        _rule("core.pingcap.com", ["clusters"], ["UPDATE"]),
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


def _kubernetes(key: str) -> str:
    """What the kubelet, the node controller and cloud providers write."""
    prefixes = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "kubernetes.io/", "beta.kubernetes.io/")
    return " || ".join(f"{key}.startsWith('{prefix}')" for prefix in prefixes)


def _all_taints(one: str, other: str, allowed: str) -> str:
    """Each taint of one is also the other's, or one that may come and go."""
    found = f"has({other}.spec.taints) && {other}.spec.taints.exists(o, o == t)"
    return f"(!has({one}.spec.taints) || {one}.spec.taints.all(t, ({allowed}) || ({found})))"


def _unchanged_labels(one: str, other: str) -> str:
    found = f"has({other}.metadata.labels) && k in {other}.metadata.labels"
    same = f"{found} && {other}.metadata.labels[k] == {one}.metadata.labels[k]"
    return f"(!has({one}.metadata.labels) || {one}.metadata.labels.all(k, !({_kubernetes('k')}) || ({same})))"


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
    workloads = (
        "r.resources.all(x, x in ['deployments', 'statefulsets', 'rollouts', 'clonesets']) || "
        "(r.resources.all(x, x == 'pods/eviction') && r.operations.all(x, x == 'CREATE'))"
    )
    asked = f"w.rules.all(r, request.resource.resource == '{HOOKS[0]}' ? ({pods}) : ({workloads}))"
    node = "request.resource.resource == 'nodes'"
    identity = " && ".join(_same(field, "spec") for field in ("providerID", "podCIDR", "podCIDRs"))
    emptied, taint, labels = "false", "t.key.startsWith('mooring.dev/') && t.effect != 'NoExecute'", _same("labels")
    if any(one.empties_kube_system for one in descriptors() if one.name in features):
        taint = f"!({_kubernetes('t.key')})"
        labels = f"{_unchanged_labels('object', 'oldObject')} && {_unchanged_labels('oldObject', 'object')}"
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
            "message": "mooring is asked about new pods, workloads and evictions outside kube-system, and nothing else",
        },
        {
            "expression": f"({hook}) || {node} || request.operation != 'UPDATE' || "
            "(!has(object.spec) && !has(oldObject.spec)) || object.spec == oldObject.spec",
            "message": "mooring changes metadata only, no spec",
        },
        {
            "expression": f"!({node}) || ({identity})",
            "message": "mooring cordons and taints nodes, and changes no more of their spec",
        },
        {
            "expression": f"!({node}) || ({_all_taints('object', 'oldObject', taint)} && "
            f"{_all_taints('oldObject', 'object', taint)})",
            "message": "mooring changes its own taints only",
        },
        {
            "expression": f"!({node}) || ({labels})",
            "message": "mooring leaves the labels of nodes alone but for those that fleet brings",
        },
        {
            "expression": "request.resource.resource != 'pods' || request.namespace != 'kube-system' || " + emptied,
            "message": "mooring leaves the pods of kube-system alone",
        },
    ]
