"""The Kubernetes kinds that Mooring reads or writes, and where the API server keeps them."""

from enum import StrEnum
from typing import Final

import msgspec


class Kind(StrEnum):
    POD = "Pod"
    NODE = "Node"
    REPLICA_SET = "ReplicaSet"
    DEPLOYMENT = "Deployment"
    STATEFUL_SET = "StatefulSet"
    DAEMON_SET = "DaemonSet"
    #: Of Argo Rollouts and OpenKruise, where they are installed.
    ROLLOUT = "Rollout"
    CLONE_SET = "CloneSet"
    PDB = "PodDisruptionBudget"
    PV = "PersistentVolume"
    PVC = "PersistentVolumeClaim"
    SERVICE = "Service"
    ENDPOINT_SLICE = "EndpointSlice"
    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"  # noqa: S105
    LEASE = "Lease"
    EVENT = "Event"
    NAMESPACE = "Namespace"
    RESOURCE_QUOTA = "ResourceQuota"
    TIDB_CLUSTER = "TidbCluster"
    #: The same of tidb-operator v2, where it is installed.
    TIDB_V2 = "Cluster"
    NODE_CLAIM = "NodeClaim"
    EVICTION = "Eviction"
    CRD = "CustomResourceDefinition"
    MUTATING_WEBHOOK = "MutatingWebhookConfiguration"
    VALIDATING_WEBHOOK = "ValidatingWebhookConfiguration"


class Resource(msgspec.Struct, frozen=True):
    """Where a kind lives: `/apis/<group>/<version>/[namespaces/<ns>/]<plural>` (`/api/v1/…` for the core group)."""

    group: str
    version: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


RESOURCES: Final[dict[Kind, Resource]] = {
    Kind.POD: Resource("", "v1", "pods"),
    Kind.NODE: Resource("", "v1", "nodes", namespaced=False),
    Kind.REPLICA_SET: Resource("apps", "v1", "replicasets"),
    Kind.DEPLOYMENT: Resource("apps", "v1", "deployments"),
    Kind.STATEFUL_SET: Resource("apps", "v1", "statefulsets"),
    Kind.DAEMON_SET: Resource("apps", "v1", "daemonsets"),
    Kind.ROLLOUT: Resource("argoproj.io", "v1alpha1", "rollouts"),
    Kind.CLONE_SET: Resource("apps.kruise.io", "v1alpha1", "clonesets"),
    Kind.PDB: Resource("policy", "v1", "poddisruptionbudgets"),
    Kind.PV: Resource("", "v1", "persistentvolumes", namespaced=False),
    Kind.PVC: Resource("", "v1", "persistentvolumeclaims"),
    Kind.SERVICE: Resource("", "v1", "services"),
    Kind.ENDPOINT_SLICE: Resource("discovery.k8s.io", "v1", "endpointslices"),
    Kind.CONFIG_MAP: Resource("", "v1", "configmaps"),
    Kind.SECRET: Resource("", "v1", "secrets"),
    Kind.LEASE: Resource("coordination.k8s.io", "v1", "leases"),
    Kind.EVENT: Resource("", "v1", "events"),
    Kind.NAMESPACE: Resource("", "v1", "namespaces", namespaced=False),
    Kind.RESOURCE_QUOTA: Resource("", "v1", "resourcequotas"),
    Kind.TIDB_CLUSTER: Resource("pingcap.com", "v1alpha1", "tidbclusters"),
    Kind.TIDB_V2: Resource("core.pingcap.com", "v1alpha1", "clusters"),
    Kind.NODE_CLAIM: Resource("karpenter.sh", "v1", "nodeclaims", namespaced=False),
    # Since 1.37, where the feature gate EvictionRequestAPI is on.
    Kind.EVICTION: Resource("lifecycle.k8s.io", "v1alpha1", "evictions"),
    Kind.CRD: Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False),
    Kind.MUTATING_WEBHOOK: Resource(
        "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", namespaced=False
    ),
    Kind.VALIDATING_WEBHOOK: Resource(
        "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
    ),
}

#: The kinds that count replicas; of those, the ones that own their pods without a ReplicaSet in between.
WORKLOADS: Final = (Kind.DEPLOYMENT, Kind.STATEFUL_SET, Kind.ROLLOUT, Kind.CLONE_SET)
POD_OWNERS: Final = frozenset({Kind.STATEFUL_SET, Kind.CLONE_SET})
