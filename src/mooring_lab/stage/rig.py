"""A sandbox cluster with replicas of Mooring on it, on virtual time: what scenarios, rehearsals and tests stand on.

    async def scenario(rig: Rig) -> None:
        rig.start()
        await rig.until(rig.leads)
        rig.cluster.annotate(…)
        await rig.until(lambda: …, limit_s=600)

    Rig(seed=1).play(scenario)

Every write that a replica makes, to Kubernetes or to PD, passes a gate and gets a number. `kill_at(n, "before")` ends
the replica the moment it is about to make write n, `"after"` the moment after: nothing is cleaned up, as by kill -9.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from mooring.clients.leaders import DRIVERS
from mooring.clients.leaders.ask import LeaderAnswer
from mooring.clients.ports import Json, PlacementDriver
from mooring.core.model.cluster import Key
from mooring.core.model.kinds import Kind
from mooring.core.model.tidb import TidbCluster
from mooring.process.admission.configurations import OWNED, OWNED_PODS, SPEAKING_WORKLOADS, WebhookAddress, others
from mooring.process.assemble import capabilities
from mooring.process.replica import Replica
from mooring.process.settings.config import Config
from mooring_lab.cluster.apiserver.admission import Admission, Webhook
from mooring_lab.cluster.apiserver.api import SandboxKubeApi
from mooring_lab.cluster.clock import TimelineClock, run_virtual
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.randomness import SeededRandomness
from mooring_lab.stage.gate import Gate, GatedClock, GatedPd, gated_api, gated_leaders

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The sandbox's way to our webhook: the Service's address, answered in process by a replica that is alive.


def serve(admission: Admission, address: WebhookAddress, replicas: Callable[[], Sequence[Replica]]) -> None:
    """Answer the calls that our webhook configurations make the sandbox's API server send."""

    def answer(path: str) -> Webhook:
        async def called(review: Json) -> Json:
            alive = replicas()
            if not alive:
                raise ConnectionRefusedError("no replica is alive")
            one = next((replica for replica in alive if replica.elector.may_write()), alive[0])
            body = msgspec.json.encode(review)
            reviewer = one.webhook.reviewer
            try:
                said = await getattr(reviewer, path.rpartition("/")[2])(body)
            except asyncio.CancelledError:
                caller = asyncio.current_task()
                if caller is not None and caller.cancelling():
                    raise
                # The end is the replica's, not the caller's, who goes on.
                raise ConnectionResetError("the replica died before it answered") from None
            found: Json = msgspec.json.decode(said)
            return found

        return called

    for path in ("/admit/pods", "/admit/responders", "/admit/workloads", "/admit/evictions"):
        url = address.url.rstrip("/") + path if address.url else _service_url(address, path)
        admission.serve(url, answer(path))
    admission.condition(others(address.namespace), lambda _: True)  # no replica has that account here
    admission.condition(OWNED_PODS, lambda request: any(key in _labels(request["object"]) for key in OWNED))
    admission.condition(
        SPEAKING_WORKLOADS,
        lambda request: any(_speaks(request[side]) for side in ("object", "oldObject") if request.get(side)),
    )


def _service_url(address: WebhookAddress, path: str) -> str:
    return f"https://{address.service}.{address.namespace}.svc:443{path}"


def _labels(found: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = found["metadata"].get("labels") or {}
    return labels


def _speaks(found: dict[str, Any]) -> bool:
    metadata = found["metadata"]
    return any(key.startswith("vacant.io/") for part in ("labels", "annotations") for key in (metadata.get(part) or {}))


Scenario = Callable[["Rig"], Awaitable[None]]


class RunningReplica(msgspec.Struct):
    replica: Replica
    task: asyncio.Task[None]
    gate: Gate
    #: The API server as this replica sees it.
    client: SandboxKubeApi


class Rig:
    def __init__(self, seed: int = 0, config: Config | None = None, cluster: Cluster | None = None) -> None:
        self.cluster = cluster or Cluster(seed=seed)
        self.config = config or Config(features={"handoff": True})
        self.api = self.cluster.api
        namespace = {"metadata": {"name": self.config.namespace}}
        if self.cluster.store.find(Kind.NAMESPACE, "", self.config.namespace) is None:
            self.cluster.store.create(Kind.NAMESPACE, namespace)
        self.clock = TimelineClock(self.cluster.timeline)
        self.randomness = SeededRandomness(seed).fork("mooring")
        self.replicas: dict[str, RunningReplica] = {}
        #: Every write of every replica, in order: "patch TidbCluster tidb/demo", "pd add-evict-leader 4".
        self.writes: list[str] = []
        #: Told of each of them as it is about to be made.
        self.on_write: Callable[[str], None] = lambda _: None
        #: The API server does not reach our webhook.
        self.webhook_away = False
        #: Calls of the webhook that failed for that reason.
        self.calls_in_vain = 0
        self._kill: tuple[int, str] | None = None
        self._started = 0
        address = WebhookAddress(self.config.namespace, self.config.webhook_url, self.config.webhook_service)
        serve(self.api.admission, address, self._serving)

    # ── Replicas ──────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, name: str = "") -> Replica:
        self._started += 1
        name = name or f"mooring-{self._started - 1}"
        gate = Gate(self._count, lambda: self.kill(name))
        client = self.api.as_client(name)
        replica = Replica(
            self.config,
            gated_api(client, gate),
            lambda key, _: GatedPd(self.pd(key), gate),
            GatedClock(self.clock, gate),
            self.randomness.fork(name),
            identity=name,
            capabilities=capabilities(self.config),
            registry=self.cluster.sabakan,
            make_leaders=lambda driver, addresses, _: gated_leaders(DRIVERS[driver](self._ask, addresses), gate),
            quiet=False,
        )
        task = asyncio.get_running_loop().create_task(replica.run(), name=name)
        self.replicas[name] = RunningReplica(replica, task, gate, client)
        return replica

    async def _ask(self, method: str, url: str, body: Any) -> LeaderAnswer:
        return LeaderAnswer(*await self.cluster.led.ask(method, url, body))

    def kill(self, name: str = "") -> None:
        """As kill -9: the gate shuts at once, so not even the lease is given back."""
        for one in self._named(name):
            self.replicas.pop(one.replica.identity, None)
            one.gate.shut = True
            one.task.cancel()

    async def stop(self, name: str = "") -> None:
        """As SIGTERM: what is under way ends, the lease is given back."""
        for one in self._named(name):
            self.replicas.pop(one.replica.identity, None)
            one.task.cancel()
            await asyncio.gather(one.task, return_exceptions=True)

    def _named(self, name: str) -> list[RunningReplica]:
        return [one for one in self.replicas.values() if not name or one.replica.identity == name]

    def leader(self) -> Replica | None:
        awake = (one.replica for one in self.replicas.values() if not one.gate.held)
        return next((replica for replica in awake if replica.engine.deciding), None)

    def pause(self, name: str) -> None:
        """As SIGSTOP: it neither acts nor notices that time passes, until `resume`."""
        self.replicas[name].gate.hold()

    def resume(self, name: str) -> None:
        self.replicas[name].gate.let_go()

    def _serving(self) -> list[Replica]:
        if self.webhook_away:
            self.calls_in_vain += 1
            return []
        return [one.replica for one in self.replicas.values() if not one.gate.held]

    def lag_watches(self, seconds: float, *kinds: Kind) -> None:
        """What the replicas that run now see of these kinds (none named: of all) is so many seconds old."""
        for one in self.replicas.values():
            one.client.watch_lag_s.update(dict.fromkeys(kinds or Kind, seconds))

    def any(self) -> Replica | None:
        return next((one.replica for one in self.replicas.values()), None)

    def leads(self) -> bool:
        return self.leader() is not None

    def unsettled(self) -> bool:
        """Is anything still waiting or on its way?"""
        leader = self.leader()
        return leader is None or bool(leader.engine.running or leader.engine.waiting)

    # ── Killing at a write ────────────────────────────────────────────────────────────────────────────────────

    def kill_at(self, number: int, when: str) -> None:
        """End the replica right before or right after its write number `number` (from 1)."""
        self._kill = (number, when)

    def _count(self, what: str, when: str) -> bool:
        """Called around each write; True: die now."""
        if when == "before":
            self.writes.append(what)
        if self._kill == (len(self.writes), when):
            if when == "before":
                self.writes.pop()  # it was never made
            self._kill = None
            return True
        if when == "before":
            self.on_write(what)
        return False

    def killing(self) -> bool:
        """Is a replica still to be killed at a write?"""
        return self._kill is not None

    # ── Time ──────────────────────────────────────────────────────────────────────────────────────────────────

    def play(self, scenario: Scenario) -> None:
        async def whole() -> None:
            try:
                await scenario(self)
            finally:
                for name in list(self.replicas):
                    self.kill(name)
                await asyncio.sleep(0)

        run_virtual(whole, self.cluster.timeline)

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    async def until(self, holds: Callable[[], bool], limit_s: float = 600.0, every_s: float = 0.25) -> None:
        """Wait until something holds; an AssertionError with the history when it does not in time."""
        end = self.clock.monotonic() + limit_s
        while not holds():
            for one in self.replicas.values():
                if one.task.done() and not one.task.cancelled():
                    one.task.result()  # a replica that crashed is never waited for
            if self.clock.monotonic() >= end:
                raise AssertionError(f"was not reached within {limit_s:g} s:\n{self.story()}")
            await self.clock.sleep(every_s)

    def story(self) -> str:
        lines = []
        for one in self.replicas.values():
            lines.append(
                f"{one.replica.identity}: leading={one.replica.engine.leading} deciding={one.replica.engine.deciding}"
            )
            lines += [
                f"  {e.at:.2f} {e.verb} {e.id} {e.subjects[:2]} {e.reason} {e.text}"
                for e in list(one.replica.engine.history.timeline)[-40:]
            ]
        return "\n".join(lines)

    # ── Looking ───────────────────────────────────────────────────────────────────────────────────────────────

    def pd(self, key: Key) -> PlacementDriver:
        driver: PlacementDriver = self.cluster.pd[(key.namespace, key.name)]
        return driver

    def given(self, _: Key) -> bool:
        return False

    def sharing(self, _: Key) -> tuple[TidbCluster, ...]:
        return ()

    def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        return self.cluster.store.find(Kind.POD, namespace, name)
