"""Asks the gate (`capabilities/drain/gate.py`) about one eviction, and tells the engine who was asked for.

Answers from the world, in microseconds, and calls nobody. Each pod that is asked for goes into the engine's inbox once
a turn, however often it is asked for meanwhile.
"""

from collections.abc import Callable, Collection
from typing import Final

from mooring.capabilities.drain.descriptor import DESCRIPTOR
from mooring.capabilities.drain.gate import Answer, answer, at_once
from mooring.capabilities.drain.policy import DrainPolicy
from mooring.capabilities.drain.prepare import added
from mooring.capabilities.mix.admission.affinity import Operation
from mooring.capabilities.mix.admission.reviews import EvictionRequest, PodRequest
from mooring.clients.ports import Recorder
from mooring.core.engine.engine import Engine
from mooring.core.engine.events import Event
from mooring.core.model.cluster import NO_LABELS, Key, Pod, PodShape
from mooring.core.model.events import EvictionAsked
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason

#: So much of a user's name is kept.
LONGEST_NAME: Final = 120


class Gatekeeper:
    def __init__(
        self,
        engine: Engine,
        policy: DrainPolicy,
        tell: Callable[[Event], None],
        now: Callable[[], float],
        ours: Callable[[], Collection[str]],
        recorder: Recorder,
    ) -> None:
        """`ours`: uids of pods that this replica is evicting itself just now."""
        self.policy = policy
        self._engine = engine
        self._tell = tell
        self._now = now
        self._ours = ours
        self._recorder = recorder
        self._told: set[str] = set()

    @property
    def on(self) -> bool:
        return DESCRIPTOR.name in self._engine.on

    def at_once(self, request: EvictionRequest) -> Answer | None:
        """What every replica may answer; None: only the leader knows."""
        if not self.on:
            return Answer(True, Reason.FEATURE_OFF)
        if self._engine.holds.pause_of(DESCRIPTOR.name, self._now()) is not None:
            return Answer(True, Reason.PAUSED)  # nothing would be prepared, and nobody is held for nothing
        if request.is_dry:
            return Answer(True, Reason.ASKED)
        world = self._engine.world
        return at_once(world.pod(Key(request.namespace, request.name)), request.pod_uid, world, self.policy)

    @property
    def decides(self) -> bool:
        return self._engine.deciding

    def decide(self, request: EvictionRequest) -> Answer:
        """The leader's answer, about a pod that `at_once` did not let pass."""
        engine, now = self._engine, self._now()
        pod = engine.world.pod(Key(request.namespace, request.name))
        if pod is None or pod.uid in self._ours():
            return Answer(True, Reason.LEAVING)
        says = engine.verdicts.get((DESCRIPTOR.name, f"pod/{pod.key}"))
        found = answer(pod, engine.world, engine.queue, self.policy, says, now)
        if found.asked and pod.uid not in self._told:
            self._told.add(pod.uid)
            by = "".join(c for c in request.user_info.username[:LONGEST_NAME] if c.isprintable())
            self._tell(EvictionAsked(pod.key, pod.uid, by or "nobody", now))
        if found.allowed and found.message:
            self._recorder.event(
                Kind.POD,
                pod.namespace,
                pod.name,
                uid=pod.uid,
                reason=found.reason,
                message=found.message,
                warning=True,
            )
        return found

    def responders(self, request: PodRequest) -> list[Operation] | None:
        """What makes Mooring a responder of a pod that is being created; None: its owner has not been seen yet."""
        found = request.object
        owner = found.controller if found is not None else None
        if found is None or owner is None or not self.on or request.sub_resource or found.spec.scheduling_group:
            return []
        shape, name = PodShape(labels=found.metadata.labels or NO_LABELS), request.name or found.metadata.name
        pod = Pod(request.namespace, name, "", "", shape, owner)
        return added(pod, found.spec.eviction_responders or [], self._engine.world, self.policy)

    def world_moved(self) -> None:
        self._told.clear()
