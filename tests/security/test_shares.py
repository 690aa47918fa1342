"""One tenant wants more than there is: the others get theirs all the same."""

import msgspec
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from hypothesis.strategies import data, integers, sampled_from

from mooring.capabilities.drain.empty_node import Emptying, proposals
from mooring.capabilities.drain.readiness import node_cost
from mooring.capabilities.handoff.operators import eviction_operator, restart_for
from mooring.capabilities.handoff.requests import DELETE_POD, Request
from mooring.capabilities.home.capability import Home
from mooring.core.model.cluster import Key, Owner, Pod, PodShape, Workload
from mooring.core.model.events import Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.operator import Operator
from mooring.core.model.reasons import Reason
from mooring.core.model.tidb import Store
from mooring.core.queue import Queue
from mooring.core.queue.audit import audit
from mooring.core.world.world import World
from mooring.process.assemble import queue_settings
from mooring.process.settings.config import Config
from tests.core.engine.test_hostile import Wants, lead, move
from tests.security.test_reservations import NOW, pod, stage

ELEVEN = 11


@pytest.fixture
def queue():
    """As a running Mooring has it, with the limits of all capabilities."""
    return Queue(queue_settings(Config()))


def hand_over(cluster, ordinal):
    return eviction_operator(
        cluster,
        f"{cluster.name}-tikv-{ordinal}",
        "uid",
        ordinal + 1,
        "none",
        "",
        str(cluster),
        id_=f"{cluster}/{ordinal}",
    )


def ordered(queue, cluster):
    return [op.id for op in queue.operators() if op.id.startswith(f"{cluster}/")]


def test_eleven_hand_overs_of_one_cluster_take_nobodys_place(queue):
    """None of them ever ends: one runs, ten wait, and another cluster's begins at once."""
    evil, good = Key("evil", "demo"), Key("good", "demo")
    for number in range(2 * ELEVEN):
        queue.submit(hand_over(evil, number))
    assert len(ordered(queue, evil)) == ELEVEN and list(queue.running) == ["evil/demo/0"]
    queue.submit(hand_over(good, 0))
    assert queue.is_running("good/demo/0")


def test_eleven_clusters_of_one_namespace_take_nobodys_place(queue):
    """More clusters do not help either."""
    for number in range(ELEVEN):
        queue.submit_batch(hand_over(Key("evil", f"c{number}"), n) for n in range(ELEVEN + 1))
    queue.submit(hand_over(Key("good", "demo"), 0))
    assert queue.is_running("good/demo/0")


def leave(queue, namespace, count):
    """So many members of this namespace leave at once, all of them seen where they were; what Home proposes is asked
    for as the engine does it."""
    home, key = Home(), f"set/{namespace}/db"
    world = stage({}, namespace, [f"{namespace}-n{n}" for n in range(2 * ELEVEN)])
    for n in range(count):
        world.apply(Seen(Kind.POD, pod(n, f"{namespace}-n{n}", namespace=namespace)))
    notes = home.evaluate(key, world, queue, None, NOW).notes
    for n in range(count):
        world.apply(Seen(Kind.POD, pod(n, namespace=namespace)))
    for turn in range(3):
        found = home.evaluate(key, world, queue, notes, NOW)
        notes = found.notes
        for target, limit in found.limits.items():
            queue.set_limit(target, limit)
        proposals = enumerate(found.proposals)
        queue.submit_batch(msgspec.structs.replace(op, id=f"{namespace}/{turn}/{number}") for number, op in proposals)
    assert found.again_at is not None or count <= 3, "those that were not asked for are looked at again"


def reserved(queue, namespace=""):
    return [op_id for op_id in queue.running if op_id.startswith(namespace)]


def test_eleven_reservations_of_one_namespace_take_nobodys_place(queue):
    """Three of them are made; those that wait, however many, stand in nobody's way."""
    leave(queue, "evil", 2 * ELEVEN)
    assert len(reserved(queue, "evil")) == 3
    leave(queue, "good", 2)
    assert len(reserved(queue, "good")) == 2


def test_ten_reservations_in_all(queue):
    """Four namespaces with more than their share: ten nodes are reserved, and the eleventh when one is free again."""
    for namespace in "abcd":
        leave(queue, namespace, ELEVEN)
    assert [len(reserved(queue, namespace)) for namespace in "abcd"] == [3, 3, 3, 1]
    queue.finish(reserved(queue, "a")[0])
    assert len(reserved(queue)) == 10


class Stumbles(Wants):
    """A defect of ours shows on a mark that is read back."""

    def read_back(self, operator, step):
        if operator.id == "evil":
            raise KeyError("before")
        return super().read_back(operator, step)


def test_a_mark_that_recovery_stumbles_over_stops_nobody():
    """A new leader reads marks back, and a tenant wrote one of them: all others are charged, and it decides."""
    told = []
    begun = [(move(f"pod/{name}/a", id_=name), 0) for name in ("alpha", "evil", "good")]
    stumbles = Stumbles(begun=begun, wanted={"key": [move("pod/good/b")]})
    engine = lead(stumbles, lambda where, error: told.append((where, repr(error))))
    assert told == [("fleet recovery of a mark", "KeyError('before')")]
    assert {"alpha", "good"} < engine.running.keys() and len(engine.running) == 3


def moves(queue, namespace, numbers, node=""):
    """So many moves of one namespace, each of its own workload; none of them ends."""
    for n in numbers:
        cost = {f"workload/{namespace}/Deployment/app{n}": 1, "mix": 1, f"share/mix/{namespace}": 1}
        cost |= node_cost(node or f"n{n}", namespace)
        names = {"id": f"{namespace}/{n}", "subject": f"pod/{namespace}/{n}", "quota": namespace}
        queue.submit(Operator(source="mix", kind="replace-pod", phases=(cost, cost), **names))


@pytest.fixture
def full(queue):
    """Two namespaces have taken all ten places."""
    queue.set_limit("mix", 10)
    for namespace in ("evil", "vile"):
        moves(queue, namespace, range(2 * ELEVEN))
    assert len(queue.running) == 10 and not audit(queue)
    return queue


def test_a_namespace_that_has_none_never_waits(full):
    """Two others hold all ten places and end none: the first of each namespace begins beside them, and one alone."""
    for namespace in ("good", "third"):
        moves(full, namespace, range(ELEVEN))
        assert full.is_running(f"{namespace}/0") and not full.waiting
    assert len(full.running) == 12 and full.used("mix") == 10 and not audit(full)
    full.advance("good/0", 1)
    assert full.used("mix") == 10 and full.used("first/mix") == 2 and not audit(full)
    full.finish("good/0")
    moves(full, "good", (ELEVEN,))
    assert full.is_running(f"good/{ELEVEN}")


def test_what_one_node_can_bear_holds_for_all_namespaces_together(queue):
    """O1: there are no places beside its limit, whoever asks; the next is for the namespace that has none there."""
    queue.set_limit("mix", 10)
    for namespace, numbers in (("evil", range(4)), ("vile", range(4, 8)), ("good", range(8, 9))):
        moves(queue, namespace, numbers, "n1")
    assert queue.used("node/n1") == 20 and list(queue.waiting) == ["good/8"]
    queue.finish("evil/0")
    assert queue.used("node/n1") == 20 and queue.is_running("good/8") and not audit(queue)


def test_the_next_place_is_for_the_namespace_that_has_none(full):
    """So many namespaces that the ten places beside the ten are taken too: of the others one each waits, and of those
    that have some, none."""
    for n in range(10):
        moves(full, f"more{n}", (100 + n, 200 + n))
    assert len(full.running) == 20 and not full.waiting
    moves(full, "good", range(ELEVEN))
    assert list(full.waiting) == ["good/0"]
    moves(full, "third", range(ELEVEN))
    full.finish("evil/3")
    moves(full, "evil", (3, 30, 31))
    full.finish("evil/4")
    assert full.is_running("good/0") and full.is_running("third/0") and not audit(full)


def test_one_that_waits_for_a_broken_pod_is_not_the_first(full):
    """Its namespace has nothing under way: the next begins, and the parked one does not cost it its place."""
    full.set_fact("workload/good/Deployment/app0", "pod/good/other", 1)
    moves(full, "good", range(2))
    assert full.is_running("good/1") and list(full.waiting) == ["good/0"]
    full.finish("good/1")
    full.clear_fact("workload/good/Deployment/app0", "pod/good/other")
    assert full.is_running("good/0") and full.used("first/mix") == 1 and not audit(full)


class Namespaces(RuleBasedStateMachine):
    """Whatever comes and goes: a namespace that has nothing under way begins at once, unless as many others as there
    are places have begun beside the limit; and twice the limit is never exceeded."""

    def __init__(self):
        super().__init__()
        self.queue, self.number = Queue(queue_settings(Config())), 0
        self.queue.set_limit("mix", 3)

    @rule(namespace=sampled_from("abcdefgh"), count=integers(1, 4))
    def want(self, namespace, count):
        first = not any(op.id.startswith(namespace) for op in self.queue.operators())
        room = self.queue.used("first/mix") < 3
        numbers = range(self.number, self.number + count)
        self.number += count
        room &= not any(self.queue.facts(f"workload/{namespace}/Deployment/app{n}") for n in numbers)
        moves(self.queue, namespace, numbers)
        begun = any(op_id.startswith(namespace) for op_id in self.queue.running)
        assert begun or not (first and room)

    @rule(data=data())
    def end(self, data):
        if self.queue.running:
            self.queue.finish(data.draw(sampled_from(self.queue.running)))

    @rule(data=data())
    def go_on(self, data):
        if self.queue.running:
            self.queue.advance(data.draw(sampled_from(self.queue.running)), 1)

    @rule(app=integers(0, 9), namespace=sampled_from("ab"), amount=integers(0, 1))
    def breaks(self, app, namespace, amount):
        self.queue.set_fact(f"workload/{namespace}/Deployment/app{app}", "pod/other", amount)

    @rule(limit=sampled_from((1, 2)))
    def limited(self, limit):
        self.queue.set_limit("mix", limit)
        self.queue.set_limit("mix", 3)

    @invariant()
    def sound(self):
        assert not audit(self.queue)
        assert len(self.queue.running) <= 6


TestNamespaces = Namespaces.TestCase


def test_there_is_place_for_others_on_a_node(queue):
    """Five may leave one node at once, of one namespace four."""
    queue.set_limit("mix", 10)
    moves(queue, "evil", range(ELEVEN), node="n7")
    assert len(queue.running) == 4 and not queue.waiting
    moves(queue, "good", range(1), node="n7")
    assert queue.is_running("good/0")


def test_a_node_that_is_to_be_emptied_has_no_shares(queue):
    """What has no limit is nobody's: all of them leave."""
    moves(queue, "evil", range(1), node="n7")
    queue.set_limit("mix", 100)
    queue.set_limit("node/n7", None)
    moves(queue, "evil", range(1, ELEVEN), node="n7")
    assert len(queue.running) == ELEVEN and not audit(queue)
    queue.reset_limit("node/n7")
    assert queue.limit("share/node/n7/evil") == 16 and not audit(queue)


@pytest.mark.parametrize("deadline", [None, NOW])
def test_restarts_that_never_end_leave_the_node_to_others(queue, deadline):
    """Clusters of one namespace on one node, whose members never come back, and marks that say that it is urgent;
    another namespace restarts its own."""

    def restart(cluster):
        member = Pod(cluster.namespace, f"{cluster.name}-tikv-0", str(cluster), "1", PodShape(), node="n7")
        request = Request(key="key", value=DELETE_POD, deadline=deadline if cluster.namespace == "evil" else None)
        operator = restart_for(cluster, member, request, Store(1, ""), str(cluster))
        queue.submit(msgspec.structs.replace(operator, id=str(cluster)))

    for n in range(ELEVEN):
        restart(Key("evil", f"c{n}"))
    restart(Key("good", "demo"))
    assert queue.is_running("good/demo") and len(queue.running) == 5


def test_pods_of_one_namespace_on_a_retiring_machine_stop_no_other(queue):
    """One of them is blocked by its budget for an hour, and the others of its workload wait behind it."""

    def leave(namespace, count):
        world = World()
        owner = Workload(Kind.STATEFUL_SET, namespace, "db", f"{namespace}-db", "1", replicas=count)
        world.apply(Seen(Kind.STATEFUL_SET, owner))
        for n in range(count):
            mine = Owner("StatefulSet", "db", owner.uid)
            member = Pod(namespace, f"db-{n}", f"{namespace}-{n}", "1", PodShape(), owner=mine, node="n7")
            world.apply(Seen(Kind.POD, member))
        asked = Emptying(node="n7", source="fleet", reason=Reason.RETIRING, detail="retiring", since=NOW)
        for n, operator in enumerate(proposals(asked, world, NOW)):
            queue.submit(msgspec.structs.replace(operator, id=f"{namespace}/{n}"))

    leave("evil", 2 * ELEVEN)
    assert len(queue.running) == 1 and len(queue.waiting) == 10
    leave("good", 1)
    assert queue.is_running("good/0")
