"""`GET /api/v1/home`: every member with its home, where it is now, and which nodes are reserved. Read only."""

from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from mooring.capabilities.home.report import report
from mooring.process.http.served_replica import Find, replica_behind


def home_status(find: Find) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        replica = replica_behind(find)
        engine = replica.engine
        found = report(replica.world, replica.config.home, engine.now)
        found |= {"on": "home" in engine.on, "synced": engine.synced}
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    return answer
