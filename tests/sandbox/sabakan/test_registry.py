"""Machines through their lives, and the search that finds them."""

import asyncio
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.clients.ports import RefusedError, UnansweredError
from mooring.clients.registry.sabakan.parse import parse_machines
from mooring.core.model.machine import MachineState as S
from mooring_lab.cluster.clock import Timeline
from mooring_lab.cluster.sabakan import ForbiddenError, SandboxSabakan
from mooring_lab.cluster.sabakan.http import execute, machine_json
from mooring_lab.cluster.sabakan.registry import Ipam

DAY = 86400.0
QUERY = """query ckeSearch($having: MachineParams, $notHaving: MachineParams) {
  searchMachines(having: $having, notHaving: $notHaving) {
    spec { serial labels { name value } rack indexInRack role ipv4 registerDate retireDate bmc { bmcType ipv4 } }
    status { state timestamp duration }
  }
}"""


def fleet():
    timeline = Timeline()
    registry = SandboxSabakan(timeline, ipam=Ipam())
    roles = ("boot", "cs", "cs", "ss")
    for i in range(12):
        labels = {"product": ("R640", "R740")[i % 2]} | ({"dc": "one"} if i % 3 else {})
        retire = timeline.now() + (i - 3) * 50 * DAY
        registry.register(f"m{i:02}", rack=i // 4, role=roles[i % 4], labels=labels, retire_at=retire)
        timeline.run_for(10)
    for i, state in enumerate((S.HEALTHY, S.HEALTHY, S.UNREACHABLE, S.RETIRING)):
        if state == S.UNREACHABLE:
            registry.set_state(f"m{i:02}", S.HEALTHY)
        registry.set_state(f"m{i:02}", state)
    return registry


def test_life_of_a_machine():
    """A machine goes from uninitialized to retired by the permitted steps only. (The recorded walk removes one.)"""
    registry = SandboxSabakan(Timeline(), ipam=Ipam())
    registry.register("a", role="cs")
    with pytest.raises(ForbiddenError, match=r"transition from \[ uninitialized \] to \[ updating \] is forbidden"):
        registry.set_state("a", S.UPDATING)
    for state in (S.HEALTHY, S.UNHEALTHY, S.UNREACHABLE, S.UPDATING, S.UNINITIALIZED, S.HEALTHY, S.RETIRING):
        registry.set_state("a", state)
    registry.set_state("a", S.RETIRED)
    with pytest.raises(ForbiddenError, match=r"transition from \[ retired \] to \[ healthy \] is forbidden"):
        registry.set_state("a", S.HEALTHY)


def test_state_begins_when_it_is_set():
    """The same state set again does not begin anew."""
    timeline = Timeline()
    registry = SandboxSabakan(timeline, ipam=Ipam())
    registry.register("a")
    timeline.run_for(5)
    registry.set_state("a", S.HEALTHY)
    began = timeline.now()
    timeline.run_for(5)
    registry.set_state("a", S.HEALTHY)
    assert registry.entry("a").state_since == began


def test_addresses_by_rack_and_place():
    """The boot server has the first place of its rack, the others follow; a full rack takes no more."""
    registry = SandboxSabakan(Timeline(), ipam=Ipam(max_nodes_in_rack=2))
    boot, first = registry.register("b", rack=1, role="boot"), registry.register("w1", rack=1)
    assert (boot.index_in_rack, boot.ipv4[0], boot.bmc_ipv4) == (3, "10.69.0.195", "10.72.17.35")
    assert (first.index_in_rack, first.ipv4) == (4, ("10.69.0.196", "10.69.1.4", "10.69.1.68"))
    registry.register("w2", rack=1)
    with pytest.raises(ForbiddenError, match="no node index"):
        registry.register("w3", rack=1)


def test_the_port_and_the_wire_say_the_same():
    """In process and as JSON through the strict parser, the same machines come out."""
    registry = fleet()
    import msgspec

    status, answer = execute(registry, QUERY, {"having": None, "notHaving": {"roles": ["boot"]}})
    assert status == 200
    parsed = parse_machines(msgspec.json.encode(answer), received_at=registry.timeline.now())
    direct = asyncio.run(registry.machines({"notHaving": {"roles": ["boot"]}}))
    assert [(m.serial, m.address, m.state, m.rack, m.role, dict(m.labels)) for m in parsed] == [
        (m.serial, m.address, m.state, m.rack, m.role, dict(m.labels)) for m in direct
    ]
    assert [m.retire_at for m in parsed] == pytest.approx([m.retire_at for m in direct], abs=1e-3)
    assert [m.state_since for m in parsed] == pytest.approx([m.state_since for m in direct], abs=1e-3)


def test_misspelt_search_is_refused_and_silence_is_silence():
    """A wish that is not understood finds nothing rather than everything; a registry that is away does not answer."""
    registry = fleet()
    with pytest.raises(RefusedError, match="BOGUS"):
        asyncio.run(registry.machines({"having": {"states": ["BOGUS"]}}))
    with pytest.raises(RefusedError, match="unknown field"):
        asyncio.run(registry.machines({"having": {"state": ["HEALTHY"]}}))
    registry.go_dark()
    with pytest.raises(UnansweredError):
        asyncio.run(registry.machines())


params = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "labels": st.lists(
            st.sampled_from([{"name": "product", "value": "R640"}, {"name": "dc", "value": "one"}]), max_size=2
        ),
        "racks": st.lists(st.integers(0, 3), max_size=2),
        "roles": st.lists(st.sampled_from(["boot", "cs", "ss", "none"]), max_size=2),
        "states": st.lists(st.sampled_from(["HEALTHY", "RETIRING", "UNREACHABLE", "NEVER"]), max_size=2),
        "minDaysBeforeRetire": st.integers(-200, 600),
    },
)


def wanted(machine, having, not_having, now):
    """The rule, written down once more."""
    spec, status = machine["spec"], machine["status"]
    days = int((datetime.fromisoformat(spec["retireDate"]).timestamp() - now) / DAY)
    has = {
        "labels": lambda v: [x in spec["labels"] for x in v],
        "racks": lambda v: [spec["rack"] in v] if v else [],
        "roles": lambda v: [spec["role"] in v] if v else [],
        "states": lambda v: [status["state"] in v] if v else [],
        "minDaysBeforeRetire": lambda v: [v <= days],
    }
    yes = all(all(has[k](v)) for k, v in (having or {}).items())
    return yes and not any(any(has[k](v)) for k, v in (not_having or {}).items())


@settings(max_examples=60, deadline=None)
@given(params, params)
def test_search_finds_what_the_rule_says(having, not_having):
    """The search finds what the rule, written down again, finds; a state that is none is refused."""
    registry = fleet()
    everything = [machine_json(e, registry) for _, e in sorted(registry.entries.items())]
    status, answer = execute(registry, QUERY, {"having": having, "notHaving": not_having})
    if any("NEVER" in (side or {}).get("states", ()) for side in (having, not_having)):
        assert status == 422 and answer["data"] is None
        return
    now = registry.timeline.now()
    found = [m for m in everything if wanted(m, having, not_having, now)]
    assert status == 200 and answer["data"] == {"searchMachines": found}


def test_unknown_fields_and_other_calls():
    """A field that is not there is refused by its name; a mutation needs the word."""
    registry = fleet()
    status, answer = execute(registry, "{ searchMachines { spec { nope } } }", {})
    assert status == 422 and answer["errors"][0]["message"] == 'Cannot query field "nope" on type "MachineSpec".'
    assert execute(registry, "{ searchMachines { spec } }", {})[0] == 422
    assert execute(registry, '{ setMachineState(serial: "m00", state: HEALTHY) { state } }', {})[0] == 422
