"""`GET /api/v1/mix` and `/api/v1/mix/<kind>/<namespace>/<name>`: who stands where, what is wrong, what comes next.

Read only. Any replica answers; only the one that leads knows what waits and runs.
"""

import asyncio
from typing import Final

import msgspec
from aiohttp import web

from mooring.capabilities.mix.capability import Mix
from mooring.capabilities.mix.explain import WorkloadReport, in_order, interrupted, report, speaking
from mooring.capabilities.mix.rebalance.health import find_workload, workload_key
from mooring.core.model.cluster import Workload
from mooring.process.http.served_replica import Find, replica_behind
from mooring.process.replica import Replica

#: Workloads per turn of the loop.
PART: Final = 10


def add_to(app: web.Application, find: Find) -> None:
    pages = MixPages(find)
    app.add_routes([web.get("/api/v1/mix", pages.status), web.get("/api/v1/mix/{workload:.+}", pages.workload)])


class MixPages:
    def __init__(self, find: Find) -> None:
        self._find = find

    def _parts(self) -> tuple[Replica, Mix]:
        replica = replica_behind(self._find)
        mix = replica.engine.capabilities["mix"]
        assert isinstance(mix, Mix)
        return replica, mix

    async def status(self, _: web.Request) -> web.Response:
        replica, mix = self._parts()
        engine = replica.engine
        rows = []
        for place, workload in enumerate(speaking(engine.world)):
            if place % PART == PART - 1:
                await asyncio.sleep(0)  # admission is on the same loop
            rows.append(_told(replica, mix, workload))
        return _json(
            {
                "on": "mix" in engine.on,
                "leading": engine.deciding,
                "workloads": in_order(rows),
                "nodes": interrupted(mix, engine.world, engine.now),
            }
        )

    async def workload(self, request: web.Request) -> web.Response:
        replica, mix = self._parts()
        engine = replica.engine
        name = request.match_info["workload"]
        workload = find_workload(name, engine.world)
        if workload is None:
            return _json({"error": f"there is no {name}"}, status=404)
        found = msgspec.to_builtins(_told(replica, mix, workload))
        return _json({**found, "on": "mix" in engine.on, "leading": engine.deciding})


def _told(replica: Replica, mix: Mix, workload: Workload) -> WorkloadReport:
    engine = replica.engine
    notes = engine.notes.get((mix.name, workload_key(workload)))
    return report(mix, workload, engine.world, engine.queue, engine.now, engine.running, notes)


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
