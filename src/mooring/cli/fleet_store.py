"""What `mooring fleet` keeps in Kubernetes: settings and stored cluster, read and written by compare-and-swap."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cyclopts import Parameter

from mooring.capabilities.fleet.live import ledger, settings
from mooring.capabilities.fleet.live.ledger import StoredCluster, read_ledger
from mooring.capabilities.fleet.live.settings import Settings, parse_settings
from mooring.capabilities.fleet.planner.problem import PlanError
from mooring.cli.connect import Context, Kubeconfig, OwnNamespace, connect
from mooring.clients.ports import AlreadyExistsError, ConflictError, Json, NotFoundError
from mooring.core.model.cluster import ConfigMap
from mooring.core.model.exits import Exit, UserError
from mooring.core.model.kinds import Kind

if TYPE_CHECKING:
    from mooring.clients.kube import HttpKubeApi

T = TypeVar("T")


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Which cluster, and where in it."""

    kubeconfig: Kubeconfig = ""
    context: Context = ""
    namespace: OwnNamespace = "mooring-system"


class Store:
    def __init__(self, api: "HttpKubeApi", namespace: str) -> None:
        self._api = api
        self.namespace = namespace

    async def find(self, name: str) -> ConfigMap | None:
        try:
            obj = await self._api.get(Kind.CONFIG_MAP, self.namespace, name)
        except NotFoundError:
            return None
        metadata = obj["metadata"]
        return ConfigMap(
            self.namespace, name, metadata["uid"], metadata["resourceVersion"], data=dict(obj.get("data") or {})
        )

    async def data(self) -> dict[str, str]:
        found = await self.find(settings.NAME)
        return dict(found.data) if found is not None else {}

    async def ledger(self) -> StoredCluster:
        made = read_ledger(await self.find(ledger.NAME))
        if isinstance(made, str):
            raise UserError(made, Exit.NOT_AS_IT_SHOULD_BE)
        return made

    async def settings(self) -> Settings:
        made = parse_settings(await self.data())
        if isinstance(made, PlanError):
            raise UserError(made.message, Exit.NOT_AS_IT_SHOULD_BE)
        return made

    async def write(self, name: str, data: Mapping[str, str | None], found: ConfigMap | None) -> None:
        """Only if nothing was written since `found` was read."""
        try:
            if found is None:
                given = {k: v for k, v in data.items() if v is not None}
                await self._api.create(Kind.CONFIG_MAP, dict(ledger.new_object(self.namespace, given, name)))
                return
            guard = {"uid": found.uid, "resourceVersion": found.resource_version}
            patch: Json = {"metadata": guard, "data": dict(data)}
            await self._api.patch(Kind.CONFIG_MAP, self.namespace, name, patch)
        except (ConflictError, AlreadyExistsError):
            raise UserError(
                f"ConfigMap {self.namespace}/{name} was changed meanwhile; nothing was written, try again", Exit.REFUSED
            ) from None

    async def set(self, **data: str | None) -> None:
        await self.write(settings.NAME, data, await self.find(settings.NAME))

    async def nodes(self) -> list[Json]:
        answer = await self._api.raw("GET", "/api/v1/nodes")
        return list(answer["items"])


def talk(where: Where, what: Callable[[Store], Awaitable[T]]) -> T:
    """One conversation with the cluster; everything that may go wrong becomes a message and an exit code."""

    async def whole() -> T:
        async with connect(where.kubeconfig, where.context) as api:
            try:
                return await what(Store(api, where.namespace))
            except NotFoundError as error:
                raise UserError(
                    f"{error}; does the namespace {where.namespace} exist? (kubectl create namespace {where.namespace})"
                ) from None

    return asyncio.run(whole())


def read_text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 text: {error}") from None


def good(value: Any) -> Any:
    if isinstance(value, PlanError):
        raise UserError(value.message)
    return value
