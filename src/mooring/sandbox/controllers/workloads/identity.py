"""What a StatefulSet's pod is called and what comes with the name: ordinal, labels, host name, claims."""

from mooring.clients.ports import Json
from mooring.sandbox.controllers.workloads.template import REVISION_LABEL, owner_reference, pod_from


def ordinal_of(owner: Json, pod: Json) -> int | None:
    prefix, _, tail = pod["metadata"]["name"].rpartition("-")
    if prefix != owner["metadata"]["name"] or not tail.isdigit():
        return None
    return int(tail)


def claims_for(owner: Json, pod_name: str) -> list[Json]:
    claims = []
    for template in owner["spec"].get("volumeClaimTemplates") or ():
        name = f"{template['metadata']['name']}-{pod_name}"
        labels = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
        claims.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"namespace": owner["metadata"]["namespace"], "name": name, "labels": labels},
                "spec": template.get("spec") or {},
            }
        )
    return claims


def pod_for(owner: Json, template: Json, ordinal: int, revision: str) -> Json:
    name = f"{owner['metadata']['name']}-{ordinal}"
    pod = pod_from(template, owner["metadata"]["namespace"], owner_reference(owner, "apps/v1", "StatefulSet"))
    pod["metadata"]["name"] = name
    pod["metadata"]["generateName"] = f"{owner['metadata']['name']}-"
    pod["metadata"]["labels"] = {
        **pod["metadata"]["labels"],
        REVISION_LABEL: revision,
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(ordinal),
    }
    spec = {**pod["spec"], "hostname": name, "subdomain": owner["spec"].get("serviceName", "")}
    volumes = [
        {
            "name": claim["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": f"{claim['metadata']['name']}-{name}"},
        }
        for claim in owner["spec"].get("volumeClaimTemplates") or ()
    ]
    if volumes:
        taken = {volume["name"] for volume in volumes}
        spec["volumes"] = [*(v for v in spec.get("volumes") or () if v["name"] not in taken), *volumes]
    return {**pod, "spec": spec}
