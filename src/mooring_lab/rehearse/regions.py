"""What the TiKV clusters go through: regions without a leader, regions without a majority, members away at once."""

from collections.abc import Mapping
from typing import Final

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.cluster import Cluster
from mooring_lab.cluster.pd import LeadersCut, SandboxPd
from mooring_lab.judge.lines import Meter, majority, some
from mooring_lab.rehearse.observer import Observer
from mooring_lab.rehearse.outcome import RegionLosses
from mooring_lab.rehearse.snapshot.stores import without_leader, without_quorum

# ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# PD's members run in their pods: without a majority PD does not answer, and a leader that fails is replaced.


class Members:
    """Call `look` after anything may have changed; it acts on what it sees."""

    def __init__(self, cluster: Cluster, observer: Observer) -> None:
        self._cluster = cluster
        self._observer = observer
        self._dark: set[tuple[str, str]] = set()

    def look(self) -> list[str]:
        """What became of the PDs, in words."""
        return [words for key, pd in sorted(self._cluster.pd.items()) if (words := self._look(key, pd))]

    def _look(self, key: tuple[str, str], pd: SandboxPd) -> str:
        members = pd.settings.members
        pods = {name: self._cluster.store.find(Kind.POD, key[0], name) for name in members}
        if not any(pods.values()) and key not in self._dark:
            return ""  # its members are no pods of this cluster
        up = [name for name, pod in pods.items() if pod is not None and self._runs(pod)]
        where = f"PD of {key[0]}/{key[1]}"
        if len(up) < majority(len(members)):
            if key in self._dark:
                return ""
            self._dark.add(key)
            pd.go_dark()
            return f"{where} has no majority: {len(up)} of {len(members)} members; none answers"
        words = ""
        if key in self._dark:
            self._dark.discard(key)
            pd.lighten()
            words = f"{where} answers again: {len(up)} of {len(members)} members"
        if pd.leader not in up and not pd.away:
            pd.lose_leader(up[0])
            words = words or f"{where} lost its leader {pd.leader}; {up[0]} takes over"
        return words

    def _runs(self, pod: Json) -> bool:
        """A member runs until its pod is gone or its machine is; leaving, it still answers."""
        ready = (pod.get("status") or {}).get("phase") == "Running"
        return ready and self._observer.runs(str(pod["spec"].get("nodeName", "")))


#: How often regions are counted while no store comes or goes.
COUNT_S: Final = 10.0


class Regions:
    """Looked at every half second: an election takes ten."""

    def __init__(self, cluster: Cluster, observer: Observer, scale: Mapping[tuple[str, str], float]) -> None:
        self._cluster = cluster
        self._observer = observer
        self._watches = [_Watch(key, pd, scale.get(key, 1.0)) for key, pd in sorted(cluster.pd.items())]
        self.look()

    def look(self) -> None:
        for one in self._watches:
            for stopped in one.fresh():
                if self._observer.runs(one.homes.get(stopped.pod_name, "")):
                    one.note(stopped)
            one.look(self._observer.now_s, self._away(one))

    def losses(self) -> tuple[RegionLosses, ...]:
        return tuple(one.losses(self._observer.now_s) for one in self._watches)

    def _away(self, watch: "_Watch") -> int:
        """Members that were stopped on purpose: they stopped while their machine ran, and have not been back since."""
        for store in watch.pd.server.tikv.stores.values():
            if store.alive:
                watch.down.pop(store.id, None)
                pod = self._cluster.store.find(Kind.POD, watch.key[0], store.pod_name)
                if pod is not None and pod["spec"].get("nodeName"):
                    watch.homes[store.pod_name] = str(pod["spec"]["nodeName"])
            elif store.id not in watch.down:
                watch.down[store.id] = self._observer.runs(watch.homes.get(store.pod_name, ""))
        return sum(watch.down.values())


class _Watch:
    def __init__(self, key: tuple[str, str], pd: SandboxPd, scale: float) -> None:
        self.key = key
        self.pd = pd
        self.scale = scale
        #: Pod → the node it ran on last.
        self.homes: dict[str, str] = {}
        tikv = pd.server.tikv
        self.total = len(tikv.groups)
        #: Store that does not run → whether its machine did when it stopped.
        self.down = {store.id: False for store in tikv.stores.values() if not store.alive}
        self._led = Meter(self.total, self.total - without_leader(tikv))
        self._whole = Meter(self.total, self.total - without_quorum(tikv))
        self._interrupted = len(pd.interruptions)
        self._cut_off: list[str] = []
        self._running: frozenset[int] | None = None
        self._counted_at = 0.0
        self._away = 0

    def look(self, at: float, away: int) -> None:
        tikv = self.pd.server.tikv
        self._led.step(at, self.total - without_leader(tikv))
        running = frozenset(store.id for store in tikv.stores.values() if store.alive)
        if running != self._running or at >= self._counted_at + COUNT_S:
            # Walks every region: when a store came or went, and now and then because peers move.
            self._running, self._counted_at = running, at
            self._whole.step(at, self.total - without_quorum(tikv))
        self._away = max(self._away, away)

    def note(self, one: LeadersCut) -> None:
        """A store stopped with leaders on it, and its machine ran."""
        self._cut_off.append(f"{one.pod_name} had {some(self._real(one.leaders), 'leader')}")

    def fresh(self) -> list[LeadersCut]:
        new = self.pd.interruptions[self._interrupted :]
        self._interrupted = len(self.pd.interruptions)
        return new

    def losses(self, at: float) -> RegionLosses:
        lost = self._whole.least - self._whole.worst
        gaps = self._led.close(at)
        until = gaps[-1].until_s if gaps else 0.0
        return RegionLosses(
            cluster="/".join(self.key),
            regions=self._real(self.total),
            without_leader=self._real(self._led.least - self._led.worst),
            without_leader_s=round(self._led.seconds(at), 1),
            leaders_until_s=None if until is None else round(until, 1),
            without_quorum=self._real(lost),
            without_quorum_s=round(self._whole.seconds(at), 1),
            left_without_quorum=self._real(self._whole.least - self._whole.value) if self._whole.is_below else 0,
            away_at_once=self._away,
            cut_off=tuple(self._cut_off),
            scale=round(self.scale, 3),
        )

    def _real(self, played: int) -> int:
        return round(played * self.scale)
