"""Which capabilities a replica has, and how it finds a real PD."""

from collections.abc import Sequence

from mooring.capabilities.balance import Balance
from mooring.capabilities.fleet.live.capability import Fleet
from mooring.capabilities.handoff import Handoff
from mooring.capabilities.home import Home
from mooring.capabilities.mix.capability import Mix
from mooring.clients.pd.client import PdClient
from mooring.clients.ports import Chance, Clock, MachineRegistry, PlacementDriver
from mooring.clients.sabakan.client import Sabakan
from mooring.core.engine.capability import Capability
from mooring.core.model.cluster import Key
from mooring.core.queue import live_settings
from mooring.core.queue.config import parse
from mooring.process.config import Config
from mooring.process.pd_directory import Make


def capabilities(config: Config) -> Sequence[Capability]:
    """All of them, on or off: what a switched-off one has begun must still end well."""
    return [
        Fleet(config.fleet, config.namespace),
        Handoff(config.handoff),
        Home(config.home),
        Mix(config.mix, namespace=config.namespace),
        Balance(config.balance, settings=parse(config.queue, live_settings()), on="balance" in config.on()),
    ]


def make_registry(url: str) -> MachineRegistry:
    return Sabakan(url)


def make_pd(clock: Clock, chance: Chance) -> Make:
    def make(_: Key, urls: tuple[str, ...]) -> PlacementDriver:
        return PdClient(urls, clock=clock, chance=chance)

    return make
