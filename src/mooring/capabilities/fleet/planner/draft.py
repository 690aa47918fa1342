"""The cluster while it is being planned: which machine has which place, which are unused, and the changes.

    unused ──add──▶ worker ──promote──▶ control plane
       └──────────add────────────────────────▲  │
                      worker ◀────demote────────┘      any ──remove──▶ gone (not free again in this pass)

Nothing is scored or sorted until a choice needs it: a pass with nothing to do only walks the members once.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from mooring.capabilities.fleet.planner.current import Member, intolerable, wanted_state_taint
from mooring.capabilities.fleet.planner.plan import FleetView, Verb
from mooring.capabilities.fleet.planner.score import (
    Choice,
    Group,
    Lives,
    RackQueue,
    choice_in_words,
    listed,
    to_add,
    to_remove,
)
from mooring.capabilities.fleet.planner.template import NodeTemplate
from mooring.core.model.machine import Machine, MachineState

_HEALTHY: Final = MachineState.HEALTHY
_RETIRING: Final = MachineState.RETIRING
_RETIRED: Final = MachineState.RETIRED


class Draft:
    def __init__(self, view: FleetView) -> None:
        self.view = view
        self.machines = {m.address: m for m in view.machines if m.address and not m.problem}
        self.notes = [*view.template.notes, *view.constraints.notes, *_left_out(view)]
        self.members: dict[str, Member] = {m.address: m for m in view.current.members} if view.current else {}
        self.control_planes = {a: None for a, m in self.members.items() if m.control_plane and not m.leaving}
        self.workers = {a: None for a, m in self.members.items() if not m.control_plane and not m.leaving}
        #: Members whose row in the registry cannot be used: neither gone nor known, so they stay as they are.
        self.doubtful = doubtful(self.members.values(), view.machines)
        #: address → what happened to it in this pass, in words.
        self.said: dict[str, str] = {}
        self._lives = Lives(view.now)
        self._unused: dict[str, Machine] | None = None
        self._census: Counter[tuple[str, int]] | None = None
        self._worker_queues: dict[str, RackQueue] | None = None
        self._control_plane_queue: RackQueue | None = None
        self._worker_machines: list[Machine] | None = None
        self._roleless = len(view.template.workers) == 1 and not view.template.workers[0].role

    # ── who is who ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def unused(self) -> dict[str, Machine]:
        """Healthy, no member when the pass began, and not chosen since."""
        if self._unused is None:
            assigned, said = self.members, self.said
            self._unused = {
                a: m for a, m in self.machines.items() if m.state is _HEALTHY and a not in assigned and a not in said
            }
        return self._unused

    def vanished(self, addresses: dict[str, None]) -> list[str]:
        return [a for a in addresses if a not in self.machines and a not in self.doubtful]

    def assigned_control_planes(self) -> list[Machine]:
        return [self.machines[a] for a in self.control_planes if a in self.machines]

    def assigned_workers(self) -> list[Machine]:
        """Workers whose machine is known; one kept after its machine vanished is skipped."""
        if self._worker_machines is None:
            machines = self.machines
            self._worker_machines = [machines[a] for a in self.workers if a in machines]
        return self._worker_machines

    def healthy_workers(self) -> int:
        """One whose row cannot be used counts: whether it is broken is not known."""
        return self.worker_states().count(_HEALTHY) + sum(a in self.workers for a in self.doubtful)

    def worker_states(self) -> list[MachineState]:
        return [m.state for m in self.assigned_workers()]

    def wrongly_tainted(self) -> dict[str, Member]:
        """Members whose state taint is not the one their machine's state asks for."""
        machines, members = self.machines, self.members
        # Most machines are in a state without a taint, and carry none: they are sorted out first, and fast.
        doubtful = {m.address: m for m in members.values() if m.state_taint is not None}
        leaving = [m.address for m in self.view.machines if m.state is _RETIRING or m.state is _RETIRED]
        doubtful |= {a: members[a] for a in leaving if a in members}
        return {
            m.address: m
            for m in doubtful.values()
            if not m.leaving
            and m.address in machines
            and m.state_taint != wanted_state_taint(machines[m.address].state)
        }

    def bad_taint(self, address: str) -> str:
        """The taint that bars this machine from the control plane, as its live Node carries it."""
        taints = self.view.node_taints.get(address)
        return intolerable(taints, self.view.template.tolerations) if taints else ""

    def fit_for_control_plane(self, machine: Machine) -> bool:
        role = self.view.template.control_plane.role
        return machine.state == _HEALTHY and (not role or machine.role == role) and not self.bad_taint(machine.address)

    # ── moves ─────────────────────────────────────────────────────────────────────────────────────────────────

    def say(self, address: str, why: str) -> None:
        before = self.said.get(address)
        self.said[address] = f"{before}; {why}" if before else why

    def add_control_plane(self) -> bool:
        """The best unused machine becomes a control plane."""
        if self._control_plane_queue is None:
            role = self.view.template.control_plane.role
            fit = [m for m in self.unused.values() if not role or m.role == role]
            if self.view.node_taints:
                fit = [m for m in fit if not self.bad_taint(m.address)]
            self._control_plane_queue = to_add(fit, self._control_plane_counts(), self._lives)
        choice = self._control_plane_queue.take()
        if choice is None:
            return False
        self._take(choice)
        self._worker_queues = None
        self.control_planes[choice.machine.address] = None
        self.say(choice.machine.address, choice_in_words(choice, self.view.now, "new control plane: "))
        return True

    def promote_worker(self) -> bool:
        fit = [m for m in self.assigned_workers() if self.fit_for_control_plane(m)]
        choice = to_add(fit, self._control_plane_counts(), self._lives).take()
        if choice is None:
            return False
        address = choice.machine.address
        del self.workers[address]
        self.control_planes[address] = None
        self._forget_counts()
        self.say(address, choice_in_words(choice, self.view.now, "no unused machine fits: promoted, "))
        return True

    def demote(self, address: str, why: str) -> None:
        del self.control_planes[address]
        self.workers[address] = None
        self._forget_counts()
        self.say(address, why)

    def replace_control_plane(self, address: str, why: str) -> bool:
        """Another machine takes over, an unused one before a worker; False, and nothing changed, when none can."""
        before = dict(self.control_planes)
        del self.control_planes[address]
        self._forget_counts()
        if not self.add_control_plane() and not self.promote_worker():
            self.control_planes = before
            return False
        self.workers[address] = None
        self._forget_counts()
        self.say(address, why)
        return True

    def demote_lowest(self) -> None:
        queue = to_remove(self.assigned_control_planes(), _by_rack, self._control_plane_counts(), self._lives)
        choice = queue.take()
        if choice is not None:
            self.demote(choice.machine.address, choice_in_words(choice, self.view.now, "lowest control plane: "))

    def remove(self, address: str, why: str) -> None:
        self.control_planes.pop(address, None)
        self.workers.pop(address, None)
        self._forget_counts()
        self.say(address, why)

    def remove_lowest_workers(self, until: int) -> None:
        """The lowest score goes; of equals, one that was demoted in this very pass (it is the smaller change)."""
        if len(self.workers) <= until:
            return
        demoted = frozenset(a for a in self.workers if a in self.members and self.members[a].control_plane)
        queue = to_remove(self.assigned_workers(), self._group, self._worker_counts(), self._lives, demoted)
        while len(self.workers) > until:
            choice = queue.take()
            if choice is None:
                return
            maximum = self.view.constraints.maximum_workers
            self.remove(
                choice.machine.address,
                choice_in_words(choice, self.view.now, f"maximum-workers {maximum} exceeded, lowest worker: "),
            )

    def add_workers(self, most: int) -> int:
        """One by one: the role furthest below its weight takes its best machine; one without a spare is passed over."""
        if most <= 0:
            return 0
        queues, counts, now = self._queues(), self._role_counts(), self.view.now
        turns = [_Turn(t, queues[t.role], counts.get(t.role, 0)) for t in self.view.template.workers]
        several, said, workers = len(turns) > 1, self.said, self.workers
        before = len(workers)
        for _ in range(most):
            turn, passed_over = _next_turn(turns)
            choice = turn.queue.take() if turn is not None else None
            if turn is None or choice is None:
                break
            address = choice.machine.address
            why = turn.why(passed_over) if several else "new worker"
            said[address] = choice_in_words(choice, now, f"{why}: ")
            workers[address] = None
            turn.advance(turn.count + 1)
        added = len(workers) - before
        if added:
            # The workers' own queues have counted along; everything else looks again.
            self._control_plane_queue = self._worker_machines = self._census = self._unused = None
        return added

    def has_spare_worker(self) -> bool:
        queues = self._queues()
        return any(queues[t.role].left for t in self.view.template.workers)

    # ── counting ──────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, choice: Choice) -> None:
        del self.unused[choice.machine.address]

    def _forget_counts(self) -> None:
        self._worker_queues = self._control_plane_queue = self._census = self._worker_machines = None

    def _group(self, machine: Machine) -> Group:
        return ("" if self._roleless else machine.role, machine.rack)

    def _control_plane_counts(self) -> dict[Group, int]:
        counts: dict[Group, int] = {}
        for m in self.assigned_control_planes():
            counts[m.rack] = counts.get(m.rack, 0) + 1
        return counts

    def _worker_counts(self) -> dict[Group, int]:
        counts: dict[Group, int] = {}
        for m in self.assigned_workers():
            group = self._group(m)
            counts[group] = counts.get(group, 0) + 1
        return counts

    def _role_counts(self) -> dict[str, int]:
        roles: dict[str, int] = {}
        for (role, _), count in self._assigned().items():
            roles[role] = roles.get(role, 0) + count
        return roles

    def _assigned(self) -> "Counter[tuple[str, int]]":
        """Workers by role and rack, counted in one go: there are thousands of them, and a few hundred of these."""
        if self._census is None:
            self._census = Counter([(m.role, m.rack) for m in self.assigned_workers()])
        return self._census

    def _queues(self) -> dict[str, RackQueue]:
        if self._worker_queues is None:
            spare: dict[str, list[Machine]] = {t.role: [] for t in self.view.template.workers}
            for m in self.unused.values():
                held = spare.get("" if self._roleless else m.role)
                if held is not None:
                    held.append(m)
            counts: dict[str, dict[Group, int]] = {role: {} for role in spare}
            for (role, rack), count in self._assigned().items():
                racks = counts.get("" if self._roleless else role)
                if racks is not None:
                    racks[rack] = racks.get(rack, 0) + count
            self._worker_queues = {
                role: to_add(machines, counts[role], self._lives) for role, machines in spare.items()
            }
        return self._worker_queues


class _Turn:
    """A worker template and how far its role is towards its weight."""

    __slots__ = ("_weight", "_words", "count", "queue", "ratio", "template")

    def __init__(self, template: NodeTemplate, queue: RackQueue, count: int) -> None:
        self.template = template
        self.queue = queue
        self._weight = template.weight
        self._words = (f"new worker, role {template.role} is next (", f" ÷ weight {template.weight:g})")
        self.advance(count)

    def advance(self, count: int) -> None:
        self.count = count
        self.ratio = count / self._weight

    def why(self, passed_over: "_Turn | None") -> str:
        said = f"{self._words[0]}{self.count}{self._words[1]}"
        if passed_over is None:
            return said
        return f"{said} since {passed_over.template.role} has no spare machine"


def _next_turn(turns: list[_Turn]) -> tuple[_Turn | None, _Turn | None]:
    """The smallest ratio among those with a spare machine, of equals the first in the file; and who lost its turn."""
    best = first = None
    for turn in turns:
        if first is None or turn.ratio < first.ratio:
            first = turn
        if turn.queue.left and (best is None or turn.ratio < best.ratio):
            best = turn
    return best, first if first is not best else None


def _by_rack(machine: Machine) -> Group:
    """Control planes are counted whatever their role."""
    return machine.rack


def _left_out(view: FleetView) -> Iterator[str]:
    nameless = sorted(m.serial for m in view.machines if not m.address and not m.problem)
    if nameless:
        yield f"left out, no IPv4 address: {listed(nameless, 20)}"
    wrong = sorted(f"{m.serial or m.address} ({m.problem})" for m in view.machines if m.problem)
    if wrong:
        yield f"left out, their rows in the registry cannot be used: {listed(wrong, 20)}"


def doubtful(members: Iterable[Member], machines: Iterable[Machine]) -> frozenset[str]:
    """Addresses of members that the registry lists, by serial or address, in a row that cannot be used."""
    rows = [m for m in machines if m.problem or not m.address]
    if not rows:
        return frozenset()
    good = {m.address for m in machines if m.address and not m.problem}
    named = {name for m in rows for name in (m.serial, m.address) if name}
    return frozenset(m.address for m in members if m.address not in good and {m.serial, m.address} & named)


def verb_of(draft: Draft, address: str) -> Verb | None:
    """What the pass did to one address, all its moves taken together."""
    before = draft.members.get(address)
    if address in draft.control_planes:
        return Verb.ADD if before is None else None if before.control_plane else Verb.PROMOTE
    if address in draft.workers:
        return Verb.ADD if before is None else Verb.DEMOTE if before.control_plane else None
    return Verb.REMOVE if before is not None else None
