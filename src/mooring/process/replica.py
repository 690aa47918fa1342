"""One replica of Mooring on given ports: informers in, engine in the middle, act out, a lease around it.

The same replica runs in a pod (real ports, wall time) and on the sandbox (its ports, virtual time); `cli/run.py` and
`sim/rig.py` only differ in the ports they hand over. Followers keep their world synced, so that taking over costs
one look and not one list.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from mooring.capabilities.drain.policy import DrainPolicy
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.mix.admission.book import SlotBook
from mooring.capabilities.mix.policy import MixPolicy
from mooring.capabilities.registry import descriptors, hooks
from mooring.clients.kube.fence import fenced
from mooring.clients.kube.informer import Informer
from mooring.clients.kube.informers import InformerSet, QuietCollector
from mooring.clients.ports import Clock, KubeApi, MachineRegistry, Randomness
from mooring.core.engine.capability import Capability
from mooring.core.engine.engine import Engine
from mooring.core.engine.events import PolicyChanged, QueueSettingsChanged
from mooring.core.engine.recording.checkpoint import capture
from mooring.core.model.descriptor import Described
from mooring.core.model.kinds import Kind
from mooring.core.queue import Queue
from mooring.core.world.world import World
from mooring.process.act import Actor
from mooring.process.admission.parts import webhook_parts
from mooring.process.assemble import capacity_rules, queue_settings
from mooring.process.blackbox.writer import STOPPED, BlackBox, header_of
from mooring.process.fleet.export import Exporter
from mooring.process.fleet.repair import Repairer
from mooring.process.history_log import HistoryLog
from mooring.process.karpenter import NodeClaims
from mooring.process.leader_directory import LeaderDirectory
from mooring.process.leader_directory import Make as MakeLeaders
from mooring.process.lease.election import Timing
from mooring.process.lease.elector import Elector
from mooring.process.machine_registry import Make as MakeRegistry
from mooring.process.machine_registry import SettingsRegistry
from mooring.process.metrics import Metrics
from mooring.process.pd_directory import Make, PdDirectory
from mooring.process.recorder import KubeRecorder
from mooring.process.settings.config import Config
from mooring.process.settings.keys import follows
from mooring.process.shell import Shell

log = structlog.get_logger()

#: What the world is made of.
KINDS: Final = (
    Kind.NODE,
    Kind.DEPLOYMENT,
    Kind.STATEFUL_SET,
    Kind.REPLICA_SET,
    Kind.PDB,
    Kind.PV,
    Kind.PVC,
    Kind.TIDB_CLUSTER,
    Kind.CONFIG_MAP,
    Kind.POD,
)
#: Read where the API server has them; nothing waits for them.
OPTIONAL: Final = (Kind.NODE_CLAIM, Kind.EVICTION, Kind.ROLLOUT, Kind.CLONE_SET, Kind.TIDB_V2)
#: After a stop: how long writes under way may take to end.
PATIENCE_S: Final = 5.0


def engine_of(config: Config, capabilities: Sequence[Capability]) -> Engine:
    """An engine at its start: it has seen nothing."""
    world, queue, described = World(capacity_rules(config)), Queue(queue_settings(config)), Described(descriptors())
    return Engine(world, queue, capabilities, kinds=KINDS, described=described, namespace=config.namespace)


class Replica:
    def __init__(
        self,
        config: Config,
        api: KubeApi,
        make_pd: Make,
        clock: Clock,
        randomness: Randomness,
        *,
        identity: str,
        capabilities: Sequence[Capability],
        registry: MachineRegistry | None = None,
        make_registry: MakeRegistry | None = None,
        make_leaders: MakeLeaders | None = None,
        quiet: bool = True,
        forgiving: bool = False,
    ) -> None:
        """`forgiving`: an exception in a capability blocks one object; without it, it ends the process."""
        self.config = config
        self.identity = identity
        self.clock = clock
        self.api = api
        self.metrics = Metrics()
        self.engine = engine_of(config, capabilities)
        self._history_log = HistoryLog(self.engine.history, self.metrics)
        self.engine.defects.listener = self._stumbled if forgiving else None
        self.pds = PdDirectory(self.world, make_pd, config.pd, config.pd_hosts)
        self.elector = Elector(
            api,
            clock,
            randomness,
            namespace=config.namespace,
            name=config.lease_name,
            identity=identity,
            timing=_timing(config),
            on_started=self._started,
            on_stopped=self._stopped,
        )
        self.registry = SettingsRegistry(
            self.world, config.namespace, make=make_registry, fixed=registry, settings=config.registry_settings()
        )
        self.recorder = KubeRecorder(api, clock, randomness, self.metrics, identity=identity)
        self.leaders = LeaderDirectory(self.world, api, clock, config.leader_hosts, make_leaders)
        actor = Actor(api, self.pds, self.elector, self.leaders.driver)
        self.shell = Shell(
            self.engine,
            actor,
            self.pds,
            clock,
            self.recorder,
            leaders=self.leaders.driver,
            registry=self.registry,
            on_turn=self._after_turn,
        )
        self.webhook = webhook_parts(
            config,
            self.engine,
            api,
            clock,
            randomness,
            elector=self.elector,
            recorder=self.recorder,
            shell=self.shell,
            evicting=lambda: actor.evicting,
            has_evictions=lambda: self.informers.has(Kind.EVICTION),
        )
        own = fenced(api, self.elector.may_write), clock, self.world, self.recorder
        self.exporter = Exporter(
            *own,
            policy=lambda: fleet.export if (fleet := self._fleet()) else None,
            namespace=config.namespace,
            leads=self.elector.may_write,
            gauge=self.metrics.gauge,
        )
        self.repairer = Repairer(
            *own,
            policy=lambda: fleet.repair if (fleet := self._fleet()) else None,
            namespace=config.namespace,
            leads=self.elector.may_write,
            gauge=self.metrics.gauge,
        )
        # At a URL of our own no other replica answers: its configurations are removed when this one stops.
        self.elector.hands_over = lambda: bool(hooks(self.config.on())) and not self.config.webhook_url
        self.elector.prepared = False
        self.blackbox = self._record() if config.blackbox.dir else None
        self.informers = self._informers(randomness, quiet=quiet)
        self.shell.switch(config.on(), config.observing())

    def _fleet(self) -> FleetPolicy | None:
        return self.config.policy(FleetPolicy) if "fleet" in self.config.on() else None

    def _informers(self, randomness: Randomness, *, quiet: bool) -> InformerSet:
        around = QuietCollector() if quiet else None
        claims = NodeClaims(self.shell.tell)
        sinks = {Kind.NODE: claims.on_node, Kind.NODE_CLAIM: claims.on_claim}
        informers = [
            Informer(
                self.api,
                kind,
                sinks.get(kind, self.shell.tell),
                self.clock,
                randomness,
                around_sync=around or contextlib.nullcontext,
                known=(lambda _, obj: obj) if kind in sinks else self.world.known,
            )
            for kind in (*KINDS, *OPTIONAL)
        ]
        return InformerSet(informers, optional=OPTIONAL)

    @property
    def world(self) -> World:
        return self.engine.world

    # ── Life ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Until canceled: then nothing new is begun, writes under way end, and the lease is given back."""
        try:
            await self._live()
        finally:
            if self.blackbox is not None:
                self.blackbox.close()

    async def _live(self) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self.shell.run(), name="pump"),
                group.create_task(self.informers.run(), name="informers"),
                group.create_task(self.recorder.run(), name="events"),
                group.create_task(self.webhook.reconciler.run(), name="webhook"),
                group.create_task(self.exporter.run(), name="export"),
                group.create_task(self.repairer.run(), name="repair"),
            ]
            elector = group.create_task(self.elector.run(), name="election")
            try:
                await asyncio.Event().wait()
            finally:
                # The lease last: no other replica may begin while a write of ours is under way.
                await self.shell.drain(PATIENCE_S)
                await self.webhook.reconciler.leave()
                elector.cancel()
                await asyncio.gather(elector, return_exceptions=True)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await self.pds.close()
                await self.leaders.close()
                await self.registry.close()

    def _stumbled(self, where: str, error: Exception) -> None:
        log.error("engine.defect", where=where, exc_info=error)
        self.metrics.count("mooring_defects_total", {})

    def _record(self) -> BlackBox:
        header = header_of(self.config, self.identity, self.clock.now())
        directory, size, engine = Path(self.config.blackbox.dir), self.config.blackbox.size << 20, self.engine
        told, monotonic = self._stopped_recording, self.clock.monotonic
        box = BlackBox(directory, header, size, told, lambda: capture(engine), _later, monotonic)
        self.engine.recorder, self.shell.held = box, lambda: box.copying
        self.world.index(SlotBook).written = lambda write: box.written(SlotBook.__name__, write)
        return box

    def _stopped_recording(self, why: str) -> None:
        log.error("blackbox.stopped", why=why, directory=self.config.blackbox.dir)
        self.metrics.gauge("mooring_blackbox_stopped", {}, 1)
        self.recorder.event(
            Kind.LEASE,
            self.config.namespace,
            self.config.lease_name,
            uid="",
            reason=STOPPED,
            message=f"{self.identity} records no more: {why}; what it decides is not affected",
            warning=True,
        )

    def apply(self, config: Config) -> list[str]:
        """Take over what may change while running; answers with the keys that need a restart."""
        settings = queue_settings(config)  # first: should it be wrong, nothing has changed
        old, self.config = self.config, config
        if config.features != old.features:
            self.shell.switch(config.on(), config.observing())
            self.webhook.reconciler.serve(hooks(config.on()))
        if (config.queue, config.windows) != (old.queue, old.windows):
            self.shell.tell(QueueSettingsChanged(settings))
        for one in descriptors():
            policy = config.policy(one.policy)
            if one.name in self.engine.capabilities and policy != old.policy(one.policy):
                self.shell.tell(PolicyChanged(one.name, msgspec.to_builtins(policy), one.capacity(policy)))
        self.webhook.reviewer.admission.follow(config.policy(MixPolicy))
        self.webhook.reviewer.gate.policy = config.policy(DrainPolicy)
        fields = msgspec.structs.fields(Config)
        changed = (f.encode_name for f in fields if getattr(old, f.name) != getattr(config, f.name))
        return [key for key in changed if not follows(key)]

    def not_ready(self) -> list[str]:
        """What is still missing before this replica can serve; empty: ready."""
        if not self.engine.synced:
            return [f"not synced: {what}" for what in self.informers.missing] or [
                "not synced: applying the first lists"
            ]
        return self.webhook.reconciler.missing

    def _started(self) -> None:
        self.shell.lead(leading=True)
        self.webhook.reconciler.look_again()

    async def _stopped(self) -> None:
        await self.shell.drain_for_now(PATIENCE_S)
        self.shell.lead(leading=False)
        self.webhook.reviewer.admission.book.forget_all()

    def _after_turn(self) -> None:
        self.webhook.reviewer.world_moved()
        self._history_log.write()
        if not self.elector.prepared and self.engine.synced:
            self.elector.prepare()


def _later(seconds: float, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(seconds, call)


def _timing(config: Config) -> Timing:
    """A request must have ended before another replica can lead."""
    request_s = min(2.0, 0.8 * (config.lease_s - config.renew_s))
    return Timing(config.lease_s, config.renew_s, config.retry_s, request_s=request_s)
