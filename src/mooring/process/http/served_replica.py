"""The replica behind the pages. In the demo it is killed and restarted while they are open; then they say so."""

from collections.abc import Callable

from aiohttp import web

from mooring.process.replica import Replica

Find = Callable[[], Replica | None]


def replica_behind(find: Find) -> Replica:
    replica = find()
    if replica is None:
        raise no_replica()
    return replica


def no_replica() -> web.HTTPServiceUnavailable:
    return web.HTTPServiceUnavailable(text="no replica runs just now\n")
