"""What an act needs of its environment: objects to read, a clock, a replica to ask.

There are two environments: `rig.Rig` (the sandbox, virtual time) and `onlab.rig.LabRig` (the real control plane, wall
time).
What is written against these Protocols runs on both, so a check cannot mean one thing here and another there. PD and
the machine registry are the sandbox's on both: on the lab they answer over HTTP, as the real ones do.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from mooring.clients.ports import Clock, Json, KubeApi
from mooring.core.model.kinds import Kind
from mooring.process.replica import Replica
from mooring.process.settings.config import Config
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.cloud import Cloud
from mooring_lab.cluster.pd import SandboxPd

Objects = list[Json]


class Reader(Protocol):
    """Objects as they are known now; nothing waits."""

    def find(self, kind: Kind, namespace: str, name: str) -> Json | None: ...

    def get(self, kind: Kind, namespace: str, name: str) -> Json: ...

    def list(self, kind: Kind, namespace: str | None = None) -> Objects: ...


class Fixtures(Protocol):
    """The cluster itself: its objects, and what stands beside it."""

    #: The machine registry, when there is one.
    sabakan: Any

    @property
    def store(self) -> Reader: ...

    @property
    def timeline(self) -> Timeline: ...

    @property
    def cloud(self) -> Cloud: ...

    @property
    def pd(self) -> Mapping[tuple[str, str], SandboxPd]: ...

    def workload(self, namespace: str, name: str) -> Json: ...

    def pods(self, namespace: str, workload: str) -> list[Json]: ...

    def nodes_of(self, namespace: str, workload: str) -> dict[str, str]: ...

    def ready(self, namespace: str, workload: str) -> int: ...

    def leaders_on(self, namespace: str, cluster: str, pod: str) -> int: ...

    def ready_nodes(self, namespace: str, service: str) -> set[str]: ...


class Environment(Protocol):
    @property
    def config(self) -> Config: ...

    @property
    def cluster(self) -> Fixtures: ...

    @property
    def api(self) -> KubeApi: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def writes(self) -> list[str]:
        """What Mooring wrote so far, to Kubernetes and to PD, in order."""
        ...

    def leader(self) -> Replica | None: ...

    def any(self) -> Replica | None: ...

    def leads(self) -> bool: ...

    def pod(self, namespace: str, name: str) -> Json | None: ...

    async def sleep(self, seconds: float) -> None: ...

    async def until(self, holds: Callable[[], bool], limit_s: float = 600.0, every_s: float = 0.25) -> None: ...
