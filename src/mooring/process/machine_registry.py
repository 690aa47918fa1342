"""The machine registry that the settings name: URL, machines and query are read again for every look.

`registry.url` of the configuration file is where to ask when fleet's own settings name no URL and list no machines. A
client is made when the URL is another than before.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from mooring.capabilities.fleet.live import settings as keys
from mooring.clients.ports import MachineRegistry, PortError, RefusedError
from mooring.clients.registry.file import MachineList
from mooring.clients.registry.netbox import NetboxSettings
from mooring.core.model.cluster import Key
from mooring.core.model.machine import Machine
from mooring.core.world.read import WorldRead
from mooring.process.settings.config import RegistrySettings

Make = Callable[[str, NetboxSettings], MachineRegistry]


class SettingsRegistry:
    """`ports.MachineRegistry` by our settings. `fixed`: instead of whatever the URL names (the sandbox's)."""

    def __init__(
        self,
        world: WorldRead,
        namespace: str,
        *,
        make: Make | None = None,
        fixed: MachineRegistry | None = None,
        settings: RegistrySettings | None = None,
    ) -> None:
        self._world = world
        self._key = Key(namespace, keys.NAME)
        self._make = make
        self._fixed = fixed
        self._settings = settings or RegistrySettings()
        self._known: tuple[str, MachineRegistry] | None = None
        self._listed = MachineList()

    async def machines(self, query: dict[str, Any] | None = None) -> Sequence[Machine]:
        found = self._world.config_map(self._key)
        data = found.data if found is not None else {}
        if query is None and data.get(keys.VARIABLES):
            try:
                query = msgspec.json.decode(data[keys.VARIABLES], type=dict[str, Any] | None)
            except (msgspec.DecodeError, RecursionError) as error:
                raise RefusedError(f"{keys.VARIABLES} of ConfigMap {self._key}: {error}", 422) from None
        if not data.get(keys.URL) and data.get(keys.MACHINES):
            return await self._listed.read(data[keys.MACHINES].encode(), f"{keys.MACHINES} of ConfigMap {self._key}")
        if self._fixed is not None:
            return await self._fixed.machines(query)
        return await (await self._registry(data.get(keys.URL) or self._settings.url)).machines(query)

    async def _registry(self, url: str) -> MachineRegistry:
        if not url or self._make is None:
            raise PortError("no machine registry is named: mooring fleet set url URL, or set machines FILE")
        if self._known is None or self._known[0] != url:
            await self.close()
            try:
                self._known = (url, self._make(url, self._settings.netbox))
            except ValueError as error:
                raise RefusedError(f"registry: {error}", 400) from None
        return self._known[1]

    async def close(self) -> None:
        if self._known is not None:
            await self._known[1].close()
            self._known = None
