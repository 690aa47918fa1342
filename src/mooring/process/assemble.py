"""Which capabilities a replica has, and how it finds a real PD."""

from collections.abc import Container, Sequence

from mooring.capabilities.registry import descriptors, limits, uncapped
from mooring.clients.pd.client import PdClient
from mooring.clients.pd.room import AnswerRoom
from mooring.clients.ports import Chance, Clock, MachineRegistry, PlacementDriver
from mooring.clients.sabakan.client import Sabakan
from mooring.core.engine.capability import Capability
from mooring.core.model.capacity import CapacityRules
from mooring.core.model.cluster import Key
from mooring.core.queue import Settings, live_settings
from mooring.core.queue.config import parse, with_targets
from mooring.process.pd_directory import Make, may_ask
from mooring.process.settings.config import Config


def capabilities(config: Config) -> Sequence[Capability]:
    """All of them, on or off: what a switched-off one has begun must still end well."""
    return [descriptor.make(config) for descriptor in descriptors()]


def queue_settings(config: Config) -> Settings:
    """The defaults of the design and of every capability, and what the configuration says instead."""
    return parse(config.queue, with_targets(live_settings(), limits(), uncapped()))


def capacity_rules(config: Config) -> CapacityRules:
    """How nodes are told apart: the one capability says it that has settings for it."""
    said = (one.capacity(config.policy(one.policy)) for one in descriptors())
    return next((rules for rules in said if rules is not None), CapacityRules())


def make_registry(url: str) -> MachineRegistry:
    return Sabakan(url)


def make_pd(clock: Clock, chance: Chance, *, given: Container[str] = (), hosts: Sequence[str] = ()) -> Make:
    """`given`: clusters whose PD an administrator has named; what such a PD says about its members is trusted."""
    room = AnswerRoom()

    def make(cluster: Key, urls: tuple[str, ...]) -> PlacementDriver:
        def may_ask_at(url: str) -> bool:
            return str(cluster) in given or may_ask(url, cluster, hosts)

        def may_keep(path: str, size: int) -> bool:
            return room.take(cluster, path, size, clock.monotonic())

        return PdClient(urls, clock=clock, chance=chance, may_ask=may_ask_at, may_keep=may_keep)

    return make
