"""`kubectl drain` as a client of the API server: cordon, then ask for each pod again and again until it is gone."""

from mooring.clients.ports import ConflictError, EvictionBlockedError, NotFoundError, PortError, ThrottledError
from mooring.core.model.kinds import Kind
from mooring_lab.cluster.controllers import podstate
from mooring_lab.stage.rig import Rig

#: What kubectl waits between two tries.
AGAIN_S = 5.0


class Drain:
    """One drain of one node. As kubectl 0.36: 429 is tried again every 5 s, 404 counts as done, other errors end it."""

    def __init__(self, rig: Rig, node: str, *, cordon: bool = True, by: str = "kubernetes-admin") -> None:
        self._rig, self._node, self._cordon = rig, node, cordon
        self._api = rig.cluster.api.as_client(by)
        #: What was answered, in order: (pod, words).
        self.refusals: list[tuple[str, str]] = []
        self.done = False

    def left(self) -> list[tuple[str, str, str]]:
        """(namespace, name, uid) of the pods that a drain takes: not those of a DaemonSet, not mirrors, not ended."""
        found = []
        for pod in self._rig.cluster.store.list(Kind.POD):
            owner = next((ref["kind"] for ref in pod["metadata"].get("ownerReferences") or ()), "")
            here = pod.get("spec", {}).get("nodeName") == self._node
            if here and owner not in {"DaemonSet", "Node"} and not podstate.terminal(pod):
                found.append((pod["metadata"]["namespace"], pod["metadata"]["name"], pod["metadata"]["uid"]))
        return found

    async def run(self, limit_s: float = 3600.0) -> "Drain":
        """Until the node is empty; an AssertionError when it is not in time."""
        if self._cordon:
            self._rig.cluster.cordon(self._node)
        passed = 0.0
        while left := self.left():
            assert passed < limit_s, f"{left} are left after {limit_s:g} s:\n{self.refusals[-5:]}\n{self._rig.story()}"
            for namespace, name, uid in left:
                await self._ask(namespace, name, uid)
            await self._rig.sleep(AGAIN_S)
            passed += AGAIN_S
        self.done = True
        return self

    async def _ask(self, namespace: str, name: str, uid: str) -> None:
        try:
            await self._api.evict(namespace, name, uid=uid)
        except (NotFoundError, ConflictError):
            return
        except (ThrottledError, EvictionBlockedError) as error:
            self.refusals.append((name, str(error)))
        except PortError as error:
            raise AssertionError(f"kubectl would end with {error}") from error
