"""F15: the repair queue. Unhealthy machines have a configured command run once, within limits; who does not come back is
reported, and its place is not given to the next."""

import asyncio

import msgspec
import pytest

from mooring.capabilities.fleet.live.policy import RepairPolicy
from mooring.capabilities.fleet.live.repair import NAME, repairs
from mooring.clients.wire.kube import project
from mooring.core.model.cluster import Node, Owner, Pod, PodShape
from mooring.core.model.events import Gone, Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.process.fleet.repair import Repairer
from mooring_lab.cluster.cluster import Cluster
from tests.capabilities.fleet.fleet_making import NOW, address
from tests.capabilities.fleet.test_planning import Floor
from tests.process.test_fleet_export import Told

POLICY = RepairPolicy(command=("fix", "{serial}", "{address}"), after_s=0.0, back_within_s=600.0)


class Desk:
    """Five machines, four of them in the cluster (1 is its control plane), an API server, and a command."""

    def __init__(self):
        self.floor, self.told, self.leads, self.answer, self.ran = Floor(), Told(), True, (0, "ok"), []
        self.told.at = NOW
        self.world = self.floor.world
        cluster = Cluster(seed=1)
        cluster.store.create(Kind.NAMESPACE, {"metadata": {"name": "own"}})
        self.store = cluster.store
        self.repairer = Repairer(
            cluster.api.as_client("mooring"),
            self.told,
            self.world,
            self.told,
            namespace="own",
            policy=lambda: POLICY,
            leads=lambda: self.leads,
            gauge=lambda name, labels, value: self.told.gauges.__setitem__(labels["state"], value),
            run=self._run,
        )

    async def _run(self, argv, document, timeout_s):
        self.ran.append(argv)
        return self.answer

    def set(self, state, *numbers, since=NOW):
        changed = {address(n) for n in numbers}
        self.floor.machines = tuple(
            msgspec.structs.replace(m, state=MachineState(state), state_since=since) if m.address in changed else m
            for m in self.floor.machines
        )
        self.floor.see(self.floor.machines)

    def watch(self):
        """The watch brings what was written."""
        found = self.store.find(Kind.CONFIG_MAP, "own", NAME)
        if found is not None:
            self.world.apply(Seen(Kind.CONFIG_MAP, project(Kind.CONFIG_MAP, found)))

    def step(self, policy=POLICY):
        asyncio.run(self.repairer.step(policy))
        self.watch()

    def rows(self, policy=POLICY):
        return {r.serial: (r.state, r.why) for r in repairs(self.world, policy, "own", self.told.at).rows}

    def states(self, policy=POLICY):
        return {serial: state for serial, (state, _) in self.rows(policy).items()}


def test_an_unhealthy_machine_is_repaired_once_and_forgotten_when_it_is_healthy():
    """F15: not again while it stays unhealthy, whoever leads; again the next time it falls ill."""
    desk = Desk()
    desk.step()
    assert not desk.ran, "all are healthy"
    desk.set("UNHEALTHY", 2)
    desk.step()
    assert desk.ran == [["fix", "S2", address(2)]]
    assert desk.states() == {"S2": "watched"} and desk.told.events == [("repair", False)]
    desk.step()
    other = Desk()
    other.store, other.repairer._api, other.ran = desk.store, desk.repairer._api, desk.ran
    other.set("UNHEALTHY", 2)
    other.step()
    assert len(desk.ran) == 1, "a new leader that has not seen the record yet reads it first"
    desk.told.at = NOW + 100
    desk.set("HEALTHY", 2, since=NOW + 90)
    desk.step()
    assert desk.states() == {}
    desk.set("UNHEALTHY", 2, since=NOW + 200)
    desk.told.at = NOW + 300
    desk.step()
    assert len(desk.ran) == 2


def test_one_that_does_not_come_back_keeps_its_place():
    """F15: it is reported as failed, and the next one waits with the reason; so does one whose command failed."""
    desk = Desk()
    desk.set("UNHEALTHY", 2, 3)
    desk.step()
    assert desk.rows()["S3"] == ("queued", "1 of 1 under repair")
    desk.told.at = NOW + 700
    assert desk.rows()["S2"][0] == "failed" and "not healthy" in desk.rows()["S2"][1]
    desk.step()
    assert len(desk.ran) == 1
    assert desk.told.gauges == {"queued": 1.0, "running": 0.0, "watched": 0.0, "failed": 1.0}
    desk.set("HEALTHY", 2, since=NOW + 800)
    desk.answer = (3, "no BMC\x1b[0m")
    desk.told.at = NOW + 900
    desk.step()
    desk.step()
    assert [argv[1] for argv in desk.ran] == ["S2", "S3"]
    assert desk.rows()["S3"] == ("failed", "exit 3: no BMC?[0m")
    assert desk.told.events[-1] == ("failed", True)


@pytest.mark.parametrize(
    ("limits", "begun"),
    [
        ({"at_most": 3}, 2),
        ({"at_most": 1}, 1),
        ({"at_most": 3, "at_most_per_rack": 0, "at_most_per_role": 1}, 1),
    ],
)
def test_limits_hold_in_all_per_rack_and_per_role(limits, begun):
    """F15: at most N at once, per rack, per role; each machine here is in a rack of its own, and all have one role."""
    desk = Desk()
    desk.set("UNHEALTHY", 2, 3)
    policy = msgspec.structs.replace(POLICY, **limits)
    assert len(repairs(desk.world, policy, "own", NOW).due) == begun


def test_two_of_one_rack_are_not_repaired_at_once():
    """F15: a rack's limit."""
    desk = Desk()
    desk.floor.machines = tuple(msgspec.structs.replace(m, rack=0) for m in desk.floor.machines)
    desk.set("UNHEALTHY", 2, 3)
    found = repairs(desk.world, msgspec.structs.replace(POLICY, at_most=5), "own", NOW)
    assert [m.serial for m in found.due] == ["S2"]
    assert found.rows[1].why == "rack 0 has 1 of 1 under repair"


def test_nothing_is_repaired_in_doubt():
    """F15, first do no harm: the registry is silent, most machines fall ill at once, a control plane, a node that serves."""
    desk = Desk()
    desk.set("UNHEALTHY", 1)
    assert desk.states() == {}, "a control plane is replaced, not repaired"
    desk.set("UNHEALTHY", 2, 3, 4)
    assert "the registry is the likelier cause" in desk.rows()["S2"][1]
    desk.set("HEALTHY", 1, 3, 4)
    owner = Owner(Kind.STATEFUL_SET, "db", "set")
    pod = Pod("shop", "db-0", "u1", "1", PodShape(), owner, node=address(2), phase="Running", ready=True)
    desk.world.apply(Seen(Kind.POD, pod))
    assert desk.rows()["S2"] == ("queued", f"its node is Ready and has 1 pods: mooring drain {address(2)}")
    desk.world.apply(Seen(Kind.NODE, Node(address(2), "S2", "9", ready="Unknown")))
    assert len(repairs(desk.world, POLICY, "own", NOW).due) == 1, "silent by two witnesses"
    desk.world.apply(Gone(Kind.POD, pod.key, pod.uid))
    desk.world.note_machines_lost("no route", NOW)
    assert not repairs(desk.world, POLICY, "own", NOW).due


def test_a_leader_that_died_midway_does_not_have_it_run_again():
    """F15: written down before it begins; what nobody saw end has failed."""
    desk = Desk()

    async def dies(*_):
        raise asyncio.CancelledError

    desk.repairer._run = dies
    desk.set("UNHEALTHY", 2)
    with pytest.raises(asyncio.CancelledError):
        desk.step()
    desk.watch()
    assert desk.states() == {"S2": "running"}
    desk.told.at = NOW + 1000
    assert desk.rows()["S2"] == ("failed", "its end was not seen")
    assert not repairs(desk.world, POLICY, "own", desk.told.at).due
