"""Interruptions of a day, counted in the same way with Mooring and without it."""

from collections.abc import Callable

import msgspec

from mooring.capabilities.fleet.planner.keys import STATE_TAINT
from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.core.model.times import moment
from mooring_lab.cluster.cloud import INTERRUPT_AT
from mooring_lab.cluster.controllers import podstate
from mooring_lab.stage.environment import Environment

#: How often it looks, in seconds of the day.
EVERY_S = 1.0


class Losses(msgspec.Struct, frozen=True):
    #: Pods that served from a node until it was gone, or was tainted NoExecute.
    pods: int = 0
    #: Leaders on stores that stopped: their regions did not answer until an election.
    leaders: int = 0
    #: Times at which two of three stores were away.
    quorum: int = 0

    def __str__(self) -> str:
        times = "once" if self.quorum == 1 else f"{self.quorum} times"
        return f"{self.pods} pods cut off, {self.leaders} leaders lost, quorum lost {times}"


class LossCounter:
    """Looks once a second of the day, at this TidbCluster among others."""

    def __init__(self, rig: Callable[[], Environment], namespace: str, cluster: str) -> None:
        """`rig`: a real control plane is up later than this."""
        self._rig = rig
        self._key = namespace, cluster
        self._serving: dict[str, list[str]] = {}
        self._lost: set[str] = set()
        self._pods = 0
        self._quorum = 0
        self._away = False

    async def run(self) -> None:
        while True:
            self.look()
            await self._rig().sleep(EVERY_S)

    def look(self) -> Losses:
        rig = self._rig()
        now, store = rig.clock.now(), rig.cluster.store
        lost = {n["metadata"]["name"] for n in store.list(Kind.NODE) if _is_lost(n, now)}
        there = {n["metadata"]["name"] for n in store.list(Kind.NODE)}
        for node, pods in self._serving.items():
            if (node in lost or node not in there) and node not in self._lost:
                self._pods += len(pods)
                self._lost.add(node)
        self._lost &= lost | (self._lost - there)
        self._serving = {}
        for pod in store.list(Kind.POD):
            owners = pod["metadata"].get("ownerReferences") or ()
            if podstate.ready(pod) and podstate.active(pod) and any(o["kind"] != "DaemonSet" for o in owners):
                self._serving.setdefault(podstate.node_of(pod), []).append(pod["metadata"]["name"])
        pd = rig.cluster.pd.get(self._key)
        if pd is None:
            return Losses(self._pods)
        away = rig.cluster.ready(self._key[0], f"{self._key[1]}-tikv") <= 1 and bool(pd.server.tikv.held)
        self._quorum += away and not self._away
        self._away = away
        return Losses(self._pods, sum(i.leaders for i in pd.interruptions), self._quorum)


def _is_lost(node: Json, now: float) -> bool:
    """Its machine has stopped, or every pod on it has been told to go at once."""
    metadata, spec = node["metadata"], node.get("spec") or {}
    until = (metadata.get("annotations") or {}).get(INTERRUPT_AT)
    if until and (moment(until) or 0.0) <= now:
        return True
    return any(t["key"] == STATE_TAINT and t["effect"] == "NoExecute" for t in spec.get("taints") or ())
