"""F13: cluster.yml is written from what is stored: nothing is stripped while the registry hides a machine or is silent."""

import json

from mooring.capabilities.fleet.live import ledger, settings
from mooring.capabilities.fleet.live.ledger import EMPTY, as_shown, decode_machines, encode_machines, read_ledger
from mooring.capabilities.fleet.live.release import write_released
from mooring.capabilities.fleet.live.settings import parse_settings
from mooring.capabilities.fleet.planner import keys
from mooring.capabilities.fleet.planner.current import parse_cluster
from mooring.capabilities.fleet.planner.labels import render_node
from mooring.core.model.cluster import ConfigMap
from mooring.core.model.kinds import Kind
from mooring.process.fleet.store import replacing_data
from mooring_lab.stage.rig import Rig
from mooring_lab.stage.scenarios.fleet import roles_by_address, serial_of, stored
from tests.capabilities.fleet.fleet_making import NOW, m, node, template, template_document
from tests.sim.scenarios.fleet import build_fleet, fleet_config

ROLES = template(node(role="cs"), node(role="ss", taints=[{"key": "role", "value": "storage", "effect": "NoSchedule"}]))


def test_ten_thousand_machines_fit_beside_the_decisions():
    """10,000 machines with labels take a fraction of what Kubernetes stores in one object, and come back the same."""
    machines = [m(n, rack=n % 40, role="ss", labels={"product": f"R{n % 3}"}) for n in range(10_000)]
    text = encode_machines(machines)
    assert len(text) < 300_000
    assert list(decode_machines(text).values()) == [as_shown(one) for one in machines]


def test_a_query_that_hides_most_workers_strips_nothing():
    """F13: while their removal is blocked the file has them with labels and taints, as before."""
    rig = Rig(seed=1, config=fleet_config())

    async def whole(rig: Rig) -> None:
        build_fleet(rig, machines=12, planes=1, workers=6)
        rig.start()
        await rig.until(lambda: len(stored(rig).members) == 7 and not rig.unsettled())
        before = released(rig)
        hidden = [a for a, role in roles_by_address(rig).items() if role == "worker"][:4]
        for address in hidden:
            del rig.cluster.sabakan.entries[serial_of(rig, address)]
        await rig.until(lambda: set(hidden) <= stored(rig).held, limit_s=200)
        after = released(rig)
        assert [after[a] for a in hidden] == [before[a] for a in hidden]
        assert all(after[a]["labels"][keys.RACK] for a in hidden)

    rig.play(whole)


def released(rig):
    data = rig.cluster.store.get(Kind.CONFIG_MAP, rig.config.namespace, settings.NAME)["data"]
    found = parse_settings(data)
    made = stored(rig)
    return {n["address"]: n for n in write_released(found.template, made.members, made.machines)["nodes"]}


def test_a_cluster_that_was_set_by_hand_keeps_its_nodes_as_they_were():
    """F13: adopted with a machine that the registry does not list, the file still has its rack, role and taints."""
    document = template_document(node(role="cs"), node(role="ss"))
    data = {settings.TEMPLATE: json.dumps(document)}
    made = parse_settings(data)
    machine = m(3, rack=7, role="ss", labels={"product": "R640"})
    nodes = [
        render_node(ROLES, m(1), control_plane=True, state_taint=None),
        render_node(ROLES, machine, control_plane=False, state_taint=None),
    ]
    current = parse_cluster({**document, "nodes": nodes})
    adopted = read_ledger(ConfigMap("own", ledger.NAME, "u", "1", data=replacing_data(current, made, EMPTY, NOW)))
    assert write_released(ROLES, adopted.members, adopted.machines)["nodes"] == nodes
