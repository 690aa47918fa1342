"""`mooring run`: the control plane itself, one replica of it."""

import asyncio
import contextlib
import os
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mooring.cli.connect import Context, Kubeconfig, OwnNamespace, Pd, connection_of, reaching
from mooring.cli.output import note, print_json
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mooring.process.settings.config import Config, Resolved

app = App(name="run")

BlackBoxDir = Annotated[
    str,
    Parameter(
        help="Where to record what is decided from what, for `mooring replay`; none: nowhere. Default: "
        "~/.local/state/mooring/blackbox."
    ),
]
FeatureSwitches = Annotated[
    str, Parameter(help="NAME=true|false,…: home (StableScheduling), handoff, mix, fleet, balance.")
]


@app.default
def run(
    *,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    config: Annotated[str, Parameter(help="YAML or JSON file with the same keys as the flags.")] = "",
    features: FeatureSwitches = "",
    namespace: OwnNamespace = "",
    pd: Pd = (),
    sabakan_url: Annotated[str, Parameter(help="The machine registry, when fleet's own settings name none.")] = "",
    listen_extender: Annotated[str, Parameter(help="For kube-scheduler. Default: 127.0.0.1:10262.")] = "",
    listen_webhook: Annotated[str, Parameter(help="For the API server's admission reviews. Default: :9443.")] = "",
    webhook_url: Annotated[str, Parameter(help="Outside a cluster: where the API server finds the webhook.")] = "",
    listen_http: Annotated[str, Parameter(help="Page, API, metrics, health. Default: 127.0.0.1:8390.")] = "",
    blackbox: BlackBoxDir = "",
    log_level: Annotated[str, Parameter(help="debug, info, warning or error. Default: info.")] = "",
    print_config: Annotated[bool, Parameter(help="Print the settings and stop; see `mooring config`.")] = False,
) -> int:
    """Run one replica of Mooring.

    Settings come from flags, the environment (MOORING_…), a file, and defaults, in that order. All features are off
    unless switched on. It stops on SIGTERM or Ctrl-C within 10 s: nothing new is begun, what is under way ends, the
    lease is given back.

    Example: mooring run --features handoff=true --pd tidb/demo=http://127.0.0.1:2379

    Example: mooring run --kubeconfig lab/kubeconfig --config mooring.yml --webhook-url https://127.0.0.1:9443
    """
    # Until the loop has its own: as the first process of a container it would otherwise ignore the signal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(Exit.DONE))
    from mooring.process.settings.config import ConfigError

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
        "blackbox": blackbox,
        "log-level": log_level,
    }

    settings = partial(_resolve, flags, config, pd)
    try:
        resolved = settings()
    except ConfigError as error:
        raise UserError(str(error)) from None
    _warn(resolved)
    if print_config:
        _print_config(resolved)
    else:
        _run(resolved, settings)
    return Exit.DONE


def _resolve(flags: dict[str, str], config: str, pd: tuple[str, ...]) -> "Resolved":
    """The settings of this replica: `mooring run` records unless told otherwise."""
    import msgspec

    from mooring.process.settings.config import recorded, resolve

    found = resolve(flags, os.environ, config, pd)
    return msgspec.structs.replace(found, config=recorded(found.config, os.environ))


def _warn(resolved: "Resolved") -> None:
    for warning in resolved.warnings:
        note(f"mooring: warning: {warning}")


def _print_config(resolved: "Resolved") -> None:
    import msgspec

    from mooring.process.settings.config import written_out
    from mooring.process.settings.keys import shown

    values = msgspec.to_builtins(written_out(resolved.config))
    print_json({key: {"value": shown(key, values[key]), "source": resolved.sources[key]} for key in values})


def _run(resolved: "Resolved", settings: "Callable[[], Resolved]") -> None:
    from mooring.process import logs

    config = resolved.config
    logs.configure(config.log_level, config.log_format)
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_main(config, settings))


def _loop_factory() -> "Callable[[], asyncio.AbstractEventLoop] | None":
    """The loop of uvloop where it is installed (`pip install mooring[fast]`): TLS handshakes cost half."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _main(config: "Config", settings: "Callable[[], Resolved]") -> None:
    from mooring.clients.kube import HttpKubeApi, Scope
    from mooring.clients.ports import NotFoundError
    from mooring.core.model.kinds import Kind
    from mooring.process.serve import AddressTakenError, live

    connection = connection_of(config.kubeconfig, config.context)
    async with HttpKubeApi(connection, scopes={Kind.CONFIG_MAP: Scope(namespace=config.namespace)}) as api:
        with reaching():
            try:
                await api.get(Kind.NAMESPACE, "", config.namespace)
            except NotFoundError:
                raise UserError(
                    f"namespace {config.namespace!r} does not exist; create it (kubectl create namespace "
                    f"{config.namespace}) or name another with --namespace"
                ) from None
        running = live(config, settings, api, connection.server, note, context=connection.context)
        task = asyncio.create_task(running, name="mooring")
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, task.cancel)
        try:
            await asyncio.gather(task)
        except AddressTakenError as error:
            raise UserError(str(error)) from None
        except asyncio.CancelledError:
            note("mooring: stopped; what had begun is marked, the lease is given back")
