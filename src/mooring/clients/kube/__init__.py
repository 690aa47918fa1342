"""The Kubernetes client: one HTTP stack, projection to slim structs, and informers that miss no deletion.

Connect
    connection = config.load(path_or_none, context="")      # kubeconfig, $KUBECONFIG, ~/.kube/config, or in a pod
    async with HttpKubeApi(connection, scopes={Kind.CONFIG_MAP: Scope(namespace="mooring")}) as api: ...
    `KubeconfigError` (a PortError and a ValueError) says what is wrong, where, and what would be right.

Talk (`ports.KubeApi`; errors are `ports.PortError` leaves)
    api.list watch get create replace patch delete evict bind, and api.raw(method, path, body) for /version, /readyz

Follow
    quiet = QuietCollector()
    informers = InformerSet(Informer(api, kind, sink, clock, randomness, around_sync=quiet) for kind in kinds)
    task = asyncio.create_task(informers.run())
    `sink` gets `Listed` (the whole truth: what is missing was deleted), then `Seen` and `Gone`. Works on any KubeApi.

Write only while leading
    safe = fenced(api, may_write)                           # a KubeApi whose writes raise NotLeaderError unless we lead
"""

from mooring.clients.kube.api import HttpKubeApi, Scope
from mooring.clients.kube.config import Connection, KubeconfigError, load
from mooring.clients.kube.fence import NotLeaderError, fenced
from mooring.clients.kube.informer import Informer
from mooring.clients.kube.informers import InformerSet, QuietCollector

__all__ = [
    "Connection",
    "HttpKubeApi",
    "Informer",
    "InformerSet",
    "KubeconfigError",
    "NotLeaderError",
    "QuietCollector",
    "Scope",
    "fenced",
    "load",
]
