"""A lab to rehearse on: the demo's cluster, and six groups of nodes that nobody else may use, one for each event.

What happens to the real control plane is counted by the observer that a rehearsal has too, on a mirror of the API
server; it is done by kubectl, by the registry, by a cloud, and by kwok nodes that fall silent, some for a while.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from mooring.capabilities.fleet.live import settings
from mooring.capabilities.mix.policy import MixPolicy
from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.process.assemble import capacity_rules
from mooring_lab.cluster.cloud import Cloud
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.controllers import manifests, podstate
from mooring_lab.cluster.kubelet import Kubelets
from mooring_lab.cluster.nodes import node_object
from mooring_lab.control.servers import SILENT
from mooring_lab.demo.acts.stores import LIMITS
from mooring_lab.demo.onlab.stage import LabStage
from mooring_lab.demo.stage import DEMO, TIDB
from mooring_lab.judge.lines import Wanted, promises, workloads
from mooring_lab.rehearse.aftermath import interrupted
from mooring_lab.rehearse.observer import EndedByUs, Observer
from mooring_lab.stage.scenarios.fleet import roles_by_address, stored
from mooring_lab.stage.scenarios.mix import NAMESPACE as SHOP
from mooring_lab.stage.scenarios.mix import slow_template, switched_on
from tests.e2e.waiting import eventually, show

NAMESPACE, GROUP, POOL = "trial", "trial", "karpenter.sh/nodepool"
#: On a loaded machine.
PATIENCE_S = 600.0
NOTICE_S = 60.0
START_S = 3.0
CONFIG = """
features: {balance: false, fleet: true, handoff: true, home: true, mix: true}
handoff: {recheck-s: 1, young-pd-s: 10}
fleet: {query-s: 2, recheck-s: 1}
"""
#: Kubernetes gives up a silent node after 50 s; its pods follow 5 s later instead of five minutes.
SOON = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    for key in ("unreachable", "not-ready")
]


class Row(msgspec.Struct, frozen=True):
    """What became of one workload."""

    #: Each pod that went, and how.
    went: frozenset[tuple[str, str]]
    #: The nodes that new pods are on, each as often as it got one.
    came: tuple[str, ...]
    lowest: int | None
    short_s: float
    to_the_end: bool

    @property
    def words(self) -> str:
        ways: dict[str, int] = {}
        for _, how in self.went:
            ways[how] = ways.get(how, 0) + 1
        went = ", ".join(f"{count} {how}" for how, count in sorted(ways.items())) or "0"
        short = "to the end" if self.to_the_end else f"{self.short_s:.0f} s"
        low = "" if self.lowest is None else f", lowest {self.lowest}, short {short}"
        came = ", ".join(f"{count} on {node}" for node, count in sorted(Counter(self.came).items())) or "0"
        return f"went {went}, came {came}{low}"


def rows(gone: list[Any], come: list[Any], short: list[Any]) -> dict[str, Row]:
    """Of an observer's findings, or of those that a rehearsal printed as JSON."""
    names = {one["workload"] for one in (*gone, *come, *short)}
    below = {one["workload"]: one for one in short}
    return {
        name: Row(
            frozenset((one["pod"], one["how"]) for one in gone if one["workload"] == name),
            tuple(sorted(one["node"] for one in come if one["workload"] == name)),
            below[name]["worst"] if name in below else None,
            below[name]["away_s"] if name in below else 0.0,
            name in below and below[name]["until_s"] is None,
        )
        for name in names
    }


class Machines:
    """Which machines are off, as the observer asks; the Node gets the label that kwok turns away from."""

    def __init__(self, ground: "Ground") -> None:
        self._ground = ground
        self._silent: dict[str, float] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._struck: set[str] = set()
        self.stalled: set[str] = set()

    def on_health(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def silent_since(self, node: str) -> float | None:
        return self._silent.get(node)

    def silence(self, node: str) -> None:
        self._silent[node] = self._ground.cluster.timeline.monotonic()
        self._struck.add(node)
        off = lambda one: podstate.with_meta(one, labels={**podstate.labels_of(one), SILENT: "true"})
        self._ground.rig.mirror.mutate(Kind.NODE, "", node, off)
        for listener in self._listeners:
            listener(node)

    def resume(self, node: str) -> None:
        del self._silent[node]
        rest = lambda one: {k: v for k, v in podstate.labels_of(one).items() if k != SILENT}
        self._ground.rig.mirror.mutate(Kind.NODE, "", node, lambda one: podstate.with_meta(one, labels=rest(one)))
        for listener in self._listeners:
            listener(node)

    def on_node(self, _event: str, _old: Json | None, new: Json | None) -> None:
        """Silent though nobody silenced it: the machine that the lab runs on stalled for longer than a lease lasts."""
        ready = None if new is None else podstate.condition(new, "Ready")
        if new is not None and ready is not None and ready["status"] == "Unknown":
            name = new["metadata"]["name"]
            self.stalled |= {name} - self._struck


class Ground(LabStage):
    """Call `prepare`, `snapshot`, `watch_all`, then what shall happen, then `over`."""

    def machines_can_fall_silent(self) -> None:
        fixtures = cast("Any", self.cluster)
        self.machines = fixtures.kubelets = Machines(self)
        fixtures.cloud = Cloud(fixtures.timeline, fixtures.store, cast("Kubelets", fixtures.kubelets))

    async def prepare(self) -> None:
        await self.build()
        self.machines_can_fall_silent()
        self.rig.mirror.follow((Kind.PDB,))
        await self.rig.mirror.synced((Kind.PDB,))
        await self._groups()
        self.switch_on("fleet")
        await self.set_fleet(**{settings.CONSTRAINTS: LIMITS})
        await self.rig.until(lambda: len(stored(self.rig).members) == 11, limit_s=PATIENCE_S)
        await self._settled(5.0)

    async def _groups(self) -> None:
        rig = self.rig
        await rig.api.create(Kind.NAMESPACE, {"metadata": {"name": NAMESPACE}})
        for group, names, how in (
            ("drained", ("d1", "d2", "d3"), {}),
            ("lost", ("l1", "l2", "l3"), {}),
            ("updated", ("u1", "u2"), {}),
            ("noticed", ("q1", "q2"), {}),
            ("noticed", ("p1", "p2", "p3"), {"capacity": "spot"}),
            ("zoned", ("e1", "e2"), {"zone": "east"}),
            ("zoned", ("w1", "w2"), {"zone": "west"}),
            ("cut", ("f1",), {"zone": "north"}),
            ("cut", ("g1", "g2"), {"zone": "south"}),
        ):
            taints = [{"key": GROUP, "value": group, "effect": "NoSchedule"}]
            for at, name in enumerate(names):
                pool = {POOL: "p"} if "capacity" in how else {}
                labels = {GROUP: group, **pool}
                number = 100 + 10 * (ord(name[0]) - ord("a")) + at
                made = node_object(name, number, rig.clock.now(), labels=labels, taints=taints, **how)  # type: ignore[arg-type]
                await rig.api.create(Kind.NODE, made)
        last = ("d3", "l3", "u2", "q2", "p3", "e2", "w2", "f1", "g2")
        await rig.until(lambda: all(self._stands(name) for name in last), limit_s=PATIENCE_S)
        budget = {"minAvailable": 3, "selector": {"matchLabels": {"app": "drained"}}}
        pdb = {"metadata": {"namespace": NAMESPACE, "name": "drained"}, "spec": budget}
        await rig.api.create(Kind.PDB, pdb)
        floating = switched_on("custom", 2)
        made = [
            (Kind.DEPLOYMENT, "drained", 4, "drained", {}),
            (Kind.DEPLOYMENT, "lost", 5, "lost", {}),
            (Kind.STATEFUL_SET, "stuck", 3, "lost", {}),
            (Kind.DEPLOYMENT, "updated", 4, "updated", {}),
            (Kind.STATEFUL_SET, "ordered", 3, "updated", {}),
            (Kind.DEPLOYMENT, "noticed", 6, "noticed", floating),
            (Kind.DEPLOYMENT, "zoned", 4, "zoned", {}),
            (Kind.DEPLOYMENT, "cut", 3, "cut", {}),
            (Kind.STATEFUL_SET, "kept", 3, "cut", {}),
        ]
        for kind, name, replicas, group, labels in made:
            make = manifests.deployment if kind is Kind.DEPLOYMENT else manifests.stateful_set
            await rig.api.create(kind, make(NAMESPACE, name, replicas, _template(name, group), labels=labels))
        for _, name, replicas, _, _ in made:
            await rig.until(lambda name=name, n=replicas: self.ready(NAMESPACE, name) == n, limit_s=PATIENCE_S)  # type: ignore[misc]

    def _stands(self, name: str) -> bool:
        """Ready, and without the taint of its birth."""
        node = self.rig.mirror.find(Kind.NODE, "", name)
        return node is not None and podstate.ready(node) and len(node["spec"].get("taints") or ()) == 1

    async def _settled(self, quiet_s: float) -> None:
        quiet = 0.0
        while quiet < quiet_s:
            await self.rig.until(lambda: not self.rig.unsettled(), limit_s=PATIENCE_S)
            await asyncio.sleep(0.5)
            quiet = 0.0 if self.rig.unsettled() else quiet + 0.5

    # ── The rehearsal ─────────────────────────────────────────────────────────────────────────────────────────────

    async def snapshot(self, path: Path) -> None:
        await mooring(
            "snapshot",
            *("--to", str(path), "--kubeconfig", str(self.lab.kubeconfig), "--sabakan-url", self.registry_url),
            *("--pd", f"{TIDB}/{DEMO}={self.rig.config.pd[f'{TIDB}/{DEMO}'][0]}"),
        )

    # ── The real thing ────────────────────────────────────────────────────────────────────────────────────────────

    def watch_all(self) -> None:
        store, config = self.rig.mirror, self.rig.config
        self.wanted: list[Wanted] = workloads(store)
        kept = promises(store, config.policy(MixPolicy), mix=True)
        store.subscribe(Kind.NODE, self.machines.on_node)
        self.observer = Observer(
            cast("Cluster", self.cluster),
            self.wanted,
            kept,
            capacity_rules(config),
            by_us=EndedByUs(self.rig.writes),
            say=lambda *_: None,
        )

    def node_of(self, namespace: str, name: str) -> str:
        pod = self.rig.pod(namespace, name)
        assert pod is not None
        return podstate.node_of(pod)

    def pods_on(self, node: str) -> list[Json]:
        return self.rig.mirror.pods_on(node)

    def give_notices(self) -> None:
        self.observer.noticed.update(("p1", "p2", "p3"))
        for node in ("p1", "p2", "p3"):
            self.cluster.cloud.notice(node, after_s=NOTICE_S)

    def busy_machine(self) -> tuple[str, str]:
        """A worker with pods of the shop and none of the database: its serial and its node."""
        workers = {address for address, role in roles_by_address(self.rig).items() if role == "worker"}
        found = []
        for serial, entry in sorted(self.cluster.sabakan.entries.items()):
            node = next((n for n in self.rig.mirror.list(Kind.NODE) if entry.ipv4[0] in _addresses(n)), None)
            if node is not None and entry.ipv4[0] in workers:
                name = str(node["metadata"]["name"])
                spaces = [pod["metadata"]["namespace"] for pod in self.pods_on(name)]
                if SHOP in spaces and TIDB not in spaces:
                    found.append((-spaces.count(SHOP), serial, name))
        assert found, "no worker has pods of the shop alone"
        return min(found)[1:]

    def retire(self, serial: str) -> None:
        self.cluster.sabakan.set_state(serial, MachineState.RETIRING)

    async def over(self, holds: Callable[[], bool]) -> None:
        """Until this holds, nothing waits or runs, and no pod has changed for a while."""

        def over() -> bool:
            self.rig.process.check()
            return holds() and not self.rig.unsettled() and self.observer.quiet_s > 8.0

        show(self.lab)
        await eventually(over, "everything that was done to the lab is over", tell=self.rig.story)
        self.observer.stop()

    def happened(self) -> dict[str, Row]:
        short = interrupted(self.wanted, self.observer.meters, self.observer.now_s)
        return rows(*(msgspec.to_builtins(part) for part in (self.observer.gone, self.observer.come, short)))


def _addresses(node: Json) -> list[str]:
    named = [one["address"] for one in node["status"].get("addresses") or ()]
    return [*named, node["metadata"]["name"]]


def _template(name: str, group: str) -> Json:
    own = {"key": GROUP, "operator": "Equal", "value": group, "effect": "NoSchedule"}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": name}},
    }
    return slow_template(
        name,
        START_S,
        grace_s=10,
        nodeSelector={GROUP: group},
        tolerations=[own, *SOON],
        topologySpreadConstraints=[spread],
    )


async def mooring(*words: str) -> str:
    """`mooring rehearse …`, as a person types it."""
    command = (sys.executable, "-m", "mooring", "rehearse", *words)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode in (0, 1), err.decode()
    return out.decode()


async def rehearsed(event: str, snapshot: Path, config: Path) -> dict[str, Row]:
    how = ("--notice", f"{NOTICE_S:g}s")
    told = await mooring("play", *event.split(), "--from", str(snapshot), "--config", str(config), *how, "-o", "json")
    played = json.loads(told)["played"]
    return rows(played["gone"], played["come"], played["interrupted"])
