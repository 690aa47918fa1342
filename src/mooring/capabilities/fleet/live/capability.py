"""The fleet capability: one key for the plan, one per node, one per machine that is being retired.

`plan` looks at settings, machines and the stored cluster, stores what may happen now and proposes what must wait for
its turn. `node/<name>` keeps labels, annotations and taints of a live Node as the stored cluster has them.
`machine/<serial>` proposes the evictions that empty a retiring machine's node. What an operator does next is in
`retire`, `emptying` and `changing`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from mooring.capabilities.drain import empty_node
from mooring.capabilities.drain.cordon import cordon_mark, lift_cordon
from mooring.capabilities.drain.replace_pod import replacing
from mooring.capabilities.fleet.live import ledger as ledgers
from mooring.capabilities.fleet.live import retire
from mooring.capabilities.fleet.live import settings as settings_of
from mooring.capabilities.fleet.live.explain import machine_words, retirement
from mooring.capabilities.fleet.live.fleet_pass import as_stored, next_change_step, store
from mooring.capabilities.fleet.live.index import (
    FleetIndex,
    Survey,
    changed_members,
    claimed_twice,
    is_control_plane,
    live_nodes,
    node_news,
)
from mooring.capabilities.fleet.live.ledger import StoredCluster
from mooring.capabilities.fleet.live.node_metadata import TAINT_NODE, Upkeep, bring_up_to_date, taint_operator
from mooring.capabilities.fleet.live.planning import PlanNotes, evaluate_plan
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.release import CHANGE_CONTROL_PLANE, RETIRE_MACHINE, SOURCE, Released
from mooring.capabilities.fleet.live.retire import emptying_of, retiring_mark, taken_back
from mooring.capabilities.fleet.live.settings import FleetSettings
from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.fleet.planner.current import Member
from mooring.capabilities.fleet.planner.labels import render_node
from mooring.core.model import subjects
from mooring.core.model.cluster import Node, Pod
from mooring.core.model.decision import End, Evaluation, Line, NextStep, OperatorRecord, ReadBack, Verdict, Withdrawal
from mooring.core.model.events import Change, MachinesLost, MachinesSeen, OperatorChanged, Trigger
from mooring.core.model.instructions import CutOff, DeleteNode, HarmlessWrite, Instruction
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import Machine
from mooring.core.model.marks import CORDONED_BY, RETIRING
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import QueueRead
from mooring.core.world.index import Index
from mooring.core.world.read import WorldRead

PLAN = "plan"


@dataclass(frozen=True)
class Fleet:
    name = "fleet"
    sources = frozenset({SOURCE})
    remembered = (PlanNotes, FleetPolicy, FleetSettings, StoredCluster)

    policy: FleetPolicy = field(default_factory=FleetPolicy)
    namespace: str = "mooring-system"

    # ── Which keys ────────────────────────────────────────────────────────────────────────────────────────────

    def affected_keys(self, trigger: Trigger, world: WorldRead) -> Iterable[str]:
        match trigger:
            case Change(kind=Kind.CONFIG_MAP, key=key, old=old, new=new) if key.namespace == self.namespace:
                if key.name == settings_of.NAME:
                    yield from self.keys(world)
                elif key.name == ledgers.NAME:
                    yield PLAN
                    yield from self._node_keys(changed_members(old, new), world)
            case Change(kind=Kind.NODE, old=old, new=new):
                news = node_news(old, new)
                if news:
                    node = new if isinstance(new, Node) else old
                    assert isinstance(node, Node)
                    yield f"node/{node.name}"
                    if news.standing and _counts_on(node, world.index(FleetIndex)):
                        yield PLAN
                    mark = retiring_mark(node)
                    if mark is not None:
                        yield f"machine/{mark.machine}"
            case Change(kind=Kind.POD, old=old, new=new):
                pod = new if isinstance(new, Pod) else old
                node_ = world.node(pod.node) if isinstance(pod, Pod) and pod.node else None
                mark = retiring_mark(node_) if node_ is not None else None
                if mark is not None:
                    yield f"machine/{mark.machine}"
            case MachinesSeen(machines=machines):
                yield PLAN
                index = world.index(FleetIndex)
                if machines is index.machines:
                    yield from self._node_keys(index.changed, world)
            case MachinesLost():
                yield PLAN
            case OperatorChanged(operator=operator):
                yield PLAN
                if serial := operator.payload.serial:
                    yield f"machine/{serial}"
                if name := operator.payload.node:
                    yield f"node/{name}"

    def keys(self, world: WorldRead) -> Iterable[str]:
        yield PLAN
        for node in sorted(world.nodes(), key=lambda n: n.name):
            yield f"node/{node.name}"
            mark = retiring_mark(node)
            if mark is not None:
                yield f"machine/{mark.machine}"

    def _node_keys(self, addresses: Iterable[str], world: WorldRead) -> Iterator[str]:
        wanted = set(addresses)
        if wanted:
            yield from sorted(f"node/{n.name}" for n in live_nodes(world, wanted).values())

    # ── Is there something to do? ─────────────────────────────────────────────────────────────────────────────

    def indexes(self) -> tuple[Index, ...]:
        return (FleetIndex(self.namespace),)

    def evaluate(self, key: str, world: WorldRead, queue: QueueRead, notes: object, now: float) -> Evaluation:
        kind, _, name = key.partition("/")
        if kind == "node":
            return self._look_at_node(name, world, queue, now)
        if kind == "machine":
            return self._look_at_machine(name, world, queue, now)
        return evaluate_plan(world, queue, notes, now, self.policy, self.namespace)

    # ── One node ──────────────────────────────────────────────────────────────────────────────────────────────

    def _look_at_node(self, name: str, world: WorldRead, queue: QueueRead, now: float) -> Evaluation:
        node, index = world.node(name), world.index(FleetIndex)
        settings = index.settings
        if node is None or settings is None or not settings.enabled:
            return Evaluation()
        member = index.member_of(node, world)
        machine = index.by_address.get(member.address) if member is not None else None
        if member is None and self.policy.delete_nodes:
            return self._look_at_left(node, world, index, now)
        upkeep = self._upkeep(node, world)
        if member is None or machine is None or upkeep is None:
            return Evaluation()
        write, held = upkeep.write or _lifted(node, member, machine, queue), upkeep.held
        holder = queue.holder(subjects.node(node.name))
        ours = holder is not None and holder.kind == TAINT_NODE and not queue.is_running(holder.id)
        leaving = None
        on_its_way = member.state_taint is not None or RETIRING in node.annotations or CORDONED_BY in node.annotations
        if on_its_way and queue.holder(f"machine/{machine.serial}") is None:
            leaving = retirement(node, member, machine, world, self.policy, now)
        return Evaluation(
            proposals=(taint_operator(node, upkeep.cut_off),) if upkeep.cut_off else (),
            withdrawals=(Withdrawal(holder.id, Reason.WITHDRAWN),) if holder and ours and not upkeep.cut_off else (),
            instructions=(write,) if write is not None else (),
            verdict=held or leaving,
            again_at=now + self.policy.query_s if held or leaving else None,
        )

    def _upkeep(self, node: Node, world: WorldRead) -> Upkeep | None:
        """What this node lacks of what cluster.yml says of it; None: it is not fleet's to change now."""
        index = world.index(FleetIndex)
        settings, member = index.settings, index.member_of(node, world)
        machine = index.by_address.get(member.address) if member is not None else None
        if settings is None or not settings.enabled or member is None or machine is None:
            return None
        mark = retiring_mark(node)
        if mark is not None and mark.step == retire.EMPTIED:
            return None  # its operator is writing the taint
        if not member.control_plane and settings.template.for_worker(machine.role) is None:
            return None
        state_taint = member.state_taint
        if mark is not None and all(t.key != keys.STATE_TAINT for t in node.taints):
            state_taint = None  # pods came back after it was stored: it is emptied again, or a person has to act
        wanted = render_node(settings.template, machine, control_plane=member.control_plane, state_taint=state_taint)
        immediate = self.policy.retire == "immediate"
        return bring_up_to_date(node, wanted, lambda: world.pods_on(node.name), immediate=immediate)

    def _next_taint_step(self, running: OperatorRecord, world: WorldRead) -> NextStep:
        """Written where nobody is cut off; over once there is nothing to write, or somebody stands there."""
        node = world.node(running.operator.payload.node)
        upkeep = self._upkeep(node, world) if node is not None and not running.off else None
        if node is None or upkeep is None or not upkeep.cut_off:
            held = upkeep.held if upkeep is not None else None
            return NextStep(step=0, end=End(held.reason, held.detail, failed=True) if held is not None else End())
        why = f"taints {node.name} as the stored cluster says"
        cut = CutOff(node=node.name, uid=node.uid, add=upkeep.cut_off, may_cut_off=upkeep.may_cut_off, why=why)
        return NextStep(step=0, instructions=(cut,))

    def _look_at_left(self, node: Node, world: WorldRead, index: FleetIndex, now: float) -> Evaluation:
        """Its machine was in the cluster, as its annotation says, and is in it no more: it is deleted once it is silent
        for long. Nothing is concluded while the registry is silent, or from a cluster that is not stored."""
        ours = keys.SERIAL in node.annotations and node.deletion_at is None
        clear = bool(index.members) and not world.machines_lost() and world.machines_observed_at() is not None
        if not ours or node.ready == "True" or node.ready_since is None:
            return Evaluation()
        again = now + self.policy.query_s
        if not clear:
            return Evaluation(again_at=again)
        since = node.ready_since
        due = since + self.policy.delete_nodes_after_s
        if now < due:
            words = (
                f"its machine has left the cluster, and it is not Ready; it is deleted in {(due - now) / 60:.0f} min"
            )
            return Evaluation(verdict=Verdict(State.WAITING, Reason.SETTLING, words), again_at=due)
        left = empty_node.to_leave(node.name, world)
        if left:
            words = f"{node.name} has left the cluster and is not deleted: {left[0].key} is still on it"
            told = Verdict(State.BLOCKED, Reason.LEAVING, words, f"where it is off: kubectl delete node {node.name}")
            return Evaluation(verdict=told, again_at=again)
        words = f"its machine has left the cluster, and it was not Ready for {(now - since) / 60:.0f} min"
        return Evaluation(instructions=(DeleteNode(node=node.name, uid=node.uid, why=words),), again_at=again)

    # ── One machine that is being retired ─────────────────────────────────────────────────────────────────────

    def _look_at_machine(self, serial: str, world: WorldRead, queue: QueueRead, now: float) -> Evaluation:
        holder = queue.holder(f"machine/{serial}")
        running = holder is not None and holder.kind == RETIRE_MACHINE and queue.is_running(holder.id)
        node = world.node(holder.payload.node) if holder is not None and running else None
        mark = retiring_mark(node) if node is not None else None
        if node is None or mark is None or mark.step != retire.EMPTYING or taken_back(node):
            gone = [o for o in queue.operators() if (how := replacing(o)) is not None and how.serial == serial]
            words = "its node is no longer being emptied"
            waiting = (o.id for o in gone if not queue.is_running(o.id))
            return Evaluation(withdrawals=tuple(Withdrawal(i, Reason.WITHDRAWN, words) for i in waiting))
        proposals = empty_node.proposals(emptying_of(node.name, node, self.policy, now), world, now)
        return Evaluation(
            proposals=tuple(proposals),
            withdrawals=tuple(empty_node.outdated(proposals, queue)),
            facts=tuple(empty_node.workload_facts(node.name, world, queue, now)),
            again_at=now + self.policy.recheck_s,
        )

    # ── What is next? ─────────────────────────────────────────────────────────────────────────────────────────

    def next_step(self, running: OperatorRecord, world: WorldRead, queue: QueueRead, now: float) -> NextStep:
        operator = running.operator
        how = replacing(operator)
        if how is not None:
            asked = emptying_of(how.node, world.node(how.node), self.policy, now)
            return empty_node.next_pod_step(running, asked, world, queue, now)
        if operator.kind == TAINT_NODE:
            return self._next_taint_step(running, world)
        index = world.index(FleetIndex)
        settings, wrong, ledger = index.settings, index.wrong, index.ledger
        unclear = ledger if isinstance(ledger, str) else claimed_twice(world, index.addresses)
        if isinstance(ledger, str) or unclear:
            waiting_on = Verdict(State.BLOCKED, Reason.MISCONFIGURED, unclear)
            return NextStep(step=running.step, waiting_on=waiting_on, again_at=now + self.policy.recheck_s)
        if settings is None and index.configured:
            # Settings that broke before we led: fleet was not switched off, so what has begun waits for good ones.
            waiting_on = Verdict(State.BLOCKED, Reason.MISCONFIGURED, wrong)
            return NextStep(step=running.step, waiting_on=waiting_on, again_at=now + self.policy.recheck_s)
        off = _off(settings, wrong, running)
        survey = index.survey(settings, ledger, world, now) if settings is not None and not off else None
        if operator.kind == CHANGE_CONTROL_PLANE:
            if survey is None:
                return NextStep(step=0, end=End(Reason.FEATURE_OFF, off))
            unseen = world.machines_lost() or ("" if world.machines_observed_at() is not None else "not asked yet")
            return next_change_step(running, survey, self.policy, self.namespace, unseen)
        return self._next_retire_step(running, world, queue, survey, off, now)

    def _next_retire_step(
        self, running: OperatorRecord, world: WorldRead, queue: QueueRead, survey: Survey | None, off: str, now: float
    ) -> NextStep:
        how = running.operator.payload
        assert isinstance(how, retire.RetireMachine)
        node, index = world.node(how.node), world.index(FleetIndex)
        machine = index.by_serial.get(how.serial)
        if machine is not None and machine.problem:
            waiting_on = Verdict(State.BLOCKED, Reason.MISCONFIGURED, f"its row in the registry: {machine.problem}")
            return NextStep(step=running.step, waiting_on=waiting_on, again_at=now + self.policy.query_s)
        if machine is not None and machine.address != how.address:
            machine = None  # it has moved: this node is its node no more
        seen = world.machines_observed_at() is not None
        member = index.members.get(how.address) if survey is not None else None
        write: Instruction | None = None
        mark = retiring_mark(node) if node is not None else None
        if survey is not None and seen and mark is not None and mark.step == retire.EMPTIED:
            from_here = as_stored(survey)
            if member is not None and member.state_taint is None:
                why = f"{how.address} is empty"
                released = Released(emptied=frozenset({how.address}), immediate=self.policy.retire == "immediate")
                write = store(survey, from_here, released, self.namespace, self.policy, why)
        situation = retire.RetireSituation(running, node, machine, member, seen, off, write, queue, now)
        return retire.next_retire_step(situation, world, self.policy)

    # ── After a crash ─────────────────────────────────────────────────────────────────────────────────────────

    def recovery_needs(self, world: WorldRead) -> Iterable[str]:
        return ()

    def recover(self, world: WorldRead, queue: QueueRead, now: float) -> Iterable[ReadBack]:
        """Machines on their way out, from the marks on nodes; evictions, from those on the pods there.

        A change of the control plane has no mark: it has happened once it is stored, and what it left unfinished is a
        fact.
        """
        for node in sorted(world.nodes(), key=lambda n: n.name):
            mark = retiring_mark(node)
            if mark is None or mark.step == retire.BLOCKED or not mark.machine:
                continue
            if live_nodes(world, {mark.node}).get(mark.node) != node:
                continue  # its kubelet may have written it, for another's machine
            yield partial(retire.resumed, node, mark)
            asked = emptying_of(node.name, node, self.policy, now)
            for pod in empty_node.to_leave(node.name, world):
                yield partial(empty_node.read_back, pod, asked, world, now)

    def explain(self, subject: str, world: WorldRead, queue: QueueRead, now: float) -> Iterable[Line]:
        """Lines for `why` about a machine, or the node that is one."""
        kind, _, name = subject.partition("/")
        index = world.index(FleetIndex)
        members, ledger = index.members, index.ledger
        if kind not in {"machine", "node"} or isinstance(ledger, str) or not members:
            return ()
        if kind == "machine":
            machine = index.by_serial.get(name)
            member = next((m for m in ledger.members if m.serial == name), None)
            found = members.get(machine.address) if machine is not None and not machine.problem else member
            address = found.address if found is not None else ""
            return machine_words(machine, found, ledger, live_nodes(world, {address}).get(address))
        node = world.node(name)
        found = index.member_of(node, world) if node is not None else None
        if node is None or found is None:
            return ()
        return machine_words(index.by_address.get(found.address), found, ledger, node)


def _counts_on(node: Node, index: FleetIndex) -> bool:
    """May the plan have waited for this node? A worker among thousands that reboots is no reason to plan again."""
    ledger = index.ledger
    if isinstance(ledger, str) or is_control_plane(node):
        return True
    names = {node.name, node.internal_ip}
    if not names.isdisjoint((*ledger.pending.added, *ledger.pending.removed)):
        return True
    return any(m.control_plane for name in names if (m := index.members.get(name)) is not None)


def _off(settings: FleetSettings | None, wrong: str, running: OperatorRecord) -> str:
    if settings is None:
        return wrong
    if not settings.enabled:
        return "fleet is switched off"
    return "the feature fleet is off" if running.off else ""


def _lifted(node: Node, member: Member, machine: Machine, queue: QueueRead) -> HarmlessWrite | None:
    """Healthy again, and nothing of ours is under way: our cordon goes."""
    mark = retiring_mark(node)
    if (mark is not None and mark.step != retire.BLOCKED) or (mark is None and cordon_mark(node, SOURCE) is None):
        return None
    if member.state_taint is not None or retire.still_wanted(member, machine):
        return None
    if queue.holder(f"machine/{machine.serial}") is not None:
        return None
    return lift_cordon(node, SOURCE, f"machine {machine.serial} is {machine.state.value} again", (RETIRING,))
