"""A TidbCluster and what tidb-operator makes of it: StatefulSets and Services with its labels and names."""

from typing import Any, Final

from mooring.clients.ports import Json
from mooring_lab.cluster.controllers import manifests
from mooring_lab.cluster.controllers.workloads.rollout import owner_reference

COMPONENTS: Final = ("pd", "tikv", "tidb")
_PORTS: Final = {"pd": 2379, "tikv": 20160, "tidb": 4000}


def tidb_cluster(namespace: str, name: str, *, scheduler: str = "tidb-scheduler", **components: Json) -> Json:
    """`components`: spec of `tidb`, `tikv`, `pd`, each at least `{"replicas": n}`."""
    return {
        "apiVersion": "pingcap.com/v1alpha1",
        "kind": "TidbCluster",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "version": "v8.5.0",
            "schedulerName": scheduler,
            **{component: {"baseImage": f"pingcap/{component}", **spec} for component, spec in components.items()},
        },
    }


def instance_of(cluster: Json) -> str:
    """What tidb-operator calls an instance: the TidbCluster's own label where it has one (Helm, Argo CD), else its
    name."""
    meta = cluster["metadata"]
    return str((meta.get("labels") or {}).get("app.kubernetes.io/instance") or meta["name"])


def component_labels(cluster: str, component: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "tidb-cluster",
        "app.kubernetes.io/managed-by": "tidb-operator",
        "app.kubernetes.io/instance": cluster,
        "app.kubernetes.io/component": component,
    }


def component_set(cluster: Json, component: str) -> Json:
    """The StatefulSet of one component, as the operator wants it now."""
    meta, spec = cluster["metadata"], cluster["spec"]
    mine: Json = spec[component]
    requests = mine.get("requests") or {"cpu": "1", "memory": "2Gi"}
    image = f"{mine.get('baseImage', f'pingcap/{component}')}:{mine.get('version') or spec.get('version', 'v8.5.0')}"
    more: dict[str, Any] = {
        field: mine[field] for field in ("affinity", "tolerations", "nodeSelector", "priority") if field in mine
    }
    template = manifests.pod_template(
        component_labels(instance_of(cluster), component),
        cpu=str(requests.get("cpu", "1")),
        memory=str(requests.get("memory", "2Gi")),
        annotations=mine.get("annotations") or {},
        image=image,
        container=component,
        schedulerName=mine.get("schedulerName") or spec.get("schedulerName") or "default-scheduler",
        **more,
    )
    extra: dict[str, Any] = {
        "podManagementPolicy": mine.get("podManagementPolicy", "Parallel"),
        "serviceName": f"{meta['name']}-{component}-peer",
    }
    if mine.get("storageClassName"):
        extra["volumeClaimTemplates"] = [
            {
                "metadata": {"name": component},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": mine["storageClassName"],
                    "resources": {"requests": {"storage": requests.get("storage", "10Gi")}},
                },
            }
        ]
    obj = manifests.stateful_set(
        meta["namespace"],
        f"{meta['name']}-{component}",
        int(mine.get("replicas", 1)),
        template,
        labels=component_labels(instance_of(cluster), component),
        **extra,
    )
    obj["metadata"]["ownerReferences"] = [owner_reference(cluster, "pingcap.com/v1alpha1", "TidbCluster")]
    return obj


def component_services(cluster: Json, component: str) -> list[Json]:
    """TiDB: a NodePort Service with externalTrafficPolicy Local (the design's case). All: a headless peer Service."""
    meta = cluster["metadata"]
    labels = component_labels(instance_of(cluster), component)
    peer = manifests.service(
        meta["namespace"], f"{meta['name']}-{component}-peer", labels, port=_PORTS[component], labels=labels
    )
    peer["spec"]["clusterIP"] = "None"
    peer["spec"]["publishNotReadyAddresses"] = True
    services = [peer]
    if component == "tidb":
        node_port = int((cluster["spec"]["tidb"].get("service") or {}).get("nodePort", 0))
        services.append(
            manifests.service(
                meta["namespace"],
                f"{meta['name']}-tidb",
                labels,
                port=4000,
                node_port=node_port,
                local=True,
                labels=labels,
            )
        )
    for service in services:
        service["metadata"]["ownerReferences"] = [owner_reference(cluster, "pingcap.com/v1alpha1", "TidbCluster")]
    return services
