"""One replica with everything around it: its listeners, its certificates, its settings that may change.

Opened in order and closed in reverse, so that nobody is answered by half a house. `mooring run` is this and a signal
handler.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from aiohttp import web

from mooring.clients.ports import KubeApi
from mooring.process.admission.server import LeaderForwarder, WebhookServer
from mooring.process.assemble import capabilities, make_pd, make_registry
from mooring.process.clock import SystemChance, WallClock
from mooring.process.config import Config, Resolved, host_port
from mooring.process.extender import extender_app
from mooring.process.http.status import is_loopback, status_app
from mooring.process.peers import address_of, advertised, identity_with
from mooring.process.reload import Reloader
from mooring.process.replica import Replica


class AddressTakenError(Exception):
    """An address of ours cannot be had; the message names the flag."""


async def live(
    config: Config,
    settings: Callable[[], Resolved],
    api: KubeApi,
    server: str,
    say: Callable[[str], None],
    *,
    born: Callable[[Replica], None] = lambda _: None,
) -> None:
    """Until canceled. `server` is the API server's URL; `say` tells the person who started us; `born` gets to know the
    replica, for whoever lives in the same process."""
    clock, chance = WallClock(), SystemChance()
    hook_host, hook_port = host_port(config.listen_webhook, "listen-webhook")
    hook_address = advertised(hook_host, hook_port, config.advertise_address, server)
    identity = identity_with(f"{socket.gethostname()}-{chance.token(6)}", hook_address if "mix" in config.on() else "")
    replica = Replica(
        config,
        api,
        make_pd(clock, chance),
        clock,
        chance,
        identity=identity,
        capabilities=capabilities(config),
        make_registry=make_registry,
        forgiving=True,
    )
    born(replica)
    host, _ = host_port(config.listen_http, "listen-http")
    async with AsyncExitStack() as house:
        page = status_app(lambda: replica, token=config.http_token, on_loopback=is_loopback(host))
        await _open(house, page, config.listen_http, "listen-http")
        # A kube-scheduler gives an idle connection up after 90 s: it shall be the one to close it.
        await _open(
            house,
            extender_app(replica),
            config.listen_extender,
            "listen-extender",
            read_bufsize=1 << 18,
            keepalive_s=120.0,
        )
        webhook = WebhookServer(replica.reviewer, replica.front, hook_host, hook_port)
        house.push_async_callback(webhook.stop)
        courier = replica.reviewer.pass_on = LeaderForwarder(replica.front, lambda: address_of(replica.elector.holder))
        house.push_async_callback(courier.close)
        if "mix" in config.on():
            await _listen(webhook.start(), config.listen_webhook, "listen-webhook")
        say(
            f"mooring: {identity} at http://{config.listen_http} · features: {', '.join(sorted(config.on())) or 'none'}"
        )

        async def take_over(new: Config) -> list[str]:
            if "mix" in new.on() and not webhook.listens:
                await webhook.start()
            return replica.apply(new)

        async with asyncio.TaskGroup() as group:
            group.create_task(Reloader(config, settings, take_over).run(clock), name="settings")
            group.create_task(replica.run(), name="replica")


async def _open(
    house: AsyncExitStack,
    app: web.Application,
    address: str,
    flag: str,
    *,
    read_bufsize: int = 1 << 16,
    keepalive_s: float = 75.0,
) -> None:
    host, port = host_port(address, flag)
    runner = web.AppRunner(app, access_log=None, read_bufsize=read_bufsize, keepalive_timeout=keepalive_s)
    await runner.setup()
    house.push_async_callback(runner.cleanup)
    await _listen(web.TCPSite(runner, host, port).start(), address, flag)


async def _listen(start: Awaitable[None], address: str, flag: str) -> None:
    try:
        await start
    except OSError as error:
        raise AddressTakenError(f"--{flag} {address}: {error.strerror}; give a free address") from None
