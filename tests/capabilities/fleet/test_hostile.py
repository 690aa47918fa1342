"""What nobody plans for: successors that never come up, marks edited by hand, settings that break while machines leave."""

from typing import Any

import msgspec
import pytest

from mooring.capabilities.fleet.live import ledger, settings
from mooring.capabilities.fleet.live.policy import FleetPolicy
from mooring.capabilities.fleet.live.retire import may_try
from mooring.capabilities.fleet.planner import keys
from mooring.core.model.cluster import Node
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.core.model.marks import RETIRING, Mark, write_mark
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.fleet import (
    TEMPLATE,
    cordoned,
    marks_left,
    roles_by_address,
    serial_of,
    set_settings,
    set_state,
    stored,
)
from tests.sim.scenarios.fleet import RetireScenario, annotations_of, build_fleet, fleet_config


def play(then: Any, *, machines: int = 8, planes: int = 3, workers: int = 4, **policy: Any) -> None:
    rig = Rig(seed=1, config=fleet_config(**policy))

    async def whole(rig: Rig) -> None:
        addresses = build_fleet(rig, machines=machines, planes=planes, workers=workers)
        rig.start()
        await rig.until(lambda: len(stored(rig).members) == planes + workers)
        await rig.until(lambda: not rig.unsettled())
        await then(rig, addresses)

    rig.play(whole)


def of(rig: Rig, what: str) -> list[str]:
    return [a for a, assignment in roles_by_address(rig).items() if assignment == what]


class Bare(RetireScenario):
    """With a pod that only a person may delete."""

    async def also(self, rig: Rig) -> None:
        spec = {"nodeName": self.n7, "containers": [{"name": "c", "image": "i"}]}
        pod = {"metadata": {"namespace": "shop", "name": "bare"}, "spec": spec}
        rig.cluster.store.create(Kind.POD, pod)


async def leaving(scenario: Bare, rig: Rig) -> str:
    """The scenario up to where its machine is marked as retiring; the name of that node."""
    await scenario.build(rig)
    rig.start()
    await scenario.act(rig)
    await rig.until(lambda: RETIRING in annotations_of(rig, Kind.NODE, "", scenario.n7))
    return scenario.n7


def test_a_successor_that_never_comes_up_is_replaced_in_its_turn():
    """F5, O1: its change ends after the time that a change has to settle; until then nothing else is changed."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        planes = of(rig, "control plane")
        for spare in [a for a in addresses if a not in roles_by_address(rig)]:
            rig.cluster.store.delete(Kind.NODE, "", spare)
        set_state(rig, planes[0], MachineState.UNHEALTHY)
        await rig.until(lambda: planes[0] not in of(rig, "control plane"), limit_s=100)
        stillborn = next(iter(set(of(rig, "control plane")) - set(planes)))
        set_state(rig, stillborn, MachineState.UNREACHABLE)
        await rig.sleep(300)
        assert stillborn in of(rig, "control plane"), "it has its time"
        await rig.until(lambda: stillborn not in of(rig, "control plane"), limit_s=600)
        assert len(of(rig, "control plane")) == 3

    play(then, machines=12, settle_timeout_s=600.0)


@pytest.mark.parametrize("value", ["soon", "-3", "9" * 5000])
def test_a_mark_edited_by_hand_is_no_reason_to_stop(value: str):
    """O2: whatever somebody writes into the mark of a machine that was given up on, it is tried again within a day."""
    scenario = Bare(retire="hold", retire_timeout_s=60.0, retire_hold_s=60.0)
    rig = scenario.rig()

    async def whole(rig: Rig) -> None:
        await scenario.build(rig)
        rig.start()
        await scenario.act(rig)
        node = scenario.n7
        await rig.until(lambda: '"step":"blocked"' in annotations_of(rig, Kind.NODE, "", node).get(RETIRING, ""))
        mark = msgspec.json.decode(annotations_of(rig, Kind.NODE, "", node)[RETIRING])
        mark["value"] = value
        text = msgspec.json.encode(mark).decode()
        rig.cluster.store.patch(Kind.NODE, "", node, {"metadata": {"annotations": {RETIRING: text}}})
        rig.cluster.store.delete(Kind.POD, "shop", "bare")
        await rig.until(lambda: scenario.done(rig), limit_s=90_000, every_s=60)

    rig.play(whole)


@pytest.mark.parametrize("value", ["", "1", "40", "99999", "9" * 5000])
def test_a_machine_that_was_given_up_on_is_tried_again_within_a_day(value: str):
    """O2: however often that was, and whatever the mark says of it."""
    mark = Mark(operator="1", source="fleet", reason="retiring", step="blocked", since=1000.0, value=value)
    node = Node(name="n1", uid="u", resource_version="1", annotations={RETIRING: write_mark(mark)})
    assert 1060.0 <= may_try(node, FleetPolicy(retire_hold_s=60.0)) <= 1000.0 + 86_400.0


def test_settings_that_break_while_a_machine_leaves_undo_nothing():
    """F9, O2: whoever leads next knows no good settings; it waits for them, and what has begun stays as it is."""
    scenario = Bare()
    rig = scenario.rig()

    async def whole(rig: Rig) -> None:
        node = await leaving(scenario, rig)
        set_settings(rig, **{settings.TEMPLATE: "nodes: ["})
        await rig.sleep(5)
        rig.kill()
        rig.start()
        await rig.sleep(120)
        assert cordoned(rig, node)
        assert RETIRING in annotations_of(rig, Kind.NODE, "", node)
        set_settings(rig, **{settings.TEMPLATE: TEMPLATE})
        rig.cluster.store.delete(Kind.POD, "shop", "bare")
        await rig.until(lambda: scenario.done(rig), limit_s=600)

    rig.play(whole)


def test_a_single_control_plane_that_retires_stays_and_says_why():
    """F5: a single control plane is never replaced."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        (plane,) = of(rig, "control plane")
        set_state(rig, plane, MachineState.RETIRING)
        await rig.sleep(400)
        assert of(rig, "control plane") == [plane]
        before = len(rig.writes)
        await rig.sleep(600)
        assert len(rig.writes) == before, rig.writes[before:]
        leader = rig.leader()
        assert leader is not None
        said = leader.engine.verdicts[("fleet", "plan")]
        assert (said.state, said.reason) == ("blocked", "quorum")
        assert plane in said.detail

    play(then, machines=6, planes=1)


def test_a_change_that_is_asked_for_no_more_waits_no_more():
    """O1, F5: a machine that is healthy again is free: a change that still waits must not keep it from anything else."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        dead, bad = of(rig, "control plane")[:2]
        leader = rig.leader()
        assert leader is not None
        rig.cluster.kubelets.silence(dead)
        await rig.until(lambda: bool(leader.engine.queue.facts("control-plane")), limit_s=200)
        set_state(rig, bad, MachineState.UNHEALTHY)
        await rig.until(lambda: bool(leader.engine.waiting), limit_s=100)
        set_state(rig, bad, MachineState.HEALTHY)
        await rig.until(lambda: not leader.engine.waiting, limit_s=100)
        assert leader.engine.queue.holder(f"machine/{serial_of(rig, bad)}") is None

    play(then, machines=12)


def test_a_stored_cluster_that_is_deleted_is_not_made_up_anew():
    """F3: whoever deletes the ConfigMap deletes no control plane: a first generation that would lose one is refused."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        first = of(rig, "control plane")
        set_state(rig, first[0], MachineState.UNHEALTHY)
        await rig.until(lambda: first[0] not in of(rig, "control plane"), limit_s=300)
        await rig.until(lambda: not rig.unsettled() and not labelled(rig, first[0]), limit_s=300)
        planes = of(rig, "control plane")
        set_state(rig, first[0], MachineState.HEALTHY)
        await rig.until(lambda: all(labelled(rig, a) for a in planes), limit_s=300)
        rig.cluster.store.delete(Kind.CONFIG_MAP, rig.config.namespace, ledger.NAME)
        await rig.sleep(300)
        assert of(rig, "control plane") in ([], planes)
        leader = rig.leader()
        assert leader is not None
        said = leader.engine.verdicts[("fleet", "plan")]
        assert (said.state, said.reason) == ("blocked", "misconfigured")
        assert "set cluster" in said.detail

    play(then, machines=12)


def labelled(rig: Rig, address: str) -> bool:
    return keys.MASTER_ROLE in rig.cluster.store.get(Kind.NODE, "", address)["metadata"]["labels"]


@pytest.mark.parametrize(
    "rows", ["[1,'',-1,[]]", "[1,'',9,[]]", "[1,'',0,[['S','10.0.0.1','x','y']]]", "[]", "7", "zlib:e"]
)
def test_a_stored_cluster_edited_by_hand_is_left_alone(rows: str):
    """F9: what is not what we write is reported, nothing is decided from it, and it is used again once it is mended."""

    async def then(rig: Rig, addresses: list[str]) -> None:
        namespace = rig.config.namespace
        good = rig.cluster.store.get(Kind.CONFIG_MAP, namespace, ledger.NAME)["data"]["decisions"]
        before = roles_by_address(rig)
        data = {"data": {"decisions": rows.replace("'", '"')}}
        rig.cluster.store.patch(Kind.CONFIG_MAP, namespace, ledger.NAME, data)
        writes = len(rig.writes)
        await rig.sleep(200)
        assert len(rig.writes) == writes
        leader = rig.leader()
        assert leader is not None
        assert leader.engine.verdicts[("fleet", "plan")].reason == "misconfigured"
        rig.cluster.store.patch(Kind.CONFIG_MAP, namespace, ledger.NAME, {"data": {"decisions": good}})
        await rig.sleep(100)
        assert roles_by_address(rig) == before
        assert leader.engine.verdicts[("fleet", "plan")].reason == "done"

    play(then)


def test_a_machine_that_changes_its_address_while_it_leaves():
    """F5, O2: the old address is no machine any more: its node is let go visibly, and no mark stays."""
    scenario = Bare()
    rig = scenario.rig()

    async def whole(rig: Rig) -> None:
        node = await leaving(scenario, rig)
        serial = serial_of(rig, node)
        entry = rig.cluster.sabakan.entries[serial]
        rig.cluster.sabakan.entries[serial] = msgspec.structs.replace(entry, ipv4=("10.69.9.9",))
        await rig.until(lambda: node not in roles_by_address(rig), limit_s=400)
        await rig.until(lambda: not list(marks_left(rig)) and not rig.unsettled(), limit_s=400)
        assert "10.69.9.9" not in roles_by_address(rig), "it retires: it is not taken in under its new address"

    rig.play(whole)
