"""The eviction and binding subresources of a pod, and the scale of a workload.

An eviction is a deletion that a PodDisruptionBudget may refuse. As in the API server: pods that do not run yet, ended
ones and those on their way out need no budget; two budgets over one pod are an error, not a choice; a pod that is not
Ready goes freely when its budget is met anyhow (`IfHealthyBudget`) or always (`AlwaysAllow`).
"""

from typing import Final

from mooring.clients.ports import ConflictError, EvictionBlockedError, Json, RefusedError
from mooring.core.model.kinds import RESOURCES, Kind
from mooring_lab.cluster.apiserver.labels import selects
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.apiserver.validation import check_preconditions

_NEEDS_NO_BUDGET: Final = frozenset({"Pending", "Succeeded", "Failed"})
SCALABLE: Final = frozenset({Kind.DEPLOYMENT, Kind.STATEFUL_SET, Kind.REPLICA_SET})


class TwoBudgetsError(EvictionBlockedError):
    """The API server answers this one with 500."""


def evict(store: ObjectStore, namespace: str, name: str, *, uid: str = "", grace_s: int | None = None) -> None:
    pod = store.get(Kind.POD, namespace, name)
    check_preconditions(Kind.POD, pod, uid, "")
    if not _needs_no_budget(pod):
        _spend_budget(store, pod)
    store.delete(Kind.POD, namespace, name, uid=uid, grace_s=grace_s)


def asked(namespace: str, name: str, uid: str) -> Json:
    """What a client posts, as webhooks see it."""
    options = {"deleteOptions": {"preconditions": {"uid": uid}}} if uid else {}
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        **options,
    }


def budgets_of(store: ObjectStore, pod: Json) -> list[Json]:
    labels = pod["metadata"].get("labels") or {}
    return [
        pdb
        for pdb in store.list(Kind.PDB, pod["metadata"]["namespace"])
        if selects(pdb.get("spec", {}).get("selector"), labels)
    ]


def _needs_no_budget(pod: Json) -> bool:
    phase = pod.get("status", {}).get("phase", "Pending")
    return phase in _NEEDS_NO_BUDGET or bool(pod["metadata"].get("deletionTimestamp"))


def _ready(pod: Json) -> bool:
    return any(
        c.get("type") == "Ready" and c.get("status") == "True" for c in pod.get("status", {}).get("conditions") or ()
    )


def _spend_budget(store: ObjectStore, pod: Json) -> None:
    budgets = budgets_of(store, pod)
    if not budgets:
        return
    if len(budgets) > 1:
        raise TwoBudgetsError(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    pdb = budgets[0]
    name, status = pdb["metadata"]["name"], pdb.get("status") or {}
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if not _ready(pod):
        policy = pdb["spec"].get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
        if policy == "AlwaysAllow" or healthy >= desired > 0:
            return
    if status.get("observedGeneration", 0) < pdb["metadata"].get("generation", 0):
        raise EvictionBlockedError(
            "Cannot evict pod as it would violate the pod's disruption budget. "
            f"The disruption budget {name} is still being processed by the server."
        )
    if status.get("disruptionsAllowed", 0) <= 0:
        raise EvictionBlockedError(
            "Cannot evict pod as it would violate the pod's disruption budget. "
            f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        )
    disrupted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: store.timeline.stamp()}
    allowed = status["disruptionsAllowed"] - 1
    store.mutate(
        Kind.PDB,
        pdb["metadata"]["namespace"],
        name,
        lambda obj: {**obj, "status": {**status, "disruptionsAllowed": allowed, "disruptedPods": disrupted}},
    )


def bind(store: ObjectStore, namespace: str, name: str, node: str, *, uid: str = "") -> None:
    """Once: a pod that has a node, or is on its way out, takes no other."""
    pod = store.get(Kind.POD, namespace, name)
    check_preconditions(Kind.POD, pod, uid, "")
    cannot = f'Operation cannot be fulfilled on pods/binding "{name}"'
    if pod["metadata"].get("deletionTimestamp"):
        raise ConflictError(f"{cannot}: pod {name} is being deleted, cannot be assigned to a host")
    if have := pod.get("spec", {}).get("nodeName"):
        raise ConflictError(f'{cannot}: pod {name} is already assigned to node "{have}"')
    if not node:
        raise RefusedError("a binding needs target.name", 422)
    stamp = store.timeline.stamp()

    def assign(obj: Json) -> Json:
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": stamp}
        others = [c for c in obj.get("status", {}).get("conditions") or () if c.get("type") != "PodScheduled"]
        status = {**(obj.get("status") or {}), "conditions": [*others, scheduled]}
        return {**obj, "spec": {**obj["spec"], "nodeName": node}, "status": status}

    store.mutate(Kind.POD, namespace, name, assign)


def scale_of(kind: Kind, obj: Json) -> Json:
    """autoscaling/v1 Scale."""
    if kind not in SCALABLE:
        raise RefusedError(f"{RESOURCES[kind].plural} cannot be scaled", 405)
    metadata = obj["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    wanted = obj.get("spec", {}).get("selector", {}).get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {k: metadata[k] for k in fields if k in metadata},
        "spec": {"replicas": obj.get("spec", {}).get("replicas", 1)},
        "status": {
            "replicas": obj.get("status", {}).get("replicas", 0),
            "selector": ",".join(f"{k}={v}" for k, v in sorted(wanted.items())),
        },
    }
