"""Which capabilities a replica has, and how it finds a real PD."""

from collections.abc import Sequence

import msgspec

from mooring.capabilities.registry import descriptors, limits, uncapped
from mooring.clients.pd.client import PdClient
from mooring.clients.pd.client_secret import ClientSecret
from mooring.clients.pd.room import AnswerRoom
from mooring.clients.pd.transport import in_cluster
from mooring.clients.ports import Clock, KubeApi, PlacementDriver, Randomness
from mooring.core.engine.capability import Capability
from mooring.core.model.capacity import CapacityRules
from mooring.core.model.cluster import Key
from mooring.core.queue import Settings, live_settings
from mooring.core.queue.config import parse, with_targets
from mooring.process.pd_directory import Make, may_ask, owner_of, pd_service
from mooring.process.settings.config import Config


def capabilities(config: Config) -> Sequence[Capability]:
    """All of them, on or off: what a switched-off one has begun must still end well."""
    return [descriptor.make(config) for descriptor in descriptors()]


def queue_settings(config: Config) -> Settings:
    """The defaults of the design and of every capability, and what the configuration says instead."""
    settings = parse(config.queue, with_targets(live_settings(), limits(), uncapped()))
    return msgspec.structs.replace(settings, windows=config.windows)


def capacity_rules(config: Config) -> CapacityRules:
    """How nodes are told apart: the one capability says it that has settings for it."""
    said = (one.capacity(config.policy(one.policy)) for one in descriptors())
    return next((rules for rules in said if rules is not None), CapacityRules())


def make_pd(clock: Clock, randomness: Randomness, config: Config, api: KubeApi) -> Make:
    """Clients for real PDs. Where an administrator has named one, what it says about its members is trusted."""
    room, given, hosts = AnswerRoom(), config.pd, config.pd_hosts

    def make(cluster: Key, urls: tuple[str, ...]) -> PlacementDriver:
        owner, service = owner_of(urls) or cluster, pd_service(urls[0])
        # With tidb-operator v2 the Service has the name of a group.
        names = {cluster, owner, service if service is not None and service.namespace == cluster.namespace else owner}

        def may_ask_at(url: str) -> bool:
            return str(cluster) in given or any(may_ask(url, name, hosts) for name in names)

        def may_keep(path: str, size: int) -> bool:
            return room.take(cluster, path, size, clock.monotonic())

        name = config.pd_client_secrets.get(str(owner), f"{owner.name}-cluster-client-secret")
        secret = ClientSecret(api, Key(owner.namespace, name), clock, optional=str(cluster) in given)
        urls = urls if str(cluster) in given else tuple(map(in_cluster, urls))
        return PdClient(urls, clock=clock, randomness=randomness, secret=secret, may_ask=may_ask_at, may_keep=may_keep)

    return make
