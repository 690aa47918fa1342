"""The one way to a cluster: the same flags, messages and exit codes in every command.

A kubeconfig that is missing or wrong is bad input (2); a cluster that does not answer could not be looked at (4).
"""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from mooring.cli.output import note
from mooring.core.model.exits import Exit, UserError

if TYPE_CHECKING:
    from mooring.clients.kube import Connection, HttpKubeApi, Scope
    from mooring.core.model.kinds import Kind
    from mooring.process.settings.config import Resolved

#: How long a cluster may take to say who it is.
PROBE_S: Final = 10.0
Kubeconfig = Annotated[
    str, Parameter(help="The kubeconfig file. Default: $KUBECONFIG, else ~/.kube/config, else the pod's own account.")
]
Context = Annotated[str, Parameter(help="A context of the kubeconfig. Default: its current one.")]
#: Of commands that work with Mooring itself.
OwnNamespace = Annotated[
    str,
    Parameter(
        name=["--mooring-namespace", "--namespace"],
        help="Mooring's own namespace. Default: mooring-system.",
        show_default=False,
    ),
]
#: Where a command's `-n` is the namespace of an object.
MooringNamespace = Annotated[
    str,
    Parameter(
        name="--mooring-namespace", help="Where Mooring itself runs. Default: mooring-system.", show_default=False
    ),
]
ObjectNamespace = Annotated[
    str, Parameter(name=["--namespace", "-n"], help="The namespace of the object. Default: wherever it is found.")
]
#: Of commands that list.
OnlyNamespace = Annotated[
    str, Parameter(name=["--namespace", "-n"], help="Only what is in this namespace. Default: all of them.")
]
AllNamespaces = Annotated[
    bool, Parameter(name=["--all-namespaces", "-A"], help="What is in any namespace, which is the default.")
]
Pd = Annotated[tuple[str, ...], Parameter(help="NAMESPACE/CLUSTER=URL[,URL…]: where a cluster's PD is; may repeat.")]
ConfigFile = Annotated[str, Parameter(help="The settings file that `mooring run` gets, YAML or JSON.")]
Features = Annotated[str, Parameter(help="NAME=true|false,…: home, handoff, mix, fleet, balance, drain.")]


@contextmanager
def reaching(hint: str = "") -> Iterator[None]:
    """What goes wrong on the way to a cluster, as a message and an exit code."""
    from mooring.clients.kube import KubeconfigError
    from mooring.clients.ports import PortError

    more = f"; {hint}" if hint else ""
    try:
        yield
    except KubeconfigError as error:
        raise UserError(f"{error}{more}") from None
    except PortError as error:
        raise UserError(f"the cluster does not answer: {error}{more}", Exit.UNREACHABLE) from None


def connection_of(kubeconfig: str, context: str) -> "Connection":
    from mooring.clients.kube import load

    with reaching():
        return load(kubeconfig or None, context=context)


@asynccontextmanager
async def connect(
    kubeconfig: str,
    context: str,
    *,
    scopes: "Mapping[Kind, Scope] | None" = None,
    hint: str = "",
    probe: bool = True,
) -> "AsyncIterator[HttpKubeApi]":
    """`probe`: first see whether a Kubernetes API server is there at all; a list would wait for minutes."""
    from mooring.clients.kube import HttpKubeApi, load

    with reaching(hint):
        connection = load(kubeconfig or None, context=context)
        async with HttpKubeApi(connection, scopes=scopes or {}) as api:
            if probe:
                await _probe(api, connection.server)
            yield api


async def _probe(api: "HttpKubeApi", server: str) -> None:
    import asyncio

    from mooring.clients.ports import NotFoundError, RefusedError, UnansweredError

    try:
        async with asyncio.timeout(PROBE_S):
            version = await api.raw("GET", "/version")
    except TimeoutError:
        raise UnansweredError(f"no answer from {server} within {PROBE_S:.0f} s") from None
    except (NotFoundError, RefusedError):
        return  # it answers; what is asked for next will say what is wrong
    if not isinstance(version, dict):
        raise UnansweredError(f"{server} is not a Kubernetes API server: GET /version answered {str(version)[:40]!r}")


def settings(flags: "Mapping[str, str | None]", config: str = "", pd: tuple[str, ...] = ()) -> "Resolved":
    """As flags, the environment, the file and the defaults say; what is odd about them is told."""
    from mooring.process.settings.config import resolve

    resolved = resolve(flags, os.environ, config, pd)
    for warning in resolved.warnings:
        note(f"mooring: warning: {warning}")
    return resolved
