"""What is set, stored and seen, read once for each version of the object behind it: an index that the world keeps. And
whether the last change has settled.

The last good settings are kept beside what is wrong with the present ones: they stay in force meanwhile.

"While idle", as the design says, per concern (F9): the control plane changes only once its own last change is done,
workers come once those that came are Ready, they leave once those that left are gone. A machine that never comes up
would hold its concern up for ever, so that after `settle_timeout_s` the next change may come all the same.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf
from typing import Any

import msgspec

from mooring.capabilities.fleet.live import ledger as ledgers
from mooring.capabilities.fleet.live import settings as settings_of
from mooring.capabilities.fleet.live.ledger import Pending, StoredCluster, read_ledger
from mooring.capabilities.fleet.live.release import CONTROL_PLANE_TARGET
from mooring.capabilities.fleet.live.settings import FleetSettings, parse_settings
from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.fleet.planner.current import Member
from mooring.capabilities.fleet.planner.document import PlanError
from mooring.capabilities.fleet.planner.score import listed
from mooring.core.model.cluster import ConfigMap, Node
from mooring.core.model.decision import Fact
from mooring.core.model.events import Change, MachinesSeen, Object, Trigger
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import Machine
from mooring.core.world.read import WorldRead


def live_nodes(world: WorldRead, addresses: Collection[str]) -> dict[str, Node]:
    """Address → Node. A node is known by its address, as CKE names them; else by its InternalIP. Its kubelet writes
    that, so it names no node where two have it."""
    return {address: nodes[0] for address, nodes in _claiming(world, addresses).items() if len(nodes) == 1}


def claimed_twice(world: WorldRead, addresses: Collection[str]) -> str:
    """Which addresses more than one node has, in words; "": none. Fleet does nothing then: a machine whose node
    is hidden by another's is not empty."""
    twice = {a: nodes for a, nodes in _claiming(world, addresses).items() if len(nodes) > 1}
    return "; ".join(f"{a} is the address of {listed([n.name for n in nodes])}" for a, nodes in sorted(twice.items()))


def _claiming(world: WorldRead, addresses: Collection[str]) -> dict[str, list[Node]]:
    named: dict[str, list[Node]] = {}
    others: dict[str, list[Node]] = {}
    for node in world.nodes():
        if node.name in addresses:
            named[node.name] = [node]
        elif node.internal_ip in addresses:
            others.setdefault(node.internal_ip, []).append(node)
    return others | named


class Waits(msgspec.Struct, frozen=True):
    """What is still to come or to go, in words, by concern; "": it has settled, or its time is over."""

    control_plane: str = ""
    joining: str = ""
    leaving: str = ""
    #: When the next time is over.
    until: float = inf

    def of_all(self) -> str:
        return self.control_plane or self.joining or self.leaving


def waits(ledger: StoredCluster, nodes: Mapping[str, Node], now: float, timeout_s: float) -> Waits:
    pending = ledger.pending
    if pending == Pending():
        return Waits()
    planes = {m.address for m in ledger.members if m.control_plane}
    coming = {a: at for a, at in pending.added.items() if now - at < timeout_s and not is_ready(a, nodes)}
    going = {a: at for a, at in pending.removed.items() if now - at < timeout_s and a in nodes}
    was_plane = {a for a in going if is_control_plane(nodes[a])}
    joining, leaving = sorted(coming.keys() - planes), sorted(going.keys() - was_plane)
    said = [f"{listed(sorted(coming.keys() & planes))} not Ready yet"] if coming.keys() & planes else []
    said += [f"{listed(sorted(was_plane))} not gone yet"] if was_plane else []
    return Waits(
        " and ".join(said),
        f"{listed(joining)} not Ready yet" if joining else "",
        f"{listed(leaving)} not gone yet" if leaving else "",
        min((at + timeout_s for at in (*coming.values(), *going.values())), default=inf),
    )


def is_ready(address: str, nodes: Mapping[str, Node]) -> bool:
    return address in nodes and nodes[address].ready == "True"


def is_control_plane(node: Node) -> bool:
    return keys.CONTROL_PLANE_ROLE in node.labels or keys.MASTER_ROLE in node.labels


def control_plane_facts(ledger: StoredCluster, nodes: Mapping[str, Node], all_nodes: Iterable[Node]) -> Iterator[Fact]:
    """Control-plane nodes that are not Ready, or written and not in Kubernetes, or the reverse."""
    planes = {m.address: m for m in ledger.members if m.control_plane}
    for address, member in planes.items():
        subject = f"machine/{member.serial or address}"
        node = nodes.get(address)
        if node is None:
            yield Fact(CONTROL_PLANE_TARGET, subject, 1, f"control plane {address} is not in Kubernetes")
        elif node.ready != "True":
            yield Fact(CONTROL_PLANE_TARGET, subject, 1, f"control plane {address} is not Ready")
    if not planes:
        return
    for node in all_nodes:
        if not is_control_plane(node):
            continue
        if node.name not in planes and node.internal_ip not in planes:
            found = ledger.find(node.name) or ledger.find(node.internal_ip)
            serial = found.serial if found is not None else node.annotations.get(keys.SERIAL)
            subject = f"machine/{serial or node.name}"
            detail = f"{node.name} is a control plane in Kubernetes and not in the written cluster"
            yield Fact(CONTROL_PLANE_TARGET, subject, 1, detail)


# ── Which changes concern fleet: a heartbeat does not, and of ten thousand machines only those that changed ──────


class NodeNews(msgspec.Struct, frozen=True):
    #: Whether it came, went, or became Ready or not: then the plan may have settled.
    standing: bool


def node_news(old: Object | None, new: Object | None) -> NodeNews | None:
    """None: nothing that fleet reads has changed."""
    if not isinstance(old, Node) or not isinstance(new, Node):
        return NodeNews(True)
    roles = is_control_plane(old) != is_control_plane(new)
    standing = old.ready != new.ready or old.taints != new.taints or old.internal_ip != new.internal_ip or roles
    if standing:
        return NodeNews(True)
    same = old.labels == new.labels and old.annotations == new.annotations and old.unschedulable == new.unschedulable
    return None if same else NodeNews(False)


def changed_members(old: Object | None, new: Object | None) -> set[str]:
    """Addresses whose place in the stored cluster is another than before."""
    rows = []
    for one in (old, new):
        ledger = read_ledger(one) if isinstance(one, ConfigMap) else None
        rows.append(set() if ledger is None or isinstance(ledger, str) else {_row(m) for m in ledger.members})
    return {address for address, *_ in rows[0] ^ rows[1]}


def _row(m: Member) -> tuple[str, ...]:
    return (m.address, str(m.control_plane), str(m.state_taint), str(m.leaving))


def changed_machines(before: Mapping[str, Machine], now: Iterable[Machine]) -> Iterator[str]:
    """Addresses of machines whose labels or annotations may be others now, or that may carry our cordon no longer."""
    for machine in now:
        old = before.get(machine.address)
        if old is None or (old is not machine and _shown(old) != _shown(machine)):
            yield machine.address


def _shown(machine: Machine) -> tuple[object, ...]:
    m = machine
    return (m.serial, m.rack, m.index_in_rack, m.role, m.state, m.labels, m.register_date, m.retire_date, m.retire_at)


# ── The index ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Survey(msgspec.Struct, frozen=True):
    """Everything a pass depends on."""

    settings: FleetSettings
    ledger: StoredCluster
    #: By address.
    machines: Mapping[str, Machine]
    #: Live Nodes by address.
    nodes: Mapping[str, Node]
    now: float
    #: Of the registry, that cannot be used.
    bad_rows: tuple[Machine, ...] = ()


class FleetIndex:
    observes: frozenset[object] = frozenset({Kind.CONFIG_MAP, Kind.NODE, MachinesSeen})

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        #: The settings in force; None: there are none, or none that were ever good.
        self.settings: FleetSettings | None = None
        #: What is wrong with those in the ConfigMap; "" when nothing is.
        self.wrong = f"no ConfigMap {namespace}/{settings_of.NAME}: begin with mooring fleet set template"
        #: Whether there are settings at all, good or bad.
        self.configured = False
        #: The stored cluster, or why it cannot be read.
        self.ledger: StoredCluster | str = ledgers.EMPTY
        self.members: Mapping[str, Member] = {}
        self.machines: tuple[Machine, ...] = ()
        self.by_address: Mapping[str, Machine] = {}
        self.bad_rows: tuple[Machine, ...] = ()
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
                self.by_address = {m.address: m for m in machines if m.address and not m.problem}
                self.bad_rows = tuple(m for m in machines if m.problem or not m.address)
                self.by_serial = {m.serial: m for m in machines}
            case MachinesSeen():
                self.changed = ()

    def advance(self) -> bool:
        return False

    def _set(self, found: ConfigMap | None) -> None:
        self.configured = found is not None
        if found is None:
            self.settings = None
            self.wrong = f"no ConfigMap {self.namespace}/{settings_of.NAME}: begin with mooring fleet set template"
            return
        made = parse_settings(found.data)
        if isinstance(made, PlanError):
            self.wrong = made.message
        else:
            self.settings, self.wrong = made, ""

    def survey(self, settings: FleetSettings, ledger: StoredCluster, world: WorldRead, now: float) -> Survey:
        return Survey(settings, ledger, self.by_address, live_nodes(world, self.addresses), now, self.bad_rows)

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
