"""The end of a run: faults end, people undo what they did, and nothing may be left pending.

What still waits for a person must say so (`blocked`, with its reason); everything else that was asked for must have
ended, the world must equal the store, and nothing of ours may be left.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mooring.capabilities.drain.nodes import DRAIN
from mooring.capabilities.drain.nodes import RESTART as RESTART_POD
from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.handoff.descriptor import report_of
from mooring.capabilities.handoff.member_operators import PD_TRANSFER_LEADER
from mooring.capabilities.handoff.requests import EVICT_LEADER, RESTART
from mooring.capabilities.mix.labels import AFFINITY, ENABLED, Managed, management_of
from mooring.clients.ports import Json
from mooring.clients.wire.kube import project
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.core.model.marks import (
    CORDONED_BY,
    HANDOFF,
    LEAVING,
    RESERVED_TAINT,
    RETIRING,
    Mark,
    read_mark,
    read_marks,
)
from mooring.core.model.reasons import BLOCKED_REASONS, REFUSED_REASONS, State
from mooring.process.replica import KINDS
from mooring_lab.cluster.apiserver.faults import FaultRates
from mooring_lab.cluster.controllers import podstate
from mooring_lab.cluster.kubelet import FAIL
from mooring_lab.cluster.nodes import CAPACITY_LABEL
from mooring_lab.cluster.pd import requests
from mooring_lab.events.context import SHOP, TIDB
from mooring_lab.events.people import CLOSED, MANGLED, PERSON_TAINT, edit_taints, node_stays

if TYPE_CHECKING:
    from mooring_lab.simulate.simulation import Simulation

#: Nothing may be pending this long after the last action, and stay so for a while.
WITHIN_S = 5400.0
REST_S = 60.0
EVERY_S = 5.0
#: A pod without a node for so long is looked at by a person.
STRANDED_S = 120.0
GOING = frozenset({MachineState.RETIRING, MachineState.RETIRED})

#: What people ask no longer at the end.
_TAKEN_BACK: Final = frozenset({FAIL, EVICT_LEADER, PD_TRANSFER_LEADER, DRAIN, RESTART_POD})


async def come_to_rest(sim: "Simulation") -> None:
    sim.note("quiet: faults end, people undo what they did")
    end_faults(sim)
    end = sim.now + WITHIN_S
    rested = 0.0
    while rested < REST_S and sim.failure is None:
        tidy(sim)
        await sim.stage.sleep(EVERY_S)
        sim.watch.each_second()
        busy = list(unfinished(sim))
        rested = 0.0 if busy else rested + EVERY_S
        if sim.now > end:
            sim.fail("everything asked for ends, or is blocked with a reason", "; ".join(busy[:6]))
    if sim.failure is None:
        judge(sim)
    if sim.failure is None:
        await pauses_end(sim)


def end_faults(sim: "Simulation") -> None:
    rig = sim.stage
    rig.api.faults.rates = FaultRates()
    rig.api.faults.disarm()
    rig.webhook_away = False
    rig.lag_watches(0.0)
    rig.cluster.sabakan.lighten()
    rig.cluster.sabakan.slow(0.0)
    for pd in rig.cluster.pd.values():
        pd.slow(0.0)
    for system in rig.cluster.led.systems.values():
        system.silent.clear()
    for name in list(rig.replicas):
        rig.resume(name)
    for name in sim.plan.shape.features:
        sim.switch(name, on=True)
    while len(rig.replicas) < sim.plan.shape.replicas:
        sim.start_replica()


def tidy(sim: "Simulation") -> None:
    """What people undo at the end, and again while something comes up."""
    cluster, store = sim.stage.cluster, sim.stage.cluster.store
    if not sim.stage.replicas:
        sim.start_replica()
    for node in cluster.cloud.taken():
        cluster.cloud.give_back(node)
    for claim in store.list(Kind.NODE_CLAIM):
        node_stays(sim, claim["status"]["nodeName"])
    for obj in store.list(Kind.NODE):
        _tidy_node(sim, obj)
    for kind in (Kind.POD, Kind.NODE, Kind.TIDB_CLUSTER, Kind.TIDB_V2):
        for obj in store.list(kind):
            _tidy_annotations(sim, kind, obj)
    if store.find(Kind.PDB, SHOP, CLOSED) is not None:
        store.delete(Kind.PDB, SHOP, CLOSED)
    for pdb in store.list(Kind.PDB, SHOP):
        if pdb["spec"].get("maxUnavailable") == 0:
            store.patch(Kind.PDB, SHOP, pdb["metadata"]["name"], {"spec": {"maxUnavailable": 1}})
    for name, store_id in sorted(sim.edits.evicts):
        requests.remove_evict_leader(cluster.pd[TIDB, name].server, store_id)
    sim.edits.evicts.clear()
    for pd, names in pds(sim):
        if names & sim.edits.tampered:
            # A scheduler whose mark a person took away is that person's to remove; those that a mark names are ours.
            marked = {mark.store_id for name in names for mark in marks_of(sim, name)}
            for store_id in set(pd.server.evict_list() or ()) - marked:
                requests.remove_evict_leader(pd.server, store_id)
    for pod in store.list(Kind.POD):
        name, owned = pod["metadata"]["name"], pod["metadata"].get("ownerReferences")
        if name in sim.edits.unmarked and not owned and LEAVING not in podstate.annotations_of(pod):
            store.delete(Kind.POD, pod["metadata"]["namespace"], name)
    _heal_machines(sim)
    _free_volumes(sim)


def _free_volumes(sim: "Simulation") -> None:
    """A pod whose local volume is on a node that is gone or closed waits for a person: the claim is given up."""
    store = sim.stage.cluster.store
    for pod in store.list(Kind.POD):
        since = sim.watch.away_since(pod)
        if podstate.node_of(pod) or since is None or sim.now - since < STRANDED_S:
            continue
        for volume in pod["spec"].get("volumes") or ():
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if claim and store.find(Kind.PVC, pod["metadata"]["namespace"], claim) is not None:
                sim.note(f"a person gives up the volume of {pod['metadata']['name']}")
                store.remove(Kind.PVC, pod["metadata"]["namespace"], claim)
                store.delete(Kind.POD, pod["metadata"]["namespace"], pod["metadata"]["name"], grace_s=0)


def _tidy_node(sim: "Simulation", obj: Json) -> None:
    cluster, name = sim.stage.cluster, obj["metadata"]["name"]
    ours = podstate.annotations_of(obj).get(CORDONED_BY)
    if obj["spec"].get("unschedulable") and ours in {None, MANGLED}:
        cluster.cordon(name, on=False)
    if any(t["key"] == PERSON_TAINT["key"] for t in obj["spec"].get("taints") or ()):
        edit_taints(sim, name, drop=PERSON_TAINT["key"])
    if name.startswith("s") and CAPACITY_LABEL not in podstate.labels_of(obj):
        cluster.store.patch(Kind.NODE, "", name, {"metadata": {"labels": {CAPACITY_LABEL: "spot"}}})
    if cluster.kubelets.silent_since(name) is not None and name not in cluster.cloud.taken():
        cluster.kubelets.resume(name)


def _tidy_annotations(sim: "Simulation", kind: Kind, obj: Json) -> None:
    have = podstate.annotations_of(obj)
    drop = [key for key, value in have.items() if value == MANGLED or key in _TAKEN_BACK]
    if drop:
        meta = obj["metadata"]
        sim.stage.cluster.annotate(kind, meta.get("namespace", ""), meta["name"], dict.fromkeys(drop))


def _heal_machines(sim: "Simulation") -> None:
    registry = sim.stage.cluster.sabakan
    registry.bad_rows.clear()
    registry.never_boot.clear()
    for serial, entry in sorted(registry.entries.items()):
        if sim.stage.cluster.store.find(Kind.NODE, "", entry.ipv4[0]) is None:
            sim.stage.cluster.add_node(entry.ipv4[0], rack=entry.rack, zone=f"rack{entry.rack}")  # it boots at last
        if entry.state is MachineState.UPDATING:
            registry.set_state(serial, MachineState.UNINITIALIZED)
        elif entry.state not in GOING | {MachineState.HEALTHY}:
            registry.set_state(serial, MachineState.HEALTHY)


# ── Is anything still under way? ──────────────────────────────────────────────────────────────────────────────────


def unfinished(sim: "Simulation") -> Iterator[str]:
    leader = sim.stage.leader()
    if leader is None:
        yield "no replica leads"
        return
    engine = leader.engine
    for running in engine.running.values():
        if not _blocked(running.waiting_on):
            waiting_on = f", waits on {running.waiting_on}" if running.waiting_on is not None else ""
            yield f"runs: {_words(running.operator)}{waiting_on}"
    for operator in engine.waiting.values():
        yield f"waits: {_words(operator)}"
    if not sim.stage.cluster.stable():
        yield from _unstable(sim)
    if sim.stage.cluster.cloud.notices:
        yield f"notices: {sorted(sim.stage.cluster.cloud.notices)}"
    yield from unanswered(sim)
    yield from inexact(sim)


def _words(operator: Any) -> str:
    return f"{operator.source} {operator.kind} {operator.subject} ({operator.reason})"


def _blocked(verdict: Any) -> bool:
    return verdict is not None and (
        verdict.state is State.BLOCKED or verdict.reason in BLOCKED_REASONS | REFUSED_REASONS
    )


def _unstable(sim: "Simulation") -> Iterator[str]:
    cluster = sim.stage.cluster
    for kind in (Kind.DEPLOYMENT, Kind.STATEFUL_SET):
        for obj in cluster.store.list(kind):
            meta = obj["metadata"]
            ready, wanted = cluster.ready(meta["namespace"], meta["name"]), obj["spec"].get("replicas", 1)
            if ready != wanted:
                yield f"{kind} {meta['name']} has {ready} of {wanted} Ready"
    for pod in cluster.store.list(Kind.POD):
        if podstate.terminating(pod) or (podstate.active(pod) and not podstate.ready(pod)):
            yield f"pod {pod['metadata']['name']} on {podstate.node_of(pod) or 'no node'} is not Ready or leaves"


# ── Judgement ─────────────────────────────────────────────────────────────────────────────────────────────────────


def judge(sim: "Simulation") -> None:
    for invariant, found in (
        ("after quiet: nothing of ours is left", list(left_overs(sim))),
        ("after quiet: the world equals the store", list(differences(sim))),
    ):
        if found:
            sim.fail(invariant, "; ".join(found[:6]))
            return


def _blocked_subjects(sim: "Simulation") -> set[str]:
    """Names in what is blocked: what is left there waits for a person."""
    engine = sim.engine()
    if engine is None:
        return set()
    found = {name for running in engine.running.values() for name in _names(running.operator)}
    found |= {running.operator.id for running in engine.running.values() if _blocked(running.waiting_on)}
    for (_, key), verdict in engine.verdicts.items():
        if _blocked(verdict):
            found |= {key, key.rpartition("/")[2]} | {verdict.subject.rpartition("/")[2]} - {""}
    # Of several members that are blocked the engine keeps one verdict; people are told of each.
    for cluster in report_of(engine, sim.stage.config)["clusters"]:
        found |= {member["pod"] for member in cluster["members"] if member["state"] == "blocked"}
    if found:
        sim.hit("blocked-with-reason")
    return found


def _names(operator: Any) -> Iterator[str]:
    for subject in (operator.subject, *operator.claims, *operator.payload.names()):
        yield subject.rpartition("/")[2]


def left_overs(sim: "Simulation") -> Iterator[str]:
    store, blocked = sim.stage.cluster.store, _blocked_subjects(sim)
    registry = sim.stage.cluster.sabakan
    going = {e.ipv4[0] for e in registry.entries.values() if e.state in GOING}
    for node in store.list(Kind.NODE):
        name, have = node["metadata"]["name"], podstate.annotations_of(node)
        taints = {t["key"] for t in node["spec"].get("taints") or ()}
        if RESERVED_TAINT in taints or RESERVED_TAINT in have:
            yield f"a reservation on {name}"
        if name in going or name in blocked:
            continue
        if CORDONED_BY in have or node["spec"].get("unschedulable"):
            yield f"a cordon on {name}"
        if RETIRING in have:
            yield f"{RETIRING} on {name}"
        if keys.STATE_TAINT in taints:
            yield f"taint {keys.STATE_TAINT} on {name}"
    bare = {f"bare{n}" for n in range(sim.plan.shape.bare_pods)}
    for pod in store.list(Kind.POD):
        name = pod["metadata"]["name"]
        asked_by = read_mark(podstate.annotations_of(pod).get(LEAVING, ""))
        waits = asked_by is not None and asked_by.operator in blocked  # with what asked for it
        if LEAVING in podstate.annotations_of(pod) and name not in blocked and not waits:
            yield f"{LEAVING} on {name}"
        if not pod["metadata"].get("ownerReferences") and name not in bare | blocked:
            yield f"pod {name} without an owner"
    for tc in (*store.list(Kind.TIDB_CLUSTER), *store.list(Kind.TIDB_V2)):
        name = tc["metadata"]["name"]
        if HANDOFF in podstate.annotations_of(tc) and name not in blocked:
            yield f"{HANDOFF} on {name}"
    for obj in store.list(Kind.STATEFUL_SET, SHOP):
        if HANDOFF in podstate.annotations_of(obj) and obj["metadata"]["name"] not in blocked:
            yield f"{HANDOFF} on {obj['metadata']['name']}"
    for pd, names in pds(sim):
        stores = pd.server.evict_list()
        if stores and not names & (sim.edits.tampered | blocked):
            yield f"evict-leader schedulers of {'/'.join(sorted(names))}: {stores}"


def pds(sim: "Simulation") -> Iterator[tuple[Any, set[str]]]:
    """Each PD once, with the TidbClusters that it serves."""
    servers = {id(pd): pd for pd in sim.stage.cluster.pd.values()}
    for one in servers.values():
        yield one, {name for (_, name), pd in sim.stage.cluster.pd.items() if pd is one}


def marks_of(sim: "Simulation", name: str) -> Iterable[Mark]:
    store = sim.stage.cluster.store
    tc = store.find(Kind.TIDB_CLUSTER, TIDB, name) or store.get(Kind.TIDB_V2, TIDB, name)
    return (read_marks(podstate.annotations_of(tc).get(HANDOFF, "")) or {}).values()


def differences(sim: "Simulation") -> Iterator[str]:
    leader = sim.stage.leader()
    if leader is None:
        return
    for kind in KINDS:
        kept = {row.uid: row for row in leader.world._rows.by_kind[kind]}  # noqa: SLF001
        true = {obj["metadata"]["uid"]: obj for obj in sim.stage.cluster.store.list(kind)}
        for uid in sorted(kept.keys() ^ true.keys()):
            side = "only in the world" if uid in kept else "only in the store"
            name = kept[uid].key if uid in kept else true[uid]["metadata"]["name"]
            yield f"{kind} {name}: {side}"
        for uid, row in kept.items():
            wanted = project(kind, true[uid]) if uid in true else row
            if not row.resource_version:  # its NodeClaim has changed since: the Node has no version for that
                wanted = msgspec.structs.replace(wanted, resource_version="")
            if row != wanted:
                yield f"{kind} {row.key}: not as in the store"


def unanswered(sim: "Simulation") -> Iterator[str]:
    if "handoff" not in sim.plan.shape.features:
        return
    blocked = _blocked_subjects(sim)
    for pod in sim.objects(Kind.POD, RESTART, TIDB):
        meta = pod["metadata"]
        if podstate.labels_of(pod).get("app.kubernetes.io/component") != "tikv" or meta["name"] in blocked:
            continue
        cluster = podstate.labels_of(pod)["app.kubernetes.io/instance"]
        if not {cluster, f"{TIDB}/{cluster}"} & blocked:
            yield f"{meta['name']} is still asked to restart"


def inexact(sim: "Simulation") -> Iterator[str]:
    """Mix: as many pods were given on-demand as the workload asks for."""
    if "mix" not in sim.plan.shape.features:
        return
    blocked = _blocked_subjects(sim)
    for kind in (Kind.DEPLOYMENT, Kind.STATEFUL_SET):
        for obj in sim.objects(kind, namespace=SHOP):
            meta = obj["metadata"]
            said = management_of(project(kind, obj))  # type: ignore[arg-type]
            if ENABLED not in podstate.labels_of(obj) or not isinstance(said, Managed) or meta["name"] in blocked:
                continue
            wanted = said.target.on_demand(obj["spec"].get("replicas", 1))
            pods = [p for p in sim.stage.cluster.pods(SHOP, meta["name"]) if podstate.active(p)]
            given = sum(podstate.labels_of(p).get(AFFINITY) == "on-demand" for p in pods)
            verdict = sim.engine().verdicts.get(("mix", f"workload/{kind}/{SHOP}/{meta['name']}"))
            if given != wanted and not (verdict is not None and verdict.remedy):
                yield f"{kind} {meta['name']} ({said.target}) has {given} on-demand, {wanted} are wanted"


async def pauses_end(sim: "Simulation") -> None:
    """PD's schedulers resume by themselves within a minute when their pause is not renewed."""
    if "balance" not in sim.plan.shape.features:
        return
    for name in list(sim.stage.replicas):
        await sim.stage.stop(name)
    await sim.stage.sleep(65.0)
    for pd, names in pds(sim):
        paused = [scheduler for scheduler in pd.server.scheduler_names() if pd.server.is_paused(scheduler)]
        if paused:
            sim.fail("after quiet: no pause of ours is left", f"{'/'.join(sorted(names))}: {', '.join(paused)}")
