"""What is set, stored and seen, read once for each version of the object behind it.

Soft state: whatever is kept here follows from the world, and is read again when that has changed.
"""

from collections.abc import Iterable, Mapping

from mooring.capabilities.fleet.live import ledger as ledgers
from mooring.capabilities.fleet.live import settings as settings_of
from mooring.capabilities.fleet.live.affected import changed_machines
from mooring.capabilities.fleet.live.fleet_pass import Survey
from mooring.capabilities.fleet.live.ledger import Ledger, read_ledger
from mooring.capabilities.fleet.live.settings import Settings, parse_settings
from mooring.capabilities.fleet.live.settling import live_nodes
from mooring.capabilities.fleet.planner.current import Member
from mooring.capabilities.fleet.planner.problem import ErrorCode, PlanError
from mooring.core.model.cluster import ConfigMap, Key
from mooring.core.model.machine import Machine
from mooring.core.world.read import WorldRead


class Known:
    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._settings: tuple[str, Settings | PlanError] = ("", PlanError(ErrorCode.INVALID_TEMPLATE, "none yet"))
        self._good: Settings | None = None
        self._ledger: tuple[ConfigMap | None, Ledger | str] = (None, ledgers.EMPTY)
        self._by_address: tuple[Ledger | None, dict[str, Member]] = (None, {})
        self._machines: tuple[tuple[Machine, ...], dict[str, Machine], dict[str, Machine]] = ((), {}, {})

    def settings(self, world: WorldRead) -> tuple[Settings | None, str]:
        """The settings in force, and what is wrong with those in the ConfigMap ("" when nothing is)."""
        found = world.config_map(Key(self.namespace, settings_of.NAME))
        if found is None:
            return None, f"no ConfigMap {self.namespace}/{settings_of.NAME}: begin with mooring fleet set-template"
        if self._settings[0] != found.resource_version:
            self._settings = (found.resource_version, parse_settings(found.data))
        made = self._settings[1]
        if isinstance(made, PlanError):
            return self._good, made.message
        self._good = made
        return made, ""

    def configured(self, world: WorldRead) -> bool:
        """Whether there are settings at all, good or bad."""
        return world.config_map(Key(self.namespace, settings_of.NAME)) is not None

    def ledger(self, world: WorldRead) -> Ledger | str:
        found = world.config_map(ledgers.key(self.namespace))
        if self._ledger[0] is not found:
            self._ledger = (found, read_ledger(found))
        return self._ledger[1]

    def members(self, ledger: Ledger) -> Mapping[str, Member]:
        if self._by_address[0] is not ledger:
            self._by_address = (ledger, {m.address: m for m in ledger.members})
        return self._by_address[1]

    def machines(self, world: WorldRead) -> tuple[dict[str, Machine], dict[str, Machine]]:
        """Machines by address and by serial."""
        machines = world.machines()
        if self._machines[0] is not machines:
            by_address = {m.address: m for m in machines if m.address}
            self._machines = (machines, by_address, {m.serial: m for m in machines})
        return self._machines[1], self._machines[2]

    def survey(self, settings: Settings, ledger: Ledger, world: WorldRead, now: float) -> Survey:
        machines = self.machines(world)[0]
        addresses = {*self.members(ledger), *machines, *ledger.pending.removed}
        return Survey(settings, ledger, machines, live_nodes(world, addresses), now)

    def news_of(self, machines: tuple[Machine, ...]) -> Iterable[str]:
        """Addresses of those that are not as they were when looked at last."""
        return () if machines is self._machines[0] else changed_machines(self._machines[1], machines)

    @property
    def last_ledger(self) -> Ledger | str:
        return self._ledger[1]
