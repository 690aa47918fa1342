"""`sim.environment.Environment` on the real control plane: a mirror to look at, one Mooring, the wall clock."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from mooring.clients.kube import HttpKubeApi, Scope
from mooring.clients.kube.config import Connection
from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.process.http.page import Page
from mooring.process.replica import Replica
from mooring.process.serve import live
from mooring.process.settings.config import Config, Resolved
from mooring_lab.cluster.clock import Timeline, TimelineClock
from mooring_lab.cluster.cloud import Cloud
from mooring_lab.cluster.controllers.tidb.operator import TidbOperator
from mooring_lab.cluster.kubelet import Kubelets
from mooring_lab.cluster.pd import SandboxPd
from mooring_lab.cluster.reading import Reading
from mooring_lab.demo.onlab.mirror import Mirror
from mooring_lab.stage.gate import Gate, gated_api

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# `mooring run` as it is, in this process: real clients, listeners and certificates; what it writes is counted.


class RunningProcess:
    """One replica. Settings are read again as `mooring run` reads its file: a feature switched on is taken over."""

    def __init__(self, connection: Connection, config: Config) -> None:
        self._connection = connection
        self.config = config
        self.writes: list[str] = []
        self.replica: Replica | None = None
        self.page: Page | None = None
        #: Who wants to know the page when it is there.
        self.opened: Callable[[Page], None] = lambda _: None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._live(), name="mooring")

    def switch_on(self, feature: str) -> None:
        self.config = msgspec.structs.replace(self.config, features={**self.config.features, feature: True})

    def use_pd(self, cluster: str, url: str) -> None:
        """As `--pd NS/CLUSTER=URL`; before it starts."""
        self.config = msgspec.structs.replace(self.config, pd={**self.config.pd, cluster: (url,)})

    def check(self) -> None:
        """Raises if it has crashed, so that it is not waited for."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    async def stop(self) -> None:
        """As SIGTERM: what is under way ends, webhooks go, the lease is given back."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _live(self) -> None:
        def settings() -> Resolved:
            return Resolved(self.config, {}, [])

        def on_replica(replica: Replica) -> None:
            self.replica = replica

        def opened(page: Page) -> None:
            self.page = page
            self.opened(page)

        scopes = {Kind.CONFIG_MAP: Scope(namespace=self.config.namespace)}
        async with HttpKubeApi(self._connection, scopes=scopes) as api:
            gated = gated_api(api, Gate(self._count, _never_kill))
            await live(
                self.config,
                settings,
                gated,
                self._connection.server,
                lambda _: None,
                on_replica=on_replica,
                opened=opened,
            )

    def _count(self, what: str, when: str) -> bool:
        if when == "before":
            self.writes.append(what)
        return False


def _never_kill() -> None:
    """The gate only counts here."""


#: A person waits longer for a write than a leader may.
PATIENT_S: Final = 60.0


class _Machines:
    """What the cloud switches off. kwok plays a kubelet for as long as there is a Node: the cloud deletes it anyway."""

    def silence(self, node: str) -> None:
        """Its Node goes with it, a moment later."""


class LabFixtures(Reading):
    """The cluster as acts read it: the mirror, and beside it what no API server has (PD, machines, a cloud)."""

    def __init__(self, timeline: Timeline, store: Mirror) -> None:
        self.timeline = timeline
        self.store = store
        self.pd: dict[tuple[str, str], SandboxPd] = {}
        self.sabakan: Any = None
        self.cloud = Cloud(timeline, store, cast("Kubelets", _Machines()), delete_after_s=1.0)
        self.tidb_operator = TidbOperator(timeline, store, self.pd)


class LabRig:
    def __init__(self, connection: Connection, config: Config, timeline: Timeline) -> None:
        self.api = HttpKubeApi(connection, write_timeout_s=PATIENT_S)
        self.mirror = Mirror(timeline, connection, self.api)
        self.cluster = LabFixtures(timeline, self.mirror)
        self.clock = TimelineClock(timeline)
        self.process = RunningProcess(connection, config)

    @property
    def config(self) -> Config:
        return self.process.config

    @property
    def writes(self) -> list[str]:
        return self.process.writes

    def any(self) -> Replica | None:
        return self.process.replica

    def leader(self) -> Replica | None:
        replica = self.process.replica
        return replica if replica is not None and replica.engine.deciding else None

    def leads(self) -> bool:
        return self.leader() is not None

    def unsettled(self) -> bool:
        leader = self.leader()
        return leader is None or bool(leader.engine.running or leader.engine.waiting)

    def pod(self, namespace: str, name: str) -> Json | None:
        return self.mirror.find(Kind.POD, namespace, name)

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    async def until(self, holds: Callable[[], bool], limit_s: float = 600.0, every_s: float = 0.25) -> None:
        """Wait until something holds; an AssertionError that tells the story when it does not in time."""
        end = self.clock.monotonic() + limit_s
        while not holds():
            self.process.check()
            if self.clock.monotonic() >= end:
                raise AssertionError(f"was not reached within {limit_s:g} s:\n{self.story()}")
            await self.clock.sleep(every_s)

    def story(self) -> str:
        replica = self.process.replica
        entries = list(replica.engine.history.timeline)[-40:] if replica is not None else []
        return "\n".join(f"{e.at:.2f} {e.verb} {e.id} {e.subjects[:2]} {e.reason} {e.text}" for e in entries)
