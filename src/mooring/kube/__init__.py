"""The Kubernetes client: one HTTP stack, slim structs at once, and nothing lost.

Connect
    connection = config.load(path_or_none, context="")      # kubeconfig, $KUBECONFIG, ~/.kube/config, or in a pod
    async with HttpKubeApi(connection, scopes={Kind.CONFIG_MAP: Scope(namespace="mooring")}) as api: ...
    `ConfigError` (a PortError and a ValueError) says what is wrong, where, and what would be right.

Talk (`ports.KubeApi`; errors are `ports.PortError` leaves)
    api.list watch get create replace patch delete evict bind, and api.raw(method, path, body) for /version, /readyz

Follow
    quiet = QuietCollector()
    informers = InformerSet((Informer(api, kind, sink, clock, chance, around_sync=quiet) for kind in kinds), clock)
    task = asyncio.create_task(informers.run()); await informers.wait_synced()
    `sink` gets `Listed` (the whole truth: what is missing was deleted), then `Seen` and `Gone`. Works on any KubeApi.

Lead
    elector = Elector(api, clock, chance, namespace=…, name=…, identity=…, on_started=f, on_stopped=async_f)
    task = asyncio.create_task(elector.run())               # cancel it to stop: the lease is given back
    safe = Fenced(api, elector.may_write)                   # a KubeApi whose writes raise NotLeaderError unless we lead
"""

from mooring.kube.api import HttpKubeApi, Scope
from mooring.kube.config import ConfigError, Connection, load
from mooring.kube.election import Timing
from mooring.kube.elector import Elector
from mooring.kube.fence import Fenced, NotLeaderError
from mooring.kube.informer import Informer
from mooring.kube.informers import InformerSet, QuietCollector

__all__ = [
    "ConfigError",
    "Connection",
    "Elector",
    "Fenced",
    "HttpKubeApi",
    "Informer",
    "InformerSet",
    "NotLeaderError",
    "QuietCollector",
    "Scope",
    "Timing",
    "load",
]
