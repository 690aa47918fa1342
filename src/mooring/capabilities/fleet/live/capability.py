"""The fleet capability: one key for the plan, one per node, one per machine that is being retired.

`plan` looks at settings, machines and the stored cluster, stores what may happen now and proposes what must wait for
its turn. `node/<name>` keeps labels, annotations and taints of a live Node as the stored cluster has them.
`machine/<serial>` proposes the evictions that empty a retiring machine's node. What an operator does next is in
`retire`, `emptying` and `changing`.
"""

from collections.abc import Iterable, Iterator

import msgspec

from mooring.capabilities.drain.cordon import cordon_mark, lift_cordon
from mooring.capabilities.fleet.live import ledger as ledgers
from mooring.capabilities.fleet.live import report as reports
from mooring.capabilities.fleet.live import retire
from mooring.capabilities.fleet.live import settings as settings_of
from mooring.capabilities.fleet.live.affected import changed_members, is_control_plane, node_news
from mooring.capabilities.fleet.live.control_plane import is_asked_for, next_change_step
from mooring.capabilities.fleet.live.emptying import (
    EVICT_POD,
    Way,
    evict_operator,
    leaving_mark,
    next_evict_step,
    to_leave,
    way_of,
    workload_facts,
)
from mooring.capabilities.fleet.live.explain import machine_words
from mooring.capabilities.fleet.live.fleet_pass import Pass, Survey, make_pass, store
from mooring.capabilities.fleet.live.inputs import Known
from mooring.capabilities.fleet.live.node_metadata import bring_up_to_date
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.quiet import Quiet, quiet_until
from mooring.capabilities.fleet.live.release import CHANGE_CONTROL_PLANE, RETIRE_MACHINE, SOURCE, Released, proposals
from mooring.capabilities.fleet.live.settings import Settings
from mooring.capabilities.fleet.live.settling import control_plane_facts, live_nodes, settles_at
from mooring.capabilities.fleet.planner.current import Member
from mooring.capabilities.fleet.planner.explain import listed
from mooring.capabilities.fleet.planner.labels import Renderer
from mooring.capabilities.fleet.planner.plan import Action
from mooring.capabilities.fleet.planner.problem import ErrorCode
from mooring.capabilities.fleet.planner.taints import wanted_state_taint
from mooring.capabilities.fleet.planner.update import ONLY_ONE
from mooring.core.model.cluster import Node, Pod
from mooring.core.model.decision import End, Evaluation, Line, NextStep, Recovered, Running, Verdict, Withdrawal
from mooring.core.model.events import Change, MachinesLost, MachinesSeen, OperatorEnded, Trigger
from mooring.core.model.instructions import Instruction
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import Machine
from mooring.core.model.marks import RETIRING
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason, State
from mooring.core.queue import Queue
from mooring.core.world.index import Index
from mooring.core.world.read import WorldRead

PLAN = "plan"
_REASONS = {
    ErrorCode.NOT_AVAILABLE: Reason.UNMET,
    ErrorCode.TOO_MANY_NON_EXISTENT: Reason.QUORUM,
}
#: Without a look at the plan for so long, and three queries, a running operator takes fleet for switched off.
_QUIET_S = 180.0
#: Control planes are stored first, and there are few.
_PLANES = 16


class Fleet:
    name = "fleet"
    sources = frozenset({SOURCE})

    def __init__(self, policy: FleetPolicy | None = None, namespace: str = "mooring-system") -> None:
        self.policy = policy or FleetPolicy()
        self.namespace = namespace
        self.report = reports.Report()
        self.known = Known(namespace)
        self._renderer: tuple[str, Renderer] | None = None
        self._query: tuple[str, float] = ("", 0.0)
        self._planned_at = float("-inf")
        self._quiet = Quiet()

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
                    self._quiet.forget()
                    node = new if isinstance(new, Node) else old
                    assert isinstance(node, Node)
                    yield f"node/{node.name}"
                    if news.standing and self._counts_on(node):
                        yield PLAN
                    mark = retire.retiring_mark(node)
                    if mark is not None:
                        yield f"machine/{mark.machine}"
            case Change(kind=Kind.POD, old=old, new=new):
                pod = new if isinstance(new, Pod) else old
                node_ = world.node(pod.node) if isinstance(pod, Pod) and pod.node else None
                mark = retire.retiring_mark(node_) if node_ is not None else None
                if mark is not None:
                    yield f"machine/{mark.machine}"
            case MachinesSeen(machines=machines):
                yield PLAN
                yield from self._node_keys(self.known.news_of(machines), world)
            case MachinesLost():
                yield PLAN
            case OperatorEnded(operator=operator):
                self._quiet.forget()
                yield PLAN
                if "serial" in operator.args:
                    yield f"machine/{operator.args['serial']}"
                if "node" in operator.args:
                    yield f"node/{operator.args['node']}"

    def keys(self, world: WorldRead) -> Iterable[str]:
        yield PLAN
        for node in sorted(world.nodes(), key=lambda n: n.name):
            yield f"node/{node.name}"
            mark = retire.retiring_mark(node)
            if mark is not None:
                yield f"machine/{mark.machine}"

    def _counts_on(self, node: Node) -> bool:
        """May the plan have waited for this node? A worker among thousands that reboots is no reason to plan anew."""
        ledger = self.known.last_ledger
        if isinstance(ledger, str) or is_control_plane(node):
            return True
        names = {node.name, node.internal_ip}
        if not names.isdisjoint((*ledger.pending.added, *ledger.pending.removed)):
            return True
        return any(m.control_plane and m.address in names for m in ledger.members[:_PLANES])

    def _node_keys(self, addresses: Iterable[str], world: WorldRead) -> Iterator[str]:
        wanted = set(addresses)
        if wanted:
            yield from sorted(f"node/{n.name}" for n in live_nodes(world, wanted).values())

    # ── Is there something to do? ─────────────────────────────────────────────────────────────────────────────

    def indexes(self) -> tuple[Index, ...]:
        return ()

    def evaluate(self, key: str, world: WorldRead, queue: Queue, notes: object, now: float) -> Evaluation:
        kind, _, name = key.partition("/")
        if kind == "node":
            return self._look_at_node(name, world, queue, now)
        if kind == "machine":
            return self._look_at_machine(name, world, queue, now)
        return self._look_at_plan(world, queue, now)

    def _look_at_plan(self, world: WorldRead, queue: Queue, now: float) -> Evaluation:
        self._planned_at = now
        settings, wrong = self.known.settings(world)
        if settings is None:
            return Evaluation(verdict=Verdict(State.BLOCKED, Reason.MISCONFIGURED, wrong))
        if not settings.enabled:
            verdict = Verdict(State.REFUSED, Reason.DISABLED, "fleet is switched off", "mooring fleet enable")
            return Evaluation(withdrawals=tuple(_all_waiting(queue, "fleet was switched off")), verdict=verdict)
        ask_at = self._ask_at(settings, world, now)
        ledger = self.known.ledger(world)
        if isinstance(ledger, str):
            remedy = "mend or remove it; mooring fleet set-cluster writes it anew"
            return Evaluation(machines_by=ask_at, verdict=Verdict(State.BLOCKED, Reason.MISCONFIGURED, ledger, remedy))
        seen_at, lost = world.machines_observed_at(), world.machines_lost()
        of = (settings, ledger, world.machines(), self.policy)
        same = self._quiet.recall(of, now) if not lost and not wrong and not _any_ours(queue) else None
        if same is not None:
            self.report = msgspec.structs.replace(self.report, at=now)
            return msgspec.structs.replace(same, machines_by=ask_at)
        survey = self.known.survey(settings, ledger, world, now)
        facts = tuple(control_plane_facts(ledger, survey.nodes, world.nodes()))
        if lost or seen_at is None or seen_at < self._query[1]:
            self.report = msgspec.structs.replace(self.report, successful=False, at=now)
            verdict = Verdict(State.WAITING, Reason.REGISTRY_UNREACHABLE, lost or "the registry has not answered yet")
            return Evaluation(facts=facts, machines_by=ask_at, verdict=verdict)
        made = self._pass(survey, queue)
        self.report = reports.report_of(survey, made, self.report)
        write = store(survey, made, self._released(), self.namespace, self.policy)
        asked = tuple(self._proposals(survey, made, queue))
        given_up = (n for n in survey.nodes.values() if RETIRING in n.annotations)
        tries = [t for n in given_up if (t := retire.may_try(n, self.policy)) > now]
        if made.settling:
            tries.append(settles_at(ledger, self.policy.settle_timeout_s))
        look = Evaluation(
            proposals=asked,
            withdrawals=tuple(self._withdrawn(survey, made, queue)),
            facts=facts,
            instructions=(write,) if write is not None else (),
            machines_by=ask_at,
            again_at=min((t for t in tries if t > now), default=None),
            verdict=_verdict(made, wrong),
        )
        tainted = any(m.state_taint is not None for m in ledger.members)
        self._quiet.remember(look, made, of, quiet_until(now, self.policy.query_s), tainted=tainted)
        return look

    def _ask_at(self, settings: Settings, world: WorldRead, now: float) -> float:
        """At once when the query is another than the one that was asked last, else a minute after that."""
        if self._query[0] != settings.query:
            self._query = (settings.query, now)
        asked_at = world.machines_asked_at()
        if asked_at is None or asked_at < self._query[1]:
            return now
        return asked_at + self.policy.query_s

    def _pass(self, survey: Survey, queue: Queue) -> Pass:
        running = [o for o in queue.operators() if o.source == SOURCE and queue.is_running(o.id)]
        return make_pass(
            survey,
            self.policy,
            retiring=any(o.kind == RETIRE_MACHINE for o in running),
            changing=any(o.kind == CHANGE_CONTROL_PLANE for o in running),
        )

    def _released(self, *emptied: str) -> Released:
        return Released(emptied=frozenset(emptied), immediate=self.policy.retire == "immediate")

    def _proposals(self, survey: Survey, made: Pass, queue: Queue) -> Iterator[Operator]:
        members = self.known.members(survey.ledger)
        if made.quiet or not members:
            return  # the first cluster is stored whole: there is nothing yet that could be disturbed
        for operator in proposals(survey.ledger.members, made.plan, survey.machines):
            if operator.kind == CHANGE_CONTROL_PLANE:
                address = operator.args["incoming"] or operator.args["outgoing"]
                node = survey.nodes.get(address)
                args = {**operator.args, "node": node.name if node is not None else address}
                yield msgspec.structs.replace(operator, args=args)
                continue
            address = operator.args["node"]
            node, member = survey.nodes.get(address), members[address]
            if node is None or self.policy.retire == "immediate" or retire.may_try(node, self.policy) > survey.now:
                continue
            if member.leaving or wanted_state_taint(survey.machines[address].state) is not None:
                yield retire.retire_operator(operator.args["serial"], address, node.name, operator.detail)

    def _withdrawn(self, survey: Survey, made: Pass, queue: Queue) -> Iterator[Withdrawal]:
        members = self.known.members(survey.ledger)
        for operator in queue.operators():
            if operator.source != SOURCE or queue.is_running(operator.id):
                continue
            if operator.kind == CHANGE_CONTROL_PLANE and not is_asked_for(operator, survey, made.wanted):
                yield Withdrawal(operator.id, Reason.WITHDRAWN, "the plan no longer asks for it")
            if operator.kind != RETIRE_MACHINE:
                continue
            machine = survey.machines.get(operator.args["address"])
            if machine is None:
                yield Withdrawal(operator.id, Reason.SUBJECT_GONE, "its machine is not in the registry any more")
            elif not retire.still_wanted(members.get(machine.address), machine):
                yield Withdrawal(operator.id, Reason.WITHDRAWN, f"its machine is {machine.state.value} again")

    # ── One node ──────────────────────────────────────────────────────────────────────────────────────────────

    def _look_at_node(self, name: str, world: WorldRead, queue: Queue, now: float) -> Evaluation:
        node, ledger = world.node(name), self.known.ledger(world)
        settings = self.known.settings(world)[0]
        if node is None or isinstance(ledger, str) or settings is None or not settings.enabled:
            return Evaluation()
        members = self.known.members(ledger)
        member = members.get(node.name) or members.get(node.internal_ip)
        machine = self.known.machines(world)[0].get(member.address) if member is not None else None
        if member is None or machine is None:
            return Evaluation()
        mark = retire.retiring_mark(node)
        if mark is not None and mark.step == retire.EMPTIED:
            return Evaluation()  # its operator is writing the taint
        template = settings.template
        if not member.control_plane and template.for_worker(machine.role) is None:
            return Evaluation()
        if self._renderer is None or self._renderer[0] != settings.revision:
            self._renderer = (settings.revision, Renderer(template))
        wanted = self._renderer[1].node(machine, control_plane=member.control_plane, state_taint=member.state_taint)
        write, verdict = bring_up_to_date(node, wanted, world.pods_on(node.name))
        if write is None:
            write = _lifted(node, member, machine, queue)
        again = now + self.policy.query_s if verdict is not None else None
        return Evaluation(instructions=(write,) if write is not None else (), verdict=verdict, again_at=again)

    # ── One machine that is being retired ─────────────────────────────────────────────────────────────────────

    def _look_at_machine(self, serial: str, world: WorldRead, queue: Queue, now: float) -> Evaluation:
        holder = queue.holder(f"machine/{serial}")
        running = holder is not None and holder.kind == RETIRE_MACHINE and queue.is_running(holder.id)
        node = world.node(holder.args["node"]) if holder is not None and running else None
        mark = retire.retiring_mark(node) if node is not None else None
        if node is None or mark is None or mark.step != retire.EMPTYING:
            gone = [o for o in queue.operators() if o.kind == EVICT_POD and o.args.get("serial") == serial]
            words = "its node is no longer being emptied"
            waiting = (o.id for o in gone if not queue.is_running(o.id))
            return Evaluation(withdrawals=tuple(Withdrawal(i, Reason.WITHDRAWN, words) for i in waiting))
        pods = to_leave(node.name, world)
        evicted = [p for p in pods if way_of(p, world) is Way.EVICTED and not world.is_leaving(p)]
        detail = f"{node.name} is being emptied: {mark.detail}"
        return Evaluation(
            proposals=tuple(evict_operator(p, world, self.policy, serial, detail) for p in evicted),
            facts=tuple(workload_facts(pods, world, queue, now)),
            again_at=now + self.policy.recheck_s,
        )

    # ── What is next? ─────────────────────────────────────────────────────────────────────────────────────────

    def next_step(self, running: Running, world: WorldRead, queue: Queue, now: float) -> NextStep:
        operator = running.operator
        if operator.kind == EVICT_POD:
            return next_evict_step(running, world, self.policy, now)
        settings, wrong = self.known.settings(world)
        ledger = self.known.ledger(world)
        if isinstance(ledger, str):
            waiting_on = Verdict(State.BLOCKED, Reason.MISCONFIGURED, ledger)
            return NextStep(step=running.step, waiting_on=waiting_on, again_at=now + self.policy.recheck_s)
        if settings is None and self.known.configured(world):
            # Settings that broke before we led: nobody has switched fleet off, so what has begun waits for good ones.
            waiting_on = Verdict(State.BLOCKED, Reason.MISCONFIGURED, wrong)
            return NextStep(step=running.step, waiting_on=waiting_on, again_at=now + self.policy.recheck_s)
        off = self._off(settings, wrong, running, now)
        survey = self.known.survey(settings, ledger, world, now) if settings is not None and not off else None
        if operator.kind == CHANGE_CONTROL_PLANE:
            if survey is None:
                return NextStep(step=0, end=End(Reason.FEATURE_OFF, off))
            unseen = world.machines_lost() or ("" if world.machines_observed_at() is not None else "not asked yet")
            return next_change_step(running, survey, self.policy, self.namespace, unseen)
        return self._next_retire_step(running, world, survey, off, now)

    def _next_retire_step(
        self, running: Running, world: WorldRead, survey: Survey | None, off: str, now: float
    ) -> NextStep:
        args = running.operator.args
        node = world.node(args["node"])
        machine = self.known.machines(world)[1].get(args["serial"])
        if machine is not None and machine.address != args["address"]:
            machine = None  # it has moved: this node is its node no more
        seen = world.machines_observed_at() is not None
        member = self.known.members(survey.ledger).get(args["address"]) if survey is not None else None
        write: Instruction | None = None
        mark = retire.retiring_mark(node) if node is not None else None
        if survey is not None and seen and mark is not None and mark.step == retire.EMPTIED:
            from_here = make_pass(survey, self.policy, retiring=True, changing=True)
            if member is not None and member.state_taint is None:
                why = f"{args['address']} is empty"
                write = store(survey, from_here, self._released(args["address"]), self.namespace, self.policy, why)
        scene = retire.Scene(running, node, machine, member, seen, off, write, now)
        return retire.next_retire_step(scene, world, self.policy)

    def _off(self, settings: Settings | None, wrong: str, running: Running, now: float) -> str:
        if settings is None:
            return wrong
        if not settings.enabled:
            return "fleet is switched off"
        running.notes.setdefault("since", now)
        quiet_since = max(self._planned_at, running.notes["since"])
        return "the feature fleet is off" if now - quiet_since > max(_QUIET_S, 3 * self.policy.query_s) else ""

    # ── After a crash ─────────────────────────────────────────────────────────────────────────────────────────

    def recovery_needs(self, world: WorldRead) -> Iterable[str]:
        return ()

    def recover(self, world: WorldRead, now: float) -> Iterable[Recovered]:
        """Machines on their way out, from the marks on nodes; evictions, from those on the pods there.

        A change of the control plane has no mark: it has happened once it is stored, and what it left unfinished is a
        fact.
        """
        for node in sorted(world.nodes(), key=lambda n: n.name):
            mark = retire.retiring_mark(node)
            if mark is None or mark.step == retire.HELD or not mark.machine:
                continue
            yield retire.resumed(node, mark)
            for pod in to_leave(node.name, world):
                begun = leaving_mark(pod)
                if begun is not None and way_of(pod, world) is Way.EVICTED:
                    operator = evict_operator(pod, world, self.policy, mark.machine, begun.detail, begun.operator)
                    yield Recovered(operator, 0, 0, begun.since)

    def explain(self, subject: str, world: WorldRead, queue: Queue, now: float) -> Iterable[Line]:
        """Lines for `why` about a machine, or the node that is one."""
        kind, _, name = subject.partition("/")
        ledger = self.known.ledger(world)
        if kind not in {"machine", "node"} or isinstance(ledger, str) or not ledger.members:
            return ()
        by_address, by_serial = self.known.machines(world)
        members = self.known.members(ledger)
        if kind == "machine":
            machine = by_serial.get(name)
            member = next((m for m in ledger.members if m.serial == name), None)
            found = members.get(machine.address) if machine is not None else member
            address = found.address if found is not None else ""
            return machine_words(machine, found, ledger, live_nodes(world, {address}).get(address))
        node = world.node(name)
        found = (members.get(node.name) or members.get(node.internal_ip)) if node is not None else None
        if node is None or found is None:
            return ()
        return machine_words(by_address.get(found.address), found, ledger, node)

    def gauges(self) -> Iterator[tuple[str, dict[str, str], float]]:
        return reports.gauges(self.report)


def _lifted(node: Node, member: Member, machine: Machine, queue: Queue) -> Instruction | None:
    """Healthy again, and nothing of ours is under way: our cordon goes."""
    mark = retire.retiring_mark(node)
    if (mark is not None and mark.step != retire.HELD) or (mark is None and cordon_mark(node, SOURCE) is None):
        return None
    if member.state_taint is not None or retire.still_wanted(member, machine):
        return None
    if queue.holder(f"machine/{machine.serial}") is not None:
        return None
    return lift_cordon(node, SOURCE, f"machine {machine.serial} is {machine.state.value} again", (RETIRING,))


def _any_ours(queue: Queue) -> bool:
    return any(o.source == SOURCE for o in queue.operators())


def _all_waiting(queue: Queue, words: str) -> Iterator[Withdrawal]:
    for operator in queue.operators():
        if operator.source == SOURCE and not queue.is_running(operator.id):
            yield Withdrawal(operator.id, Reason.FEATURE_OFF, words)


def _verdict(made: Pass, wrong: str) -> Verdict | None:
    """The one word about the plan that counts."""
    if wrong:
        return Verdict(State.BLOCKED, Reason.MISCONFIGURED, f"{wrong}; the last good settings stay in force")
    error = made.wanted.error
    if error is not None:
        reason = _REASONS.get(error.code, Reason.MISCONFIGURED)
        return Verdict(State.BLOCKED, reason, f"{error.code.value}: {error.message}")
    if made.settling:
        return Verdict(State.WAITING, Reason.SETTLING, f"{made.wanted.action.value} waits: {made.settling}")
    held = next((n for n in made.wanted.notes if n.startswith("removal held")), "")
    if held:
        return Verdict(State.BLOCKED, Reason.REMOVAL_BLOCKED, held, "mooring fleet confirm-removal")
    if made.wanted.unmet:
        short = [f"{u.constraint} wants {u.wanted}, has {u.have}" for u in made.wanted.unmet]
        return Verdict(State.BLOCKED, Reason.UNMET, listed(short))
    only = next((n for n in made.wanted.notes if n.startswith(ONLY_ONE)), "")
    if only and made.plan.action in {Action.NONE, Action.TAINT}:
        return Verdict(State.BLOCKED, Reason.QUORUM, only, "mooring fleet set-constraints, with control-plane-count: 3")
    if made.plan.action is not Action.NONE:
        return Verdict(State.MOVING, Reason.ASKED, f"{made.plan.action.value}: {len(made.plan.changes)} changes")
    return Verdict(State.STABLE, Reason.DONE, "every machine is where the plan wants it")
