"""The only place that changes anything outside.

Each instruction becomes one call with its precondition, and one `Outcome` that the engine takes in as an event. Four
rules:

- Only the lease holder writes, and only while its lease cannot have expired: the fence is checked before each call.
- Before a write to a PD it is asked whose it is: a store of another cluster is left alone.
- "Did my write happen?" is answered by looking. An `Unanswered` call is followed by a read: what it wanted is there
  → done; the object is as before → said so, and the engine decides again.
- Nothing is repeated here. Retrying is deciding, and deciding is the engine's.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from mooring.clients.ports import (
    AlreadyExistsError,
    ConflictError,
    EvictionBlockedError,
    Json,
    KubeApi,
    LeaderDriver,
    NotFoundError,
    PatchType,
    PlacementDriver,
    PortError,
    RefusedError,
    ThrottledError,
    UnansweredError,
)
from mooring.clients.wire.kube import KINDS, project
from mooring.core.model.cluster import Key, Pod
from mooring.core.model.events import Gone
from mooring.core.model.instructions import (
    AddEvictLeader,
    AddPdOperator,
    CancelPdOperator,
    Create,
    CutOff,
    DeleteNode,
    DeletePod,
    EditTaints,
    HoldPdLock,
    MoveLeaders,
    Outcome,
    Patch,
    PausePdScheduler,
    ReleaseLeaders,
    ReleasePdLock,
    RemoveEvictLeader,
    TransferPdLeader,
    Write,
)
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import GAVE_UP, HANDOFF, read_marks
from mooring.core.model.reasons import Reason
from mooring.process.pd_directory import PdOf, one_connection, proven

#: Where a region operator says which stores it touches.
STORES_OF: Final = ("from_store_id", "to_store_id", "store_id")


class Fence(Protocol):
    """May this process still write? Asked right before every write."""

    def may_write(self) -> bool: ...


#: The driver of a StatefulSet with leaders.
DriverOf = Callable[[Key], Awaitable[LeaderDriver]]


async def no_leaders(workload: Key) -> LeaderDriver:
    raise NotFoundError(f"{workload} is not asked here")


class Actor:
    def __init__(self, api: KubeApi, pds: PdOf, fence: Fence, leaders: DriverOf = no_leaders) -> None:
        self._api = api
        self._leaders = leaders
        self._pds = pds
        self._fence = fence
        #: Uids of pods that are being evicted just now: the gate lets what we ask for ourselves pass, under whatever
        #: name the API server knows us.
        self.evicting: set[str] = set()

    async def carry_out(self, write: Write) -> Outcome:
        """Make one write. Never raises for what the outside may answer."""
        if not self._fence.may_write():
            return _not_leader(write)
        try:
            return await self._do(write)
        except ThrottledError as error:
            return _refused(write, Reason.BACK_OFF, error, error.retry_after_s)
        except EvictionBlockedError as error:
            return _refused(write, Reason.PDB, error, 5.0)
        except ConflictError as error:
            return _refused(write, Reason.CONFLICT, error)
        except NotFoundError as error:
            return _refused(write, Reason.SUBJECT_GONE, error)
        except RefusedError as error:
            return _refused(write, Reason.FAILED, error, 10.0)
        except UnansweredError as error:
            return _refused(write, Reason.UNKNOWN, error, error.retry_after_s)
        except PortError as error:
            return _refused(write, Reason.FAILED, error)

    async def _do(self, write: Write) -> Outcome:
        match write:
            case Patch():
                return await self._patch(write)
            case DeletePod():
                return await self._delete_pod(write)
            case Create():
                return await self._create(write)
            case DeleteNode():
                return await self._delete_node(write)
            case EditTaints() | CutOff():
                return await self._edit_taints(write)
            case AddEvictLeader():
                return await self._add_evict_leader(write)
            case RemoveEvictLeader(cluster=cluster, store_id=store_id, via=via):
                return await self._pd(write, cluster, lambda pd: pd.remove_evict_leader(store_id), store_id, via=via)
            case HoldPdLock(cluster=cluster, lock_id=lock_id, description=description):
                return await self._pd(write, cluster, lambda pd: pd.hold_lock(lock_id, description))
            case ReleasePdLock(cluster=cluster, lock_id=lock_id, via=via):
                return await self._pd(write, cluster, lambda pd: pd.release_lock(lock_id), via=via)
            case TransferPdLeader(cluster=cluster, to=to):
                return await self._pd(write, cluster, lambda pd: pd.transfer_pd_leader(to))
            case MoveLeaders() | ReleaseLeaders():
                return await self._move_leaders(write)
            case PausePdScheduler(cluster=cluster, name=name, seconds=seconds):
                return await self._pd(write, cluster, lambda pd: pd.pause_scheduler(name, seconds))
            case CancelPdOperator(cluster=cluster):
                return await self._cancel(write, self._pds.pd(cluster))
            case AddPdOperator():
                return await self._add_operator(write)

    # ── Kubernetes ────────────────────────────────────────────────────────────────────────────────────────────

    async def _patch(self, write: Patch) -> Outcome:
        body = _guarded(write)
        try:
            how = PatchType.STRATEGIC if write.subresource else PatchType.MERGE
            name, sub = write.key.name, write.subresource
            obj = await self._api.patch(write.kind, write.key.namespace, name, body, patch_type=how, subresource=sub)
        except (UnansweredError, ConflictError):
            # UnansweredError: it may have happened. ConflictError: it may be the second try of one that did.
            obj = await self._api.get(write.kind, write.key.namespace, write.key.name)
            if obj["metadata"]["uid"] == write.uid and _holds(obj, write.patch):
                return _done(write, write.kind, obj, "seen to be written")
            seen = _done(write, write.kind, obj, "the object has changed meanwhile")
            return msgspec.structs.replace(seen, reason=Reason.CONFLICT)
        return _done(write, write.kind, obj, write.why)

    async def _delete_pod(self, write: DeletePod) -> Outcome:
        key = write.key
        try:
            if write.evict:
                self.evicting.add(write.uid)
                await self._api.evict(key.namespace, key.name, uid=write.uid, grace_s=write.grace_s)
            else:
                await self._api.delete(Kind.POD, key.namespace, key.name, uid=write.uid, grace_s=write.grace_s)
        except (UnansweredError, NotFoundError, ConflictError):
            return await self._look_at_deletion(write, Kind.POD, key)
        finally:
            self.evicting.discard(write.uid)
        return await self._look_at_deletion(write, Kind.POD, key, sure=True)

    async def _delete_node(self, write: DeleteNode) -> Outcome:
        page = await self._api.list(Kind.POD, node=write.node, limit=0)
        there = next((p for p in page.items if isinstance(p, Pod) and not _stays(p)), None)
        obj = await self._api.get(Kind.NODE, "", write.node)
        if not self._fence.may_write():
            return _not_leader(write)  # a read may take longer than the lease allows
        conditions = obj.get("status", {}).get("conditions") or []
        is_ready = any((c.get("type"), c.get("status")) == ("Ready", "True") for c in conditions)
        if there is not None or is_ready:
            detail = f"{write.node} is not deleted: " + (
                "it is Ready" if there is None else f"pod {there.key} is there"
            )
            return Outcome(instruction=write.id, reason=Reason.CONFLICT, detail=detail, retry_after_s=60.0)
        key = Key("", write.node)
        try:
            await self._api.delete(Kind.NODE, "", write.node, uid=write.uid)
        except (UnansweredError, NotFoundError, ConflictError):
            return await self._look_at_deletion(write, Kind.NODE, key)
        return await self._look_at_deletion(write, Kind.NODE, key, sure=True)

    async def _look_at_deletion(
        self, write: DeletePod | DeleteNode, kind: Kind, key: Key, *, sure: bool = False
    ) -> Outcome:
        """Gone, leaving or another one under its name: done. Still there: nothing happened."""
        try:
            obj = await self._api.get(kind, key.namespace, key.name)
        except NotFoundError:
            return Outcome(instruction=write.id, detail=write.why, gone=Gone(kind, key, write.uid))
        except PortError:
            if sure:
                return Outcome(instruction=write.id, detail=write.why)
            raise
        metadata = obj["metadata"]
        if metadata["uid"] != write.uid or "deletionTimestamp" in metadata or sure:
            return _done(write, kind, obj, write.why)
        return Outcome(instruction=write.id, reason=Reason.UNKNOWN, detail="not deleted; will be asked again")

    async def _edit_taints(self, write: EditTaints | CutOff) -> Outcome:
        in_the_way = await self._cut_off(write) if isinstance(write, CutOff) else ""
        obj = await self._api.get(Kind.NODE, "", write.node)
        if not self._fence.may_write():
            return _not_leader(write)  # a read may take longer than the lease allows
        if in_the_way:
            detail = f"not tainted: {write.node} is not empty, {in_the_way} is there"
            return Outcome(instruction=write.id, reason=Reason.NO_EXECUTE, detail=detail, retry_after_s=2.0)
        if obj["metadata"]["uid"] != write.uid:
            return msgspec.structs.replace(
                _done(write, Kind.NODE, obj, "another node has this name"), reason=Reason.CONFLICT
            )
        before: list[Json] = obj.get("spec", {}).get("taints") or []
        removed = write.remove if isinstance(write, EditTaints) else ()
        ours = {(t.key, t.effect) for t in (*write.add, *removed)}
        taints = [one for one in before if (one["key"], one["effect"]) not in ours]
        taints += [{"key": t.key, "effect": t.effect, **({"value": t.value} if t.value else {})} for t in write.add]
        patch: Json = {"metadata": {"annotations": dict(write.annotations)}}
        if taints != before:
            patch["spec"] = {"taints": taints or None}
        if _holds(obj, patch):
            return _done(write, Kind.NODE, obj, "seen to be written")
        guarded = Patch(
            id=write.id,
            kind=Kind.NODE,
            key=Key("", write.node),
            uid=write.uid,
            resource_version=obj["metadata"]["resourceVersion"],
            patch=patch,
            why=write.why,
        )
        return await self._patch(guarded)

    async def _cut_off(self, write: CutOff) -> str:
        """A pod that the taints would cut off and may not, by a list of now; "": none, or not checked."""
        if write.may_cut_off is None:
            return ""
        page = await self._api.list(Kind.POD, node=write.node, limit=0)
        for pod in (p for p in page.items if isinstance(p, Pod)):
            if _stays(pod) or pod.uid in write.may_cut_off:
                continue
            if any(not any(one.tolerates(taint) for one in pod.shape.tolerations) for taint in write.add):
                return f"pod {pod.key}"
        return ""

    async def _create(self, write: Create) -> Outcome:
        metadata = write.object["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        try:
            obj = await self._api.create(write.kind, dict(write.object))
        except AlreadyExistsError:
            obj = await self._api.get(write.kind, namespace, name)
        except UnansweredError:
            try:
                obj = await self._api.get(write.kind, namespace, name)
            except NotFoundError:
                return Outcome(instruction=write.id, reason=Reason.UNKNOWN, detail="not created; will be asked again")
        return _done(write, write.kind, obj, write.why)

    # ── Systems with leaders ──────────────────────────────────────────────────────────────────────────────────

    async def _move_leaders(self, write: MoveLeaders | ReleaseLeaders) -> Outcome:
        """Whether it has moved, the next look tells."""
        try:
            driver = await self._leaders(write.workload)
            if not self._fence.may_write():
                return _not_leader(write)  # a read may take longer than the lease allows
            if isinstance(write, MoveLeaders):
                await driver.move_off(write.member, write.to)
            else:
                await driver.release(write.member)
        except UnansweredError as error:
            return _refused(write, Reason.LEADERS_UNREACHABLE, error, error.retry_after_s)
        return Outcome(instruction=write.id, detail=write.why)

    # ── PD ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _pd(
        self,
        write: Write,
        cluster: Key,
        call: Callable[[PlacementDriver], Awaitable[None]],
        *store_ids: int,
        via: Key | None = None,
    ) -> Outcome:
        """Idempotent calls: the client itself repeats them and looks afterwards."""
        try:
            async with one_connection(self._pds, via or cluster):
                pd = await proven(self._pds, cluster, *store_ids, via=via)
                if not self._fence.may_write():
                    return _not_leader(write)  # a read may take longer than the lease allows
                await call(pd)
        except UnansweredError as error:
            return _refused(write, Reason.PD_UNREACHABLE, error, error.retry_after_s)
        except NotFoundError as error:
            return _refused(write, Reason.STORE_UNKNOWN, error)
        return Outcome(instruction=write.id, detail=write.why)

    async def _add_evict_leader(self, write: AddEvictLeader) -> Outcome:
        """Only what the cluster's mark names, read right before; and read right after, since PD knows no precondition:
        a process that stalled in between removes the scheduler that it has just added, so that no other replica has to
        guess whose it is."""
        gone = f"no mark of {write.cluster} names store {write.store_id} any more"

        async def add(pd: PlacementDriver) -> None:
            if await pd.add_evict_leader(write.store_id) and not await self._is_marked(write):
                await pd.remove_evict_leader(write.store_id)
                raise ConflictError(f"{gone}: the scheduler was taken back")

        if not await self._is_marked(write):
            raise ConflictError(f"{gone}: no scheduler was added")
        return await self._pd(write, write.cluster, add, write.store_id)

    async def _is_marked(self, write: AddEvictLeader) -> bool:
        try:
            obj = await self._api.get(Kind.TIDB_CLUSTER, write.cluster.namespace, write.cluster.name)
        except NotFoundError:
            return False
        marks = read_marks((obj["metadata"].get("annotations") or {}).get(HANDOFF, "")) or {}
        return any(mark.store_id == write.store_id and mark.step != GAVE_UP for mark in marks.values())

    async def _cancel(self, write: CancelPdOperator, pd: PlacementDriver) -> Outcome:
        """PD cancels by region alone, so its operator is read right before: one of another client is left alone."""
        try:
            found = await pd.operator(write.region_id)
        except UnansweredError as error:
            return _refused(write, Reason.PD_UNREACHABLE, error, error.retry_after_s)
        if found is None or (found.status, found.desc, found.brief) != ("RUNNING", write.desc, write.brief):
            return Outcome(instruction=write.id, detail=write.why)
        if not self._fence.may_write():
            return _not_leader(write)
        return await self._pd(write, write.cluster, lambda pd: pd.cancel_operator(write.region_id))

    async def _add_operator(self, write: AddPdOperator) -> Outcome:
        try:
            async with one_connection(self._pds, write.cluster):
                named = (write.body[k] for k in STORES_OF if k in write.body)
                pd = await proven(self._pds, write.cluster, *named, shared=True)
                if not self._fence.may_write():
                    return _not_leader(write)
                await pd.add_operator(dict(write.body))
        except UnansweredError as error:
            # Whether PD has it, and whether what it has there is ours, the next look tells.
            return _refused(write, Reason.PD_UNREACHABLE, error, error.retry_after_s)
        except NotFoundError as error:
            return _refused(write, Reason.STORE_UNKNOWN, error)
        except ConflictError as error:
            return _refused(write, Reason.REGION_BUSY, error)
        return Outcome(instruction=write.id, detail=write.why)


def _stays(pod: Pod) -> bool:
    """It needs no other place: it has ended, or goes with its node."""
    return pod.terminal or pod.is_mirror or (pod.owner is not None and pod.owner.kind == Kind.DAEMON_SET)


def _not_leader(write: Write) -> Outcome:
    return Outcome(instruction=write.id, reason=Reason.NOT_LEADER, detail="another replica may hold the lease by now")


def _guarded(write: Patch) -> Json:
    """The patch with its precondition inside: the server compares uid and resourceVersion and refuses with 409."""
    guard = {"uid": write.uid}
    if write.resource_version:
        guard["resourceVersion"] = write.resource_version
    body: Json = dict(write.patch)
    body["metadata"] = {**body.get("metadata", {}), **guard}
    return body


def _holds(have: Any, patch: Any) -> bool:
    """Whether a merge patch would change nothing any more."""
    if not isinstance(patch, Mapping):
        return bool(have == patch)
    if not isinstance(have, Mapping):
        return not _wants_something(patch)
    return all((key not in have if value is None else _holds(have.get(key), value)) for key, value in patch.items())


def _wants_something(patch: Mapping[str, Any]) -> bool:
    """Does a merge patch onto nothing create anything?"""
    return any(_wants_something(v) if isinstance(v, Mapping) else v is not None for v in patch.values())


def _done(write: Write, kind: Kind, obj: Json, detail: str) -> Outcome:
    if kind not in KINDS:
        return Outcome(instruction=write.id, detail=detail)
    row = project(kind, obj)
    if not row.uid:
        said = f"response is not a {kind}; the write may or may not have been applied"
        return Outcome(instruction=write.id, reason=Reason.UNKNOWN, detail=said)
    return Outcome(instruction=write.id, detail=detail, kind=kind, object=row)


def _refused(write: Write, reason: Reason, error: PortError, retry_after_s: float = 0.0) -> Outcome:
    return Outcome(instruction=write.id, reason=reason, detail=str(error), retry_after_s=retry_after_s)
