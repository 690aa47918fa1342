"""The API server of the sandbox: verbs over plain JSON, with admission, faults, hooks and a log of writes.

Every write takes the same path:

    arrive (dead? slow?) → fault: lost request → before-hooks → admission → validation → quota → store
           → log → after-hooks → fault: lost answer → answer

Before-hooks run when nothing has happened yet, after-hooks when it has: a hook that raises (the kill harness) ends the
caller at exactly that point. `SandboxKubeApi` is the port on top of it, the facade speaks HTTP on top of it;
controllers of the cluster, which no fault touches, write to the store and send pods through `sender` so that webhooks
see them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from mooring.clients.ports import (
    ConflictError,
    Json,
    JsonPatch,
    NotFoundError,
    PatchType,
    PortError,
    RefusedError,
    UnansweredError,
)
from mooring.core.model.kinds import RESOURCES, Kind
from mooring_lab.cluster.apiserver import eviction
from mooring_lab.cluster.apiserver.admission import Admission, AdmissionRequest
from mooring_lab.cluster.apiserver.defaults import set_defaults
from mooring_lab.cluster.apiserver.faults import SILENCE_S, Fault, Faults, error_of
from mooring_lab.cluster.apiserver.namespaces import QuotaStatus, check_quota, delete_namespace, keep_namespaces
from mooring_lab.cluster.apiserver.patch import apply_patch
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.apiserver.validation import STATUS_KINDS, validate_change, validate_new
from mooring_lab.cluster.apiserver.watch import WINDOW, WatchWindow
from mooring_lab.cluster.clock import TimelineClock
from mooring_lab.cluster.randomness import SeededRandomness

#: How often a patch without a precondition is retried when another client writes meanwhile.
PATCH_TRIES: Final = 5
#: Kinds that may be created with a status (nodes register themselves with their capacity).
_STATUS_AT_BIRTH: Final = frozenset({Kind.NODE, Kind.PV, Kind.CRD})


#: Where the warnings of webhooks go while a request is served; a real client reads them from the answer's headers.
HEARD: Final[ContextVar[list[str] | None]] = ContextVar("HEARD", default=None)


def warn(*words: str) -> None:
    heard = HEARD.get()
    if heard is not None:
        heard.extend(words)


class Write(msgspec.Struct, frozen=True):
    """A write that a client asked for. In `writes` stand those that took effect."""

    verb: str
    kind: Kind
    namespace: str
    name: str
    body: Any
    at: float
    by: str

    @property
    def what(self) -> str:
        subject = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.verb} {self.kind.value} {subject}"


Hook = Callable[[Write], None]


class ApiServer:
    def __init__(self, store: ObjectStore, *, seed: int = 0, latency_s: float = 0.0, window: int = WINDOW) -> None:
        randomness = SeededRandomness(seed)
        self.store = store
        self.timeline = store.timeline
        self.latency_s = latency_s
        self.watches = WatchWindow(store, window)
        self.admission = Admission(store, randomness)
        self.faults = Faults(store.timeline, randomness, self.watches)
        self.writes: list[Write] = []
        #: The feature gate EvictionRequestAPI is on (alpha in 1.37).
        self.has_evictions = False
        self._clock = TimelineClock(store.timeline)
        self._before: list[Hook] = []
        self._after: list[Hook] = []
        # The event loop holds tasks weakly, so they are held here.
        self._sending: set[asyncio.Task[PortError | None]] = set()
        keep_namespaces(store)
        QuotaStatus(store)

    def before_write(self, fn: Hook) -> None:
        self._before.append(fn)

    def after_write(self, fn: Hook) -> None:
        self._after.append(fn)

    def known(self, kind: Kind) -> None:
        if kind is Kind.EVICTION and not self.has_evictions:
            raise NotFoundError("the server could not find the requested resource")

    # ── The road of every call ────────────────────────────────────────────────────────────────────────────────────

    async def arrive(self, what: str) -> None:
        """Half the latency, and the faults that are active."""
        if self.faults.dead():
            await self._clock.sleep(SILENCE_S)
            raise UnansweredError(f"{what}: connection refused")
        await self._clock.sleep(self.latency_s / 2 + self.faults.delay_s())

    async def _write(self, write: Write, act: Callable[[], Awaitable[Json]]) -> Json:
        await self.arrive(write.what)
        fault = self.faults.of_write(write.verb, write.kind)
        if fault is Fault.LOST_REQUEST:
            await self._clock.sleep(SILENCE_S)
        if fault is not None and fault is not Fault.LOST_ANSWER:
            raise error_of(fault, write.what)
        for hook in self._before:
            hook(write)
        result = await act()
        name = result.get("metadata", {}).get("name") or write.name
        done = msgspec.structs.replace(write, name=name, at=self.timeline.now())
        self.writes.append(done)
        for hook in self._after:
            hook(done)
        if fault is Fault.LOST_ANSWER:
            await self._clock.sleep(SILENCE_S)
            raise error_of(fault, write.what)
        if self.latency_s:
            await self._clock.sleep(self.latency_s / 2)
        return result

    def _log(self, verb: str, kind: Kind, namespace: str, name: str, body: Any, by: str) -> Write:
        return Write(verb, kind, namespace, name, body, self.timeline.now(), by)

    # ── Verbs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Json:
        await self.arrive(f"get {kind.value} {namespace}/{name}")
        obj = self.store.get(kind, namespace, name)
        return eviction.scale_of(kind, obj) if subresource == "scale" else obj

    async def create(self, kind: Kind, obj: Json, *, by: str, dry_run: bool = False) -> Json:
        metadata = obj.get("metadata") or {}
        name = metadata.get("name") or metadata.get("generateName") or ""
        if dry_run:
            await self.arrive(f"create {kind.value} {name}")
            return await self._admit_new(kind, obj, by=by, dry_run=True)
        write = self._log("create", kind, metadata.get("namespace", ""), name, obj, by)
        return await self._write(write, lambda: self._create(kind, obj, by))

    async def _create(self, kind: Kind, obj: Json, by: str) -> Json:
        return self.store.create(kind, await self._admit_new(kind, obj, by=by), prepared=True)

    async def _admit_new(self, kind: Kind, obj: Json, *, by: str, dry_run: bool = False) -> Json:
        """Mutating webhooks see the object with its defaults and no uid; validating ones see it as it will be."""
        metadata = {k: v for k, v in (obj.get("metadata") or {}).items() if k not in {"uid", "creationTimestamp"}}
        if RESOURCES[kind].namespaced:
            metadata["namespace"] = metadata.get("namespace") or "default"
            self._check_namespace(metadata["namespace"])
        given = {**obj, "kind": kind.value, "apiVersion": RESOURCES[kind].api_version, "metadata": metadata}
        if kind in STATUS_KINDS - _STATUS_AT_BIRTH:
            given.pop("status", None)
        request = AdmissionRequest("CREATE", kind, given, user=by, dry_run=dry_run)
        if not self.admission.concerns(request):
            new = self.store.prepare(kind, given)
        else:
            request = msgspec.structs.replace(request, new=set_defaults(kind, given))
            admitted = await self.admission.mutate(request)
            new = self.store.prepare(kind, admitted.obj)
            said = await self.admission.validate(AdmissionRequest("CREATE", kind, new, user=by, dry_run=dry_run))
            warn(*admitted.warnings, *said)
        validate_new(kind, new)
        check_quota(self.store, kind, new)
        return new

    def _check_namespace(self, namespace: str) -> None:
        holder = self.store.find(Kind.NAMESPACE, "", namespace)
        if holder is None:
            raise NotFoundError(f'namespaces "{namespace}" not found')
        if holder["metadata"].get("deletionTimestamp"):
            raise RefusedError(
                f"unable to create new content in namespace {namespace} because it is being terminated", 403
            )

    async def replace(self, kind: Kind, obj: Json, *, by: str, subresource: str = "") -> Json:
        namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
        write = self._log("replace", kind, namespace, name, obj, by)
        return await self._write(write, lambda: self._replace(kind, obj, by, subresource))

    async def _replace(self, kind: Kind, obj: Json, by: str, subresource: str) -> Json:
        namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
        current = self.store.get(kind, namespace, name)
        if subresource == "scale":
            return self._scaled(kind, current, obj)
        if kind is Kind.LEASE and not obj["metadata"].get("resourceVersion"):
            words = "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update"
            raise RefusedError(f'Lease.coordination.k8s.io "{name}" is invalid: {words}', 422)
        return await self._update(kind, current, obj, by, subresource)

    async def _update(self, kind: Kind, current: Json, wanted: Json, by: str, subresource: str) -> Json:
        status = subresource == "status"
        request = AdmissionRequest("UPDATE", kind, wanted, current, user=by, subresource=subresource)
        if self.admission.concerns(request):
            admitted = await self.admission.mutate(request)
            wanted = admitted.obj
            said = await self.admission.validate(msgspec.structs.replace(request, new=wanted))
            warn(*admitted.warnings, *said)
        if not status:
            validate_change(kind, current, set_defaults(kind, wanted))
        return self.store.update(kind, wanted, status=status)

    def _scaled(self, kind: Kind, current: Json, scale: Json) -> Json:
        given = scale.get("metadata") or {}
        replicas = (scale.get("spec") or {}).get("replicas")
        if not isinstance(replicas, int) or replicas < 0:
            raise RefusedError(f"spec.replicas must be a number ≥ 0, not {replicas!r}", 422)
        own = current["metadata"]
        metadata = {**own, "resourceVersion": given.get("resourceVersion") or own["resourceVersion"]}
        wanted = {**current, "metadata": metadata, "spec": {**current["spec"], "replicas": replicas}}
        return eviction.scale_of(kind, self.store.update(kind, wanted))

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Json | JsonPatch,
        *,
        patch_type: PatchType,
        by: str,
        subresource: str = "",
    ) -> Json:
        write = self._log("patch", kind, namespace, name, patch, by)
        return await self._write(
            write, lambda: self._patch(kind, (namespace, name), patch, patch_type, by, subresource)
        )

    async def _patch(
        self, kind: Kind, key: tuple[str, str], patch: Json | JsonPatch, how: PatchType, by: str, subresource: str
    ) -> Json:
        for left in reversed(range(PATCH_TRIES)):
            current = self.store.get(kind, *key)
            if subresource == "scale":
                return self._scaled(kind, current, apply_patch(eviction.scale_of(kind, current), patch, how))
            wanted = self.store.patched(kind, *key, patch, how)
            own = current["metadata"]
            preconditions = any(wanted["metadata"].get(f) != own[f] for f in ("resourceVersion", "uid"))
            try:
                return await self._update(kind, current, wanted, by, subresource)
            except ConflictError:
                if preconditions or not left:
                    raise
        raise AssertionError("unreachable")

    async def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        by: str,
        uid: str = "",
        resource_version: str = "",
        grace_s: int | None = None,
        orphan: bool = False,
    ) -> Json:
        async def act() -> Json:
            current = self.store.get(kind, namespace, name)
            request = AdmissionRequest("DELETE", kind, None, current, user=by)
            if self.admission.concerns(request):
                warn(*await self.admission.validate(request))
            if kind is Kind.NAMESPACE:
                delete_namespace(self.store, name, uid=uid, resource_version=resource_version)
            else:
                self.store.delete(
                    kind, namespace, name, uid=uid, resource_version=resource_version, grace_s=grace_s, orphan=orphan
                )
            return self.store.find(kind, namespace, name) or current

        body = {"uid": uid, "resourceVersion": resource_version, "gracePeriodSeconds": grace_s}
        return await self._write(self._log("delete", kind, namespace, name, body, by), act)

    async def evict(
        self,
        namespace: str,
        name: str,
        *,
        by: str,
        uid: str = "",
        grace_s: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """As the API server: webhooks are asked first, then the budget."""

        async def act() -> Json:
            asked = eviction.asked(namespace, name, uid)
            request = AdmissionRequest("CREATE", Kind.POD, asked, user=by, dry_run=dry_run, subresource="eviction")
            if self.admission.concerns(request):
                warn(*await self.admission.validate(request))
            if dry_run:
                return self.store.get(Kind.POD, namespace, name)
            eviction.evict(self.store, namespace, name, uid=uid, grace_s=grace_s)
            return {}

        body = {"uid": uid, "gracePeriodSeconds": grace_s}
        await self._write(self._log("evict", Kind.POD, namespace, name, body, by), act)

    async def bind(self, namespace: str, name: str, node: str, *, by: str, uid: str = "") -> None:
        async def act() -> Json:
            eviction.bind(self.store, namespace, name, node, uid=uid)
            return {}

        await self._write(self._log("bind", Kind.POD, namespace, name, {"node": node, "uid": uid}, by), act)

    # ── For controllers ───────────────────────────────────────────────────────────────────────────────────────────

    def sender(
        self, kind: Kind = Kind.POD, *, by: str = "system:serviceaccount:kube-system:replicaset-controller"
    ) -> Callable[[Json, Callable[[PortError | None], None]], None]:
        """Creates objects the way a controller does: through admission and quota, but past every fault and hook. The
        answer comes at once unless a webhook needs an event loop."""

        def send(obj: Json, answer: Callable[[PortError | None], None]) -> None:
            request = AdmissionRequest("CREATE", kind, obj, user=by)
            if self.admission.concerns(request) and not self.admission.answers_at_once(request):
                task = asyncio.get_running_loop().create_task(_outcome(self._create(kind, obj, by)))
                task.add_done_callback(lambda t: None if t.cancelled() else answer(t.result()))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
            else:
                answer(_at_once(_outcome(self._create(kind, obj, by))))

        return send


async def _outcome(creation: Awaitable[Json]) -> PortError | None:
    try:
        await creation
    except PortError as error:
        return error
    return None


def _at_once(coroutine: Coroutine[Any, Any, PortError | None]) -> PortError | None:
    """Runs a coroutine that never really waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: PortError | None = stop.value
        return result
    coroutine.close()
    raise RuntimeError("a webhook that waits needs an event loop")
