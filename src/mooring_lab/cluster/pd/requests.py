"""What PD says to each request that changes something, in the words of the real one; in process and over HTTP alike."""

import msgspec

from mooring.clients.ports import ConflictError, Json, NotFoundError, RefusedError
from mooring.core.model.tidb import PdOperator, PdPause, Region
from mooring_lab.cluster.pd import schedulers
from mooring_lab.cluster.pd.operators import PdStep, StoredOperator
from mooring_lab.cluster.pd.placement import add_steps
from mooring_lab.cluster.pd.schedulers import EVICT_LEADER, move_steps, transfer_step
from mooring_lab.cluster.pd.server import PdServer


class Said(msgspec.Struct, frozen=True):
    status: int
    words: str


CREATED = Said(200, "The operator is created.")


def add_evict_leader(pd: PdServer, store_id: int) -> Said:
    if store_id not in pd.tikv.stores or pd.asked_state.get(store_id) == "Tombstone":
        words = f"[PD:core:ErrStoreNotFound]store {store_id} not found"
        return Said(500, f'"{words}"\n' if pd.evicting else words)
    first = not pd.evicting
    pd.evicting[store_id] = None
    pd.kick()
    return Said(200, "The scheduler is created." if first else "The scheduler has been applied to the store.")


def remove_evict_leader(pd: PdServer, store_id: int) -> bool:
    """Whether it was there. With the last store the scheduler itself goes."""
    if store_id not in pd.evicting:
        return False
    del pd.evicting[store_id]
    if not pd.evicting:
        pd.paused.pop(EVICT_LEADER, None)
        pd.evict_batch = pd.settings.evict_batch
    pd.kick()
    return True


def pause(pd: PdServer, name: str, seconds: int) -> Said:
    if name not in pd.scheduler_names():
        return Said(500, "[PD:scheduler:ErrSchedulerNotFound]scheduler not found")
    pd.pause(name, seconds)
    return Said(200, "Pause or resume the scheduler successfully.")


def take_offline(pd: PdServer, store_id: int) -> Said:
    if store_id not in pd.tikv.stores:
        return Said(404, f"[PD:core:ErrStoreNotFound]store {store_id} not found")
    if pd.asked_state.get(store_id) == "Tombstone":
        return Said(410, f"[PD:core:ErrStoreRemoved]the store {store_id} has been removed")
    pd.asked_state[store_id] = "Offline"
    pd.kick()
    return Said(200, "The store is set as Offline.")


# ── Operators ─────────────────────────────────────────────────────────────────────────────────────────────────────


def add_operator(pd: PdServer, body: Json) -> Said:
    build = _BUILDERS.get(str(body.get("name", "")))
    if build is None:
        return Said(400, "unknown operator" if body.get("name") else "missing operator name")
    region_id = body.get("source_region_id" if body["name"] == "merge-region" else "region_id")
    if not isinstance(region_id, int):
        return Said(400, "missing region id")
    region, group = pd.cache.get(region_id), pd.tikv.groups.get(region_id)
    if region is None or group is None:
        return Said(500, f"[PD:region:ErrRegionNotFound]region {region_id} not found")
    made = build(pd, region, body)
    if isinstance(made, Said):
        return made
    desc, brief, kinds, steps = made
    started = pd.operators.start(StoredOperator(desc, brief, group, kinds, steps))
    return (
        CREATED if started else Said(500, "[PD:operator:ErrAddOperator]failed to add operator, maybe already have one")
    )


_Made = tuple[str, str, tuple[str, ...], tuple[PdStep, ...]]


def _store(pd: PdServer, body: Json, key: str) -> int | Said:
    store_id = body.get(key)
    if not isinstance(store_id, int):
        return Said(400, f"missing {key.replace('_', ' ')}")
    if store_id not in pd.tikv.stores:
        return Said(500, f"[PD:core:ErrStoreNotFound]store {store_id} not found")
    return store_id


def _transfer_leader(_: PdServer, region: Region, body: Json) -> _Made | Said:
    to = body.get("to_store_id")
    if not isinstance(to, int):
        return Said(400, "missing store id to transfer leader to")
    if not any(p.store_id == to and p.role == "Voter" for p in region.peers):
        return Said(500, f"region has no voter in store {to}")
    source = region.leader_store
    steps = (transfer_step(source, to),)
    return "admin-transfer-leader", f"transfer leader: store {source} to {to}", ("admin", "leader"), steps


def _transfer_peer(pd: PdServer, region: Region, body: Json) -> _Made | Said:
    source, to = body.get("from_store_id"), _store(pd, body, "to_store_id")
    if isinstance(to, Said):
        return to
    if not any(p.store_id == source for p in region.peers) or not isinstance(source, int):
        return Said(500, f"region has no peer in store {source}")
    if any(p.store_id == to for p in region.peers):
        return Said(500, f"region already has peer in store {to}")
    if any(p.role == "Learner" for p in region.peers if p.store_id == source):
        remove = PdStep("remove-peer", f"remove peer on store {source}", store=source)
        learner: tuple[PdStep, ...] = (*add_steps(to, pd.tikv.new_id(), voter=False), remove)
        return "admin-move-peer", f"mv peer: store [{source}] to [{to}]", ("admin", "region"), learner
    others = [s for s in schedulers.followers(pd, region) if s != source]
    steps = move_steps(region, source, to, pd.tikv.new_id(), others[0] if others else to)
    return "admin-move-peer", f"mv peer: store [{source}] to [{to}]", _region_kinds(region, source), steps


def _add_peer(pd: PdServer, region: Region, body: Json) -> _Made | Said:
    return _add(pd, region, body, voter=True)


def _add_learner(pd: PdServer, region: Region, body: Json) -> _Made | Said:
    return _add(pd, region, body, voter=False)


def _add(pd: PdServer, region: Region, body: Json, *, voter: bool) -> _Made | Said:
    store = _store(pd, body, "store_id")
    if isinstance(store, Said):
        return store
    if any(p.store_id == store for p in region.peers):
        return Said(500, f"region already has peer in store {store}")
    steps = add_steps(store, pd.tikv.new_id(), voter=voter)
    what = "peer" if voter else "learner"
    return f"admin-add-{what}", f"add peer: store [{store}]", ("admin", "region"), steps


def _remove_peer(pd: PdServer, region: Region, body: Json) -> _Made | Said:
    store = body.get("store_id")
    if not any(p.store_id == store for p in region.peers) or not isinstance(store, int):
        return Said(500, f"region has no peer in store {store}")
    steps = [PdStep("remove-peer", f"remove peer on store {store}", store=store)]
    if region.leader_store == store:
        others = schedulers.followers(pd, region)
        if not others:
            return Said(500, "cannot create operator: target leader is not found")
        steps.insert(0, transfer_step(store, others[0]))
    return "admin-remove-peer", f"rm peer: store [{store}]", _region_kinds(region, store), tuple(steps)


def _region_kinds(region: Region, store: int) -> tuple[str, ...]:
    """An operator that moves the leader out of the way is of that kind, too."""
    return ("admin", "region", "leader") if region.leader_store == store else ("admin", "region")


def _merge(pd: PdServer, region: Region, body: Json) -> _Made | Said:
    target = pd.cache.get(int(body.get("target_region_id") or 0))
    if target is None:
        return Said(500, f"[PD:region:ErrRegionNotFound]region {body.get('target_region_id')} not found")
    if region.end_key != target.start_key and target.end_key != region.start_key:
        return Said(500, "[PD:region:ErrRegionNotAdjacent]two regions are not adjacent")
    text = f"merge region {region.id} into region {target.id}"
    steps = (PdStep("merge", text, other_region=target.id),)
    return "admin-merge-region", f"merge: region {region.id} to {target.id}", ("admin", "merge"), steps


def _split(_: PdServer, region: Region, body: Json) -> _Made | Said:
    policy = str(body.get("policy", "")).upper()
    if policy not in ("SCAN", "APPROXIMATE", "USEKEY"):
        return Said(500, f"check policy {body.get('policy', '')} is not supported")
    keys = [str(k).upper() for k in body.get("keys") or ()] if policy == "USEKEY" else [_middle(region)]
    steps = (PdStep("split", f"split region with policy {policy}", keys=tuple(keys)),)
    named = f" and keys [{' '.join(keys)}]" if policy == "USEKEY" else ""
    brief = f"split: region {region.id} use policy {policy}{named}"
    return "admin-split-region", brief, ("admin", "split"), steps


def _middle(region: Region) -> str:
    """A key right of the start and left of the end: the start and one byte more."""
    return (region.start_key or "6B") + "6D"


_BUILDERS = {
    "transfer-leader": _transfer_leader,
    "transfer-peer": _transfer_peer,
    "add-peer": _add_peer,
    "add-learner": _add_learner,
    "remove-peer": _remove_peer,
    "merge-region": _merge,
    "split-region": _split,
}


def hold_lock(pd: PdServer, kind: str, lock_id: str, description: str) -> Said:
    if not pd.settings.lockable:
        return Said(404, "404 page not found")
    if pd.lock is not None:
        return Said(409, "Another maintenance task is already running")
    pd.lock = (kind, lock_id, pd.timeline.now(), description)
    return Said(200, "Maintenance task started successfully.")


def release_lock(pd: PdServer, kind: str, lock_id: str) -> Said:
    if pd.lock is None or pd.lock[0] != kind:
        return Said(404, "No maintenance task is running for this type")
    if pd.lock[1] != lock_id:
        return Said(409, "Task ID does not match the current task")
    pd.lock = None
    return Said(200, "Maintenance task deleted successfully.")


def expect(said: Said) -> None:
    """PD's no as the client says it."""
    if said.status == 200:
        return
    if "ErrAddOperator" in said.words:
        raise ConflictError(said.words)
    if "NotFound]" in said.words or said.status == 404:
        raise NotFoundError(said.words)
    raise RefusedError(said.words, said.status)


def pauses(pd: PdServer) -> tuple[PdPause, ...]:
    paused, now = pd.paused, pd.timeline.now()
    names = [n for n in sorted(pd.scheduler_names()) if pd.is_paused(n)]
    return tuple(PdPause(n, paused[n][1] - paused[n][0], paused[n][1] - now) for n in names)


def evicting(pd: PdServer) -> tuple[int, ...] | None:
    """As the client concludes it: no list and no schedulers at all means that PD cannot say yet."""
    listed = pd.evict_list()
    return () if listed is None and pd.scheduler_names() else listed


def operators(pd: PdServer) -> tuple[PdOperator, ...]:
    return tuple(pd.operators.running[r].view() for r in sorted(pd.operators.running))


def regions_from(pd: PdServer, start_key: str, limit: int) -> tuple[Region, ...]:
    """As PD scans: by key, from the region that holds this one; 0: all."""
    found = sorted((r for r in pd.cache.values() if not r.end_key or r.end_key > start_key), key=lambda r: r.start_key)
    return tuple(found[:limit] if limit else found)


CHECKS = ("down-peer", "pending-peer", "miss-peer")


def checked(pd: PdServer, kind: str) -> list[Region]:
    """PD's `regions/check`: those with a peer on a store that is Down, and those with too few peers. None is behind
    here: a new peer is a learner until it has caught up."""
    if kind == "miss-peer":
        wanted = sum(rule["count"] for rule in pd.placement.rules)
        return [r for r in pd.cache.values() if len(r.peers) < wanted]
    down = {s.id for s in pd.tikv.stores.values() if pd.state_of(s) == "Down"} if kind == "down-peer" else set()
    found = []
    for region in pd.cache.values() if down else ():
        peers = tuple(p.id for p in region.peers if p.store_id in down)
        found += [msgspec.structs.replace(region, down_peers=peers)] if peers else []
    return found


def schedule_config(pd: PdServer) -> Json:
    """The keys that are read here; booleans are strings and durations Go's, as in PD."""
    rate = {"add-peer": 15, "remove-peer": 15}
    return {
        "max-store-down-time": "30m0s",
        "leader-schedule-limit": pd.limits["leader"],
        "region-schedule-limit": 2048,
        "replica-schedule-limit": 64,
        "merge-schedule-limit": 8,
        "hot-region-schedule-limit": 4,
        "scheduler-max-waiting-operator": 5,
        "store-limit": {str(s): rate for s in sorted(pd.tikv.stores)},
        "enable-joint-consensus": "true",
        "store-limit-version": "v1",
        **pd.placement.schedule(),
    }
