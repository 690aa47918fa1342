"""A new leader and the marks that tenants write: it decides soon, and others' moves are not charged for them."""

import msgspec
import pytest

from mooring.capabilities.drain.readiness import node_cost
from mooring.capabilities.handoff.capability import Handoff
from mooring.capabilities.handoff.operators import DELETING
from mooring.core.engine.engine import RECOVERY_S
from mooring.core.engine.events import Tick
from mooring.core.model.cluster import Pod, PodShape
from mooring.core.model.events import Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.marks import HANDOFF, Mark
from mooring.core.model.tidb import TidbCluster
from mooring.core.world.world import World
from mooring.process.assemble import queue_settings
from mooring.process.settings.config import Config
from tests.core.engine import test_hostile
from tests.core.engine.test_hostile import Wants, lead, move, settle


class Slow(Wants):
    """Needs a look at PDs that do not answer."""

    def __init__(self, *needs, **more):
        super().__init__(**more)
        self.needs = needs

    def recovery_needs(self, world):
        return self.needs


def at(engine, now):
    engine.handle(Tick(), now)
    settle(engine)
    return engine.deciding


def test_a_slow_pd_holds_a_new_leader_up_for_ten_seconds():
    """H4: one marked TidbCluster with a slow PD kept a new leader from deciding for 90 s, and spot notices of everybody
    with it."""
    slow = Slow("a look at evil/0", wanted={"key": [move("pod/good/b")]})
    engine = lead(slow)
    assert not engine.deciding and engine.next_wakeup() <= 100.0 + RECOVERY_S
    assert not at(engine, 100.0 + RECOVERY_S - 1)
    assert at(engine, 100.0 + RECOVERY_S)
    assert [record.operator.subject for record in engine.running.values()] == ["pod/good/b"]


def test_marks_that_come_later_hold_nobody_up():
    """H4: one more such cluster every 40 s kept it from deciding without end."""
    slow = Slow("a look at evil/0")
    engine = lead(slow)
    slow.needs = ("a look at evil/1",)
    assert at(engine, 101.0), "the PD of the first has answered; the second was marked after the lease was won"


def forged(number, node, uid="gone"):
    mark = Mark(
        operator=str(number), source="handoff", reason="r", step=DELETING, since=1.0, pod=f"evil/c-tikv-{number}",
        pod_uid=uid, node=node, store_id=1, value="delete-pod",
    )  # fmt: skip
    return msgspec.json.encode(mark).decode()


@pytest.mark.parametrize("exists", [False, True])
def test_a_pod_that_is_gone_charges_no_node(exists):
    """H5: ten forged marks of pods that do not exist charged `node/node-0` 40 of 20."""
    marks = "{" + ",".join(f'"c-tikv-{n}":{forged(n, "node-0", uid=f"u{n}")}' for n in range(10)) + "}"
    world = World()
    world.apply(Seen(Kind.TIDB_CLUSTER, TidbCluster("evil", "c", "u", "1", annotations={HANDOFF: marks})))
    if exists:
        world.apply(Seen(Kind.POD, Pod("evil", "c-tikv-0", "u0", "1", PodShape(), node="node-1")))
    found = [one for read in Handoff().recover(world, None, 1.0) for one in read()]
    assert len(found) == 20, "each of them is taken up: an eviction, and the restart that it was for"
    nodes = {target for one in found for phase in one.operator.phases for target in phase if "node/" in target}
    assert nodes == (set(node_cost("node-1", "evil")) if exists else set()), "where the pod is, not where the mark says"


def test_marks_charge_a_node_no_more_than_the_share_of_their_namespace(monkeypatch):
    """H5: whatever marks a tenant writes on pods of its own, a victim's move off the same node begins."""
    begun = [
        (msgspec.structs.replace(move(f"pod/evil/{n}", id_=str(n)), phases=({**node_cost("n0", "evil"), "a": 1},)), 0)
        for n in range(40)
    ]
    victim = msgspec.structs.replace(move("pod/good/b"), phases=(node_cost("n0", "good"),))
    monkeypatch.setattr(test_hostile, "live_settings", lambda: queue_settings(Config()))
    engine = lead(Wants(begun=begun, wanted={"key": [victim]}))
    assert len(engine.running) == 41
    assert engine.queue.used("node/n0") <= engine.queue.limit("node/n0")
    assert "pod/good/b" in {record.operator.subject for record in engine.running.values()}
