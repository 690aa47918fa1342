"""`GET /api/v1/handoff`: every TidbCluster member, what is asked of it and how far it has come. Read only."""

from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from mooring.capabilities.handoff.report import report
from mooring.process.http.served_replica import Find, replica_behind


def handoff_status(find: Find) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        replica = replica_behind(find)
        engine = replica.engine
        found = report(replica.world, engine.queue, engine.running, replica.config.handoff, engine.now)
        found |= {"on": "handoff" in engine.on, "leading": engine.leading, "synced": engine.synced}
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    return answer
