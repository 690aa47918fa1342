"""Hours in which registry, people and crashes do anything at all; the rules hold throughout, and afterwards it is calm."""

import random
from collections.abc import Callable

import msgspec
import pytest

from mooring.capabilities.fleet.live import settings
from mooring.capabilities.fleet.planner import keys
from mooring.core.engine.invariants import broken
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring_lab.simulate.build import wrong_between
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.fleet import TEMPLATE, cordoned, marks_left, set_settings, stored
from tests.sim.scenarios.fleet import build_fleet, fleet_config

GOLD = TEMPLATE.replace("  control_plane: false\n", "  control_plane: false\n  labels: {tier: gold}\n")
TAINTS = (None, [{"key": "x.io/y", "effect": "NoSchedule"}], [{"key": keys.STATE_TAINT, "effect": "NoExecute"}])


class Anybody:
    """Does one thing at a time, drawn from a seed."""

    def __init__(self, rig: Rig, addresses: list[str], seed: int) -> None:
        self.rig, self.addresses, self.draw = rig, addresses, random.Random(seed)
        self.registry, self.store = rig.cluster.sabakan, rig.cluster.store
        self.hidden: dict[str, object] = {}
        things = (self.state, self.state, self.state, self.hide, self.show, self.limits, self.no_node, self.nodes_back)
        self.things: tuple[Callable[[], None], ...] = (*things, self.crash, self.taint, self.label, self.template)

    def act(self) -> None:
        self.draw.choice(self.things)()

    def _entry(self, **changed: object) -> None:
        serial = self.draw.choice(sorted(self.registry.entries))
        self.registry.entries[serial] = msgspec.structs.replace(self.registry.entries[serial], **changed)

    def state(self) -> None:
        self._entry(state=self.draw.choice(list(MachineState)), rack=self.draw.randrange(5))

    def hide(self) -> None:
        serial = self.draw.choice(sorted(self.registry.entries))
        self.hidden[serial] = self.registry.entries.pop(serial)

    def show(self) -> None:
        self.registry.entries |= self.hidden
        self.hidden.clear()

    def limits(self) -> None:
        least = self.draw.choice([0, 2, 6, 8])
        planes, most = self.draw.choice([2, 3, 3, 5]), self.draw.choice([0, 0, least, least + 2])
        text = f"control-plane-count: {planes}\nminimum-workers: {least}\nmaximum-workers: {most}\n"
        set_settings(self.rig, **{settings.CONSTRAINTS: text})

    def _node(self) -> str:
        return self.draw.choice(sorted(n["metadata"]["name"] for n in self.store.list(Kind.NODE)))

    def no_node(self) -> None:
        self.store.delete(Kind.NODE, "", self._node())

    def nodes_back(self) -> None:
        have = {n["metadata"]["name"] for n in self.store.list(Kind.NODE)}
        for address in self.addresses:
            if address not in have:
                self.rig.cluster.add_node(address)

    def crash(self) -> None:
        self.rig.kill()
        self.rig.start()

    def taint(self) -> None:
        self.store.patch(Kind.NODE, "", self._node(), {"spec": {"taints": self.draw.choice(TAINTS)}})

    def label(self) -> None:
        notes = {"mooring.dev/fleet": self.draw.choice([None, "{", "[]"])}
        labels = {keys.RACK: "99", keys.ZONE: None}
        self.store.patch(Kind.NODE, "", self._node(), {"metadata": {"labels": labels, "annotations": notes}})

    def template(self) -> None:
        set_settings(self.rig, **{settings.TEMPLATE: self.draw.choice([TEMPLATE, GOLD, "nodes: ["])})

    def as_cke_does(self) -> None:
        """A control plane that is in the stored cluster no more is deleted."""
        inside = {m.address for m in stored(self.rig).members}
        for node in self.store.list(Kind.NODE):
            if node["metadata"]["name"] not in inside and keys.MASTER_ROLE in node["metadata"]["labels"]:
                self.store.delete(Kind.NODE, "", node["metadata"]["name"])

    def calm_down(self) -> None:
        self.show()
        for serial, entry in self.registry.entries.items():
            self.registry.entries[serial] = msgspec.structs.replace(entry, state=MachineState.HEALTHY)
        self.nodes_back()
        for node in self.store.list(Kind.NODE):
            self.store.patch(Kind.NODE, "", node["metadata"]["name"], {"spec": {"taints": None}})
        limits = "control-plane-count: 3\nminimum-workers: 6\n"
        set_settings(self.rig, **{settings.TEMPLATE: TEMPLATE, settings.CONSTRAINTS: limits})


@pytest.mark.parametrize(("seed", "mode"), [(1, "gentle"), (2, "hold"), (3, "immediate")])
def test_whatever_happens_the_rules_hold_and_calm_returns(seed: int, mode: str):
    """F3, F5, F9, O1, O2, O5: one control plane a revision, no invariant broken, and in the end everybody in their assignments,
    no mark, no cordon, and not one write more."""
    rig = Rig(seed=seed, config=fleet_config(settle_timeout_s=300.0, retire_timeout_s=600.0, retire=mode))

    async def whole(rig: Rig) -> None:
        anybody = Anybody(rig, build_fleet(rig, machines=14, planes=3, workers=6), seed)
        rig.start()
        await rig.until(lambda: len(stored(rig).members) == 9)
        rig.cluster.deployment("shop", "web", 6)
        last = stored(rig)
        for _ in range(30):
            anybody.act()
            for _ in range(anybody.draw.choice([1, 3, 9])):
                await rig.sleep(7)
                assert wrong_between(last, last := stored(rig)) == []
                anybody.as_cke_does()
            leader = rig.leader()
            assert leader is None or broken(leader.engine) == []
        anybody.calm_down()
        for _ in range(75):
            await rig.sleep(60)
            anybody.as_cke_does()
            anybody.nodes_back()
        members = stored(rig).members
        assert sum(m.control_plane for m in members) == 3
        assert len(members) >= 9
        assert not [m for m in members if m.state_taint or m.leaving]
        assert not list(marks_left(rig)) and not rig.unsettled()
        assert not [m.address for m in members if cordoned(rig, m.address)]
        writes = len(rig.writes)
        await rig.sleep(1200)
        assert len(rig.writes) == writes

    rig.play(whole)
