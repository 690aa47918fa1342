"""Which capabilities a replica has, and how it finds a real PD."""

from collections.abc import Sequence

from mooring.balance import Balance
from mooring.engine.capability import Capability
from mooring.fleet.decider import Fleet
from mooring.handoff import Handoff
from mooring.home import Home
from mooring.mix.decider import Mix
from mooring.model.cluster import Key
from mooring.pd.client import PdClient
from mooring.ports import Chance, Clock, MachineRegistry, PlacementDriver
from mooring.run.config import Config
from mooring.run.pds import Make
from mooring.sabakan.client import Sabakan
from mooring.traffic import live_settings
from mooring.traffic.config import parse


def capabilities(config: Config) -> Sequence[Capability]:
    """All of them, on or off: what a switched-off one has begun must still end well."""
    return [
        Fleet(config.fleet, config.namespace),
        Handoff(config.handoff),
        Home(config.home),
        Mix(config.mix, namespace=config.namespace),
        Balance(config.balance, settings=parse(config.traffic, live_settings()), on="traffic" in config.on()),
    ]


def make_registry(url: str) -> MachineRegistry:
    return Sabakan(url)


def make_pd(clock: Clock, chance: Chance) -> Make:
    def make(_: Key, urls: tuple[str, ...]) -> PlacementDriver:
        return PdClient(urls, clock=clock, chance=chance)

    return make
