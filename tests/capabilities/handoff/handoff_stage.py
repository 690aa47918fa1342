"""A stage for hand-overs: three TiKV pods on five nodes, a PD that takes a few seconds to move leaders, one replica."""

from collections.abc import Awaitable, Callable
from typing import Any

from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.core.engine.invariants import broken
from mooring.core.model.cluster import Key
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, Mark, read_marks
from mooring.process.settings.config import Config
from mooring_lab.cluster.controllers.podstate import with_spec
from mooring_lab.cluster.pd import SandboxPd
from mooring_lab.cluster.pd.settings import PdSettings
from mooring_lab.stage.rig import Rig

NS, NAME = "tidb", "demo"
SLOW = PdSettings(transfer_s=(0.5, 1.5))


class Stage:
    """What the scenarios pull on, and what they look at. `member(0)` is `demo-tikv-0`, whose store is 1."""

    def __init__(
        self,
        *,
        seed: int = 1,
        tikv: int = 3,
        pd: int = 0,
        tidb: int = 0,
        nodes: int = 5,
        settings: PdSettings = SLOW,
        policy: HandoffPolicy | None = None,
        regions: int = 60,
        storage: str = "",
    ) -> None:
        self.policy = policy or HandoffPolicy(recheck_s=5.0, idle_s=20.0, young_pd_s=10.0)
        self.rig = Rig(seed=seed, config=Config(features={"handoff": True}, policies=(self.policy,)))
        self.cluster = self.rig.cluster
        self.counts = {"tikv": tikv, "pd": pd, "tidb": tidb}
        self.nodes, self.regions = nodes, regions
        #: Components with volumes of this class.
        self.stored = {part: storage for part in ("tikv", "pd") if storage and self.counts[part]}
        self.pd = SandboxPd(self.cluster.timeline, seed=seed, cluster=NAME, namespace=NS, settings=settings)
        #: The TidbCluster's own `app.kubernetes.io/instance` label, which a release tool may set.
        self.label = ""
        self.uids: dict[str, str] = {}
        #: Rules that were broken at some second, in words.
        self.broken: list[str] = []
        self.most_away = 0

    def play(self, scenario: Callable[["Stage"], Awaitable[None]], *, replicas: int = 1) -> "Stage":
        async def whole(rig: Rig) -> None:
            await self.build()
            for _ in range(replicas):
                rig.start()
            await rig.until(rig.leads)
            rig.cluster.timeline.after(1.0, self._look)
            await scenario(self)

        self.rig.play(whole)
        assert self.broken == []
        return self

    async def build(self) -> None:
        self.cluster.add_nodes(self.nodes)
        self.cluster.pd[NS, NAME] = self.pd
        self.cluster.tidb_cluster(NS, NAME, **self.counts)
        if self.label:
            labels = {"app.kubernetes.io/instance": self.label}
            self.cluster.change(
                Kind.TIDB_CLUSTER, NS, NAME, lambda tc: {**tc, "metadata": {**tc["metadata"], "labels": labels}}
            )
        for part, storage in self.stored.items():
            self.cluster.change(Kind.TIDB_CLUSTER, NS, NAME, lambda tc, p=part, s=storage: _with_storage(tc, p, s))
        await self.rig.sleep(1.0)
        parts = [part for part, count in self.counts.items() if count]
        await self.rig.until(
            lambda: all(self.cluster.ready(NS, f"{NAME}-{part}") == self.counts[part] for part in parts)
        )
        self.pd.load(self.regions)
        self.uids = {n: self.uid(n) for part in parts for n in self.names(part)}

    def _look(self) -> None:
        """Once a virtual second: what must hold at all times."""
        for one in self.rig.replicas.values():
            self.broken += [text for text in broken(one.replica.engine) if text not in self.broken]
        if self.cluster.store.find(Kind.STATEFUL_SET, NS, f"{NAME}-tikv") is not None:
            self.most_away = max(self.most_away, self.counts["tikv"] - self.cluster.ready(NS, f"{NAME}-tikv"))
        self.cluster.timeline.after(1.0, self._look)

    # ── Pulling ───────────────────────────────────────────────────────────────────────────────────────────────────

    def annotate(self, member: int | str, **annotations: str | None) -> None:
        """`restart=""` is `tidb.pingcap.com/restart`; None takes it away."""
        keys = {f"tidb.pingcap.com/{k.replace('_', '-')}": v for k, v in annotations.items()}
        self.cluster.annotate(Kind.POD, NS, self.member(member), keys)

    def delete(self, member: int | str) -> None:
        """What a person does with kubectl delete pod."""
        self.cluster.store.delete(Kind.POD, NS, self.member(member))

    # ── Looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def member(which: int | str) -> str:
        return which if isinstance(which, str) else f"{NAME}-tikv-{which}"

    def names(self, part: str = "tikv") -> list[str]:
        return [f"{NAME}-{part}-{i}" for i in range(self.counts[part])]

    def pod(self, member: int | str) -> dict[str, Any] | None:
        return self.cluster.store.find(Kind.POD, NS, self.member(member))

    def uid(self, member: int | str) -> str:
        pod = self.pod(member)
        return str(pod["metadata"]["uid"]) if pod is not None else ""

    def renewed(self, member: int | str) -> bool:
        return self.uid(member) not in {"", self.uids[self.member(member)]}

    def untouched(self, member: int | str) -> bool:
        pod = self.pod(member)
        return pod is not None and not self.renewed(member) and "deletionTimestamp" not in pod["metadata"]

    def ready(self, part: str = "tikv") -> bool:
        return self.cluster.ready(NS, f"{NAME}-{part}") == self.counts[part]

    def marks(self) -> dict[str, Mark]:
        tc = self.cluster.store.find(Kind.TIDB_CLUSTER, NS, NAME) or {"metadata": {}}
        return read_marks(tc["metadata"].get("annotations", {}).get(HANDOFF, "")) or {}

    def status(self) -> dict[str, Any]:
        tc = self.cluster.store.find(Kind.TIDB_CLUSTER, NS, NAME) or {}
        return tc.get("status", {}).get("tikv", {}).get("evictLeaderStatus") or {}

    def evicting(self) -> tuple[int, ...]:
        return tuple(self.pd.server.evict_list() or ())

    def leaders(self, store: int) -> int:
        return len(self.pd.server.tikv.led[store])

    def left_overs(self) -> list[str]:
        found = {"mark": self.marks(), "status": self.status(), "scheduler": self.evicting()}
        return [f"{what}: {value}" for what, value in found.items() if value]

    def clean(self) -> bool:
        """Nothing left behind, nothing on its way."""
        return not self.left_overs() and not self.rig.unsettled()

    def running(self, kind: str) -> Any:
        leader = self.rig.leader()
        found = leader.engine.running.values() if leader is not None else ()
        return next((r for r in found if r.operator.kind == kind), None)

    def deletions(self) -> list[str]:
        return [w.removeprefix("delete Pod ") for w in self.rig.writes if w.startswith("delete Pod")]

    def events(self, member: int | str) -> list[tuple[str, str, str]]:
        """(type, reason, message) of what was told about a pod."""
        return [
            (e["type"], e["reason"], e["message"])
            for e in self.cluster.store.list(Kind.EVENT, NS)
            if e["involvedObject"]["name"] == self.member(member) and e["source"]["component"] == "mooring"
        ]

    def warnings(self, member: int | str) -> list[tuple[str, str]]:
        return [(reason, message) for kind, reason, message in self.events(member) if kind == "Warning"]

    def verdict(self) -> Any:
        leader = self.rig.leader()
        return None if leader is None else leader.engine.verdicts.get(("handoff", str(Key(NS, NAME))))

    # ── Phases of a restart of member 0 ───────────────────────────────────────────────────────────────────────────

    async def reach(self, phase: str) -> None:
        await self.rig.until(PHASES[phase](self), every_s=0.01)


def _with_storage(tc: dict[str, Any], part: str, storage: str) -> dict[str, Any]:
    return with_spec(tc, **{part: {**tc["spec"][part], "storageClassName": storage}})


def _held(stage: Stage) -> bool:
    """Proven empty, and the pod not touched yet."""
    evicts = stage.running("evict-leaders")
    return evicts is not None and evicts.phase == 1 and stage.untouched(0)


def _leaving(stage: Stage) -> bool:
    pod = stage.pod(0)
    return pod is not None and not stage.renewed(0) and "deletionTimestamp" in pod["metadata"]


PHASES: dict[str, Callable[[Stage], Callable[[], bool]]] = {
    "recorded": lambda s: lambda: bool(s.marks()) and not s.evicting(),
    "evicting": lambda s: lambda: 1 in s.evicting() and s.leaders(1) > 0,
    "empty": lambda s: lambda: 1 in s.evicting() and s.leaders(1) == 0,
    "held": lambda s: lambda: _held(s),
    "leaving": lambda s: lambda: _leaving(s),
    "away": lambda s: lambda: s.pod(0) is None or s.renewed(0),
    "back": lambda s: lambda: s.renewed(0) and s.ready(),
    "ending": lambda s: lambda: s.renewed(0) and not s.evicting() and bool(s.marks()),
}
#: In which the pod has not been deleted yet.
BEFORE = ("recorded", "evicting", "empty", "held")
AFTER = ("leaving", "away", "back", "ending")
