"""What is set, stored and seen, read once for each version of the object behind it: an index that the world keeps.

The last good settings are kept beside what is wrong with the present ones: they stay in force meanwhile.
"""

from collections.abc import Mapping
from typing import Any

from mooring.capabilities.fleet.live import ledger as ledgers
from mooring.capabilities.fleet.live import settings as settings_of
from mooring.capabilities.fleet.live.affected import changed_machines, node_news
from mooring.capabilities.fleet.live.fleet_pass import Survey
from mooring.capabilities.fleet.live.ledger import StoredCluster, read_ledger
from mooring.capabilities.fleet.live.settings import FleetSettings, parse_settings
from mooring.capabilities.fleet.live.settling import live_nodes
from mooring.capabilities.fleet.planner.current import Member
from mooring.capabilities.fleet.planner.problem import PlanError
from mooring.core.model.cluster import ConfigMap, Node
from mooring.core.model.events import Change, MachinesSeen, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import Machine
from mooring.core.world.read import WorldRead


class FleetIndex:
    observes: frozenset[object] = frozenset({Kind.CONFIG_MAP, Kind.NODE, MachinesSeen})

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        #: The settings in force; None: there are none, or none that were ever good.
        self.settings: FleetSettings | None = None
        #: What is wrong with those in the ConfigMap; "" when nothing is.
        self.wrong = f"no ConfigMap {namespace}/{settings_of.NAME}: begin with mooring fleet set-template"
        #: Whether there are settings at all, good or bad.
        self.configured = False
        #: The stored cluster, or why it cannot be read.
        self.ledger: StoredCluster | str = ledgers.EMPTY
        self.members: Mapping[str, Member] = {}
        self.machines: tuple[Machine, ...] = ()
        self.by_address: Mapping[str, Machine] = {}
        self.by_serial: Mapping[str, Machine] = {}
        #: Addresses whose machine is not as it was in the list before.
        self.changed: tuple[str, ...] = ()
        #: Counts the changes of nodes that matter to fleet.
        self.nodes_version = 0

    def kept(self) -> dict[str, object]:
        """What a checkpoint keeps."""
        return vars(self)

    def restore(self, kept: Mapping[str, Any]) -> None:
        vars(self).update(kept)

    def observe(self, trigger: Trigger, world: WorldRead) -> None:
        match trigger:
            case Change(kind=Kind.NODE, old=old, new=new):
                self.nodes_version += node_news(old, new) is not None
            case Change(kind=Kind.CONFIG_MAP, key=key, new=new) if key.namespace == self.namespace:
                found = new if isinstance(new, ConfigMap) else None
                if key.name == settings_of.NAME:
                    self._set(found)
                elif key.name == ledgers.NAME:
                    self.ledger = read_ledger(found)
                    members = () if isinstance(self.ledger, str) else self.ledger.members
                    self.members = {m.address: m for m in members}
            case MachinesSeen(machines=machines) if machines is not self.machines:
                self.changed = tuple(changed_machines(self.by_address, machines))
                self.machines = machines
                self.by_address = {m.address: m for m in machines if m.address}
                self.by_serial = {m.serial: m for m in machines}
            case MachinesSeen():
                self.changed = ()

    def advance(self) -> bool:
        return False

    def _set(self, found: ConfigMap | None) -> None:
        self.configured = found is not None
        if found is None:
            self.settings = None
            self.wrong = f"no ConfigMap {self.namespace}/{settings_of.NAME}: begin with mooring fleet set-template"
            return
        made = parse_settings(found.data)
        if isinstance(made, PlanError):
            self.wrong = made.message
        else:
            self.settings, self.wrong = made, ""

    def survey(self, settings: FleetSettings, ledger: StoredCluster, world: WorldRead, now: float) -> Survey:
        return Survey(settings, ledger, self.by_address, live_nodes(world, self.addresses), now)

    @property
    def addresses(self) -> set[str]:
        """Of all machines that are, will be or were in the cluster."""
        removed = () if isinstance(self.ledger, str) else self.ledger.pending.removed
        return {*self.members, *self.by_address, *removed}

    def member_of(self, node: Node, world: WorldRead) -> Member | None:
        """The machine in the cluster that this node is."""
        address = node.name if node.name in self.members else node.internal_ip
        member = self.members.get(address)
        # All nodes are walked only for an address that is a member's: a spare node is looked at often.
        if member is None or node.name == address or live_nodes(world, {address}).get(address) == node:
            return member
        return None
