"""The sandbox's sabakan over HTTP on loopback: the search, which is all that Mooring asks it.

In the words and with the habits of the real one: `[]` for an empty search, 422 for a bad enum.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from mooring.sandbox.sabakan import graphql
from mooring.sandbox.sabakan.registry import SandboxSabakan

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def sabakan_app(registry: SandboxSabakan) -> web.Application:
    @web.middleware
    async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
        if registry.latency_s:
            await asyncio.sleep(registry.latency_s)
        if registry.away and request.transport is not None:
            request.transport.close()
            return web.Response()
        return await handler(request)

    async def search(request: web.Request) -> web.Response:
        body = await request.read()
        try:
            asked = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.MsgspecError as e:
            words = f"json request body could not be decoded: {e} body:{body.decode(errors='replace')}"
            return _json({"errors": [{"message": words}], "data": None}, 400)
        status, answer = graphql.execute(registry, str(asked.get("query", "")), asked.get("variables") or {})
        return _json(answer, status)

    app = web.Application(middlewares=[gate])
    app.add_routes([web.post("/graphql", search)])
    return app


def _json(value: Any, status: int) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")
