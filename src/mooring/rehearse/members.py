"""PD's members run in their pods: without a majority PD does not answer, and a leader that fails is replaced.

The sandbox's PD is one server that answers until a scenario says otherwise. Here the pods say it.
"""

from mooring.clients.ports import Json
from mooring.core.model.kinds import Kind
from mooring.rehearse.losses import majority
from mooring.rehearse.observer import Observer
from mooring.sandbox.cluster import Cluster
from mooring.sandbox.pd import SandboxPd


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
