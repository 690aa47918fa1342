"""Is there a node of the wanted class that would take this pod? `drain/room.py` answers; here is what mix adds to the
pod's own rules. The notes of failed moves (`memory`) prevent a loop where the answer was wrong.
"""

from mooring.capabilities.drain.room import Lack, RoomNeeds, taken_domains
from mooring.capabilities.drain.room import Room as RoomOf
from mooring.capabilities.mix.admission.affinity import own_terms
from mooring.capabilities.mix.interruption.notices import InterruptedNodes
from mooring.capabilities.mix.policy import MixPolicy
from mooring.capabilities.mix.schemes import Schemes
from mooring.core.model.capacity import NodeClass
from mooring.core.model.cluster import Pod
from mooring.core.world.read import WorldRead


class Room:
    """The questions, asked of one world."""

    def __init__(self, policy: MixPolicy, world: WorldRead) -> None:
        self._policy, self._world = policy, world

    def fits(self, pod: Pod, wanted: NodeClass, *, others: int = 0) -> bool:
        """Room for this pod and for `others` like it that are on their way to the same class."""
        return self._of(wanted).fits(self._needs(pod, wanted), others=others)

    def lack(self, pod: Pod, wanted: NodeClass) -> Lack:
        return self._of(wanted).lack(self._needs(pod, wanted))

    def _of(self, wanted: NodeClass) -> RoomOf:
        return RoomOf(self._world, wanted, self._interrupted())

    def _interrupted(self) -> set[str]:
        index = self._world.index(InterruptedNodes)
        return index.names | index.likely if index.likely else index.names

    def _needs(self, pod: Pod, wanted: NodeClass) -> RoomNeeds:
        shape = pod.shape
        spot = self._world.index(Schemes).tolerations if wanted is NodeClass.SPOT else ()
        volumes = self._world.volumes_of(pod) if pod.claims else ()
        terms, taken = own_terms(shape.required_terms, self._policy.capacity), taken_domains(pod, self._world)
        return RoomNeeds(shape, terms, (*shape.tolerations, *spot), volumes, taken)
