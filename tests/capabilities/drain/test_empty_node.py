"""What a workload lacks is charged once, whoever took it away."""

import msgspec

from mooring.capabilities.drain.empty_node import Emptying, proposals, workload_facts
from mooring.core.model.cluster import Owner, Pod, PodShape, Workload
from mooring.core.model.events import Gone, Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.reasons import Reason
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World

TARGET = "workload/shop/StatefulSet/db"
NOW = 1000.0


def pod(number, *, uid="", ready=True, version="1"):
    return Pod(
        namespace="shop",
        name=f"db-{number}",
        uid=uid or f"uid-{number}",
        resource_version=version,
        shape=PodShape(labels={"app": "db"}),
        owner=Owner(Kind.STATEFUL_SET, "db", "set"),
        node="n1",
        phase="Running",
        ready=ready,
        ready_since=0.0 if ready else None,
    )


def environment():
    world, queue = World(), Queue(live_settings())
    queue.set_limit(TARGET, 3)
    world.apply(Seen(Kind.STATEFUL_SET, Workload(Kind.STATEFUL_SET, "shop", "db", "set", "1", replicas=5)))
    for number in range(5):
        world.apply(Seen(Kind.POD, pod(number)))
    return world, queue


def state(world, queue):
    for fact in workload_facts("n1", world, queue, NOW):
        queue.set_fact(fact.target, fact.subject, fact.amount, fact.detail)
    return queue.used(TARGET)


def evict(world, queue, number):
    (found,) = [p for p in world.pods_on("n1") if p.name == f"db-{number}"]
    asked = Emptying(node="n1", source="fleet", reason=Reason.RETIRING, detail="x", since=NOW)
    (operator,) = [o for o in proposals(asked, world, NOW) if o.subject.endswith(f"/db-{number}")]
    queue.submit(msgspec.structs.replace(operator, id=f"op-{number}"))
    assert queue.is_running(f"op-{number}")
    return found


def test_a_replica_that_we_took_away_is_charged_once():
    """One-queue: an object is charged once per target. Gone, then coming back not Ready: it is one absence throughout."""
    world, queue = environment()
    assert state(world, queue) == 0
    gone = evict(world, queue, 0)
    assert state(world, queue) == 1, "on its way"
    world.apply(Gone(Kind.POD, gone.key, gone.uid))
    assert state(world, queue) == 1, "gone"
    world.apply(Seen(Kind.POD, pod(0, uid="another", ready=False)))
    assert state(world, queue) == 1, "its successor is not Ready yet"


def test_a_replica_that_broke_by_itself_is_charged_beside_ours():
    """One-queue: what is already broken takes room; what we took away takes its own."""
    world, queue = environment()
    gone = evict(world, queue, 0)
    world.apply(Gone(Kind.POD, gone.key, gone.uid))
    world.apply(Seen(Kind.POD, pod(3, ready=False, version="2")))
    assert state(world, queue) == 2
