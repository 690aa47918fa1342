"""Interference by people and other controllers: cordons, pd-ctl, deleted and damaged marks, edited labels."""

import asyncio
import json

from mooring.capabilities.drain.nodes import DRAIN, RESTART
from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.handoff.requests import RESTART as TIDB_RESTART
from mooring.capabilities.mix.labels import AFFINITY
from mooring.clients.ports import Json, PortError, ThrottledError
from mooring.clients.wire.annotations import MIRROR
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import CORDONED_BY, HANDOFF, LEAVING, RESERVED_TAINT, RETIRING, TERMINATES_AT
from mooring.core.model.times import rfc3339
from mooring_lab.cluster.controllers import manifests, podstate
from mooring_lab.cluster.controllers.workloads.ownership import controller_of
from mooring_lab.cluster.nodes import CAPACITY_LABEL
from mooring_lab.cluster.pd import requests
from mooring_lab.events.context import SHOP, TIDB, Apply, Draw, EventContext, Target

PERSON_TAINT = {"key": "example.com/maintenance", "effect": "NoSchedule"}
#: How soon `kubectl drain` asks again after a budget refused.
DRAIN_AGAIN_S = 5.0
#: Karpenter's, on a node that it ends.
DISRUPTED = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
CLOSED = "closed-by-a-person"
MANGLED = '{"operator": 7, "sour'


def cordon(on: EventContext, target: Target, draw: Draw) -> str:
    open_ = [n for n in on.objects(Kind.NODE) if not n["spec"].get("unschedulable")]
    node = on.pick(open_, target, draw)
    if node is None or len(on.edits.cordoned) >= 3:
        return ""
    name = node["metadata"]["name"]
    on.edits.cordoned.add(name)
    on.stage.cluster.cordon(name)
    return str(name)


def uncordon(on: EventContext, target: Target, draw: Draw) -> str:
    """Mostly what a person cordoned; sometimes what Mooring did."""
    closed = [n["metadata"]["name"] for n in on.objects(Kind.NODE) if n["spec"].get("unschedulable")]
    node = on.pick(closed if draw.b < 0.3 else [n for n in closed if n in on.edits.cordoned], target, draw)
    if node is None:
        return ""
    on.edits.cordoned.discard(node)
    on.edits.at = on.now
    on.stage.cluster.cordon(node, on=False)
    return str(node)


def _store(on: EventContext, target: Target, draw: Draw) -> tuple[str, int] | None:
    found = [
        (name, store.id)
        for (_, name), pd in sorted(on.stage.cluster.pd.items())
        for store in sorted(pd.server.tikv.stores.values(), key=lambda s: s.id)
        if store.alive
    ]
    return on.pick(found, target, draw)


def person_evicts_store(on: EventContext, target: Target, draw: Draw) -> str:
    """pd-ctl, at most one per cluster, on a store that is not being handed over."""
    found = _store(on, target, draw)
    if found is None or found[0] in {cluster for cluster, _ in on.edits.evicts}:
        return ""
    pd = on.stage.cluster.pd[TIDB, found[0]]
    if pd.away or found[1] in (pd.server.evict_list() or ()) or _marked(on, found[0]):
        return ""
    requests.add_evict_leader(pd.server, found[1])
    on.edits.evicts.add(found)
    on.edits.at = on.now
    return f"{found[0]} store {found[1]}"


def _marked(on: EventContext, cluster: str) -> bool:
    store = on.stage.cluster.store
    tc = store.find(Kind.TIDB_CLUSTER, TIDB, cluster) or store.find(Kind.TIDB_V2, TIDB, cluster)
    return tc is not None and HANDOFF in podstate.annotations_of(tc)


def person_ends_eviction(on: EventContext, target: Target, draw: Draw) -> str:
    """Their own; now and then one of ours."""
    theirs = sorted(on.edits.evicts)
    all_ = [
        (name, store) for (_, name), pd in sorted(on.stage.cluster.pd.items()) for store in pd.server.evict_list() or ()
    ]
    found = on.pick(theirs if draw.b < 0.7 else all_, target, draw)
    if found is None or on.stage.cluster.pd[TIDB, found[0]].away:
        return ""
    if found not in on.edits.evicts:
        on.hit("person-removed-our-scheduler")
    requests.remove_evict_leader(on.stage.cluster.pd[TIDB, found[0]].server, found[1])
    on.edits.evicts.discard(found)
    on.edits.at = on.now
    return f"{found[0]} store {found[1]}"


def _tamper(on: EventContext, kind: Kind, key: str, target: Target, draw: Draw, value: str | None) -> str:
    obj = on.pick(on.objects(kind, key), target, draw)
    if obj is None:
        return ""
    meta = obj["metadata"]
    if kind is Kind.TIDB_CLUSTER:
        on.edits.tampered.add(meta["name"])
    if kind is Kind.POD:
        on.edits.unmarked.add(meta["name"])
    on.edits.at = on.now
    on.hit("mark-gone-under-operator")
    on.stage.cluster.annotate(kind, meta.get("namespace", ""), meta["name"], {key: value})
    return str(meta["name"])


def handoff_mark_deleted(on: EventContext, target: Target, draw: Draw) -> str:
    return _tamper(on, Kind.TIDB_CLUSTER, HANDOFF, target, draw, None)


def handoff_mark_mangled(on: EventContext, target: Target, draw: Draw) -> str:
    return _tamper(on, Kind.TIDB_CLUSTER, HANDOFF, target, draw, MANGLED)


def leaving_mark_deleted(on: EventContext, target: Target, draw: Draw) -> str:
    return _tamper(on, Kind.POD, LEAVING, target, draw, None)


def leaving_mark_mangled(on: EventContext, target: Target, draw: Draw) -> str:
    return _tamper(on, Kind.POD, LEAVING, target, draw, MANGLED)


def retiring_mark_deleted(on: EventContext, target: Target, draw: Draw) -> str:
    return _tamper(on, Kind.NODE, (RETIRING, CORDONED_BY)[int(draw.b * 2)], target, draw, None)


def retiring_mark_mangled(on: EventContext, target: Target, draw: Draw) -> str:
    return _tamper(on, Kind.NODE, (RETIRING, CORDONED_BY)[int(draw.b * 2)], target, draw, MANGLED)


def pod_force_deleted(on: EventContext, target: Target, draw: Draw) -> str:
    """Kubectl delete --force --grace-period=0, on any pod."""
    pod = on.pick(on.objects(Kind.POD, namespace=TIDB if draw.b < 0.4 else SHOP), target, draw)
    if pod is None or not pod["metadata"].get("ownerReferences"):
        return ""
    on.edits.at = on.now
    meta = pod["metadata"]
    on.stage.cluster.store.delete(Kind.POD, meta["namespace"], meta["name"], grace_s=0)
    return str(meta["name"])


def class_label_edited(on: EventContext, target: Target, draw: Draw) -> str:
    pods = [p for p in on.objects(Kind.POD, namespace=SHOP) if AFFINITY in podstate.labels_of(p)]
    pod = on.pick(pods, target, draw)
    if pod is None:
        return ""
    value = (None, "spot", "on-demand")[int(draw.b * 3)]
    on.stage.cluster.store.patch(Kind.POD, SHOP, pod["metadata"]["name"], {"metadata": {"labels": {AFFINITY: value}}})
    return f"{pod['metadata']['name']} {value}"


def node_label_edited(on: EventContext, target: Target, draw: Draw) -> str:
    """The class of a spot node is taken away for five minutes."""
    node = on.pick(on.stage.cluster.cloud.spot_nodes(), target, draw)
    if node is None:
        return ""
    _label(on, node, None)
    on.after(300.0, lambda: _label(on, node, "spot"))
    return node


def _label(on: EventContext, node: str, value: str | None) -> None:
    if on.stage.cluster.store.find(Kind.NODE, "", node) is not None:
        on.stage.cluster.store.patch(Kind.NODE, "", node, {"metadata": {"labels": {CAPACITY_LABEL: value}}})


def edit_taints(on: EventContext, node: str, *, drop: str, add: Json | None = None) -> None:
    def changed(obj: Json) -> Json:
        kept = [t for t in obj["spec"].get("taints") or () if t["key"] != drop]
        return podstate.with_spec(obj, taints=[*kept, *([add] if add else [])])

    on.stage.cluster.change(Kind.NODE, "", node, changed)


def our_taint_removed(on: EventContext, target: Target, draw: Draw) -> str:
    ours = {keys.STATE_TAINT, RESERVED_TAINT}
    found = [
        (n["metadata"]["name"], t["key"])
        for n in on.objects(Kind.NODE)
        for t in n["spec"].get("taints") or ()
        if t["key"] in ours
    ]
    picked = on.pick(found, target, draw)
    if picked is None:
        return ""
    on.edits.at = on.now
    edit_taints(on, picked[0], drop=picked[1])
    return " ".join(picked)


def taint_by_person(on: EventContext, target: Target, draw: Draw) -> str:
    node = on.pick(on.objects(Kind.NODE), target, draw)
    if node is None or len(on.edits.tainted) >= 2:
        return ""
    name = node["metadata"]["name"]
    on.edits.tainted.add(name)
    edit_taints(on, name, drop=PERSON_TAINT["key"], add=PERSON_TAINT)
    return str(name)


def on_demand_closed(on: EventContext, target: Target, draw: Draw) -> str:
    """For a few minutes no on-demand node takes new pods."""
    nodes = [n for n in on.objects(Kind.NODE) if podstate.labels_of(n).get(CAPACITY_LABEL) != "spot"]
    names = [n["metadata"]["name"] for n in nodes]
    for name in names:
        edit_taints(on, name, drop=PERSON_TAINT["key"], add=PERSON_TAINT)
    on.after(180 + 240 * draw.a, lambda: _open_again(on, names))
    return f"{len(names)} nodes for {180 + 240 * draw.a:.0f} s"


def _open_again(on: EventContext, names: list[str]) -> None:
    for name in names:
        if on.stage.cluster.store.find(Kind.NODE, "", name) is not None:
            edit_taints(on, name, drop=PERSON_TAINT["key"])


def budget_closed(on: EventContext, target: Target, draw: Draw) -> str:
    workload = on.pick(on.objects(Kind.DEPLOYMENT, namespace=SHOP), target, draw)
    if workload is None or on.stage.cluster.store.find(Kind.PDB, SHOP, CLOSED) is not None:
        return ""
    name = workload["metadata"]["name"]
    on.stage.cluster.pdb(SHOP, CLOSED, {"app": name}, max_unavailable=0)
    return str(name)


def budget_opened(on: EventContext, target: Target, draw: Draw) -> str:
    if on.stage.cluster.store.find(Kind.PDB, SHOP, CLOSED) is None:
        return ""
    on.stage.cluster.store.delete(Kind.PDB, SHOP, CLOSED)
    return CLOSED


def foreign_pods(on: EventContext, target: Target, draw: Draw) -> str:
    """Pods of an owner of a kind that Mooring does not know, as Argo's are."""
    name = f"argo{int(draw.a * 1000)}"
    if on.stage.cluster.store.find(Kind.POD, SHOP, name) is not None:
        return ""
    store = on.stage.cluster.store
    # Its owner must exist somewhere, or the garbage collector takes it.
    holder = store.find(Kind.CONFIG_MAP, SHOP, "argo") or store.create(
        Kind.CONFIG_MAP, {"metadata": {"namespace": SHOP, "name": "argo"}}
    )
    uid = holder["metadata"]["uid"]
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "argo", "uid": uid, "controller": True}
    template = manifests.pod_template({"app": "argo"})
    metadata = {"namespace": SHOP, "name": name, "labels": {"app": "argo"}, "ownerReferences": [owner]}
    on.stage.cluster.store.create(Kind.POD, {**template, "metadata": metadata})
    return name


def drain(on: EventContext, target: Target, draw: Draw) -> str:
    """`kubectl drain`: the node is cordoned, each pod but a DaemonSet's is evicted, and what a budget or the gate
    refuses is asked again until a person opens the node."""
    node = on.pick([n for n in on.objects(Kind.NODE) if target or not n["spec"].get("unschedulable")], target, draw)
    if node is None:
        return ""
    name = node["metadata"]["name"]
    on.edits.cordoned.add(name)
    on.stage.cluster.cordon(name)
    _evict_all(on, name)
    return str(name)


def _evict_all(on: EventContext, node: str) -> None:
    left, store = False, on.stage.cluster.store
    found = store.find(Kind.NODE, "", node)
    if found is None or not found["spec"].get("unschedulable"):
        return
    for pod in store.pods_on(node):
        if _per_node(pod) or podstate.terminating(pod):
            continue
        left = True
        _evict(on, pod)
    if left:
        on.after(DRAIN_AGAIN_S, lambda: _evict_all(on, node))


def node_ended(on: EventContext, target: Target, draw: Draw) -> str:
    """Karpenter ends a node: its taint keeps new pods off, each pod is evicted again and again, and what is left at the
    moment that its NodeClaim names is deleted by force. The machine that follows has its name."""
    claimed = {claim["status"]["nodeName"] for claim in on.objects(Kind.NODE_CLAIM)}
    node = on.pick([n for n in on.objects(Kind.NODE) if n["metadata"]["name"] not in claimed], target, draw)
    if node is None:
        return ""
    name, store, clock = str(node["metadata"]["name"]), on.stage.cluster.store, on.stage.clock
    ends = clock.now() + 60.0 + 540.0 * draw.b
    claim = f"claim-{name}"
    metadata = {"name": claim, "annotations": {TERMINATES_AT: rfc3339(ends)}}
    store.create(Kind.NODE_CLAIM, {"metadata": metadata, "status": {"nodeName": name}})
    edit_taints(on, name, drop=DISRUPTED["key"], add=DISRUPTED)

    def again() -> None:
        if store.find(Kind.NODE_CLAIM, "", claim) is None or store.find(Kind.NODE, "", name) is None:
            return
        left = [p for p in store.pods_on(name) if not _per_node(p)]
        for pod in left:
            grace_s = pod["spec"].get("terminationGracePeriodSeconds", 30)
            if clock.now() >= ends - grace_s and not podstate.terminating(pod):
                on.hit("deleted-by-force-at-the-end-of-a-node")
                store.delete(Kind.POD, *podstate.key_of(pod), grace_s=max(0, int(ends - clock.now())))
            elif not podstate.terminating(pod):
                _evict(on, pod, by="karpenter")
        if left:
            on.after(DRAIN_AGAIN_S, again)
        else:
            node_stays(on, name)

    again()
    return name


def node_stays(on: EventContext, node: str) -> None:
    """What Karpenter does to it is over."""
    on.stage.cluster.store.delete(Kind.NODE_CLAIM, "", f"claim-{node}")
    if on.stage.cluster.store.find(Kind.NODE, "", node) is not None:
        edit_taints(on, node, drop=DISRUPTED["key"])
    on.excuses.withdrawn[node] = on.now


def _per_node(pod: Json) -> bool:
    owner = controller_of(pod)
    return MIRROR in podstate.annotations_of(pod) or (owner is not None and owner["kind"] == "DaemonSet")


def _evict(on: EventContext, pod: Json, by: str = "kubernetes-admin") -> None:
    """As every client does: through the API server, which asks the gate first and then the budget."""

    async def ask() -> None:
        namespace, name = podstate.key_of(pod)
        vain = on.stage.calls_in_vain
        try:
            await on.stage.cluster.api.as_client(by).evict(namespace, name, uid=pod["metadata"]["uid"])
            on.hit("eviction-by-others-passed")
            if vain == on.stage.calls_in_vain:
                on.evicted(pod, by)
        except ThrottledError as error:
            on.hit("eviction-by-others-held")
            on.held(pod, str(error))
        except PortError:
            on.hit("eviction-by-others-refused")

    task = asyncio.ensure_future(ask())
    on.tasks.add(task)
    task.add_done_callback(on.tasks.discard)


def evictions(on: EventContext, target: Target, draw: Draw) -> str:
    """The descheduler, say: one pod is evicted where no node is cordoned, asked for again for as long as the draw says,
    and then no more."""
    pods = [p for p in on.objects(Kind.POD) if controller_of(p) is not None and podstate.node_of(p)]
    pod = on.pick(pods, target, draw)
    if pod is None:
        return ""
    uid, end = pod["metadata"]["uid"], on.now + 300.0 * draw.b

    def again() -> None:
        found = on.stage.cluster.store.find(Kind.POD, *podstate.key_of(pod))
        if found is not None and found["metadata"]["uid"] == uid and not podstate.terminating(found):
            _evict(on, found, by="descheduler")
            if on.now < end:
                on.after(DRAIN_AGAIN_S, again)

    again()
    return str(pod["metadata"]["name"])


def drain_asked(on: EventContext, target: Target, draw: Draw) -> str:
    """`mooring drain`."""
    node = on.pick([n for n in on.objects(Kind.NODE) if target or not n["spec"].get("unschedulable")], target, draw)
    if node is None:
        return ""
    name = str(node["metadata"]["name"])
    on.stage.cluster.annotate(Kind.NODE, "", name, {DRAIN: ""})
    return name


def drain_called_off(on: EventContext, target: Target, draw: Draw) -> str:
    node = on.pick(on.objects(Kind.NODE, having=DRAIN), target, draw)
    if node is None:
        return ""
    on.stage.cluster.annotate(Kind.NODE, "", node["metadata"]["name"], {DRAIN: None})
    return str(node["metadata"]["name"])


def restart_asked(on: EventContext, target: Target, draw: Draw) -> str:
    """`mooring restart`: members of TiKV, PD and TiDB by the annotation that handoff reads, all others by ours."""
    pod = on.pick(on.objects(Kind.POD), target, draw)
    if pod is None:
        return ""
    since = rfc3339(on.stage.clock.now() + 1.0)
    asks = {TIDB_RESTART: ""} if is_tidb_member(pod) else {RESTART: json.dumps({"since": since})}
    on.stage.cluster.annotate(Kind.POD, *podstate.key_of(pod), asks)
    return str(pod["metadata"]["name"])


def is_tidb_member(pod: Json) -> bool:
    labels = podstate.labels_of(pod)
    ours = labels.get("app.kubernetes.io/managed-by") == "tidb-operator"
    return ours and labels.get("app.kubernetes.io/component") in {"tikv", "pd", "tidb"}


EVENTS: dict[str, Apply] = {
    "cordon": cordon,
    "drain": drain,
    "drain-asked": drain_asked,
    "drain-called-off": drain_called_off,
    "evictions": evictions,
    "node-ended": node_ended,
    "restart-asked": restart_asked,
    "uncordon": uncordon,
    "person-evicts-store": person_evicts_store,
    "person-ends-eviction": person_ends_eviction,
    "handoff-mark-deleted": handoff_mark_deleted,
    "handoff-mark-mangled": handoff_mark_mangled,
    "leaving-mark-deleted": leaving_mark_deleted,
    "leaving-mark-mangled": leaving_mark_mangled,
    "retiring-mark-deleted": retiring_mark_deleted,
    "retiring-mark-mangled": retiring_mark_mangled,
    "pod-force-deleted": pod_force_deleted,
    "class-label-edited": class_label_edited,
    "node-label-edited": node_label_edited,
    "our-taint-removed": our_taint_removed,
    "taint-by-person": taint_by_person,
    "on-demand-closed": on_demand_closed,
    "budget-closed": budget_closed,
    "budget-opened": budget_opened,
    "foreign-pods": foreign_pods,
}
