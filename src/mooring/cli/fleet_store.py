"""How `mooring fleet` comes to what it keeps in Kubernetes."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from cyclopts import Parameter

from mooring.cli.connect import Context, Kubeconfig, OwnNamespace, connect
from mooring.clients.ports import NotFoundError
from mooring.core.model.exits import UserError

if TYPE_CHECKING:
    from mooring.process.fleet.store import FleetStore

T = TypeVar("T")


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Which cluster, and where in it."""

    kubeconfig: Kubeconfig = ""
    context: Context = ""
    namespace: OwnNamespace = "mooring-system"


def talk(where: Where, what: Callable[["FleetStore"], Awaitable[T]]) -> T:
    """One conversation with the cluster; everything that may go wrong becomes a message and an exit code."""

    async def whole() -> T:
        from mooring.process.fleet.store import FleetStore

        async with connect(where.kubeconfig, where.context) as api:
            try:
                return await what(FleetStore(api, where.namespace))
            except NotFoundError as error:
                raise UserError(
                    f"{error}; does the namespace {where.namespace} exist? (kubectl create namespace {where.namespace})"
                ) from None

    return asyncio.run(whole())
