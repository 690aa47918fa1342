"""Checks of the cluster and of what we may do there. Each is a small function of the API alone."""

import asyncio
import datetime as dt
import re
from collections.abc import Callable, Collection
from typing import Any, Final

from mooring.capabilities.registry import asking
from mooring.clients.kube.api import HttpKubeApi
from mooring.clients.ports import NotFoundError, PortError
from mooring.core.model.descriptor import Right
from mooring.core.model.finding import Finding, ill, skipped, well
from mooring.core.model.kinds import RESOURCES, Kind
from mooring.install.rights import rights_of

OLDEST_TESTED: Final = (1, 34)
#: Who has not answered by then is silent; a person waits for it.
REACH_S: Final = 4.0
MOST_SKEW_S: Final = 2.0
#: What an installer creates, by group and resource.
INSTALLED: Final = (
    ("", "namespaces"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("apps", "deployments"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("policy", "poddisruptionbudgets"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("networking.k8s.io", "networkpolicies"),
)


async def reachable(api: HttpKubeApi) -> Finding:
    fix = "kubectl version   (then --kubeconfig, --context)"
    try:
        async with asyncio.timeout(REACH_S):
            version = await api.raw("GET", "/version")
    except TimeoutError:
        return ill("cluster", "MO101", "API server answers", f"no answer within {REACH_S:g} s", fix)
    except PortError as error:
        return ill("cluster", "MO101", "API server answers", str(error), fix)
    if not isinstance(version, dict):
        seen = f"it is not a Kubernetes API server: GET /version answered {str(version)[:40]!r}"
        return ill("cluster", "MO101", "API server answers", seen, fix)
    found = re.match(r"v(\d+)\.(\d+)", str(version.get("gitVersion", "")))
    name = version.get("gitVersion", "no version")
    if found is not None and (int(found[1]), int(found[2])) < OLDEST_TESTED:
        tested = ".".join(map(str, OLDEST_TESTED))
        seen = f"{name}; tested from v{tested} on"
        return ill(
            "cluster",
            "MO102",
            "Kubernetes version",
            seen,
            "upgrade the cluster, or go on at your own risk",
            warning=True,
        )
    return well("cluster", f"API server answers ({name})")


async def server_time(api: HttpKubeApi) -> float | None:
    """The cluster's own time, by which its dates are to be read; None: it did not say."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await api.raw("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
        return dt.datetime.fromisoformat(answer["metadata"]["creationTimestamp"]).timestamp()
    except (PortError, KeyError, TypeError, ValueError):
        return None


async def is_sandbox(api: HttpKubeApi) -> bool:
    try:
        version = await api.raw("GET", "/version")
    except PortError:
        return False
    return isinstance(version, dict) and str(version.get("gitVersion", "")).endswith("mooring-sandbox")


async def clock_skew(api: HttpKubeApi, now: Callable[[], float]) -> Finding:
    """The server stamps a review of who we are; half the time of the call is taken off."""
    if await is_sandbox(api):
        return well("cluster", "the sandbox has a clock of its own")
    began = now()
    stamp = await server_time(api)
    if stamp is None:
        return skipped("cluster", "clocks agree", "the server did not stamp a review")
    # The stamp has whole seconds: the truth lies between it and a second later.
    early, late = stamp - now(), stamp + 1.0 - began
    skew = early if early > 0 else late if late < 0 else 0.0
    if abs(skew) > MOST_SKEW_S:
        seen = f"the cluster is {abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}"
        return ill(
            "cluster",
            "MO103",
            "clocks agree",
            seen,
            "timedatectl set-ntp true   (on this machine and the nodes)",
            warning=True,
        )
    return well("cluster", "clocks agree")


async def tidb_kind(api: HttpKubeApi, features: frozenset[str]) -> Finding:
    resource, v2 = RESOURCES[Kind.TIDB_CLUSTER], RESOURCES[Kind.TIDB_V2]
    try:
        await api.raw("GET", f"/apis/{resource.group}/{resource.version}")
    except NotFoundError:
        if await _is_served(api, f"/apis/{v2.group}/{v2.version}"):
            return well("cluster", "the Cluster kind of tidb-operator v2 is there")
        needed = asking("pd", features)
        if not needed:
            return well("cluster", "no TidbCluster kind, and nothing switched on needs it")
        seen = f"no {resource.plural}.{resource.group}; {', '.join(needed)} will find nothing to do"
        fix = "install tidb-operator's CRDs, or switch the feature off"
        return ill("cluster", "MO104", "TidbCluster kind", seen, fix, warning=True)
    except PortError as error:
        return skipped("cluster", "TidbCluster kind", str(error))
    return well("cluster", "TidbCluster kind is there")


async def _is_served(api: HttpKubeApi, path: str) -> bool:
    try:
        await api.raw("GET", path)
    except PortError:
        return False
    return True


async def namespace(api: HttpKubeApi, name: str) -> Finding:
    try:
        await api.get(Kind.NAMESPACE, "", name)
    except NotFoundError:
        return ill("rights", "MO201", f"namespace {name}", "it does not exist", f"kubectl create namespace {name}")
    except PortError as error:
        return skipped("rights", f"namespace {name}", str(error))
    return well("rights", f"namespace {name} exists")


async def rights(api: HttpKubeApi, own: str, features: Collection[str], account: str) -> list[Finding]:
    """One line per feature that has all it needs, one finding per right that it lacks."""
    whose = f"serviceaccount {own}/{account}" if account else "you"
    on = ",".join(f"{name}=true" for name in sorted(features))
    # All that is on, or the rest would lose its rights; and nothing but rights, or the image would change too.
    fix = f"mooring manifests --rights --namespace {own}{f' --features {on}' if on else ''} | kubectl apply -f -"
    missing: dict[str, list[Finding]] = {}
    asked: dict[tuple[Any, ...], bool] = {}
    try:
        for feature, right in rights_of(features):
            lacking = missing.setdefault(feature, [])
            for group, resource, verb in right.each():
                key = (group, resource, verb, right.own, right.names)
                if key not in asked:
                    asked[key] = await _may(api, own, account, right, verb)
                if not asked[key]:
                    where = f"in {own}" if right.own else "in all namespaces"
                    seen = f"{whose} may not {verb} {_spelled(group, resource)} {where}"
                    lacking.append(ill("rights", "MO202", f"rights of {feature}", seen, fix))
    except PortError as error:
        return [skipped("rights", f"rights of {whose}", str(error))]
    return [
        f
        for name, found in missing.items()
        for f in (found or [well("rights", f"{name}: {whose} may do all it needs")])
    ]


async def may_install(api: HttpKubeApi) -> list[Finding]:
    try:
        refused = [
            _spelled(group, resource)
            for group, resource in INSTALLED
            if not await _may(api, "", "", Right(group, resource, ("create",)), "create")
        ]
    except PortError as error:
        return [skipped("rights", "you may install", str(error))]
    if refused:
        seen = f"you may not create {', '.join(refused)}"
        fix = "ask an administrator: kubectl create clusterrolebinding … --clusterrole=cluster-admin"
        return [ill("rights", "MO203", "you may install", seen, fix)]
    return [well("rights", "you may install")]


async def _may(api: HttpKubeApi, own: str, account: str, right: Right, verb: str) -> bool:
    resource, _, sub = right.resource.partition("/")
    attributes = {"verb": verb, "group": right.group, "resource": resource}
    attributes |= {"subresource": sub} if sub else {}
    attributes |= {"namespace": own} if right.own else {}
    attributes |= {"name": right.names[0]} if right.names else {}
    if right.own and right.resource == "namespaces":
        attributes["name"] = own
    spec: dict[str, Any] = {"resourceAttributes": attributes}
    kind, path = "SelfSubjectAccessReview", "selfsubjectaccessreviews"
    if account:
        kind, path = "SubjectAccessReview", "subjectaccessreviews"
        spec["user"] = f"system:serviceaccount:{own}:{account}"
        spec["groups"] = ["system:serviceaccounts", f"system:serviceaccounts:{own}", "system:authenticated"]
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = await api.raw("POST", f"/apis/authorization.k8s.io/v1/{path}", body)
    return bool(answer.get("status", {}).get("allowed"))


def _spelled(group: str, resource: str) -> str:
    return f"{resource}.{group}" if group else resource
