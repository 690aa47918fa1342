"""`mooring run`: the control plane itself, one replica of it."""

import asyncio
import contextlib
import os
import signal
import socket
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mooring.cli.exits import CommandError, Exit
from mooring.cli.output import note, print_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from mooring.run.config import Config

app = App(name="run", help="Run one replica: watch the cluster, decide, and act while it holds the lease.")


@app.default
def run(
    *,
    kubeconfig: str = "",
    context: str = "",
    config: Annotated[str, Parameter(help="YAML or JSON file with the same keys as the flags.")] = "",
    features: Annotated[
        str, Parameter(help="NAME=true|false,…: home (StableScheduling), handoff, mix, fleet, traffic.")
    ] = "",
    namespace: Annotated[str, Parameter(help="Our own namespace: the lease and our memory live there.")] = "",
    pd: Annotated[tuple[str, ...], Parameter(help="NS/CLUSTER=URL[,URL…]: where a cluster's PD is.")] = (),
    sabakan_url: str = "",
    listen_extender: str = "",
    listen_webhook: str = "",
    webhook_url: str = "",
    listen_http: str = "",
    log_level: str = "",
    print_config: Annotated[bool, Parameter(help="Print every setting with its source, and stop.")] = False,
) -> int:
    """Run one replica of Mooring.

    Settings come from flags, the environment (MOORING_…), a file, and defaults, in that order. All features are off
    unless switched on. It stops on SIGTERM or Ctrl-C within 10 s: nothing new is begun, what is under way ends, the
    lease is given back.

    Example: mooring run --kubeconfig lab/kubeconfig --features handoff=true --pd tidb/demo=http://127.0.0.1:2379
    """
    from mooring.run.config import BadConfig, resolve

    flags = {
        "kubeconfig": kubeconfig,
        "context": context,
        "features": features,
        "namespace": namespace,
        "sabakan-url": sabakan_url,
        "listen-extender": listen_extender,
        "listen-webhook": listen_webhook,
        "webhook-url": webhook_url,
        "listen-http": listen_http,
        "log-level": log_level,
    }
    try:
        resolved = resolve(flags, os.environ, config, pd)
    except BadConfig as error:
        raise CommandError(str(error)) from None
    for warning in resolved.warnings:
        note(f"mooring: warning: {warning}")
    if print_config:
        import msgspec

        values = msgspec.to_builtins(resolved.config)
        print_json({key: {"value": values[key], "source": resolved.sources[key]} for key in values})
        return Exit.DONE
    from mooring.run import logs

    logs.configure(resolved.config.log_level, resolved.config.log_format)
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_main(resolved.config))
    return Exit.DONE


def _loop_factory() -> "Callable[[], asyncio.AbstractEventLoop] | None":
    """The loop of uvloop where it is installed (`pip install mooring[fast]`): TLS handshakes cost half."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _main(config: "Config") -> None:
    from aiohttp import web

    from mooring.kube import ConfigError, HttpKubeApi, Scope, load
    from mooring.model.kinds import Kind
    from mooring.ports import NotFound, PortError
    from mooring.run.assemble import capabilities, make_pd, make_registry
    from mooring.run.config import host_port
    from mooring.run.peers import address_of, advertised, identity_with
    from mooring.run.replica import Replica
    from mooring.run.wall import SystemChance, WallClock
    from mooring.serve.extender import extender_app
    from mooring.serve.status import is_loopback, status_app
    from mooring.serve.webhook import Courier, WebhookServer

    clock, chance = WallClock(), SystemChance()
    try:
        connection = load(config.kubeconfig or None, context=config.context)
    except ConfigError as error:
        raise CommandError(str(error)) from None
    async with HttpKubeApi(connection, scopes={Kind.CONFIG_MAP: Scope(namespace=config.namespace)}) as api:
        try:
            await api.get(Kind.NAMESPACE, "", config.namespace)
        except NotFound:
            raise CommandError(
                f"namespace {config.namespace!r} does not exist; create it (kubectl create namespace "
                f"{config.namespace}) or name another with --namespace"
            ) from None
        except PortError as error:
            raise CommandError(f"the cluster cannot be reached: {error}", Exit.COULD_NOT_LOOK) from None
        hook_host, hook_port = host_port(config.listen_webhook, "listen-webhook")
        hook_address = advertised(hook_host, hook_port, config.advertise_address, connection.server)
        serves_hook = "mix" in config.on()
        identity = identity_with(f"{socket.gethostname()}-{chance.token(6)}", hook_address if serves_hook else "")
        replica = Replica(
            config,
            api,
            make_pd(clock, chance),
            clock,
            chance,
            identity=identity,
            capabilities=capabilities(config),
            make_registry=make_registry,
        )
        host, port = host_port(config.listen_http, "listen-http")
        runner = web.AppRunner(
            status_app(lambda: replica, token=config.http_token, on_loopback=is_loopback(host)), access_log=None
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise CommandError(f"--listen-http {config.listen_http}: {error.strerror}; give a free address") from None
        extender = web.AppRunner(extender_app(replica), access_log=None, read_bufsize=1 << 18)
        await extender.setup()
        host_, port_ = host_port(config.listen_extender, "listen-extender")
        try:
            await web.TCPSite(extender, host_, port_).start()
        except OSError as error:
            raise CommandError(
                f"--listen-extender {config.listen_extender}: {error.strerror}; give a free address"
            ) from None
        webhook = WebhookServer(replica.reviewer, replica.front, hook_host, hook_port)
        courier = replica.reviewer.pass_on = Courier(replica.front, lambda: address_of(replica.elector.holder))
        if serves_hook:
            try:
                await webhook.start()
            except OSError as error:
                raise CommandError(
                    f"--listen-webhook {config.listen_webhook}: {error.strerror}; give a free address"
                ) from None
        note(f"mooring: {identity} at http://{host}:{port} · features: {', '.join(sorted(config.on())) or 'none'}")
        task = asyncio.create_task(replica.run(), name="replica")
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, task.cancel)
        try:
            await asyncio.gather(task)
        except asyncio.CancelledError:
            note("mooring: stopped; what had begun is marked, the lease is given back")
        finally:
            await webhook.stop()
            await courier.close()
            await extender.cleanup()
            await runner.cleanup()
