"""A minute without news: the pass is not made again, and whatever is news makes it again."""

import json

import msgspec
import pytest

from mooring.capabilities.fleet.live import ledger, settings
from mooring.capabilities.fleet.live.capability import PLAN, Fleet
from mooring.core.model.cluster import ConfigMap, Node
from mooring.core.model.events import Listed, MachinesSeen, Seen
from mooring.core.model.kinds import Kind
from mooring.core.model.machine import MachineState
from mooring.core.queue import Queue, live_settings
from mooring.core.world.world import World
from tests.capabilities.fleet.fleet_making import NOW, m, template_document


class Floor:
    """A world in which everybody sits where the plan wants them."""

    def __init__(self):
        self.world, self.queue, self.fleet = World(), Queue(live_settings()), Fleet(namespace="own")
        self.notes = None
        for index in self.fleet.indexes():
            self.world.register(index)
        self.set("1", minimum=3)
        self.machines = tuple(m(n, rack=n) for n in range(1, 6))
        nodes = tuple(Node(x.address, x.serial, "1", ready="True") for x in self.machines)
        self.take(Listed(Kind.NODE, nodes))
        self.see(self.machines)
        (write,) = self.evaluate().instructions
        self.take(Seen(Kind.CONFIG_MAP, ConfigMap("own", ledger.NAME, "u2", "2", data=write.object["data"])))
        settled = [i for i in self.evaluate().instructions if i.kind is Kind.CONFIG_MAP]
        if settled:
            data = {**write.object["data"], **settled[0].patch["data"]}
            self.take(Seen(Kind.CONFIG_MAP, ConfigMap("own", ledger.NAME, "u2", "3", data=data)))
        self.quiet = self.evaluate()

    def set(self, version, minimum):
        data = {
            settings.TEMPLATE: json.dumps(template_document()),
            settings.CONSTRAINTS: f"control-plane-count: 1\nminimum-workers: {minimum}\n",
            settings.ENABLED: "true",
            settings.URL: "http://registry.example:10080",
        }
        self.take(Seen(Kind.CONFIG_MAP, ConfigMap("own", settings.NAME, "u1", version, data=data)))

    def take(self, event):
        self.world.apply(event)

    def see(self, machines):
        self.world.note_machines(machines, NOW)
        self.world.show(MachinesSeen(machines, NOW))

    def evaluate(self, at=NOW):
        answer = self.fleet.evaluate(PLAN, self.world, self.queue, self.notes, at)
        self.notes = answer.notes
        return answer


def test_without_news_the_answer_is_the_last_one():
    """Cost grows with the change: a minute without news makes no pass, and the clock of the report goes on."""
    floor = Floor()
    assert not floor.quiet.instructions and not floor.quiet.proposals
    floor.see(floor.machines)
    again = floor.evaluate(NOW + 60)
    assert again.facts is floor.quiet.facts and again.verdict is floor.quiet.verdict
    assert floor.notes.report.at == NOW + 60 and floor.notes.report.successful


def test_after_some_minutes_it_is_made_all_the_same():
    """Level, not edge: an event that got lost costs minutes, never truth."""
    floor = Floor()
    floor.evaluate(NOW + 3600)
    assert floor.evaluate(NOW + 3600).verdict is not floor.quiet.verdict


@pytest.mark.parametrize("what", ["machine", "node", "settings"])
def test_news_is_looked_at(what):
    """F9: a machine's state, a control plane that is not Ready, a constraint: each ends the quiet at once."""
    floor = Floor()
    if what == "machine":
        worker = next(x for x in stored(floor) if not x.control_plane)
        floor.see(
            tuple(
                msgspec.structs.replace(x, state=MachineState.RETIRING) if x.address == worker.address else x
                for x in floor.machines
            )
        )
        assert floor.evaluate().instructions
    elif what == "node":
        plane = next(x for x in stored(floor) if x.control_plane)
        floor.take(Seen(Kind.NODE, Node(plane.address, plane.serial, "2", ready="False")))
        assert [f.target for f in floor.evaluate().facts] == ["control-plane"]
    else:
        floor.set("9", minimum=4)
        assert floor.evaluate().instructions


def stored(floor):
    return ledger.read_ledger(floor.world.config_map(ledger.key("own"))).members
