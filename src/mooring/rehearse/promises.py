"""What must not be undershot: one line per workload, budget and mode, read from the cluster as it stands before.

| rule | who | the line |
|---|---|---|
| one replica | every Deployment, StatefulSet and ReplicaSet that has a replica Ready | 1 |
| quorum | a StatefulSet of three or more, other than TiDB's and TiKV's | more than half |
| budget | a PodDisruptionBudget | what it wants healthy |
| on-demand floor | a workload that Mix spreads, while Mix is on | its mode's on-demand replicas |

TiKV's quorum is counted by regions (`stores.without_quorum`), since that is what its voters are for; TiDB has none.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from mooring.capabilities.mix.labels import Managed, management_of
from mooring.capabilities.mix.policy import MixPolicy
from mooring.clients.ports import Json
from mooring.clients.wire.kube import project
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Workload
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import COMPONENT, MANAGED_BY
from mooring.rehearse.losses import majority
from mooring.sandbox.apiserver.store import ObjectStore
from mooring.sandbox.controllers import podstate
from mooring.sandbox.controllers.podstate import labels_of
from mooring.sandbox.controllers.workloads.ownership import controller_of

#: Pods of these go with their node and need no other place.
PER_NODE: Final = frozenset({"DaemonSet", "Node"})
WORKLOADS: Final = (Kind.DEPLOYMENT, Kind.STATEFUL_SET, Kind.REPLICA_SET)


class Wanted(msgspec.Struct, frozen=True):
    """A workload whose replicas are counted."""

    uid: str
    #: "Deployment shop/web".
    name: str
    replicas: int
    #: Its controller is one of the sandbox's: what becomes of it can be told.
    is_played: bool = True


class Promise(msgspec.Struct, frozen=True):
    rule: str
    subject: str
    least: int
    #: Whose pods count: the workload's uid, or the budget's namespace and selector.
    workload: str = ""
    namespace: str = ""
    selector: Any = None
    #: Only pods on nodes of this class count.
    node_class: NodeClass | None = None


def workloads(store: ObjectStore) -> list[Wanted]:
    """Those that own themselves: a Deployment's ReplicaSets count for it."""
    found = []
    for kind in WORKLOADS:
        for obj in store.list(kind):
            if kind is Kind.REPLICA_SET and controller_of(obj) is not None:
                continue
            found.append(Wanted(obj["metadata"]["uid"], title(obj), int(obj["spec"].get("replicas", 1))))
    return found


def others(store: ObjectStore, known: Iterable[Wanted]) -> list[Wanted]:
    """Owners of pods whose controller is not played (a Rollout, a Job): wanted is what each has now."""
    uids = {one.uid for one in known}
    found: dict[str, tuple[str, int]] = {}
    for pod in store.list(Kind.POD):
        owner = root_of(store, pod)
        if owner is None or owner["uid"] in uids or owner["kind"] in PER_NODE or not podstate.active(pod):
            continue
        name = title({"kind": owner["kind"], "metadata": {**pod["metadata"], "name": owner["name"]}})
        found[owner["uid"]] = name, found.get(owner["uid"], (name, 0))[1] + 1
    return [Wanted(uid, name, count, is_played=False) for uid, (name, count) in sorted(found.items(), key=_by_name)]


def _by_name(item: tuple[str, tuple[str, int]]) -> tuple[str, str]:
    return item[1][0], item[0]


def root_of(store: ObjectStore, pod: Json) -> Json | None:
    """Who wants this pod, through its ReplicaSet; None: none."""
    reference = controller_of(pod)
    if reference is not None and reference["kind"] == "ReplicaSet":
        one = store.find(Kind.REPLICA_SET, pod["metadata"]["namespace"], reference["name"])
        return (None if one is None else controller_of(one)) or reference
    return reference


def title(obj: Json) -> str:
    return f"{obj['kind']} {obj['metadata']['namespace']}/{obj['metadata']['name']}"


def promises(store: ObjectStore, policy: MixPolicy, *, mix: bool) -> list[Promise]:
    found: list[Promise] = []
    for kind in WORKLOADS:
        for obj in store.list(kind):
            if kind is not Kind.REPLICA_SET or controller_of(obj) is None:
                found.extend(_of_workload(kind, obj, policy, mix=mix))
    for budget in store.list(Kind.PDB):
        found.append(_budget(budget))
    return [promise for promise in found if promise.least > 0]


def _of_workload(kind: Kind, obj: Json, policy: MixPolicy, *, mix: bool) -> Iterable[Promise]:
    uid, name, wanted = obj["metadata"]["uid"], title(obj), int(obj["spec"].get("replicas", 1))
    yield Promise("one replica", name, min(1, wanted), uid)
    if kind is Kind.STATEFUL_SET and wanted >= 3 and not _counts_by_region(obj):
        yield Promise("quorum", name, majority(wanted), uid)
    if mix and kind is not Kind.REPLICA_SET:
        row = project(kind, obj)
        management = management_of(row, policy.deployment_target) if isinstance(row, Workload) else None
        if isinstance(management, Managed):
            least = management.target.on_demand(wanted)
            yield Promise("on-demand floor", name, least, uid, node_class=NodeClass.ON_DEMAND)


def _counts_by_region(obj: Json) -> bool:
    labels = labels_of(obj)
    return labels.get(MANAGED_BY) == "tidb-operator" and labels.get(COMPONENT) != "pd"


def _budget(budget: Json) -> Promise:
    namespace = budget["metadata"]["namespace"]
    subject = f"PodDisruptionBudget {namespace}/{budget['metadata']['name']}"
    least = int((budget.get("status") or {}).get("desiredHealthy", 0))
    return Promise("budget", subject, least, namespace=namespace, selector=budget["spec"].get("selector"))
