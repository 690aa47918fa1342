"""The repair queue (F15): which machine that the registry calls unhealthy has the configured command run for it now.

    unhealthy for `after-s` ──► queued ──► running ──► watched ──► healthy: forgotten
                                              └──────────┴──► failed: not healthy in time; it keeps its place

Once: what was begun is written down first, so that a leader that dies midway never has it run again. A machine that
does not come back is reported, and its place is not given to the next. Nothing is disturbed: it waits until the node is
not Ready, or holds no pod that would have to leave. Pure; `process/fleet/repair` runs the command.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from mooring.capabilities.drain import empty_node
from mooring.capabilities.fleet.live.index import FleetIndex, live_nodes
from mooring.capabilities.fleet.live.policy import RepairPolicy
from mooring.core.model.cluster import Key
from mooring.core.model.machine import Machine, MachineState
from mooring.core.world.read import WorldRead

NAME: Final = "mooring-fleet-repair"
#: Fewer than so many members tell nothing about a registry that lies.
_FEW: Final = 4
#: How much longer than its command may take the record of one may stand.
_GRACE_S: Final = 60.0


class Begun(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is written down of one machine, under its address."""

    at: float
    serial: str = ""
    rack: int = 0
    role: str = ""
    #: When the command ended, how (None: not in time, or it did not start), and its last words.
    ended: float = 0.0
    code: int | None = None
    said: str = ""


class Repair(msgspec.Struct, frozen=True):
    address: str
    serial: str
    #: queued, running, watched or failed
    state: str
    why: str


class Repairs(msgspec.Struct, frozen=True):
    rows: tuple[Repair, ...] = ()
    #: Whose command is to be run now.
    due: tuple[Machine, ...] = ()
    #: Addresses that are healthy again, or in the cluster no more.
    over: tuple[str, ...] = ()


def read_begun(data: Mapping[str, str]) -> dict[str, Begun]:
    """What cannot be read counts as begun: it is not run again."""
    found = {}
    for address, text in data.items():
        try:
            found[address] = msgspec.json.decode(text, type=Begun)
        except (msgspec.DecodeError, RecursionError):
            found[address] = Begun(0.0, said="its record cannot be read")
    return found


def repairs(world: WorldRead, policy: RepairPolicy, namespace: str, now: float) -> Repairs:
    index = world.index(FleetIndex)
    settings, ledger = index.settings, index.ledger
    if not policy.command or settings is None or not settings.enabled or isinstance(ledger, str):
        return Repairs()
    kept = world.config_map(Key(namespace, NAME))
    begun = read_begun(kept.data if kept is not None else {})
    rows, over = [], []
    for address, one in sorted(begun.items()):
        machine = index.by_address.get(address)
        healthy = machine is not None and machine.state is MachineState.HEALTHY and machine.state_since > one.at
        if healthy or address not in index.members:
            over.append(address)
        else:
            rows.append(Repair(address, one.serial, *_standing(one, policy, now)))
    clear = not world.machines_lost() and world.machines_observed_at() is not None
    taken = [begun[row.address] for row in rows]
    wanted = _wanted(index, policy, now, begun) if clear else []
    crowd = _too_many(index, policy) if wanted else ""
    nodes = live_nodes(world, {m.address for m in wanted})
    due = []
    for machine in wanted:
        node = nodes.get(machine.address)
        left = empty_node.to_leave(node.name, world) if node is not None and node.ready == "True" else []
        waits = crowd or _full(machine, taken, policy)
        if not waits and left and node is not None:
            waits = f"its node is Ready and has {len(left)} pods: mooring drain {node.name}"
        rows.append(Repair(machine.address, machine.serial, "queued", waits or "next"))
        if not waits:
            due.append(machine)
            taken.append(Begun(now, machine.serial, machine.rack, machine.role))
    return Repairs(tuple(rows), tuple(due), tuple(over) if clear else ())


def _standing(one: Begun, policy: RepairPolicy, now: float) -> tuple[str, str]:
    if not one.ended:
        if now - one.at < policy.timeout_s + _GRACE_S:
            return "running", f"since {now - one.at:.0f} s"
        return "failed", one.said or "its end was not seen"
    if one.code != 0:
        return "failed", one.said
    if now - one.ended < policy.back_within_s:
        return "watched", f"the command ended {now - one.ended:.0f} s ago; not healthy yet"
    return "failed", f"not healthy {(now - one.ended) / 60:.0f} min after the command ended"


def _wanted(index: FleetIndex, policy: RepairPolicy, now: float, begun: Iterable[str]) -> list[Machine]:
    """Workers alone: a broken control plane is replaced first, and is a worker then."""
    states = {MachineState(state.upper()) for state in policy.states}
    found = (index.by_address.get(a) for a, m in index.members.items() if not m.control_plane and a not in begun)
    sick = [m for m in found if m is not None and m.state in states and now - m.state_since >= policy.after_s]
    return sorted(sick, key=lambda m: (m.state_since, m.address))


def _too_many(index: FleetIndex, policy: RepairPolicy) -> str:
    states = {MachineState(state.upper()) for state in policy.states}
    members = [m for a in index.members if (m := index.by_address.get(a)) is not None]
    sick = sum(m.state in states for m in members)
    if len(members) < _FEW or sick * 2 <= len(members):
        return ""
    return f"{sick} of {len(members)} machines are unhealthy at once: the registry is the likelier cause"


def _full(machine: Machine, taken: list[Begun], policy: RepairPolicy) -> str:
    racks, roles = Counter(one.rack for one in taken), Counter(one.role for one in taken)
    if len(taken) >= policy.at_most:
        return f"{len(taken)} of {policy.at_most} under repair"
    if policy.at_most_per_rack and racks[machine.rack] >= policy.at_most_per_rack:
        return f"rack {machine.rack} has {racks[machine.rack]} of {policy.at_most_per_rack} under repair"
    if policy.at_most_per_role and roles[machine.role] >= policy.at_most_per_role:
        return f"role {machine.role} has {roles[machine.role]} of {policy.at_most_per_role} under repair"
    return ""
