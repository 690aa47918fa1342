"""Interference by people and other controllers: cordons, pd-ctl, deleted and damaged marks, edited labels."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.mix.labels import AFFINITY
from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import CORDONED_BY, HANDOFF, LEAVING, RESERVED_TAINT, RETIRING
from mooring.sandbox.controllers import manifests, podstate
from mooring.sandbox.nodes import CAPACITY_LABEL
from mooring.sandbox.pd import requests
from mooring.sim.whole.build import SHOP, TIDB

if TYPE_CHECKING:
    from mooring.sim.whole.simulation import Simulation

PERSON_TAINT = {"key": "example.com/maintenance", "effect": "NoSchedule"}
CLOSED = "closed-by-a-person"
MANGLED = '{"operator": 7, "sour'


def cordon(sim: "Simulation", a: float, _: float) -> str:
    open_ = [n for n in sim.objects(Kind.NODE) if not n["spec"].get("unschedulable")]
    node = sim.pick(open_, a)
    if node is None or len(sim.persons.cordoned) >= 3:
        return ""
    name = node["metadata"]["name"]
    sim.persons.cordoned.add(name)
    sim.rig.cluster.cordon(name)
    return str(name)


def uncordon(sim: "Simulation", a: float, b: float) -> str:
    """Mostly what a person cordoned; sometimes what Mooring did."""
    closed = [n["metadata"]["name"] for n in sim.objects(Kind.NODE) if n["spec"].get("unschedulable")]
    node = sim.pick(closed if b < 0.3 else [n for n in closed if n in sim.persons.cordoned], a)
    if node is None:
        return ""
    sim.persons.cordoned.discard(node)
    sim.persons.at = sim.now
    sim.rig.cluster.cordon(node, on=False)
    return str(node)


def _store(sim: "Simulation", draw: float) -> tuple[str, int] | None:
    found = [
        (name, store.id)
        for (_, name), pd in sorted(sim.rig.cluster.pd.items())
        for store in sorted(pd.server.tikv.stores.values(), key=lambda s: s.id)
        if store.alive
    ]
    return sim.pick(found, draw)


def person_evicts_store(sim: "Simulation", a: float, _: float) -> str:
    """pd-ctl, at most one per cluster, on a store that is not being handed over."""
    found = _store(sim, a)
    if found is None or found[0] in {cluster for cluster, _ in sim.persons.evicts}:
        return ""
    pd = sim.rig.cluster.pd[TIDB, found[0]]
    if pd.away or found[1] in (pd.server.evict_list() or ()) or _marked(sim, found[0]):
        return ""
    requests.add_evict_leader(pd.server, found[1])
    sim.persons.evicts.add(found)
    sim.persons.at = sim.now
    return f"{found[0]} store {found[1]}"


def _marked(sim: "Simulation", cluster: str) -> bool:
    tc = sim.rig.cluster.store.find(Kind.TIDB_CLUSTER, TIDB, cluster)
    return tc is not None and HANDOFF in podstate.annotations_of(tc)


def person_ends_eviction(sim: "Simulation", a: float, b: float) -> str:
    """Their own; now and then one of ours."""
    theirs = sorted(sim.persons.evicts)
    all_ = [
        (name, store) for (_, name), pd in sorted(sim.rig.cluster.pd.items()) for store in pd.server.evict_list() or ()
    ]
    found = sim.pick(theirs if b < 0.7 else all_, a)
    if found is None or sim.rig.cluster.pd[TIDB, found[0]].away:
        return ""
    if found not in sim.persons.evicts:
        sim.coverage.hit("person-removed-our-scheduler")
    requests.remove_evict_leader(sim.rig.cluster.pd[TIDB, found[0]].server, found[1])
    sim.persons.evicts.discard(found)
    sim.persons.at = sim.now
    return f"{found[0]} store {found[1]}"


def _tamper(sim: "Simulation", kind: Kind, key: str, draw: float, value: str | None) -> str:
    obj = sim.pick(sim.objects(kind, key), draw)
    if obj is None:
        return ""
    meta = obj["metadata"]
    if kind is Kind.TIDB_CLUSTER:
        sim.persons.tampered.add(meta["name"])
    if kind is Kind.POD:
        sim.persons.unmarked.add(meta["name"])
    sim.persons.at = sim.now
    sim.coverage.hit("mark-gone-under-operator")
    sim.rig.cluster.annotate(kind, meta.get("namespace", ""), meta["name"], {key: value})
    return str(meta["name"])


def handoff_mark_deleted(sim: "Simulation", a: float, _: float) -> str:
    return _tamper(sim, Kind.TIDB_CLUSTER, HANDOFF, a, None)


def handoff_mark_mangled(sim: "Simulation", a: float, _: float) -> str:
    return _tamper(sim, Kind.TIDB_CLUSTER, HANDOFF, a, MANGLED)


def leaving_mark_deleted(sim: "Simulation", a: float, _: float) -> str:
    return _tamper(sim, Kind.POD, LEAVING, a, None)


def leaving_mark_mangled(sim: "Simulation", a: float, _: float) -> str:
    return _tamper(sim, Kind.POD, LEAVING, a, MANGLED)


def retiring_mark_deleted(sim: "Simulation", a: float, b: float) -> str:
    return _tamper(sim, Kind.NODE, (RETIRING, CORDONED_BY)[int(b * 2)], a, None)


def retiring_mark_mangled(sim: "Simulation", a: float, b: float) -> str:
    return _tamper(sim, Kind.NODE, (RETIRING, CORDONED_BY)[int(b * 2)], a, MANGLED)


def pod_force_deleted(sim: "Simulation", a: float, b: float) -> str:
    """Kubectl delete --force --grace-period=0, on any pod."""
    pod = sim.pick(sim.objects(Kind.POD, namespace=TIDB if b < 0.4 else SHOP), a)
    if pod is None or not pod["metadata"].get("ownerReferences"):
        return ""
    sim.persons.at = sim.now
    meta = pod["metadata"]
    sim.rig.cluster.store.delete(Kind.POD, meta["namespace"], meta["name"], grace_s=0)
    return str(meta["name"])


def class_label_edited(sim: "Simulation", a: float, b: float) -> str:
    pods = [p for p in sim.objects(Kind.POD, namespace=SHOP) if AFFINITY in podstate.labels_of(p)]
    pod = sim.pick(pods, a)
    if pod is None:
        return ""
    value = (None, "spot", "on-demand")[int(b * 3)]
    sim.rig.cluster.store.patch(Kind.POD, SHOP, pod["metadata"]["name"], {"metadata": {"labels": {AFFINITY: value}}})
    return f"{pod['metadata']['name']} {value}"


def node_label_edited(sim: "Simulation", a: float, _: float) -> str:
    """The class of a spot node is taken away for five minutes."""
    node = sim.pick(sim.rig.cluster.cloud.spot_nodes(), a)
    if node is None:
        return ""
    _label(sim, node, None)
    sim.after(300.0, lambda: _label(sim, node, "spot"))
    return node


def _label(sim: "Simulation", node: str, value: str | None) -> None:
    if sim.rig.cluster.store.find(Kind.NODE, "", node) is not None:
        sim.rig.cluster.store.patch(Kind.NODE, "", node, {"metadata": {"labels": {CAPACITY_LABEL: value}}})


def edit_taints(sim: "Simulation", node: str, *, drop: str, add: Json | None = None) -> None:
    def changed(obj: Json) -> Json:
        kept = [t for t in obj["spec"].get("taints") or () if t["key"] != drop]
        return podstate.with_spec(obj, taints=[*kept, *([add] if add else [])])

    sim.rig.cluster.change(Kind.NODE, "", node, changed)


def our_taint_removed(sim: "Simulation", a: float, _: float) -> str:
    ours = {keys.STATE_TAINT, RESERVED_TAINT}
    found = [
        (n["metadata"]["name"], t["key"])
        for n in sim.objects(Kind.NODE)
        for t in n["spec"].get("taints") or ()
        if t["key"] in ours
    ]
    picked = sim.pick(found, a)
    if picked is None:
        return ""
    sim.persons.at = sim.now
    edit_taints(sim, picked[0], drop=picked[1])
    return " ".join(picked)


def taint_by_person(sim: "Simulation", a: float, _: float) -> str:
    node = sim.pick(sim.objects(Kind.NODE), a)
    if node is None or len(sim.persons.tainted) >= 2:
        return ""
    name = node["metadata"]["name"]
    sim.persons.tainted.add(name)
    edit_taints(sim, name, drop=PERSON_TAINT["key"], add=PERSON_TAINT)
    return str(name)


def on_demand_closed(sim: "Simulation", a: float, _: float) -> str:
    """For a few minutes no on-demand node takes new pods."""
    nodes = [n for n in sim.objects(Kind.NODE) if podstate.labels_of(n).get(CAPACITY_LABEL) != "spot"]
    names = [n["metadata"]["name"] for n in nodes]
    for name in names:
        edit_taints(sim, name, drop=PERSON_TAINT["key"], add=PERSON_TAINT)
    sim.after(180 + 240 * a, lambda: _open_again(sim, names))
    return f"{len(names)} nodes for {180 + 240 * a:.0f} s"


def _open_again(sim: "Simulation", names: list[str]) -> None:
    for name in names:
        if sim.rig.cluster.store.find(Kind.NODE, "", name) is not None:
            edit_taints(sim, name, drop=PERSON_TAINT["key"])


def budget_closed(sim: "Simulation", a: float, _: float) -> str:
    workload = sim.pick(sim.objects(Kind.DEPLOYMENT, namespace=SHOP), a)
    if workload is None or sim.rig.cluster.store.find(Kind.PDB, SHOP, CLOSED) is not None:
        return ""
    name = workload["metadata"]["name"]
    sim.rig.cluster.pdb(SHOP, CLOSED, {"app": name}, max_unavailable=0)
    return str(name)


def budget_opened(sim: "Simulation", _: float, __: float) -> str:
    if sim.rig.cluster.store.find(Kind.PDB, SHOP, CLOSED) is None:
        return ""
    sim.rig.cluster.store.delete(Kind.PDB, SHOP, CLOSED)
    return CLOSED


def foreign_pods(sim: "Simulation", a: float, _: float) -> str:
    """Pods of an owner of a kind that Mooring does not know, as Argo's are."""
    name = f"argo{int(a * 1000)}"
    if sim.rig.cluster.store.find(Kind.POD, SHOP, name) is not None:
        return ""
    store = sim.rig.cluster.store
    # Its owner must exist somewhere, or the garbage collector takes it.
    holder = store.find(Kind.CONFIG_MAP, SHOP, "argo") or store.create(
        Kind.CONFIG_MAP, {"metadata": {"namespace": SHOP, "name": "argo"}}
    )
    uid = holder["metadata"]["uid"]
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "argo", "uid": uid, "controller": True}
    template = manifests.pod_template({"app": "argo"})
    metadata = {"namespace": SHOP, "name": name, "labels": {"app": "argo"}, "ownerReferences": [owner]}
    sim.rig.cluster.store.create(Kind.POD, {**template, "metadata": metadata})
    return name


DEEDS: dict[str, Callable[["Simulation", float, float], str]] = {
    "cordon": cordon,
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
