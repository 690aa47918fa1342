"""The sandbox's scheduler asks the extender of the replica that answers."""

import json
from collections.abc import Callable
from typing import Any

import msgspec

from mooring.capabilities import registry
from mooring.capabilities.home.policy import HomePolicy
from mooring.capabilities.home.verbs import VerbAnswer, Verbs
from mooring.clients.ports import Json
from mooring.core.model.marks import RESERVED_TAINT
from mooring.process.replica import Replica
from mooring_lab.cluster.scheduler.extenders import Extender
from mooring_lab.cluster.scheduler.selection import Profile
from mooring_lab.stage.rig import Rig

TOLERATION = {"key": RESERVED_TAINT, "operator": "Exists", "effect": "NoSchedule"}


def verbs_of(replica: Replica) -> Verbs:
    engine = replica.engine
    return Verbs(
        replica.world,
        lambda: replica.config.policy(HomePolicy),
        lambda: engine.synced and registry.serving("extender", engine.on | engine.observing),
        lambda: registry.serving("extender", engine.observing),
    )


def ask_mooring(
    rig: Rig,
    *,
    scheduler: str = "tidb-scheduler",
    heard: Callable[[Replica, Json], None] | None = None,
) -> None:
    """Let this scheduler of the sandbox call the replica that runs; without one it goes on, as `ignorable` says.
    `heard` is told of every request to filter and of who answers it."""

    def asker(verb: str) -> Any:
        def ask(arguments: Json) -> Any:
            running = next((one for one in rig.replicas.values() if not one.gate.held), None)
            if running is None:
                raise ConnectionError("no replica answers")
            if heard is not None and verb == "filter":
                heard(running.replica, arguments)
            answer: VerbAnswer = getattr(verbs_of(running.replica), verb)(msgspec.json.encode(arguments))
            return json.loads(answer.body)

        return ask

    extender = Extender(
        "mooring",
        filter=asker("filter"),
        prioritize=asker("prioritize"),
        preempt=asker("preempt"),
        node_cache_capable=True,
        ignorable=True,
        weight=10,
    )
    rig.cluster.scheduler.set_profile(Profile(scheduler, 100, (extender,)))
