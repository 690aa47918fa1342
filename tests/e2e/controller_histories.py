"""Random histories for the controllers that a rehearsal plays, and what is noted of them: the same on any control plane.

A history is a list of steps, drawn from a seed alone. A step is taken when nothing moves any more, so that both control
planes are at the same place; then everything that happened is noted in words that do not depend on names drawn at
random or on the machine's speed:

    pods        of a StatefulSet in order one by one, of a DaemonSet per node, of others how many of each revision came
                and went, how few were Ready and how many there were at once
    objects     status and conditions of workloads, budgets and endpoints, the replicas of each ReplicaSet
    nodes       when each was given up (`Ready` unknown, each taint), and when each pod was evicted
    answers     to evictions
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mooring.clients.ports import EvictionBlockedError, Json, KubeApi, PortError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.apiserver.store import ObjectStore
from mooring_lab.cluster.controllers import manifests, podstate
from mooring_lab.cluster.controllers.podstate import key_of, labels_of, node_of
from mooring_lab.cluster.controllers.workloads.ownership import controller_of
from mooring_lab.cluster.kubelet import FAIL, READY, START
from mooring_lab.cluster.nodes import ZONE, node_object

CASE = "case"
STEPS, LIMIT_S = 8, 300.0
#: Kubernetes takes a silent node for lost after 50 s; the second of a zone is emptied ten seconds after the first. The
#: pods of a Node that was deleted are collected after 40 to 80 s.
SILENT_S, AGAIN_S, COLLECTED_S = 140.0, 45.0, 100.0
#: What comes and goes within so long is one change: controllers run side by side.
AT_ONCE_S = 0.25
WATCHED = (
    Kind.NODE,
    Kind.POD,
    Kind.DEPLOYMENT,
    Kind.REPLICA_SET,
    Kind.STATEFUL_SET,
    Kind.DAEMON_SET,
    Kind.PDB,
    Kind.ENDPOINT_SLICE,
)
_HASHES = ("pod-template-hash", "controller-revision-hash")
_STATUS = {
    Kind.DEPLOYMENT: (
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
    ),
    Kind.STATEFUL_SET: (
        "observedGeneration",
        "replicas",
        "readyReplicas",
        "availableReplicas",
        "currentReplicas",
        "updatedReplicas",
    ),
    Kind.DAEMON_SET: (
        "observedGeneration",
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "numberAvailable",
        "numberUnavailable",
        "updatedNumberScheduled",
        "numberMisscheduled",
    ),
    Kind.PDB: ("observedGeneration", "disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"),
}


@dataclass
class World:
    """A control plane, and how to do to its machines what no API can."""

    api: KubeApi
    store: ObjectStore
    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    silence: Callable[[str], None]
    resume: Callable[[str], None]
    #: Nothing moves any more when nothing has moved for so long.
    quiet_s: float


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# What is noted.


class Notes:
    """Of one namespace and of the nodes of one case."""

    def __init__(self, world: World, namespace: str) -> None:
        self._world = world
        self._namespace = namespace
        self._revisions: dict[tuple[str, str], str] = {}
        self._owners: dict[str, str] = {}
        self.moved_at = world.now()
        self.clear()
        for kind in WATCHED:
            world.store.subscribe(kind, lambda *told, kind=kind: self._on(kind, *told))  # type: ignore[misc]

    def clear(self) -> None:
        self.began = self._world.now()
        self._pods: dict[str, list[str]] = {}
        self._left: set[str] = set()
        #: Owner → by time how many were Ready, and how many there were.
        self._counts: dict[str, dict[int, tuple[int, int]]] = {}
        self.times: dict[str, list[float]] = {}
        #: Of several nodes any is emptied first: what follows is timed from when each was.
        self._tainted: dict[str, float] = {}

    def _on(self, kind: Kind, event: str, old: Json | None, new: Json | None) -> None:
        obj = new or old
        if obj is None:
            return
        if kind is Kind.NODE:
            self._on_node(old, new)
        elif obj["metadata"]["namespace"] == self._namespace:
            self.moved_at = self._world.now()
            if kind is Kind.POD:
                self._on_pod(event, old, obj)

    # ── Pods ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_pod(self, event: str, old: Json | None, pod: Json) -> None:
        uid, owner = pod["metadata"]["uid"], self._owner(pod)
        if event == "ADDED":
            self._tell(owner, pod, "created")
        elif event == "DELETED":
            if uid not in self._left:
                self._tell(owner, pod, "leaving")
            self._tell(owner, pod, "gone")
        elif old is not None:
            if podstate.terminating(pod) and not podstate.terminating(old):
                self._left.add(uid)
                self._tell(owner, pod, "leaving")
                self._time(f"evicted {owner}", self._tainted.get(node_of(pod), self.began))
            if podstate.ready(pod) and not podstate.ready(old):
                self._tell(owner, pod, "ready")
        mine = [one for one in self._world.store.list(Kind.POD, self._namespace) if self._owner(one) == owner]
        active = [one for one in mine if podstate.active(one)]
        moment = int(self._world.now() / AT_ONCE_S)
        self._counts.setdefault(owner, {})[moment] = sum(podstate.ready(one) for one in active), len(active)

    def _tell(self, owner: str, pod: Json, what: str) -> None:
        kind = owner.partition(" ")[0]
        who = pod["metadata"]["name"] if kind in {"StatefulSet", "Pod"} else node_of(pod) if kind == "DaemonSet" else ""
        self._pods.setdefault(owner, []).append(f"{what} {who}{self._revision(owner, pod)}".strip())

    def _revision(self, owner: str, pod: Json) -> str:
        """A letter, in the order in which they came."""
        label = next((labels_of(pod)[key] for key in _HASHES if key in labels_of(pod)), "")
        known = sum(of == owner for of, _ in self._revisions)
        return self._revisions.setdefault((owner, label), f"@{chr(ord('A') + known)}") if label else ""

    def _owner(self, pod: Json) -> str:
        uid, reference = pod["metadata"]["uid"], controller_of(pod)
        if uid not in self._owners or reference is not None:
            if reference is None:
                self._owners[uid] = f"Pod {pod['metadata']['name']}"
            elif reference["kind"] == "ReplicaSet":
                self._owners[uid] = f"Deployment {reference['name'].rpartition('-')[0]}"
            else:
                self._owners[uid] = f"{reference['kind']} {reference['name']}"
        return self._owners[uid]

    # ── Nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_node(self, old: Json | None, new: Json | None) -> None:
        if new is None or old is None or labels_of(new).get(CASE) != self._namespace:
            return
        before, after = _signs(old), _signs(new)
        if before != after:
            self.moved_at = self._world.now()
        for sign in after - before:
            self._time(f"{sign} on")
            if sign.endswith("NoExecute"):
                self._tainted[new["metadata"]["name"]] = self._world.now()
        for sign in before - after:
            self._time(f"{sign} off")

    def _time(self, what: str, since: float | None = None) -> None:
        since = self.began if since is None else since
        self.times.setdefault(what, []).append(round(self._world.now() - since, 1))

    # ── The end of a step ─────────────────────────────────────────────────────────────────────────────────────────

    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for owner, events in self._pods.items():
            kind, _, name = owner.partition(" ")
            events = _once(events) if kind == "StatefulSet" else events
            stands = kind in _STATUS and self._world.store.find(Kind(kind), self._namespace, name) is not None
            ordered = owner.startswith("StatefulSet ordered") and stands
            found[f"pods of {owner}"] = events if ordered else dict(Counter(sorted(events)))
            if kind == "Deployment" and stands:
                counts = self._counts[owner].values()
                found[f"{owner}: fewest ready, most"] = min(r for r, _ in counts), max(n for _, n in counts)
        return found | self._objects()

    def _objects(self) -> dict[str, Any]:
        store, found = self._world.store, dict[str, Any]()
        for kind, fields in _STATUS.items():
            for obj in store.list(kind, self._namespace):
                status = obj.get("status") or {}
                conditions = {c["type"]: (c["status"], c.get("reason", "")) for c in status.get("conditions") or ()}
                said = {field: status[field] for field in fields if status.get(field)}
                if kind is Kind.STATEFUL_SET:
                    said["settled"] = status.get("currentRevision") == status.get("updateRevision")
                found[f"{kind} {obj['metadata']['name']}"] = said | conditions
        sets = [one for one in store.list(Kind.REPLICA_SET, self._namespace) if controller_of(one) is not None]
        for one in sets:
            number = podstate.annotations_of(one).get("deployment.kubernetes.io/revision")
            replicas = one["spec"]["replicas"], (one.get("status") or {}).get("readyReplicas", 0)
            found[f"ReplicaSet {one['metadata']['name'].rpartition('-')[0]} {number}"] = replicas
        for one in store.list(Kind.ENDPOINT_SLICE, self._namespace):
            ends = [
                (e["conditions"]["ready"], e["conditions"]["serving"], e["conditions"].get("terminating") or False)
                for e in one["endpoints"] or ()
            ]
            service = labels_of(one).get("kubernetes.io/service-name")
            found[f"endpoints of {service}: ready, serving, terminating"] = sorted(ends)
        return found


def _once(events: list[str]) -> list[str]:
    """kwok, the lab's kubelet, ends a pod by its name: now and then the next one of that name, too, at once."""
    found: list[str] = []
    for event in events:
        what, _, who = event.partition(" ")
        last = [one for one in found if one.endswith(who)][-3:]
        if what == "created" and last == [f"created {who}", f"leaving {who}", f"gone {who}"]:
            for one in last[1:]:
                del found[len(found) - 1 - found[::-1].index(one)]
        else:
            found.append(event)
    return found


def _signs(node: Json) -> set[str]:
    ready = (podstate.condition(node, "Ready") or {}).get("status", "")
    taints = {f"{one['key']}:{one['effect']}" for one in node["spec"].get("taints") or ()}
    return taints | ({f"Ready={ready}"} if ready != "True" else set())


# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# What is done.


class History(random.Random):
    """Workloads on one large node: made, scaled, rolled out, broken and mended, paused, evicted, deleted."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.namespace = f"history-{seed}"
        self._made: dict[str, Kind] = {}
        self._count = 0

    def maybe(self, share: float) -> bool:
        return self.random() < share

    async def play(self, world: World) -> list[tuple[str, dict[str, Any]]]:
        """Each step, and what came of it."""
        self._world = world
        await world.api.create(Kind.NAMESPACE, {"metadata": {"name": self.namespace}})
        await self._ground()
        notes, told = Notes(world, self.namespace), []
        for _ in range(STEPS):
            notes.clear()
            notes.moved_at = world.now()
            step, answer = await self._step()
            await self._quiet(notes)
            told.append((step, notes.told() | ({"answer": answer} if answer else {})))
        return told

    async def _ground(self) -> None:
        await self._node("only")

    async def _node(self, name: str, **how: Any) -> str:
        name = f"{self.namespace}-{name}"
        made = node_object(
            name, self.randint(0, 5000), self._world.now(), labels={CASE: self.namespace}, cpu="64", **how
        )
        await self._world.api.create(Kind.NODE, made)

        def stands() -> bool:
            node = self._world.store.find(Kind.NODE, "", name)
            return node is not None and not _signs(node)

        await self._until(stands)
        return name

    async def _until(self, holds: Callable[[], bool]) -> None:
        end = self._world.now() + LIMIT_S
        while not holds():
            assert self._world.now() < end, f"{self.namespace}: it did not come about"
            await self._world.sleep(0.2)

    async def _quiet(self, notes: Notes) -> None:
        await self._until(lambda: self._world.now() - notes.moved_at > self._world.quiet_s)

    # ── Steps ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _step(self) -> tuple[str, str]:
        makes = [self._deployment, self._stateful_set, self._daemon_set]
        if not self._made or (len(self._made) < 3 and self.maybe(0.4)):
            return await self.choice(makes)(), ""
        name = self.choice(sorted(self._made))
        does = [self._scale, self._roll_out, self._roll_out, self._break, self._pod_goes, self._evict, self._remove]
        if self._made[name] is Kind.DEPLOYMENT:
            does.append(self._pause)
        return await self.choice(does)(name, self._made[name])

    def _template(self, name: str) -> Json:
        own = {"nodeSelector": {CASE: self.namespace}, "terminationGracePeriodSeconds": 2}
        return manifests.pod_template({"app": name}, annotations={START: "1", READY: "1"}, **own)

    async def _make(self, kind: Kind, name: str, obj: Json) -> str:
        self._made[name] = kind
        api, selector = self._world.api, {"app": name}
        budget = self.choice(({"minAvailable": self.randint(0, 3)}, {"maxUnavailable": self.choice((0, 1, "50%"))}))
        await api.create(Kind.SERVICE, manifests.service(self.namespace, name, selector))
        await api.create(Kind.PDB, manifests.pdb(self.namespace, name, selector, **budget))
        await api.create(kind, obj)
        return f"create {kind} {name} {budget}"

    async def _deployment(self) -> str:
        name = self._next("web")
        strategy: Json = {"type": "Recreate"}
        if self.maybe(0.8):
            surge, away = self.choice(((1, 0), (1, 1), (0, 1), (2, 0), ("50%", "25%"), ("100%", 0), (0, "100%")))
            strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": away}}
        limits = {"revisionHistoryLimit": self.randint(0, 2), "minReadySeconds": self.choice((0, 0, 2))}
        made = manifests.deployment(
            self.namespace, name, self.randint(1, 5), self._template(name), strategy=strategy, **limits
        )
        return f"{await self._make(Kind.DEPLOYMENT, name, made)} {strategy} {limits}"

    async def _stateful_set(self) -> str:
        parallel = self.maybe(0.4)
        name = self._next("parallel" if parallel else "ordered")
        how: Json = {"podManagementPolicy": "Parallel" if parallel else "OrderedReady"}
        if self.maybe(0.3):
            how["updateStrategy"] = {"type": "OnDelete"}
        elif self.maybe(0.3):
            how["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": self.randint(0, 2)}}
        made = manifests.stateful_set(self.namespace, name, self.randint(1, 4), self._template(name), **how)
        return f"{await self._make(Kind.STATEFUL_SET, name, made)} {how}"

    async def _daemon_set(self) -> str:
        name = self._next("each")
        how: Json = {"updateStrategy": {"type": "OnDelete"}} if self.maybe(0.3) else {}
        made = manifests.daemon_set(self.namespace, name, self._template(name), **how)
        return f"{await self._make(Kind.DAEMON_SET, name, made)} {how}"

    def _next(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}-{self._count}"

    async def _patch(self, name: str, kind: Kind, spec: Json) -> None:
        await self._world.api.patch(kind, self.namespace, name, {"spec": spec})

    async def _scale(self, name: str, kind: Kind) -> tuple[str, str]:
        if kind is Kind.DAEMON_SET:
            return await self._roll_out(name, kind)
        count = self.randint(0, 6)
        await self._patch(name, kind, {"replicas": count})
        return f"scale {name} to {count}", ""

    async def _roll_out(self, name: str, kind: Kind) -> tuple[str, str]:
        """To a new revision, or back to one that there was."""
        version = str(self.randint(1, 4))
        await self._annotate(name, kind, {"version": version, FAIL: None})
        return f"roll out version {version} of {name}", ""

    async def _break(self, name: str, kind: Kind) -> tuple[str, str]:
        await self._annotate(name, kind, {FAIL: "ready"})
        return f"roll out {name} that never becomes Ready", ""

    async def _annotate(self, name: str, kind: Kind, marks: dict[str, str | None]) -> None:
        await self._patch(name, kind, {"template": {"metadata": {"annotations": marks}}})

    async def _pause(self, name: str, kind: Kind) -> tuple[str, str]:
        found = self._world.store.get(kind, self.namespace, name)
        paused = not found["spec"].get("paused")
        await self._patch(name, kind, {"paused": paused})
        return f"{'pause' if paused else 'resume'} {name}", ""

    def _pod(self, name: str) -> Json | None:
        """The first of the oldest revision, which is the same everywhere."""
        found = [p for p in self._world.store.list(Kind.POD, self.namespace) if labels_of(p).get("app") == name]
        found = [pod for pod in found if podstate.active(pod)]
        return min(found, key=lambda pod: (not podstate.ready(pod), key_of(pod)), default=None)

    async def _pod_goes(self, name: str, _kind: Kind) -> tuple[str, str]:
        pod = self._pod(name)
        if pod is not None:
            await self._world.api.delete(Kind.POD, *key_of(pod))
        return f"delete a pod of {name}", ""

    async def _evict(self, name: str, _kind: Kind) -> tuple[str, str]:
        pod, answer = self._pod(name), "none there"
        if pod is not None:
            try:
                await self._world.api.evict(*key_of(pod))
                answer = "evicted"
            except (EvictionBlockedError, PortError) as error:
                answer = type(error).__name__
        return f"evict a pod of {name}", answer

    async def _remove(self, name: str, kind: Kind) -> tuple[str, str]:
        del self._made[name]
        await self._world.api.delete(kind, self.namespace, name)
        return f"delete {name}", ""


class ZoneHistory(History):
    """Nodes of one zone: silent and back, cordoned, tainted, deleted; a pod of everything on each."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.namespace = f"zone-{seed}"

    async def play(self, world: World) -> list[tuple[str, dict[str, Any]]]:
        self._world = world
        await world.api.create(Kind.NAMESPACE, {"metadata": {"name": self.namespace}})
        await self._ground()
        notes, told = Notes(world, self.namespace), []
        await self._workloads()
        await self._quiet(notes)
        self._silent: list[str] = []
        steps = ((SILENT_S, self._falls_silent), (AGAIN_S, self._comes_back), (COLLECTED_S, self._by_hand))
        for lasts_s, step in steps:
            notes.clear()
            words = await step()
            await world.sleep(lasts_s)
            times = {what: times for what, times in sorted(notes.times.items()) if lasts_s == SILENT_S}
            told.append((words, notes.told() | {f"at: {what}": at for what, at in times.items()}))
        return told

    async def _ground(self) -> None:
        zone = {ZONE: self.namespace}
        self._nodes = [await self._node(f"n{at}", zone=zone[ZONE]) for at in range(self.randint(2, 5))]

    async def _workloads(self) -> None:
        api, apart = (
            self._world.api,
            {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"},
        )
        soon = [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
            for key in ("unreachable", "not-ready")
        ]
        web = self._template("web")
        web["spec"] |= {
            "tolerations": soon,
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        }
        await api.create(Kind.DEPLOYMENT, manifests.deployment(self.namespace, "web", len(self._nodes), web))
        await api.create(Kind.DAEMON_SET, manifests.daemon_set(self.namespace, "each", self._template("each")))
        for at, node in enumerate(self._nodes):
            spec = self._template("bare")["spec"] | {"nodeName": node}
            stays = self.choice((None, 0, 5, 20))
            spec["tolerations"] = [
                {**one, "tolerationSeconds": stays}
                if stays is not None
                else {k: v for k, v in one.items() if k != "tolerationSeconds"}
                for one in soon
            ]
            pod = {
                "metadata": {"name": f"bare-{at}", "namespace": self.namespace, "labels": {"app": "bare"}},
                "spec": spec,
            }
            await api.create(Kind.POD, pod)

    async def _falls_silent(self) -> str:
        # Most of a zone, but not all: then it depends on the moments at which their leases ran out.
        counts = [n for n in range(1, len(self._nodes) + 1) if n <= 2 or n == len(self._nodes)]
        self._silent = self.sample(self._nodes, self.choice(counts))
        for node in self._silent:
            self._world.silence(node)
        return f"{len(self._silent)} of {len(self._nodes)} nodes fall silent"

    async def _comes_back(self) -> str:
        for node in self._silent:
            self._world.resume(node)
        return "they are back"

    async def _by_hand(self) -> str:
        node, api = self.choice(self._nodes), self._world.api
        match self.choice(("cordon", "taint", "delete")):
            case "cordon":
                await api.patch(Kind.NODE, "", node, {"spec": {"unschedulable": True}})
                words = "cordon"
            case "taint":
                await api.patch(Kind.NODE, "", node, {"spec": {"taints": [{"key": "by-hand", "effect": "NoExecute"}]}})
                words = "taint"
            case _:
                await api.delete(Kind.NODE, "", node)
                words = "delete"
        return f"{words} node {self._nodes.index(node)}"


async def play_all(world: World, histories: list[History]) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """All at once."""
    found = await asyncio.gather(*(one.play(world) for one in histories))
    return {one.namespace: told for one, told in zip(histories, found, strict=True)}
