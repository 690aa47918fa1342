"""The one way to a cluster: the same flags, messages and exit codes in every command.

A kubeconfig that is missing or wrong is bad input (2); a cluster that does not answer could not be looked at (4).
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mooring.cli.exits import CommandError, Exit

if TYPE_CHECKING:
    from mooring.clients.kube import Connection, HttpKubeApi, Scope
    from mooring.core.model.kinds import Kind

Kubeconfig = Annotated[
    str, Parameter(help="The kubeconfig file. Default: $KUBECONFIG, else ~/.kube/config, else the pod's own account.")
]
Context = Annotated[str, Parameter(help="A context of the kubeconfig. Default: its current one.")]
#: Of commands that work with Mooring itself.
OwnNamespace = Annotated[
    str, Parameter(name=["--namespace", "-n"], help="Mooring's own namespace. Default: mooring-system.")
]
ObjectNamespace = Annotated[
    str, Parameter(name=["--namespace", "-n"], help="The namespace of the object. Default: wherever it is found.")
]
Pd = Annotated[tuple[str, ...], Parameter(help="NAMESPACE/CLUSTER=URL[,URL…]: where a cluster's PD is; may repeat.")]
ConfigFile = Annotated[str, Parameter(help="The settings file that `mooring run` gets, YAML or JSON.")]
Features = Annotated[str, Parameter(help="NAME=true|false,…: home, handoff, mix, fleet, balance.")]


@contextmanager
def reaching(hint: str = "") -> Iterator[None]:
    """What goes wrong on the way to a cluster, as a message and an exit code."""
    from mooring.clients.kube import ConfigError
    from mooring.clients.ports import PortError

    more = f"; {hint}" if hint else ""
    try:
        yield
    except ConfigError as error:
        raise CommandError(f"{error}{more}") from None
    except PortError as error:
        raise CommandError(f"the cluster does not answer: {error}{more}", Exit.COULD_NOT_LOOK) from None


def connection_of(kubeconfig: str, context: str) -> "Connection":
    from mooring.clients.kube import load

    with reaching():
        return load(kubeconfig or None, context=context)


@asynccontextmanager
async def connect(
    kubeconfig: str, context: str, *, scopes: "Mapping[Kind, Scope] | None" = None, hint: str = ""
) -> "AsyncIterator[HttpKubeApi]":
    from mooring.clients.kube import HttpKubeApi, load

    with reaching(hint):
        async with HttpKubeApi(load(kubeconfig or None, context=context), scopes=scopes or {}) as api:
            yield api
