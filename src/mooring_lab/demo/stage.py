"""The stage of the demo: one cluster, one day, acts that do what a person would do and check what was promised.

An act gets a stage, plays, tells what moved and why, and answers with checks, each naming a promise. It speaks
to the stage alone, and there are two: `sandbox_stage` (virtual time, in process) and `onlab` (the real control plane,
wall time). The script that builds the cluster is the same on both; they differ in figures (`DemoFigures`) and in how
a command is carried out. Nothing here prints: the narrator does.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import msgspec

from mooring.capabilities.fleet.live import ledger, settings
from mooring.capabilities.home.members import RESERVE_NODE
from mooring.clients.ports import Json, NotFoundError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.controllers import manifests
from mooring_lab.cluster.controllers.tidb.manifests import tidb_cluster
from mooring_lab.cluster.nodes import CAPACITY_LABEL
from mooring_lab.stage.environment import Environment, Fixtures
from mooring_lab.stage.scenarios.fleet import TEMPLATE, register_nodes
from mooring_lab.stage.scenarios.home import TOLERATION
from mooring_lab.stage.scenarios.mix import NAMESPACE, admitting, slow_template, switched_on

TIDB, DEMO = "tidb", "demo"
#: Workloads of the shop: replicas, and the labels that say where they belong.
SHOP = {
    "web": (5, switched_on("custom", 2)),
    "api": (12, switched_on()),
    "cart": (10, switched_on("custom", "30pct")),
    "pay": (6, switched_on("majority-in-on-demand")),
}


class Check(msgspec.Struct, frozen=True):
    """One promise, looked at. `seen` says what was seen, also when it was kept."""

    promise: str
    kept: bool
    seen: str


class DemoAct(Protocol):
    #: "09:00"
    at: str
    title: str
    #: The user's real command.
    command: str
    #: Seconds of the day in a second, while something moves: slow enough to follow.
    speed: float

    async def play(self, stage: "DemoStage") -> list[Check]: ...


@runtime_checkable
class Prepared(Protocol):
    """An act before which something must be there; its command may depend on that."""

    async def prepare(self, stage: "DemoStage") -> None: ...


class DemoFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What may differ between two environments: sizes and times, never a check."""

    regions: int = 180
    #: From its node to Ready, of a pod of the shop.
    shop_start_s: float = 8.0
    #: Annotations that say how long a member of the database takes to start and to end; none: as there.
    member_times: Mapping[str, str] = {}
    #: A mode is changed, and this long nothing else may move.
    quiet_s: float = 30.0
    #: The first write that touches a pod after a notice. Twelve notices land in one instant on the sandbox; on a real
    #: API server one after the other, and the replacement of a first pod is asked for before the last notice is there.
    first_move: tuple[str, ...] = ("patch Pod", "evict Pod")


class DemoStage(ABC):
    def __init__(self, figures: DemoFigures) -> None:
        self.figures = figures
        self._say: Callable[[str], None] = lambda _: None

    # ── What an environment has ───────────────────────────────────────────────────────────────────────────────────

    @property
    @abstractmethod
    def rig(self) -> Environment: ...

    @property
    def cluster(self) -> Fixtures:
        return self.rig.cluster

    @abstractmethod
    async def kubectl(self, command: str) -> None:
        """Type it: `kubectl -n tidb annotate pod …`."""

    @abstractmethod
    async def add_nodes(self, names: list[str], **how: Any) -> None:
        """Nodes in racks of four; `how` as `sandbox.nodes.node_object` has it. Usable when this returns."""

    @abstractmethod
    async def open_scheduler(self) -> None:
        """A `tidb-scheduler` that asks Mooring."""

    @abstractmethod
    async def place_pd(self) -> None:
        """A PD for the cluster that is about to be made."""

    @abstractmethod
    async def start(self) -> None:
        """Mooring, with what a day begins with switched on."""

    @abstractmethod
    def switch_on(self, feature: str) -> None:
        """As an administrator does in the settings of a running Mooring."""

    @property
    @abstractmethod
    def registry_url(self) -> str: ...

    @abstractmethod
    async def wait_for(self, at: str) -> None:
        """Until this time of the day, at once when it has passed."""

    @abstractmethod
    def hurry(self) -> AbstractContextManager[None]:
        """Not worth watching: pass as fast as it goes."""

    @abstractmethod
    def run(self, whole: Callable[[], Awaitable[None]]) -> None:
        """On the loop that this environment lives on, to its end."""

    @abstractmethod
    async def close(self) -> None:
        """Nothing is left behind."""

    @abstractmethod
    def clock_word(self, at: str) -> str:
        """What stands before an act: the time of the day, or of the play."""

    # ── What is the same on all ───────────────────────────────────────────────────────────────────────────────────

    def listen(self, say: Callable[[str], None]) -> None:
        """Who hears what is said."""
        self._say = say

    def say(self, line: str) -> None:
        """A line of narration: what moved, and why."""
        self._say(line)

    async def build(self) -> None:
        """24 nodes in three racks, half of them spot; a TidbCluster with its PD on on-demand nodes; a shop on both."""
        cluster, rig = self.cluster, self.rig
        for namespace in (TIDB, NAMESPACE):
            await rig.api.create(Kind.NAMESPACE, {"metadata": {"name": namespace}})
        await self.add_nodes(_names("n", range(6)), capacity="on-demand")
        await self.open_scheduler()
        await self.place_pd()
        await rig.api.create(Kind.TIDB_CLUSTER, self._tidb_cluster())
        for name in (f"{DEMO}-tikv", f"{DEMO}-tidb", f"{DEMO}-pd"):
            await rig.until(lambda name=name: self.ready(TIDB, name) == 3)  # type: ignore[misc]
        # The other nodes come later and are roomier: by itself a scheduler would rather take these.
        await self.add_nodes(_names("n", range(6, 12)), capacity="on-demand", cpu="16", memory="64Gi")
        await self.add_nodes(_names("s", range(12)), capacity="spot")
        register_nodes(rig, _names("n", range(12)))
        cluster.pd[TIDB, DEMO].load(self.figures.regions)
        await self.start()
        await self.admit()
        for name, (replicas, labels) in SHOP.items():
            template = slow_template(name, self.figures.shop_start_s)
            await rig.api.create(
                Kind.DEPLOYMENT, manifests.deployment(NAMESPACE, name, replicas, template, labels=labels)
            )
        for name, (replicas, _) in SHOP.items():
            await rig.until(lambda name=name, n=replicas: self.ready(NAMESPACE, name) == n)  # type: ignore[misc]

    async def set_fleet(self, **data: str) -> None:
        """As `mooring fleet set-…` and `enable` would: template, constraints, the registry's URL."""
        wanted = {
            settings.TEMPLATE: TEMPLATE,
            settings.ENABLED: "true",
            settings.URL: self.registry_url,
            **data,
        }
        namespace = self.rig.config.namespace
        try:
            await self.rig.api.patch(Kind.CONFIG_MAP, namespace, settings.NAME, {"data": wanted})
        except NotFoundError:
            await self.rig.api.create(Kind.CONFIG_MAP, ledger.new_object(namespace, wanted, settings.NAME))

    async def admit(self) -> None:
        """Until new pods are asked about."""
        await admitting(self.rig)

    def watch(self, speed: float | None) -> None:  # noqa: B027 — an environment on the wall clock has one speed
        """An act begins that wants to be watched at this speed; None: it has ended."""

    def ready(self, namespace: str, name: str) -> int:
        """0 while there is no such workload yet."""
        try:
            return self.cluster.ready(namespace, name)
        except LookupError:
            return 0

    def _tidb_cluster(self) -> Json:
        bought: Json = {"replicas": 3, "nodeSelector": {CAPACITY_LABEL: "on-demand"}}
        if self.figures.member_times:
            bought["annotations"] = dict(self.figures.member_times)
        made = tidb_cluster(TIDB, DEMO, tidb={**bought, "tolerations": [TOLERATION]}, tikv=bought, pd=bought)
        # While a member of TiDB is away, its node is reserved.
        made["metadata"]["labels"] = {RESERVE_NODE: "true"}
        return made


def rack_of(name: str) -> int:
    """n1 to n4 and s1 to s4 are in rack 1, and so on."""
    return (int(name[1:]) - 1) // 4 + 1


def _names(prefix: str, numbers: range) -> list[str]:
    return [f"{prefix}{number + 1}" for number in numbers]
