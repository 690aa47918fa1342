"""The machine registry that the settings name: URL and variables are read again for every query.

`--sabakan-url` is where to ask when the settings name no URL. A client is made when the URL is another than before.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from mooring.capabilities.fleet.live import settings
from mooring.clients.ports import MachineRegistry, PortError, RefusedError
from mooring.core.model.cluster import Key
from mooring.core.model.machine import Machine
from mooring.core.world.read import WorldRead

Make = Callable[[str], MachineRegistry]


class SettingsRegistry:
    """`ports.MachineRegistry` by our settings. `fixed`: one registry, whatever the URL (the sandbox's)."""

    def __init__(
        self,
        world: WorldRead,
        namespace: str,
        *,
        make: Make | None = None,
        fixed: MachineRegistry | None = None,
        url: str = "",
    ) -> None:
        self._world = world
        self._key = Key(namespace, settings.NAME)
        self._make = make
        self._fixed = fixed
        self._url = url
        self._known: tuple[str, MachineRegistry] | None = None

    async def machines(self, variables: dict[str, Any] | None = None) -> Sequence[Machine]:
        found = self._world.config_map(self._key)
        data = found.data if found is not None else {}
        if variables is None and data.get(settings.VARIABLES):
            try:
                variables = msgspec.json.decode(data[settings.VARIABLES], type=dict[str, Any] | None)
            except (msgspec.DecodeError, RecursionError) as error:
                raise RefusedError(f"{settings.VARIABLES} of ConfigMap {self._key}: {error}", 422) from None
        return await (await self._registry(data.get(settings.URL) or self._url)).machines(variables)

    async def _registry(self, url: str) -> MachineRegistry:
        if self._fixed is not None:
            return self._fixed
        if not url or self._make is None:
            raise PortError("no machine registry is named: mooring fleet set-url, or mooring run --sabakan-url")
        if self._known is None or self._known[0] != url:
            await self.close()
            try:
                self._known = (url, self._make(url))
            except ValueError as error:
                raise RefusedError(f"registry: {error}", 400) from None
        return self._known[1]

    async def close(self) -> None:
        if self._known is not None:
            await self._known[1].close()
            self._known = None
