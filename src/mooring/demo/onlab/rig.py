"""`sim.environment.Environment` on the real control plane: a mirror to look at, one Mooring, the wall clock."""

from collections.abc import Callable
from typing import Any, Final, cast

from mooring.clients.kube import HttpKubeApi
from mooring.clients.kube.config import Connection
from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.demo.onlab.mirror import Mirror
from mooring.demo.onlab.process import RunningProcess
from mooring.process.replica import Replica
from mooring.process.settings.config import Config
from mooring.sandbox.clock import Timeline, TimelineClock
from mooring.sandbox.cloud import Cloud
from mooring.sandbox.controllers.tidb.operator import TidbOperator
from mooring.sandbox.kubelet import Kubelets
from mooring.sandbox.pd import SandboxPd
from mooring.sandbox.reading import Reading

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
