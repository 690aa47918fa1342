"""A compromised node: what its kubelet may write on its own Node makes us undo nothing that it may not undo itself."""

from typing import Any

import msgspec
import pytest

from mooring.capabilities.fleet.live.index import claimed_twice, live_nodes
from mooring.capabilities.fleet.live.node_metadata import APPLIED, SEAL, Upkeep, bring_up_to_date
from mooring.capabilities.fleet.live.retire import EMPTIED
from mooring.core.model.cluster import Node, Taint
from mooring.core.model.events import Seen
from mooring.core.model.instructions import Patch
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.core.model.marks import RETIRING, Mark, write_mark
from mooring.core.world.world import World
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.fleet import pods_on, roles_by_address, serial_of, set_state, stored, taints_of
from tests.capabilities.fleet.test_hostile import Bare, leaving, play

GUARDED = "node-restriction.kubernetes.io/pci"
WANTED = {"labels": {"team": "a"}, "annotations": {}, "taints": []}


def test_a_record_that_a_kubelet_wrote_strips_nothing():
    """mooring.dev/fleet: forged, it names a guarded label and a taint; both stay, and the record is written anew."""
    forged = f'{{"labels":["{GUARDED}"],"taints":["dedicated:NoSchedule"]}}'
    node = Node(
        "n1", "u", "1", {GUARDED: "yes", "team": "a"}, taints=(Taint("dedicated", "NoSchedule", ""),),
        annotations={APPLIED: forged},
    )  # fmt: skip
    write = bring_up_to_date(node, WANTED, tuple).write
    assert isinstance(write, Patch)
    metadata = write.patch["metadata"]
    assert set(metadata["labels"]) == {SEAL}
    labels, annotations = {**node.labels, **metadata["labels"]}, metadata["annotations"]
    settled = msgspec.structs.replace(node, labels=labels, annotations=annotations)
    assert bring_up_to_date(settled, WANTED, tuple) == Upkeep(may_cut_off=None), "the taint stays"
    # What we sealed is taken away again when the template no longer has it.
    write = bring_up_to_date(settled, {**WANTED, "labels": {}}, tuple).write
    assert write.patch["metadata"] == {"labels": {"team": None, SEAL: None}, "annotations": {APPLIED: None}}


def poses_as(rig: Rig, posing: str, retiring: str, **mark: Any) -> None:
    """What a kubelet may write on its own Node: a mark that says that it is another's, which it has emptied."""
    forged = Mark(
        operator="7",
        source="fleet",
        reason="retiring",
        step=EMPTIED,
        since=rig.cluster.timeline.now(),
        node=retiring,
        machine=serial_of(rig, retiring),
        **mark,
    )
    rig.cluster.annotate(Kind.NODE, "", posing, {RETIRING: write_mark(forged)})


@pytest.mark.parametrize("address", [False, True], ids=["mark", "mark and address"])
def test_no_node_poses_as_a_machine_that_is_being_emptied(address):
    """A kubelet says on its own Node that this machine is empty, and a new leader reads it (and that its address is the
    other's): the other's pods are neither cut off nor forgotten."""
    scenario = Bare(retire_hold_s=3600.0)
    rig = scenario.rig()

    async def whole(rig: Rig) -> None:
        victim = await leaving(scenario, rig)
        await rig.until(lambda: "bare" in pods_on(rig, victim) and len(pods_on(rig, victim)) <= 2)
        posing = next(a for a, what in roles_by_address(rig).items() if what == "worker" and a != victim)
        poses_as(rig, posing, victim)
        if address:
            claimed = [{"type": "InternalIP", "address": victim}]
            rig.cluster.store.patch(Kind.NODE, "", posing, {"status": {"addresses": claimed}}, status=True)
        rig.kill()
        rig.start("second")
        await rig.sleep(300.0)
        assert not any(taint.endswith("NoExecute") for taint in taints_of(rig, victim).values())
        assert stored(rig).find(victim).state_taint is None and "bare" in pods_on(rig, victim)

    rig.play(whole)


def test_an_address_that_two_nodes_have_names_neither():
    """Nodes with names of their own, known by their InternalIP, which a kubelet writes: a retiring machine would look
    empty. Nothing is done until it is clear which is which."""
    world = World()
    for name, address in (("a", "10.0.0.1"), ("b", "10.0.0.1"), ("c", "10.0.0.3"), ("10.0.0.4", "10.0.0.3")):
        world.apply(Seen(Kind.NODE, Node(name, f"{name}-uid", "1", internal_ip=address)))
    addresses = {"10.0.0.1", "10.0.0.3", "10.0.0.4"}
    assert {a: n.name for a, n in live_nodes(world, addresses).items()} == {"10.0.0.3": "c", "10.0.0.4": "10.0.0.4"}
    assert claimed_twice(world, addresses) == "10.0.0.1 is the address of a, b"


def test_fleet_does_nothing_while_two_nodes_have_one_address():
    """The machine is set to retiring and its node is hidden behind another's claim: it is not cordoned, not stored as
    empty, and the plan says why."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        victim, posing = (a for a, what in list(roles_by_address(rig).items())[-2:])
        for name in (victim, posing):
            rig.cluster.store.delete(Kind.NODE, "", name)
            rig.cluster.add_node(f"host-{name}")
            claimed = [{"type": "InternalIP", "address": victim}]
            rig.cluster.store.patch(Kind.NODE, "", f"host-{name}", {"status": {"addresses": claimed}}, status=True)
        set_state(rig, victim, MachineState.RETIRING)
        await rig.sleep(600.0)
        leader = rig.leader()
        assert leader is not None and stored(rig).find(victim).state_taint is None
        said = leader.engine.verdicts[("fleet", "plan")]
        assert (said.state, said.detail) == ("blocked", f"{victim} is the address of host-{victim}, host-{posing}")

    play(then)
