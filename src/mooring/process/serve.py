"""One replica with everything around it: its listeners, its certificates, its settings that may change.

Opened in order and closed in reverse, so that no request is answered by a half-started process. `mooring run` is this
and a signal handler.
"""

import asyncio
import datetime as dt
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

import structlog
from aiohttp import web
from cryptography.x509.oid import ExtendedKeyUsageOID

from mooring.capabilities.registry import hooks, serving
from mooring.clients.ports import KubeApi
from mooring.clients.registry.choose import open_registry
from mooring.clients.x509 import issue_authority, issue_leaf, load_pair, new_key, pem, private_pem
from mooring.clients.x509 import name as subject_name
from mooring.core.model.exits import UserError
from mooring.process.admission.server import LeaderForwarder, WebhookServer
from mooring.process.assemble import capabilities, make_pd
from mooring.process.clock import SystemRandomness, WallClock
from mooring.process.extender import extender_app
from mooring.process.http.intake import BodyIntake
from mooring.process.http.listening import Listener
from mooring.process.http.page import PAGE, Page
from mooring.process.http.status import is_loopback, status_app
from mooring.process.lease.elector import address_of, advertised, identity_with
from mooring.process.replica import Replica
from mooring.process.settings.config import Config, Resolved, host_port, host_ports
from mooring.process.settings.reload import Reloader

log = structlog.get_logger()


class AddressTakenError(UserError):
    """An address of ours, or the certificate for it, cannot be had; the message names the flag."""


async def live(
    config: Config,
    settings: Callable[[], Resolved],
    api: KubeApi,
    server: str,
    say: Callable[[str], None],
    *,
    on_replica: Callable[[Replica], None] = lambda _: None,
    opened: Callable[[Page], None] = lambda _: None,
    context: str = "",
) -> None:
    """Until canceled. `server` is the API server's URL; `say` prints for the user; `on_replica` and `opened`
    are called with the replica and its page, for code in the same process; `context` names the cluster to people."""
    clock, randomness = WallClock(), SystemRandomness()
    hook_host, hook_port = host_port(config.listen_webhook, "listen-webhook")
    identity = identity_of(config, server, f"{socket.gethostname()}-{randomness.token(6)}")
    replica = Replica(
        config,
        api,
        make_pd(clock, randomness, config, api),
        clock,
        randomness,
        identity=identity,
        capabilities=capabilities(config),
        make_registry=open_registry,
        forgiving=True,
    )
    on_replica(replica)
    local = all(is_loopback(host) for host, _ in host_ports(config.listen_http, "listen-http"))
    intake = BodyIntake()
    async with AsyncExitStack() as stack:
        cluster = config.cluster_name or context
        page = status_app(lambda: replica, token=config.http_token, on_loopback=local, cluster=cluster)
        opened(page[PAGE])
        urls = await open_page(stack, page, config)
        extender = ExtenderListener(replica, intake, stack)
        forwarder = replica.webhook.reviewer.pass_on = LeaderForwarder(
            replica.webhook.tls, lambda: address_of(replica.elector.holder), replica.elector.look_now
        )
        # Closed after the server: what still reaches a replica that stops is passed on.
        stack.push_async_callback(forwarder.close)
        webhook = WebhookServer(replica.webhook.reviewer, replica.webhook.tls, hook_host, hook_port, intake)
        stack.push_async_callback(webhook.stop)
        if serving("extender", config.on() | config.observing()):
            await extender.start()
        if hooks(config.on()):
            await _listen(webhook.start(), config.listen_webhook, "listen-webhook")
        say(_greeting(identity, config, urls))

        async def take_over(new: Config) -> list[str]:
            if serving("extender", new.on() | new.observing()) and not extender.listens:
                await extender.start()
            if hooks(new.on()) and not webhook.listens:
                await webhook.start()
            return replica.apply(new)

        async with asyncio.TaskGroup() as group:
            group.create_task(Reloader(config, settings, take_over).run(clock), name="settings")
            group.create_task(replica.run(), name="replica")


def _greeting(identity: str, config: Config, urls: list[str]) -> str:
    observed = {f"{name} (observe)" for name in config.observing()}
    features = ", ".join(sorted(config.on() | observed)) or "none"
    return f"mooring: {identity} at {', '.join(urls)} · features: {features}"


class ExtenderListener:
    """The extender's listener: opened when home is first on, and open from then on: a scheduler that still calls it
    gets every candidate back."""

    def __init__(self, replica: Replica, intake: BodyIntake, stack: AsyncExitStack) -> None:
        self._replica = replica
        self._intake = intake
        self._stack = stack
        self.listens = False

    async def start(self) -> None:
        config = self._replica.config
        tls = server_tls(config.extender_certificates, "extender-certificates", only_known=True)
        host, _ = host_port(config.listen_extender, "listen-extender")
        open_to_all = tls is not None or is_loopback(host)
        if not open_to_all and not config.extender_token:
            log.warning("extender.closed", address=config.listen_extender, wanted="extender-token, or a certificate")
        app = extender_app(self._replica, self._intake, open_to_all=open_to_all)
        await _open(self._stack, app, config.listen_extender, "listen-extender", tls, {"read_bufsize": 1 << 18})
        self.listens = True


def identity_of(config: Config, server: str, name: str) -> str:
    """Always with the webhook's address: Mix may be switched on at any time, and the lease is not written again."""
    host, port = host_port(config.listen_webhook, "listen-webhook")
    return identity_with(name, advertised(host, port, config.advertise_address, server))


async def open_page(stack: AsyncExitStack, page: web.Application, config: Config) -> list[str]:
    """Plain on loopback, where ports are forwarded to; TLS at every other address. Returns where it answers."""
    listener, tls, urls = Listener(page), None, []
    stack.push_async_callback(listener.stop)
    for address in config.listen_http.split(","):
        host, port = host_port(address.strip(), "listen-http")
        if local := is_loopback(host):
            await _listen(listener.start(host, port), address, "listen-http")
        else:
            tls = tls or server_tls(config.http_certificates, "http-certificates") or self_signed(config)
            await _listen(listener.start(host, port, tls), address, "listen-http")
        urls.append(f"{'http' if local else 'https'}://{address.strip()}")
    return urls


async def _open(
    stack: AsyncExitStack,
    app: web.Application,
    address: str,
    flag: str,
    tls: ssl.SSLContext | None = None,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    listener = Listener(app, **more)
    stack.push_async_callback(listener.stop)
    await _listen(listener.start(*host_port(address, flag), tls), address, flag)


def self_signed(config: Config) -> ssl.SSLContext:
    """A certificate in memory alone, for a year: it encrypts, and readers cannot check it."""
    hosts = [host for host, _ in host_ports(config.listen_http, "listen-http") if host not in {"0.0.0.0", "::"}]
    hosts += [socket.gethostname(), f"mooring.{config.namespace}.svc", config.advertise_address]
    subject, key, now, year = subject_name("mooring"), new_key(), dt.datetime.now(dt.UTC), dt.timedelta(days=365)
    certificate = issue_leaf(
        subject,
        key,
        issue_authority(subject, key, now, year),
        key,
        now,
        year,
        usages=[ExtendedKeyUsageOID.SERVER_AUTH],
        hosts=[*dict.fromkeys(filter(None, hosts))],
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_pair(pem(certificate), private_pem(key), context)
    return context


def server_tls(directory: str, flag: str, *, only_known: bool = False) -> ssl.SSLContext | None:
    """`only_known`: a caller must present a certificate that was issued by the directory's ca.crt.

    Renewed files count from the next handshake on; should they not fit together, those before stay in use."""
    if not directory:
        return None
    names = ("tls.crt", "tls.key", "ca.crt") if only_known else ("tls.crt", "tls.key")
    files = [Path(directory) / name for name in names]

    def read() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(files[0], files[1])
            if only_known:
                context.load_verify_locations(files[2])
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            wanted = f"{', '.join(names[:-1])} and {names[-1]}"
            raise AddressTakenError(f"{flag} {directory}: {error}; {wanted} must be there, in PEM") from None
        return context

    seen, front = _stamps(files), read()
    current = front

    def choose(connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _: ssl.SSLContext) -> None:
        nonlocal seen, current
        if (stamps := _stamps(files)) != seen:
            seen = stamps
            try:
                current = read()
                log.info("tls.renewed", setting=flag)
            except AddressTakenError as error:
                log.warning("tls.refused", error=str(error), serving="with the certificates before")
        connection.context = current

    front.sni_callback = choose
    return front


def _stamps(files: list[Path]) -> list[tuple[int, int, int] | None]:
    found: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            stat = file.stat()
            found.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
        except OSError:
            found.append(None)
    return found


async def _listen(start: Awaitable[None], address: str, flag: str) -> None:
    try:
        await start
    except OSError as error:
        raise AddressTakenError(f"--{flag} {address}: {error.strerror}; give a free address") from None
