"""One tenant wants more than there is: the others get theirs all the same."""

import msgspec
import pytest

from mooring.capabilities.handoff.operators import eviction_operator
from mooring.capabilities.home.capability import Home
from mooring.core.model.cluster import Key
from mooring.core.model.events import Seen
from mooring.core.model.kinds import Kind
from mooring.core.queue import Queue
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
        cluster, f"{cluster.name}-tikv-{ordinal}", "uid", ordinal + 1, "none", "key", "", id_=f"{cluster}/{ordinal}"
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
    world = stage({}, namespace, [f"{namespace}-n{n}" for n in range(count)])
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
