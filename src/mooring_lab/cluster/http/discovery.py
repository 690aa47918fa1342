"""What the facade says about itself: groups, resources, and just enough OpenAPI for kubectl to trust our validation.

kubectl asks the OpenAPI document one thing before it creates or applies: does the server know `fieldValidation`? With
a yes it leaves validation to the server.
"""

from typing import Final

from mooring.clients.ports import Json
from mooring.core.model.kinds import RESOURCES, Kind
from mooring_lab.cluster.apiserver.eviction import SCALABLE
from mooring_lab.cluster.apiserver.validation import STATUS_KINDS

VERSION: Final[Json] = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0-mooring-sandbox",
    "platform": "linux/amd64",
    "goVersion": "none",
    "compiler": "none",
    "buildDate": "2026-01-01T00:00:00Z",
    "gitCommit": "sandbox",
    "gitTreeState": "clean",
}
_SHORT: Final[dict[Kind, list[str]]] = {
    Kind.POD: ["po"],
    Kind.NODE: ["no"],
    Kind.REPLICA_SET: ["rs"],
    Kind.DEPLOYMENT: ["deploy"],
    Kind.STATEFUL_SET: ["sts"],
    Kind.DAEMON_SET: ["ds"],
    Kind.PDB: ["pdb"],
    Kind.PV: ["pv"],
    Kind.PVC: ["pvc"],
    Kind.SERVICE: ["svc"],
    Kind.CONFIG_MAP: ["cm"],
    Kind.EVENT: ["ev"],
    Kind.NAMESPACE: ["ns"],
    Kind.RESOURCE_QUOTA: ["quota"],
    Kind.TIDB_CLUSTER: ["tc"],
    Kind.CRD: ["crd", "crds"],
}
_ALL: Final = frozenset({Kind.POD, Kind.SERVICE, Kind.DEPLOYMENT, Kind.REPLICA_SET, Kind.STATEFUL_SET, Kind.DAEMON_SET})
_VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
#: What clients find: Evictions of `lifecycle.k8s.io` are alpha, and off unless a cluster switches them on.
_SERVED: Final = {kind: resource for kind, resource in RESOURCES.items() if kind is not Kind.EVICTION}
#: (group, version, plural) → kind.
BY_PATH: Final[dict[tuple[str, str, str], Kind]] = {(r.group, r.version, r.plural): k for k, r in _SERVED.items()}


def groups() -> list[tuple[str, str]]:
    """Named groups with their version, in order."""
    return sorted({(r.group, r.version) for r in _SERVED.values() if r.group})


def group_list() -> Json:
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(g, v) for g, v in groups()]}


def group(name: str) -> Json | None:
    version = dict(groups()).get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, version)} if version else None


def _group(name: str, version: str) -> Json:
    this = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [this], "preferredVersion": this}


def core_versions(address: str) -> Json:
    where = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": where}


def resource_list(name: str, version: str) -> Json | None:
    kinds = [k for k, r in _SERVED.items() if (r.group, r.version) == (name, version)]
    if not kinds:
        return None
    found: list[Json] = []
    for kind in kinds:
        found.append(_resource(kind))
        found.extend(_subresources(kind))
    group_version = f"{name}/{version}" if name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": found}


def _resource(kind: Kind) -> Json:
    resource = RESOURCES[kind]
    entry: Json = {
        "name": resource.plural,
        "singularName": kind.value.lower(),
        "namespaced": resource.namespaced,
        "kind": kind.value,
        "verbs": _VERBS,
    }
    if kind in _SHORT:
        entry["shortNames"] = _SHORT[kind]
    if kind in _ALL:
        entry["categories"] = ["all"]
    return entry


def _subresources(kind: Kind) -> list[Json]:
    resource = RESOURCES[kind]

    def entry(name: str, of: str, verbs: list[str], where: tuple[str, str] | None = None) -> Json:
        body: Json = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
        if where:
            body |= {"group": where[0], "version": where[1]}
        return body | {"kind": of, "verbs": verbs}

    found = []
    if kind in STATUS_KINDS:
        found.append(entry("status", kind.value, ["get", "patch", "update"]))
    if kind in SCALABLE:
        found.append(entry("scale", "Scale", ["get", "patch", "update"], ("autoscaling", "v1")))
    if kind is Kind.POD:
        found.append(entry("eviction", "Eviction", ["create"], ("policy", "v1")))
        found.append(entry("binding", "Binding", ["create"]))
    return found


def openapi_index() -> Json:
    paths = ["api/v1", *(f"apis/{g}/{v}" for g, v in groups())]
    return {"paths": {p: {"serverRelativeURL": f"/openapi/v3/{p}?hash=sandbox"} for p in paths}}


def openapi_of(name: str, version: str) -> Json:
    parameters = [
        {"name": n, "in": "query", "schema": {"type": "string"}} for n in ("dryRun", "fieldManager", "fieldValidation")
    ]
    paths: Json = {}
    for kind, resource in _SERVED.items():
        if (resource.group, resource.version) != (name, version):
            continue
        gvk = {"group": resource.group, "version": resource.version, "kind": kind.value}
        namespace = "{namespace}" if resource.namespaced else None
        operation = {"x-kubernetes-group-version-kind": gvk, "parameters": parameters, "responses": {}}
        paths[resource.path(namespace, "{name}")] = {
            "patch": {**operation, "x-kubernetes-action": "patch"},
            "put": {**operation, "x-kubernetes-action": "put"},
        }
        paths[resource.path(namespace)] = {"post": {**operation, "x-kubernetes-action": "post"}}
    info = {"title": "Mooring sandbox", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}
