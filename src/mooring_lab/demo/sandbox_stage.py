"""The stage inside this process: the sandbox's cluster, on virtual time, from shortly before nine in the morning."""

import asyncio
import contextlib
import math
import shlex
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import msgspec

from mooring.capabilities.balance import BalancePolicy
from mooring.capabilities.handoff.policy import HandoffPolicy
from mooring.clients.ports import Json, KubeApi, RefusedError
from mooring.core.model.kinds import Kind
from mooring.process.settings.config import BlackBoxSettings, Config
from mooring_lab.cluster.clock import Timeline, run_virtual
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.paced import PacedLoop, run_paced
from mooring_lab.cluster.pd import PdSettings, SandboxPd
from mooring_lab.demo.stage import DEMO, TIDB, DemoFigures, DemoStage, rack_of
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.home import ask_mooring

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The few kubectl commands that acts type, understood in process: the sandbox has no kubectl, the lab has the real
# one.


KINDS: Final = {
    "pod": Kind.POD,
    "node": Kind.NODE,
    "deploy": Kind.DEPLOYMENT,
    "sts": Kind.STATEFUL_SET,
    "tc": Kind.TIDB_CLUSTER,
}


class KubectlCommands(msgspec.Struct, frozen=True):
    """One command, read."""

    kind: Kind
    namespace: str
    names: tuple[str, ...]
    #: A merge patch.
    patch: Json
    #: `annotations`, `labels`, or "" for a whole patch.
    field: str = ""
    overwrite: bool = False
    delete: bool = False


def read(command: str) -> KubectlCommands:
    """A ValueError names what is not understood."""
    words = shlex.split(command)
    if words[:1] != ["kubectl"]:
        raise ValueError(f"{command!r}: begins with kubectl")
    flags, plain = _flags(words[1:])
    if not plain:
        raise ValueError(f"{command!r}: must be annotate, label or patch")
    verb, *rest = plain
    kind, names, rest = _named(command, rest)
    namespace = flags.get("-n", "")
    if verb == "patch" and flags.get("--type") == "merge" and not rest:
        return KubectlCommands(kind, namespace, names, msgspec.json.decode(flags.get("-p", "{}"), type=dict))
    if verb == "delete" and not rest:
        return KubectlCommands(kind, namespace, names, {}, delete=True)
    if verb not in {"annotate", "label"} or not rest:
        raise ValueError(f"{command!r}: must be annotate, label, delete or patch --type merge")
    field = "annotations" if verb == "annotate" else "labels"
    patch = {"metadata": {field: dict(_pair(word) for word in rest)}}
    return KubectlCommands(kind, namespace, names, patch, field, overwrite="--overwrite" in flags)


async def type_in(api: KubeApi, command: str) -> None:
    """Do it, with kubectl's own refusal to change what is there already without --overwrite."""
    typed = read(command)
    for name in typed.names:
        if typed.delete:
            await api.delete(typed.kind, typed.namespace, name)
            continue
        if typed.field and not typed.overwrite:
            found = (await api.get(typed.kind, typed.namespace, name))["metadata"].get(typed.field) or {}
            for key, value in typed.patch["metadata"][typed.field].items():
                if value is not None and found.get(key, value) != value:
                    raise RefusedError(f"'{key}' already has a value ({found[key]}), and --overwrite is false", 422)
        await api.patch(typed.kind, typed.namespace, name, typed.patch)


def _flags(words: list[str]) -> tuple[dict[str, str], list[str]]:
    flags, plain, left = dict[str, str](), list[str](), iter(words)
    for word in left:
        if word in {"-n", "-p", "--type"}:
            flags[word] = next(left, "")
        elif word.startswith("--"):
            flags[word] = ""
        else:
            plain.append(word)
    return flags, plain


def _named(command: str, words: list[str]) -> tuple[Kind, tuple[str, ...], list[str]]:
    """`deploy/web …` or `pod a b …`: the kind, the names, and what follows them."""
    first, *rest = words or [""]
    kind, slash, name = first.partition("/")
    if kind not in KINDS:
        raise ValueError(f"{command!r}: the kind must be one of {', '.join(KINDS)}, not {kind!r}")
    if slash:
        return KINDS[kind], (name,), rest
    names = [word for word in rest if not _is_pair(word)]
    if not names:
        raise ValueError(f"{command!r}: nothing is named")
    return KINDS[kind], tuple(names), [word for word in rest if _is_pair(word)]


def _is_pair(word: str) -> bool:
    return "=" in word or word.endswith("-")


def _pair(word: str) -> tuple[str, str | None]:
    key, equals, value = word.partition("=")
    return (key, value) if equals else (word.removesuffix("-"), None)


#: Virtual seconds a second while nothing moves between two acts (as fast as it goes) and in one; and while something
#: moves by itself between two acts.
HURRY, IDLE, BETWEEN = 1_000_000.0, 60.0, 25.0
MIDNIGHT = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def moment(at: str) -> float:
    """A time of the day, as in 09:45."""
    hours, _, minutes = at.partition(":")
    return MIDNIGHT + int(hours) * 3600 + int(minutes) * 60


#: What TiKV does when it is told to end, by version: from 8.5.5 it asks PD to take its leaders off, for 20 s.
GRACEFUL_S: Final = {"8.5": 20.0, "8.1": 0.0}
TIKV: Final = "8.5"


class SandboxStage(DemoStage):
    def __init__(
        self,
        seed: int = 1,
        *,
        paced: bool = False,
        speed: float | None = None,
        within_s: float | None = None,
        blackbox: str = "",
        tikv: str = TIKV,
    ) -> None:
        """`paced`: for people to watch, each act at its own speed or all at `speed`; else as fast as it goes. What
        happens later than `within_s` goes three times as fast: on a slow machine the day stays short.
        `blackbox`: a directory to record into. `tikv`: its version, of `GRACEFUL_S`."""
        super().__init__(DemoFigures())
        self._paced = paced or speed is not None
        self._speed = speed
        self._act_speed: float | None = None
        self._late_from = math.inf if within_s is None else time.monotonic() + within_s
        config = Config(
            features={"handoff": True, "home": True, "mix": True},
            policies=(HandoffPolicy(recheck_s=5.0), BalancePolicy(clusters=("*",))),
            # Thirteen hours of renewals every two seconds would be most of the day's work.
            lease_s=60,
            renew_s=40.0,
            retry_s=15.0,
            blackbox=BlackBoxSettings(dir=blackbox),
        )
        self._seed, self._pd = seed, PdSettings(graceful_s=GRACEFUL_S[tikv])
        self._rig = Rig(seed=seed, config=config, cluster=Cluster(seed, Timeline(MIDNIGHT + 8.9 * 3600)))

    @property
    def rig(self) -> Rig:
        return self._rig

    async def kubectl(self, command: str) -> None:
        await type_in(self._rig.api.as_client("kubectl"), command)

    async def add_nodes(self, names: list[str], **how: Any) -> None:
        for name in names:
            self._rig.cluster.add_node(name, rack=rack_of(name), **how)

    async def open_scheduler(self) -> None:
        ask_mooring(self._rig)

    async def place_pd(self) -> None:
        cluster = self._rig.cluster
        cluster.pd[TIDB, DEMO] = SandboxPd(
            cluster.timeline, seed=self._seed, cluster=DEMO, namespace=TIDB, settings=self._pd
        )

    async def start(self) -> None:
        self._rig.start()

    def switch_on(self, feature: str) -> None:
        rig = self._rig
        rig.config = msgspec.structs.replace(rig.config, features={**rig.config.features, feature: True})
        for one in rig.replicas.values():
            one.replica.apply(rig.config)

    @property
    def registry_url(self) -> str:
        return "http://sabakan.sandbox:10080"

    async def wait_for(self, at: str) -> None:
        left = moment(at) - self._rig.clock.now()
        if left > 0:
            await self._rig.sleep(left)

    @contextlib.contextmanager
    def hurry(self) -> Iterator[None]:
        before, self._act_speed = self._act_speed, None
        try:
            yield
        finally:
            self._act_speed = before

    def watch(self, speed: float | None) -> None:
        self._act_speed = None if speed is None else self._speed or speed
        loop = asyncio.get_running_loop()
        if isinstance(loop, PacedLoop):
            loop.pace.speed = self.pace()

    def speed(self) -> float:
        """Virtual seconds per second just now: slow where something moves, fast where nothing does."""
        if self._act_speed is not None:
            return self._act_speed if self._speed or self._moves() else max(self._act_speed, IDLE)
        return (self._speed or BETWEEN) if self._moves() else HURRY

    def pace(self) -> float:
        """The same, and three times that where the machine is late."""
        return self.speed() * (1.0 if time.monotonic() < self._late_from else 3.0)

    def _moves(self) -> bool:
        """Mooring is at work, or a pod is on its way."""
        leader = self._rig.leader()
        if leader is None:
            return False
        return bool(leader.engine.running) or any(
            not pod.terminal and (pod.deletion_at is not None or not pod.ready) for pod in leader.world.pods()
        )

    async def _keep_pace(self, loop: PacedLoop) -> None:
        while True:
            loop.pace.speed = self.pace()
            await self._rig.sleep(0.5)

    def run(self, whole: Callable[[], Awaitable[None]]) -> None:
        if not self._paced:
            run_virtual(whole, self._rig.cluster.timeline)
            return

        async def paced() -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, PacedLoop)
            self._pacing = asyncio.create_task(self._keep_pace(loop), name="pace")
            try:
                await whole()
            finally:
                self._pacing.cancel()

        run_paced(paced, self._rig.cluster.timeline, HURRY)

    def settle(self, speed: float) -> None:
        """After the day: one speed from now on."""
        self._pacing.cancel()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, PacedLoop)
        loop.pace.speed = speed

    async def close(self) -> None:
        for name in list(self._rig.replicas):
            self._rig.kill(name)
        await asyncio.sleep(0)

    def clock_word(self, at: str) -> str:
        return at
